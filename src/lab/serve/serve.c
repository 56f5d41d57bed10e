/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbena serve: one server of an elastic cluster (doc/elastic.md), from its beginning to a signal.
 *
 *	open the fabric      as a server: it has the port, and waits for `settle`; a signal ends it at once
 *	open the spaces      what this process's nodes have of them, so that it waits for no other server, and
 *	                     start their servers, as tasks of this one thread
 *	open the databases   these wait for the other servers, whose nodes they have addresses of
 *	ready                said once, on stdout, to the service manager, and as JSON
 *	await a signal       in the scheduler, which serves meanwhile
 */
#define VB_LOG_ROOM "serve"
#include "lab/serve/serve.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/fabric.h"
#include "lab/json.h"
#include "lab/run.h"
#include "lock/lock.h"

#define O struct vb_serve_opts

#define LOOK_NS     50000000ull /* for a signal */
#define OPTIONS_MAX 4096

static const struct vb_opt serve_options[] = {
	VB_OPT_STRING(O, servers, "servers", "LIST", NULL,
		      "all servers of the cluster, HOST:PORT+HOST:PORT..., or a file (with a / in "
		      "its name) with a line for each"),
	VB_OPT_STRING(O, as, "as", "SERVER", NULL,
		      "which of them this is: its number, from 1 on, or its HOST:PORT; may be left "
		      "out if there is one"),
	VB_OPT_STRING(O, key, "key", "FILE", NULL, "the key file of the servers and clients"),
	VB_OPT_STRING(O, bind, "bind", "ADDRESS", NULL,
		      "address or interface to listen at, if it is not that of --servers"),
	VB_OPT_END};

static const struct vb_opt memory_options[] = {
	VB_OPT_SIZE(O, nodes, "nodes", "0", 0, 4096,
		    "nodes of the cluster, the same for all servers; 0: one for each server"),
	VB_OPT_SIZE(O, node_bytes, "node-bytes", "64mi", 4096, 1ull << 48,
		    "size of each, the same for all servers"),
	VB_OPT_STRING(O, state, "state", "DIR", NULL,
		      "a directory of its own, on this machine, in which its memory is a file: it "
		      "begins again as it was, until the machine itself begins again"),
	VB_OPT_SIZE(O, clients, "clients", "1024", 1, 65536, "how many clients it has at a time"),
	VB_OPT_END};

static const struct vb_opt life_options[] = {
	VB_OPT_TIME(O, settle_ns, "settle", "1s", 0, 7200000000000ull,
		    "so long it is there for nobody when it begins, and no lock's grant is longer, "
		    "the same for all servers; 0 needs --fresh"),
	VB_OPT_STRING(O, fresh, "fresh", "FILE", NULL,
		      "with --settle 0: made when it begins, and where that file is it does not "
		      "begin"),
	VB_OPT_TIME(O, linger_ns, "linger", "5s", 10000000, 3600000000000ull,
		    "how long it keeps the place of a client that it has lost"),
	VB_OPT_STRING(O, fabric_options, "fabric-options", "LIST", NULL,
		      "further options of the fabric tcp, KEY=VALUE,... (`verbena list` shows "
		      "them)"),
	VB_OPT_STRING(O, json, "json", "FILE", NULL,
		      "write what it serves there when it is ready; - is stdout"),
	VB_OPT_END};

VB_OPT_GROUPS(vb_serve_groups, struct vb_serve_opts, {"The cluster", serve_options, NULL},
	      {"Its memory", memory_options, NULL}, {"Its life", life_options, NULL})

struct serving {
	const struct vb_serve_opts *o;
	struct vb_serve_list list;
	struct vb_serve_spaces spaces;
	struct vb_serve_dbs dbs;
	unsigned self; /* which server, from 0 on: its first node, too */
	uint16_t nodes;
	struct vb_fabric *fabric;
	struct vb_ep *ep;
};

/* ---- what was asked for ---- */

/* As text of an option of the fabric's, which has commas between them. */
static int add(char text[static OPTIONS_MAX], const char *name, const char *value)
{
	size_t used = strlen(text);

	if (value == NULL)
		return 0;
	if (strchr(value, ',') != NULL)
		return vb_fail(-EINVAL, "--%s %s: a comma cannot be part of it", name, value);
	if ((size_t)snprintf(text + used, OPTIONS_MAX - used, "%s%s=%s", used > 0 ? "," : "", name,
			     value) >= OPTIONS_MAX - used)
		return vb_fail(-EINVAL, "--%s: its value is too long", name);
	return 0;
}

