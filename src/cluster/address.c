/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: parsing, looking up, which are this machine's, listening. */
#define VB_LOG_ROOM "cluster"
#include "cluster/inner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define BACKLOG 128
#define LOWAT   131072 /* bytes that wait in the kernel: what is sent next is not far behind */

static int parse_port(const char *text, const char *whole, uint16_t *port)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end != '\0' || strlen(text) > 5 || v > 65535)
		return vb_fail(-EINVAL, "address '%s': '%s' is no port, 0 to 65535 are", whole,
			       text);
	*port = (uint16_t)v;
	return 0;
}

int address_split(const char *text, uint16_t port_if_none, char host[CL_HOST], uint16_t *port)
{
	const char *colon = strrchr(text, ':'), *begin = text, *end;

	if (text[0] == '[') {
		begin = text + 1;
		end = strchr(begin, ']');
		if (end == NULL || (end[1] != '\0' && end[1] != ':'))
			return vb_fail(-EINVAL,
				       "address '%s': after '[' an IPv6 address, ']' and "
				       ":PORT are expected",
				       text);
		colon = end[1] == ':' ? end + 1 : NULL;
	} else if (colon != NULL && strchr(text, ':') != colon) {
		return vb_fail(-EINVAL,
			       "address '%s': an IPv6 address is written in brackets, "
			       "[%s]:PORT",
			       text, text);
	} else {
		end = colon != NULL ? colon : text + strlen(text);
	}
	if (end == begin || end - begin >= CL_HOST)
		return vb_fail(-EINVAL, "address '%s': HOST:PORT is expected", text);
	*port = port_if_none;
	if (colon != NULL && parse_port(colon + 1, text, port) != 0)
		return -EINVAL;
	memcpy(host, begin, (size_t)(end - begin));
	host[end - begin] = '\0';
	return 0;
}

int address_find(const char *host, uint16_t port, struct cluster_addr *out, unsigned *n)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
	char service[8];
	int err;

	snprintf(service, sizeof(service), "%u", port);
	err = getaddrinfo(host, service, &hints, &list);
	if (err != 0)
		return vb_fail(-EINVAL, "host '%s': %s", host,
			       err == EAI_SYSTEM ? strerror(errno) : gai_strerror(err));
	*n = 0;
	for (struct addrinfo *a = list; a != NULL && *n < CL_ADDRS; a = a->ai_next) {
		if (a->ai_family != AF_INET && a->ai_family != AF_INET6)
			continue;
		memcpy(&out[*n].sa, a->ai_addr, a->ai_addrlen);
		out[(*n)++].len = a->ai_addrlen;
	}
	freeaddrinfo(list);
	return *n > 0 ? 0 : vb_fail(-EINVAL, "host '%s' has no internet address", host);
}

bool address_is_loopback(const struct cluster_addr *a)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a->sa;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->sa;

	if (a->sa.ss_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	return a->sa.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static bool same_address(const struct cluster_addr *a, const struct sockaddr *b)
{
	if (b == NULL || a->sa.ss_family != b->sa_family)
		return false;
	if (b->sa_family == AF_INET)
		return ((const struct sockaddr_in *)&a->sa)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return b->sa_family == AF_INET6 &&
	       memcmp(&((const struct sockaddr_in6 *)&a->sa)->sin6_addr,
		      &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

bool address_is_ours(const struct cluster_addr *a)
{
	struct ifaddrs *list;
	bool found = address_is_loopback(a);

	if (found || getifaddrs(&list) != 0)
		return found;
	for (struct ifaddrs *i = list; i != NULL && !found; i = i->ifa_next)
		found = same_address(a, i->ifa_addr);
	freeifaddrs(list);
	return found;
}

void address_say(const struct cluster_addr *a, char *to, size_t size)
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (a->sa.ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a->sa;

		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		snprintf(to, size, "%s:%u", host, ntohs(v4->sin_port));
	} else {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->sa;

		inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
		snprintf(to, size, "[%s]:%u", host, ntohs(v6->sin6_port));
	}
}

/* The address of an interface, IPv4 if it has one; false: there is no such interface. */
static bool interface_address(const char *name, char *to, socklen_t size)
{
	struct ifaddrs *list;
	bool found = false;

	if (if_nametoindex(name) == 0 || getifaddrs(&list) != 0)
		return false;
	for (struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
		const struct sockaddr *a = i->ifa_addr;

		if (a == NULL || strcmp(i->ifa_name, name) != 0)
			continue;
		if (a->sa_family == AF_INET &&
		    inet_ntop(AF_INET, &((const struct sockaddr_in *)a)->sin_addr, to, size)) {
			found = true;
			break;
		}
		if (a->sa_family == AF_INET6 && !found &&
		    !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)a)->sin6_addr))
			found = inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)a)->sin6_addr,
					  to, size) != NULL;
	}
	freeifaddrs(list);
	return found;
}

int address_of_bind(const char *bind, char **out)
{
	struct cluster_addr addrs[CL_ADDRS];
	char text[INET6_ADDRSTRLEN];
	unsigned n;
	const char *use = bind != NULL ? bind : "127.0.0.1";

	if (interface_address(use, text, sizeof(text)))
		use = text;
	if (address_find(use, 0, addrs, &n) != 0)
		return -EINVAL;
	if (!address_is_ours(&addrs[0]))
		return vb_fail(-EINVAL, "'%s' is no address and no interface of this machine", use);
	*out = strdup(use);
	return *out != NULL ? 0 : vb_fail(-ENOMEM, "no memory for an address");
}

int address_listen(const struct cluster_addr *a, uint16_t *port)
{
	struct cluster_addr bound = {.len = sizeof(bound.sa)};
	int one = 1, err;
	int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	/* Connections of a run that has just ended do not stand in the way. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
	    (a->sa.ss_family == AF_INET6 &&
	     setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) != 0) ||
	    bind(fd, (const struct sockaddr *)&a->sa, a->len) != 0 || listen(fd, BACKLOG) != 0 ||
	    getsockname(fd, (struct sockaddr *)&bound.sa, &bound.len) != 0) {
		err = -errno;
		close(fd);
		return err;
	}
	*port = ntohs(bound.sa.ss_family == AF_INET
			      ? ((const struct sockaddr_in *)&bound.sa)->sin_port
			      : ((const struct sockaddr_in6 *)&bound.sa)->sin6_port);
	return fd;
}

/* Options that a kernel lacks make the end of a dead machine come later, and nothing else. */
void address_tune(int fd, uint64_t silence_ns)
{
	int one = 1, lowat = LOWAT, seconds = (int)(silence_ns / 1000000000ull);
	uint64_t ms = silence_ns / 1000000 * CL_DEAD_SILENCES;
	unsigned user_timeout = ms < INT32_MAX ? (unsigned)ms : INT32_MAX;

	seconds = seconds < 1 ? 1 : seconds > 3600 ? 3600 : seconds;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof(lowat));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, sizeof(user_timeout));
}
