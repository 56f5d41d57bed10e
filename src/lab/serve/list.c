/* SPDX-License-Identifier: Apache-2.0 */
/* The servers of a cluster by the names that its users have given them; what an address is, and that it is one,
 * the fabric says (fabric/tcp/elastic.c). */
#define VB_LOG_ROOM "serve"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "lab/serve/serve.h"

static int add(struct vb_serve_list *l, const char *text, size_t bytes)
{
	while (bytes > 0 && isspace((unsigned char)*text)) {
		text++;
		bytes--;
	}
	while (bytes > 0 && isspace((unsigned char)text[bytes - 1]))
		bytes--;
	if (bytes == 0)
		return 0;
	if (bytes >= VB_SERVE_NAME)
		return vb_fail(-EINVAL, "--servers: an address of %zu characters", bytes);
	if (l->n == VB_SERVE_SERVERS)
		return vb_fail(-EINVAL, "--servers: more than %d servers", VB_SERVE_SERVERS);
	snprintf(l->name[l->n++], VB_SERVE_NAME, "%.*s", (int)bytes, text);
	return 0;
}

static int read_file(struct vb_serve_list *l, const char *path)
{
	char line[VB_SERVE_NAME];
	FILE *f = fopen(path, "re");
	bool more = false; /* of a line whose comment goes on */
	int err = 0;

	if (f == NULL)
		return vb_fail(-EINVAL, "--servers: the file %s: %s", path, strerror(errno));
	while (err == 0 && fgets(line, sizeof(line), f) != NULL) {
		size_t n = strcspn(line, "#\r\n");
		bool ends = strchr(line, '\n') != NULL || feof(f);

		if (!more && !ends && line[n] == '\0')
			err = vb_fail(-EINVAL,
				      "--servers: the file %s has a line that is longer than any "
				      "address",
				      path);
		else if (!more)
			err = add(l, line, n);
		more = !ends;
	}
	if (err == 0 && ferror(f))
		err = vb_fail(-EINVAL, "--servers: the file %s cannot be read", path);
	fclose(f);
	return err;
}

int vb_serve_list_read(struct vb_serve_list *l, const char *text)
{
	int err = 0;

	l->n = 0;
	if (text == NULL)
		return vb_fail(-EINVAL,
			       "which servers are there? --servers HOST:PORT+HOST:PORT..., or a "
			       "file with a line for each (with a / in its name)");
	if (strchr(text, '/') != NULL)
		err = read_file(l, text);
	else
		for (size_t n; err == 0 && *text != '\0'; text += n + (text[n] == '+')) {
			n = strcspn(text, "+");
			err = add(l, text, n);
		}
	if (err == 0 && l->n == 0)
		err = vb_fail(-EINVAL, "--servers names no server");
	return err;
}

int vb_serve_list_find(const struct vb_serve_list *l, const char *as)
{
	uint64_t number;

	if (as == NULL && l->n == 1)
		return 1;
	if (as == NULL)
		return vb_fail(-EINVAL,
			       "which of the %u servers is this? --as says it: 1 to %u, or its "
			       "HOST:PORT as --servers has it",
			       l->n, l->n);
	if (strchr(as, ':') == NULL && vb_parse_size(as, &number) == 0) {
		if (number >= 1 && number <= l->n)
			return (int)number;
		return vb_fail(-EINVAL, "--as %s: there are servers 1 to %u", as, l->n);
	}
	for (unsigned i = 0; i < l->n; i++)
		if (strcmp(l->name[i], as) == 0)
			return (int)i + 1;
	return vb_fail(-EINVAL,
		       "--as %s: no server of --servers has that name; a number from 1 to %u or a "
		       "HOST:PORT from there is needed",
		       as, l->n);
}
