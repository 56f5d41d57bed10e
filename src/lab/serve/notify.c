/* SPDX-License-Identifier: Apache-2.0 */
/* What sd_notify(3) does for a service of Type=notify, which is one datagram. */
#define VB_LOG_ROOM "serve"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/serve/serve.h"

void vb_serve_notify(const char *what)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	/* Who does not read what he is told holds nobody up. */
	const struct timeval patience = {.tv_sec = 1};
	socklen_t bytes;
	int fd;

	if (path == NULL || *path == '\0')
		return;
	if ((*path != '/' && *path != '@') || strlen(path) >= sizeof(to.sun_path)) {
		vb_warn("NOTIFY_SOCKET=%s is no socket's name: nobody is told", path);
		return;
	}
	memcpy(to.sun_path, path, strlen(path));
	if (*path == '@')
		to.sun_path[0] = '\0'; /* an abstract one */
	bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) != 0 ||
	    sendto(fd, what, strlen(what), MSG_NOSIGNAL, (const struct sockaddr *)&to, bytes) !=
		    (ssize_t)strlen(what))
		vb_warn("the service manager at %s cannot be told %s: %s", path, what,
			strerror(errno));
	if (fd >= 0)
		close(fd);
}