static int options_of(const struct serving *s, char text[static OPTIONS_MAX])
{
	const struct vb_serve_opts *o = s->o;
	char more[128];
	size_t used;
	int err;

	text[0] = '\0';
	err = add(text, "servers", o->servers);
	if (err == 0)
		err = add(text, "key", o->key);
	if (err == 0)
		err = add(text, "bind", o->bind);
	if (err == 0)
		err = add(text, "state", o->state);
	if (err == 0)
		err = add(text, "fresh", o->fresh);
	if (err != 0)
		return err;
	snprintf(more, sizeof(more),
		 ",serve=%u,clients=%" PRIu64 ",settle=%" PRIu64 "ns,linger=%" PRIu64 "ns",
		 s->self + 1, o->clients, o->settle_ns, o->linger_ns);
	used = strlen(text);
	/* The user's own come last, and count. */
	if ((size_t)snprintf(text + used, OPTIONS_MAX - used, "%s%s%s", more,
			     o->fabric_options != NULL ? "," : "",
			     o->fabric_options != NULL ? o->fabric_options : "") >=
	    OPTIONS_MAX - used)
		return vb_fail(-EINVAL, "--fabric-options: its value is too long");
	return 0;
}

static int understand(struct serving *s, unsigned n_words, char **word)
{
	int err = vb_serve_list_read(&s->list, s->o->servers), self;

	if (err != 0)
		return err;
	self = vb_serve_list_find(&s->list, s->o->as);
	if (self < 0)
		return self;
	if (s->o->key == NULL)
		return vb_fail(-EINVAL,
			       "--key FILE is needed, the same for all servers and clients (head "
			       "-c 32 /dev/urandom >FILE; chmod 600 FILE)");
	s->self = (unsigned)self - 1;
	s->nodes = (uint16_t)(s->o->nodes != 0 ? s->o->nodes : s->list.n);
	if (s->nodes < s->list.n)
		return vb_fail(-EINVAL, "--nodes %u for %u servers: each needs one", s->nodes,
			       s->list.n);
	for (unsigned i = 0; i < n_words && err == 0; i++)
		err = vb_serve_word_of(word[i]) == VB_SERVE_SPACE
			      ? vb_serve_space_read(&s->spaces, word[i])
			      : vb_serve_db_read(&s->dbs, word[i]);
	for (unsigned i = 0; i < s->spaces.n && err == 0; i++)
		if (s->spaces.space[i].servers > s->nodes)
			err = vb_fail(
				-EINVAL,
				"lock space '%s': servers=%" PRIu64 ", and there are %u nodes",
				s->spaces.space[i].name, s->spaces.space[i].servers, s->nodes);
	return err;
}

static int open_fabric(struct serving *s)
{
	char text[OPTIONS_MAX];
	int err = options_of(s, text);

	if (err == 0)
		err = vb_fabric_open(&(struct vb_fabric_params){.fabric = "tcp",
								.options = text,
								.nodes = s->nodes,
								.node_bytes = s->o->node_bytes,
								/* who serves stays inside */
								.no_keeper = true},
				     &s->fabric);
	if (err == 0)
		err = vb_ep_open(s->fabric, (uint16_t)s->self, &s->ep);
	return err;
}

/* ---- ready ---- */

static json_t *space_json(const struct vb_serve_space *s)
{
	json_t *j = json_object();

	vb_json_set(j, "name", (const char *)s->name);
	vb_json_set(j, "lock", s->lock);
	vb_json_set(j, "locks", s->locks);
	vb_json_set(j, "servers", s->servers);
	vb_json_set(j, "lease_ns", s->space != NULL ? s->space->lease_ns : s->lease_ns);
	vb_json_set(j, "drift_ppm", s->space != NULL ? s->space->drift_ppm : s->drift_ppm);
	vb_json_set(j, "fencing", s->fencing);
	vb_json_set(j, "here", (bool)(s->space != NULL));
	return j;
}

static json_t *db_json(const struct vb_serve_db *s)
{
	json_t *j = json_object(), *tables = json_array();

	vb_json_set(j, "name", (const char *)s->name);
	vb_json_set(j, "cc", s->cc);
	vb_json_set(j, "coordinators", s->coordinators);
	vb_json_set(j, "workload", s->workload != NULL ? s->workload->name : NULL);
	for (unsigned i = 0; i < s->n; i++) {
		json_t *t = json_object();

		vb_json_set(t, "name", (const char *)s->table[i].name);
		vb_json_set(t, "record_bytes", s->table[i].bytes);
		vb_json_set(t, "records", s->table[i].records);
		vb_json_set(t, "keys", vb_serve_keys(&s->table[i]));
		vb_json_set(t, "ordered", s->table[i].ordered);
		json_array_append_new(tables, t);
	}
	vb_json_set(j, "tables", tables);
	return j;
}

static int tell_json(const struct serving *s, struct vb_json_out *out)
{
	json_t *root = vb_json_head(0), *spaces = json_array(), *dbs = json_array();
	int err;

	vb_json_set(root, "kind", "serve");
	vb_json_set(root, "server", (uint64_t)s->self + 1);
	vb_json_set(root, "servers", (uint64_t)s->list.n);
	vb_json_set(root, "address", (const char *)s->list.name[s->self]);
	vb_json_set(root, "pid", (uint64_t)getpid());
	vb_json_set(root, "nodes", (uint64_t)s->nodes);
	vb_json_set(root, "node_bytes", s->fabric->node_bytes);
	vb_json_set(root, "settle_ns", s->fabric->caps.lease_max_ns);
	vb_json_set(root, "state", s->o->state);
	for (unsigned i = 0; i < s->spaces.n; i++)
		json_array_append_new(spaces, space_json(&s->spaces.space[i]));
	vb_json_set(root, "spaces", spaces);
	for (unsigned i = 0; i < s->dbs.n; i++)
		json_array_append_new(dbs, db_json(&s->dbs.db[i]));
	vb_json_set(root, "databases", dbs);
	err = vb_json_out_commit(out, root);
	json_decref(root);
	return err;
}

