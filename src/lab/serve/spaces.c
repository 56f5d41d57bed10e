/* SPDX-License-Identifier: Apache-2.0 */
/* Lock spaces as words of a command line, and their servers. */
#define VB_LOG_ROOM "serve"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fabric/fabric.h"
#include "lab/serve/serve.h"
#include "lock/lock.h"
#include "lock/protocols.h"

#define S struct vb_serve_space

#define HOUR_NS 3600000000000ull

static const struct vb_opt space_table[] = {
	VB_OPT_STRING(S, lock, "lock", "NAME", NULL, "the protocol"),
	VB_OPT_SIZE(S, locks, "locks", "1k", 1, 1ull << 40, "how many locks"),
	VB_OPT_SIZE(S, servers, "servers", "1", 1, 4096, "the first so many nodes have them"),
	VB_OPT_TIME(S, lease_ns, "lease", "0", 0, HOUR_NS,
		    "how long a grant is valid; 0: as the library has it"),
	VB_OPT_SIZE(S, drift_ppm, "drift", "0", 0, 10000,
		    "how far two clocks drift apart at most, parts per million; 0: 100"),
	VB_OPT_FLAG(S, fencing, "fencing", "a token with every exclusive grant"),
	VB_OPT_STRING(S, options, "options", "LIST", NULL,
		      "the protocol's own, KEY=VALUE+KEY=VALUE"),
	VB_OPT_END};

/* The cause of what is wrong goes to `why`: the line that is printed names the space. */
static int read_options(struct vb_serve_space *s, const char *text, char *why, size_t bytes)
{
	int err;

	vb_opt_defaults(space_table, s);
	vb_log_capture_begin(why, bytes);
	err = vb_opt_parse_list(space_table, s, text);
	if (err == 0 && s->lock == NULL)
		err = vb_fail(-EINVAL, "no protocol is named: lock=dslr, say (`verbena list` shows "
				       "them all)");
	if (err == 0 && vb_lock_find(s->lock) == NULL)
		err = vb_lock_unknown(s->lock);
	vb_log_capture_end();
	return err;
}

int vb_serve_space_read(struct vb_serve_spaces *all, const char *word)
{
	const char *colon = strchr(word, ':');
	char why[256];
	struct vb_serve_space *s;
	size_t bytes = colon != NULL ? (size_t)(colon - word) : 0;

	if (all->n == VB_SERVE_SPACES)
		return vb_fail(-EINVAL, "more than %d lock spaces", VB_SERVE_SPACES);
	s = &all->space[all->n];
	if (bytes == 0 || bytes >= sizeof(s->name))
		return vb_fail(-EINVAL,
			       "'%s' is no lock space: NAME:lock=PROTOCOL,locks=N... is expected, "
			       "with a name of 1 to %zu characters",
			       word, sizeof(s->name) - 1);
	*s = (struct vb_serve_space){0};
	memcpy(s->name, word, bytes);
	for (unsigned i = 0; i < all->n; i++)
		if (strcmp(all->space[i].name, s->name) == 0)
			return vb_fail(-EINVAL, "two lock spaces have the name '%s'", s->name);
	if (read_options(s, colon + 1, why, sizeof(why)) != 0)
		return vb_fail(-EINVAL, "lock space '%s': %s", s->name, why);
	all->n++;
	return 0;
}

/* What stands between commas in a call stands between + in a word, which has commas of its own. */
char *vb_serve_space_options(const struct vb_serve_space *s)
{
	char *text = strdup(s->options != NULL ? s->options : "");

	for (char *p = text; p != NULL && *p != '\0'; p++)
		if (*p == '+')
			*p = ',';
	return text;
}

static int start_servers(struct vb_serve_space *s, unsigned self, unsigned hosts)
{
	int err = 0;

	s->server = calloc(s->servers / hosts + 1, sizeof(struct vb_lock_server *));
	if (s->server == NULL)
		return vb_fail(-ENOMEM, "no memory for the servers of a lock space");
	for (unsigned node = self; node < s->servers && err == 0; node += hosts) {
		err = vb_lock_server_start(s->space, (uint16_t)node, 0, 1,
					   &s->server[s->n_servers]);
		if (err == 0 && s->server[s->n_servers] != NULL)
			s->n_servers++;
	}
	return err;
}

int vb_serve_space_open(struct vb_serve_space *s, struct vb_fabric *f, unsigned self,
			unsigned hosts)
{
	char *options = vb_serve_space_options(s);
	const struct vb_lock_space_params p = {
		.lock = s->lock,
		.options = options,
		.name = s->name,
		.locks = s->locks,
		.servers = (uint16_t)s->servers,
		.lease_ns = s->lease_ns,
		.drift_ppm = (uint32_t)s->drift_ppm,
		.fencing = s->fencing,
	};
	int err;

	if (options == NULL)
		return vb_fail(-ENOMEM, "no memory for a lock space");
	err = vb_lock_space_open_own(f, &p, &s->space);
	free(options);
	if (err == 0)
		err = start_servers(s, self, hosts);
	if (err != 0)
		vb_serve_space_close(s);
	return err;
}

void vb_serve_space_close(struct vb_serve_space *s)
{
	while (s->n_servers > 0)
		vb_lock_server_stop(s->server[--s->n_servers]);
	free(s->server);
	s->server = NULL;
	(void)vb_lock_space_close(s->space);
	s->space = NULL;
}
