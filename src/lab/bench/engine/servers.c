/* SPDX-License-Identifier: Apache-2.0 */
/* See servers.h. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/engine/servers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "lab/serve/serve.h"

#define OPTIONS_MAX 4096

bool vb_bench_servers_named(const char *servers)
{
	return servers != NULL && strpbrk(servers, ":/") != NULL;
}

int vb_bench_servers_count(const char *servers, const char *key)
{
	static struct vb_serve_list list;
	int err = vb_serve_list_read(&list, servers);

	if (err != 0)
		return err;
	if (key == NULL)
		return vb_fail(-EINVAL, "--key FILE is needed, that of the servers");
	if (strchr(servers, ',') != NULL || strchr(key, ',') != NULL)
		return vb_fail(-EINVAL, "--servers and --key: a comma cannot be part of them");
	return (int)list.n;
}

int vb_bench_servers_open(const char *servers, const char *key, const char *more,
			  struct vb_fabric **out)
{
	char options[OPTIONS_MAX];
	struct vb_fabric_params p = {
		.fabric = "tcp",
		.options = options,
		.no_keeper = true, /* who measures stays inside */
	};

	if ((size_t)snprintf(options, sizeof(options), "servers=%s,key=%s%s%s", servers, key,
			     more != NULL ? "," : "", more != NULL ? more : "") >= sizeof(options))
		return vb_fail(-EINVAL, "--servers, --key and --fabric-options are too long");
	return vb_fabric_open(&p, out);
}

struct search {
	enum vb_named_kind kind;
	const char *name;
	bool found;
	char others[256];
};

static int look(void *user, const struct vb_named *named)
{
	struct search *s = user;
	const size_t used = strlen(s->others);

	if (named->kind != s->kind)
		return 0;
	if (strcmp(named->name, s->name) == 0)
		s->found = true;
	snprintf(s->others + used, sizeof(s->others) - used, "%s%s", used > 0 ? ", " : "",
		 named->name);
	return s->found;
}

int vb_bench_servers_have(struct vb_fabric *f, const char *servers, enum vb_named_kind kind,
			  const char *what, const char *name)
{
	struct search s = {.kind = kind, .name = name};
	int err = vb_fabric_each(f, 0, look, &s);

	if (s.found)
		return 0;
	if (err < 0)
		return vb_fail(err, "the first server of %s does not say which %ss there are: %s",
			       servers, what, vb_strerror(err));
	return vb_fail(-ENOENT, "the servers of %s have no %s '%s'; %s%s", servers, what, name,
		       s.others[0] != '\0' ? "they have " : "they have none", s.others);
}