static void tell(const struct serving *s)
{
	printf("ready: server %u of %u, %s, nodes %u, lock spaces:", s->self + 1, s->list.n,
	       s->list.name[s->self], s->nodes);
	for (unsigned i = 0; i < s->spaces.n; i++)
		printf("%s %s (%" PRIu64 " of '%s'%s)", i > 0 ? "," : "", s->spaces.space[i].name,
		       s->spaces.space[i].locks, s->spaces.space[i].lock,
		       s->spaces.space[i].space != NULL ? "" : ", elsewhere");
	printf("%s", s->spaces.n == 0 ? " none" : "");
	for (unsigned i = 0; i < s->dbs.n; i++)
		printf("%s %s ('%s', %u tables%s%s)",
		       i > 0 ? "," : ", databases:", s->dbs.db[i].name, s->dbs.db[i].cc,
		       s->dbs.db[i].n_open, s->dbs.db[i].has_load ? " of " : "",
		       s->dbs.db[i].has_load ? s->dbs.db[i].workload->name : "");
	printf("\n");
}

static int be_ready(const struct serving *s, struct vb_json_out *out)
{
	int err = tell_json(s, out);

	if (err != 0)
		return err;
	if (s->o->json == NULL || strcmp(s->o->json, "-") != 0)
		tell(s);
	vb_serve_notify("READY=1");
	return 0;
}

/* ---- a life ---- */

/* `settle` may take hours.  A process that ends in it has served nobody. */
static int begin(struct serving *s, const struct vb_json_out *out)
{
	int err;

	vb_interrupt_unlinks = out->temp != NULL ? out->temp : "";
	err = open_fabric(s);
	vb_interrupt_unlinks = NULL;
	return err;
}

/* A verb is refused sooner than a question is given up. */
static bool are_there(struct serving *s, unsigned *missing)
{
	uint64_t word;

	for (*missing = 0; *missing < s->list.n; ++*missing)
		if (vb_read64(s->ep, vb_addr_make((uint16_t)*missing, 0), &word) != 0)
			return false;
	return true;
}

/* Waits for the others, and answers them meanwhile. */
static int open_db(struct serving *s, struct vb_serve_db *d)
{
	bool told = false;
	unsigned missing;

	while (!vb_interrupted) {
		int err = are_there(s, &missing) ? vb_serve_db_open(d, s->ep, s->self, s->list.n)
						 : -EAGAIN;

		if (err != -EAGAIN)
			return err == -EINTR ? 0 : err;
		if (!told)
			vb_warn("database '%s' waits for %s", d->name,
				missing < s->list.n ? s->list.name[missing] : "another server");
		told = true;
		(void)vb_ep_sleep(s->ep, LOOK_NS);
	}
	return 0;
}

static int serve(struct serving *s, struct vb_json_out *out)
{
	int err = begin(s, out);

	for (unsigned i = 0; i < s->spaces.n && err == 0; i++)
		if (s->self < s->spaces.space[i].servers) /* else others have its locks */
			err = vb_serve_space_open(&s->spaces.space[i], s->fabric, s->self,
						  s->list.n);
	for (unsigned i = 0; i < s->dbs.n && err == 0; i++)
		err = open_db(s, &s->dbs.db[i]);
	if (err == 0 && !vb_interrupted)
		err = be_ready(s, out);
	while (err == 0 && !vb_interrupted) {
		(void)vb_ep_sleep(s->ep, LOOK_NS);
		if (vb_node_gone(s->fabric, (uint16_t)s->self))
			err = vb_fail(-ESTALE, "another server has begun in this one's name");
	}
	vb_serve_notify("STOPPING=1");
	for (unsigned i = s->dbs.n; i-- > 0;)
		vb_serve_db_close(&s->dbs.db[i]);
	for (unsigned i = s->spaces.n; i-- > 0;)
		vb_serve_space_close(&s->spaces.space[i]);
	vb_ep_close(s->ep);
	(void)vb_fabric_close(s->fabric);
	return err;
}

int vb_serve(const struct vb_serve_opts *o, unsigned n_words, char **word)
{
	static struct serving s;
	struct vb_json_out out;
	int err;

	s = (struct serving){.o = o};
	err = understand(&s, n_words, word);
	if (err == 0)
		err = vb_json_out_open(&out, o->json);
	if (err != 0)
		return vb_exit_of(err);
	err = serve(&s, &out);
	vb_json_out_abandon(&out);
	return vb_exit_of(err);
}
