/* SPDX-License-Identifier: Apache-2.0 */
/* A file of hosts, and which of its lines is this machine; see cluster.h. */
#define VB_LOG_ROOM "cluster"
#include "cluster/inner.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/log.h"

#define LINE_BYTES 512
#define LINES_MAX  65536

struct hosts_line {
	char host[CL_HOST];
	uint16_t port;
	unsigned line;
	bool ours;
};

static char *trim(char *line)
{
	char *end;

	line[strcspn(line, "#\r\n")] = '\0';
	while (isspace((unsigned char)*line))
		line++;
	end = line + strlen(line);
	while (end > line && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return line;
}

static int read_file(FILE *f, const char *path, struct hosts_line *hosts, uint32_t *n)
{
	char text[LINE_BYTES], *line;

	*n = 0;
	for (unsigned number = 1; fgets(text, sizeof(text), f) != NULL; number++) {
		if (number > LINES_MAX || (strchr(text, '\n') == NULL && !feof(f)))
			return vb_fail(-EINVAL, "%s:%u: the line is too long", path, number);
		line = trim(text);
		if (*line == '\0')
			continue;
		if (strpbrk(line, " \t") != NULL)
			return vb_fail(-EINVAL, "%s:%u: '%s': one HOST or HOST:PORT is expected",
				       path, number, line);
		if (*n == VB_CLUSTER_HOSTS_MAX)
			return vb_fail(-EINVAL, "%s:%u: more than %u hosts", path, number,
				       VB_CLUSTER_HOSTS_MAX);
		if (address_split(line, VB_CLUSTER_PORT, hosts[*n].host, &hosts[*n].port) != 0)
			return vb_fail(-EINVAL, "%s:%u: not a host", path, number);
		hosts[(*n)++].line = number;
	}
	if (ferror(f))
		return vb_fail(-EIO, "%s: reading failed", path);
	return *n > 0 ? 0 : vb_fail(-EINVAL, "%s names no host", path);
}

/* The one line whose host is an address of this machine. */
static int find_ours(const char *path, struct hosts_line *hosts, uint32_t n, uint32_t *rank)
{
	struct cluster_addr addrs[CL_ADDRS];
	uint32_t found = n;
	unsigned n_addrs;

	for (uint32_t r = 0; r < n; r++) {
		if (address_find(hosts[r].host, hosts[r].port, addrs, &n_addrs) != 0)
			return vb_fail(-EINVAL, "%s:%u: host '%s' cannot be looked up", path,
				       hosts[r].line, hosts[r].host);
		for (unsigned i = 0; i < n_addrs; i++)
			hosts[r].ours |= address_is_ours(&addrs[i]);
		if (!hosts[r].ours)
			continue;
		if (found < n)
			return vb_fail(-EINVAL,
				       "%s: lines %u (%s) and %u (%s) are both this machine: say "
				       "which rank this process has",
				       path, hosts[found].line, hosts[found].host, hosts[r].line,
				       hosts[r].host);
		found = r;
	}
	if (found == n)
		return vb_fail(-EINVAL,
			       "%s: none of its %u lines is an address of this machine; say which "
			       "rank this process has if one is",
			       path, n);
	*rank = found;
	return 0;
}

static int fill(const struct hosts_line *hosts, uint32_t n, uint32_t rank,
		struct vb_cluster_hosts_file *out)
{
	char meet[CL_HOST + 16];
	bool v6 = strchr(hosts[0].host, ':') != NULL;

	snprintf(meet, sizeof(meet), "%s%s%s:%u", v6 ? "[" : "", hosts[0].host, v6 ? "]" : "",
		 hosts[0].port);
	*out = (struct vb_cluster_hosts_file){
		.hosts = n, .rank = rank, .meet = strdup(meet), .bind = strdup(hosts[rank].host)};
	if (out->meet != NULL && out->bind != NULL)
		return 0;
	free(out->meet);
	free(out->bind);
	return vb_fail(-ENOMEM, "no memory for a list of hosts");
}

int vb_cluster_read_hosts(const char *path, uint32_t rank_wanted, struct vb_cluster_hosts_file *out)
{
	struct hosts_line *hosts = calloc(VB_CLUSTER_HOSTS_MAX, sizeof(*hosts));
	uint32_t n = 0, rank = rank_wanted;
	FILE *f = fopen(path, "re");
	int err;

	if (hosts == NULL)
		err = vb_fail(-ENOMEM, "no memory for a list of hosts");
	else if (f == NULL)
		err = vb_fail(-errno, "%s: %s", path, strerror(errno));
	else
		err = read_file(f, path, hosts, &n);
	if (err == 0 && rank_wanted == VB_CLUSTER_ANY_RANK)
		err = find_ours(path, hosts, n, &rank);
	else if (err == 0 && rank_wanted >= n)
		err = vb_fail(-EINVAL, "%s has %u hosts: there is no rank %u", path, n,
			      rank_wanted);
	if (err == 0)
		err = fill(hosts, n, rank, out);
	if (f != NULL)
		fclose(f);
	free(hosts);
	return err;
}
