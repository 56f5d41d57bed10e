/* SPDX-License-Identifier: Apache-2.0 */
/* See fabric.h: options, and the order of the sections. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/fabric/fabric.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lab/bench/engine/servers.h"
#include "lab/run.h"
#include "lab/json.h"

#define O struct vb_floor_opts
static const struct vb_opt table[] = {
	VB_OPT_STRING(
		O, only, "only", "SECTIONS", NULL,
		"some of faa,locks,table,hot,oversubscribed,sim,model,switch,tcp,ucx,busy,verbs "
		"(all); with --servers there is nothing else"),
	VB_OPT_SIZE(O, repeat, "repeat", "31", 1, VB_FLOOR_REPEATS,
		    "repetitions of each pair; medians are reported"),
	VB_OPT_TIME(O, span_ns, "span", "200ms", 1000000, 60000000000ull,
		    "how long each lock runs in hot and oversubscribed"),
	VB_OPT_SIZE(O, seed, "seed", "1", 0, INT64_MAX, "decides every random choice"),
	VB_OPT_STRING(O, json, "json", "FILE", NULL, "write the results as JSON; - is stdout"),
	VB_OPT_END};

static const struct vb_opt servers_table[] = {
	VB_OPT_STRING(O, servers, "servers", "LIST", NULL,
		      "who they are, HOST:PORT+HOST:PORT... or a file (with a / in its name) with "
		      "a line for each: this run is a client of theirs"),
	VB_OPT_STRING(O, key, "key", "FILE", NULL, VB_BENCH_KEY_HELP),
	VB_OPT_STRING(O, fabric_options, "fabric-options", "LIST", NULL,
		      "options of the fabric tcp, KEY=VALUE,...; `verbena list` shows them"),
	VB_OPT_END};
#undef O

static const struct section {
	const char *name, *title;
	int (*run)(struct vb_floor *f);
} sections[] = {
	{"faa", "Verbs on shm, against the bare instruction on the same word", vb_floor_faa},
	{"locks", "Uncontended acquire + release, exclusive, on shm", vb_floor_locks},
	{"table",
	 "The lock table on shm, one agent and one thread of clients, for each lock request",
	 vb_floor_table},
	{"hot", "Two processes on one hot lock", vb_floor_hot},
	{"oversubscribed", "Twice as many processes as cores on one hot lock",
	 vb_floor_oversubscribed},
	{"sim", "The simulator, audit off", vb_floor_sim},
	{"model", "The networks that are simulated, beside what has been published",
	 vb_floor_model},
	{"switch", "Coroutines", vb_floor_switch},
	{"tcp", "Between two processes on tcp (over loopback)", vb_floor_tcp},
	{"ucx", "Between two processes on ucx (TCP over loopback)", vb_floor_ucx},
	{"busy", "tcp with less than a core for each process", vb_floor_busy},
	{"verbs", "Between two processes on an RDMA device", vb_floor_verbs},
};

/* Instead of all of these: a client of servers that run measures nothing else. */
static const struct section of_servers = {
	"servers", "From a client to each server of a cluster that runs", vb_floor_served};

VB_OPT_GROUPS(vb_bench_fabric_groups, struct vb_floor_opts, {"Options", table, NULL},
	      {"Servers that run already", servers_table, NULL})

static bool wanted(const char *only, const char *name)
{
	size_t len = strlen(name);

	if (only == NULL)
		return true;
	for (const char *p = only; *p != '\0'; p += strcspn(p, ","), p += *p == ',')
		if (strcspn(p, ",") == len && strncmp(p, name, len) == 0)
			return true;
	return false;
}

static int check_only(const char *only)
{
	const char *names[VB_ARRAY_SIZE(sections)];
	char hint[VB_HINT_BYTES];
	char text[256], *save = NULL;

	if (only == NULL)
		return 0;
	if (strlen(only) >= sizeof(text) || only[0] == '\0')
		return vb_fail(-EINVAL, "--only: a list of sections is needed, see --help");
	for (unsigned i = 0; i < VB_ARRAY_SIZE(sections); i++)
		names[i] = sections[i].name;
	strcpy(text, only);
	for (char *p = strtok_r(text, ",", &save); p != NULL; p = strtok_r(NULL, ",", &save)) {
		bool known = false;

		for (unsigned i = 0; i < VB_ARRAY_SIZE(sections); i++)
			known |= strcmp(p, names[i]) == 0;
		if (known)
			continue;
		return vb_fail(-EINVAL, "--only: there is no section '%s'%s", p,
			       vb_did_you_mean(hint, p, names, VB_ARRAY_SIZE(sections)));
	}
	return 0;
}

static int check_servers(const struct vb_floor_opts *o)
{
	int n;

	if (o->servers == NULL && (o->key != NULL || o->fabric_options != NULL))
		return vb_fail(-EINVAL,
			       "--%s is for servers that run already: --servers "
			       "HOST:PORT+HOST:PORT... says which",
			       o->key != NULL ? "key" : "fabric-options");
	if (o->servers == NULL)
		return 0;
	if (o->only != NULL)
		return vb_fail(-EINVAL, "leave out --only: a client of --servers measures verbs to "
					"them, and nothing on its own machine");
	n = vb_bench_servers_count(o->servers, o->key);
	return n < 0 ? n : 0;
}

static int run_section(struct vb_floor *f, FILE *to, const struct section *s)
{
	unsigned first = f->n;
	int err;

	f->note[0] = '\0';
	err = s->run(f);
	vb_floor_print(to, f, first, s->title);
	return err;
}

int vb_bench_fabric(const struct vb_floor_opts *opts, vb_floor_hot_lock *hot_lock)
{
	struct vb_json_out json;
	struct vb_floor *f;
	FILE *to = stdout;
	int err = check_only(opts->only);

	if (err == 0)
		err = check_servers(opts);
	if (err == 0)
		err = vb_json_out_open(&json, opts->json);
	if (err)
		return vb_exit_of(err);
	f = calloc(1, sizeof(*f));
	if (f == NULL) {
		vb_json_out_abandon(&json);
		return VB_EXIT_RESOURCES;
	}
	f->o = *opts;
	f->hot_lock = hot_lock;
	if (opts->json != NULL && strcmp(opts->json, "-") == 0)
		to = stderr;
	if (opts->servers != NULL)
		err = run_section(f, to, &of_servers);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(sections) && err == 0 && !vb_interrupted; i++)
		if (opts->servers == NULL && wanted(opts->only, sections[i].name))
			err = run_section(f, to, &sections[i]);
	if (vb_floor_write_json(f, &json) != 0 && err == 0)
		err = -EIO;
	free(f);
	if (err)
		return vb_exit_of(err);
	return vb_interrupted ? VB_EXIT_INTERRUPTED : VB_EXIT_OK;
}
