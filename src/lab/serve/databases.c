/* SPDX-License-Identifier: Apache-2.0 */
/* Databases and their tables as words of a command line, and their servers. */
#define VB_LOG_ROOM "serve"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fabric/fabric.h"
#include "lab/serve/serve.h"
#include "txn/protocol.h"

#define D struct vb_serve_db
#define T struct vb_serve_table

#define HOUR_NS   3600000000000ull
#define MAX(a, b) ((a) > (b) ? (a) : (b))

static const struct vb_opt db_table[] = {
	VB_OPT_STRING(D, cc, "cc", "NAME", NULL, "the protocol"),
	VB_OPT_SIZE(D, coordinators, "coordinators", "64", 1, 16383,
		    "how many each node has room for at a time"),
	VB_OPT_SIZE(D, items, "items", "64", 1, VB_TXN_ITEMS_MAX,
		    "the most records that a transaction touches"),
	VB_OPT_SIZE(D, bytes, "bytes", "64ki", 1, 256ull << 20, "the most bytes of those"),
	VB_OPT_SIZE(D, record_bytes, "record-bytes", "1ki", 1, VB_RECORD_BYTES_MAX,
		    "of the largest record of any table"),
	VB_OPT_TIME(D, lease_ns, "lease", "0", 0, HOUR_NS,
		    "how long a transaction may take; 0: as the library has it"),
	VB_OPT_TIME(D, snapshot_lag_ns, "snapshot-lag", "0", 0, HOUR_NS,
		    "how old what a snapshot shows is; 0: the lease"),
	VB_OPT_SIZE(D, copies, "copies", "0", 0, 3, "of each log, on other nodes"),
	VB_OPT_FLAG(D, no_recovery, "no-recovery", "what the dead hold stays held"),
	VB_OPT_END};

static const struct vb_opt table_table[] = {
	VB_OPT_SIZE(T, bytes, "bytes", "0", 0, VB_RECORD_BYTES_MAX, "of a record"),
	VB_OPT_SIZE(T, records, "records", "1k", 1, 1ull << 40, "how many, all nodes together"),
	VB_OPT_CHOICE(T, keys, "keys", "mod|hash|top16", "mod", "which node has a key"),
	VB_OPT_FLAG(T, ordered, "ordered", "it can be scanned"),
	VB_OPT_SIZE(T, range_shift, "range-shift", "0", 0, 32, "a range has 2 to so many keys"),
	VB_OPT_SIZE(T, ranges, "ranges", "0", 0, 1ull << 40, "room for so many; 0: as records"),
	VB_OPT_END};

/* ---- words ---- */

/* Where KEY= stands in the list; or NULL. */
static const char *item_of(const char *list, const char *key)
{
	const size_t n = strlen(key);

	for (; *list != '\0'; list += strcspn(list, ",")) {
		list += *list == ',';
		if (strncmp(list, key, n) == 0 && list[n] == '=')
			return list;
	}
	return NULL;
}

static bool has_key(const char *list, const char *key)
{
	return item_of(list, key) != NULL;
}

enum vb_serve_word vb_serve_word_of(const char *word)
{
	const char *colon = strchr(word, ':');

	if (colon != NULL && has_key(colon + 1, "lock"))
		return VB_SERVE_SPACE;
	if (colon != NULL && has_key(colon + 1, "cc"))
		return VB_SERVE_DB;
	return colon != NULL && has_key(colon + 1, "bytes") ? VB_SERVE_TABLE : VB_SERVE_SPACE;
}

/* The cause of what is wrong goes to `why`: the line that is printed names the word. */
static int read_options(const struct vb_opt *table, void *to, const char *text, char *why,
			size_t bytes)
{
	int err;

	vb_opt_defaults(table, to);
	vb_log_capture_begin(why, bytes);
	err = vb_opt_parse_list(table, to, text);
	vb_log_capture_end();
	return err;
}

/* All of its coordinators will be clients'. */
static int check_protocol(const struct vb_serve_db *d)
{
	const struct vb_cc_ops *cc = vb_cc_find(d->cc);

	if (cc == NULL)
		return vb_fail(-EINVAL,
			       "database '%s': no protocol is called '%s'; `verbena list` shows "
			       "them all",
			       d->name, d->cc);
	if (vb_cc_at_home(cc))
		return vb_fail(-EINVAL,
			       "database '%s': '%s' is not for clients of an elastic cluster, "
			       "and nobody else could use it; take another protocol",
			       d->name, d->cc);
	return 0;
}

static int read_db(struct vb_serve_dbs *all, const char *word)
{
	const size_t bytes = strcspn(word, ":");
	struct vb_serve_db *d = &all->db[all->n];
	char why[256], *own;
	const char *load;
	int err;

	if (all->n == VB_SERVE_DBS)
		return vb_fail(-EINVAL, "more than %d databases", VB_SERVE_DBS);
	if (bytes == 0 || bytes >= sizeof(d->name))
		return vb_fail(-EINVAL, "'%s': a database's name has 1 to %zu characters", word,
			       sizeof(d->name) - 1);
	*d = (struct vb_serve_db){0};
	memcpy(d->name, word, bytes);
	for (unsigned i = 0; i < all->n; i++)
		if (strcmp(all->db[i].name, d->name) == 0)
			return vb_fail(-EINVAL, "two databases have the name '%s'", d->name);
	load = item_of(word + bytes + 1, "workload");
	own = strndup(word + bytes + 1,
		      load != NULL ? (size_t)(load - word) - bytes - 1 : strlen(word));
	if (own == NULL)
		return vb_fail(-ENOMEM, "no memory for a database's options");
	err = read_options(db_table, d, own, why, sizeof(why));
	free(own);
	if (err != 0)
		return vb_fail(-EINVAL, "database '%s': %s", d->name, why);
	err = check_protocol(d);
	if (err == 0 && load != NULL)
		err = vb_serve_load_read(d, load + strlen("workload="));
	all->n += err == 0;
	return err;
}

static struct vb_serve_db *find_db(struct vb_serve_dbs *all, const char *name, size_t bytes)
{
	for (unsigned i = 0; i < all->n; i++)
		if (strlen(all->db[i].name) == bytes && strncmp(all->db[i].name, name, bytes) == 0)
			return &all->db[i];
	return NULL;
}

static int read_table(struct vb_serve_dbs *all, const char *word)
{
	const size_t bytes = strcspn(word, ":"), of = strcspn(word, "/:");
	struct vb_serve_db *d = word[of] == '/' ? find_db(all, word, of) : NULL;
	struct vb_serve_table *t;
	char why[256];

	if (d == NULL)
		return vb_fail(-EINVAL,
			       "'%s': a table is DATABASE/NAME:bytes=N,records=N..., and its "
			       "database, DATABASE:cc=PROTOCOL..., is named before it",
			       word);
	t = &d->table[d->n];
	if (d->workload != NULL)
		return vb_fail(-EINVAL,
			       "'%s': the tables of database '%s' are those of its workload", word,
			       d->name);
	if (d->n == VB_TABLES_MAX)
		return vb_fail(-EINVAL, "database '%s': more than %u tables", d->name,
			       VB_TABLES_MAX);
	if (bytes - of - 1 == 0 || bytes - of - 1 >= sizeof(t->name))
		return vb_fail(-EINVAL, "'%s': a table's name has 1 to %zu characters", word,
			       sizeof(t->name) - 1);
	*t = (struct vb_serve_table){0};
	memcpy(t->name, word + of + 1, bytes - of - 1);
	if (read_options(table_table, t, word + bytes + 1, why, sizeof(why)) != 0)
		return vb_fail(-EINVAL, "table '%s/%s': %s", d->name, t->name, why);
	for (unsigned i = 0; i < d->n; i++)
		if (strcmp(d->table[i].name, t->name) == 0)
			return vb_fail(-EINVAL, "two tables of database '%s' have the name '%s'",
				       d->name, t->name);
	d->n++;
	return 0;
}

int vb_serve_db_read(struct vb_serve_dbs *all, const char *word)
{
	return vb_serve_word_of(word) == VB_SERVE_DB ? read_db(all, word) : read_table(all, word);
}

const char *vb_serve_keys(const struct vb_serve_table *t)
{
	static const char *const names[] = {"mod", "hash", "top16"};

	return names[t->keys];
}

/* ---- serving ---- */

void vb_serve_db_params(const struct vb_serve_db *s, const struct vb_load *load,
			struct vb_db_params *p)
{
	struct vb_db_params least = {0};

	if (load != NULL)
		vb_load_db_params(load, &least);
	*p = (struct vb_db_params){
		.cc = s->cc,
		.name = s->name,
		.coordinators = (uint32_t)s->coordinators,
		.items_max = (uint32_t)MAX(s->items, least.items_max),
		.bytes_max = (uint32_t)MAX(s->bytes, least.bytes_max),
		.record_bytes_max = (uint32_t)MAX(s->record_bytes, least.record_bytes_max),
		.lease_ns = s->lease_ns,
		.snapshot_lag_ns = s->snapshot_lag_ns,
		.copies = (uint32_t)s->copies,
		.no_recovery = s->no_recovery,
	};
}

static struct vb_table_params table_params(const struct vb_serve_table *t)
{
	static const enum vb_partition partition[] = {VB_PARTITION_MOD, VB_PARTITION_HASH,
						      VB_PARTITION_TOP16};

	return (struct vb_table_params){
		.name = t->name,
		.record_bytes = (uint32_t)t->bytes,
		.records = t->records,
		.partition = partition[t->keys],
		.ordered = t->ordered,
		.range_shift = (uint32_t)t->range_shift,
		.ranges = t->ranges,
	};
}

static int open_all(struct vb_serve_db *s, struct vb_fabric *f)
{
	struct vb_db_params p;
	unsigned n = s->n;
	int err = 0;

	if (s->workload != NULL && !s->has_load)
		err = vb_load_init(&s->load, s->workload, s->load_options.bytes, f->nodes,
				   VB_SERVE_SEED);
	if (err != 0)
		return err;
	s->has_load = s->workload != NULL;
	if (s->has_load)
		n = s->load.n_tables;
	vb_serve_db_params(s, s->has_load ? &s->load : NULL, &p);
	if (s->db == NULL)
		err = vb_db_open(f, &p, &s->db);
	while (err == 0 && s->n_open < n) {
		const unsigned i = s->n_open;
		const struct vb_table_params tp =
			s->has_load ? s->load.params[i] : table_params(&s->table[i]);
		struct vb_table *table;

		err = vb_table_open(s->db, &tp, s->has_load ? &s->load.table[i] : &table);
		s->n_open += err == 0;
	}
	return err;
}

static int start_servers(struct vb_serve_db *s, struct vb_ep *ep, unsigned self, unsigned hosts)
{
	const unsigned nodes = ep->fabric->nodes;
	int err = 0;

	for (unsigned node = self; node < nodes && err == 0 && s->has_load; node += hosts)
		err = vb_serve_load_fill(s, ep, (uint16_t)node);
	if (err != 0)
		return err;
	s->server = calloc(nodes / hosts + 1, sizeof(struct vb_db_server *));
	if (s->server == NULL)
		return vb_fail(-ENOMEM, "no memory for the servers of a database");
	for (unsigned node = self; node < nodes && err == 0; node += hosts) {
		err = vb_db_server_start(s->db, (uint16_t)node, &s->server[s->n_servers]);
		s->n_servers += err == 0;
	}
	return err;
}

int vb_serve_db_open(struct vb_serve_db *s, struct vb_ep *ep, unsigned self, unsigned hosts)
{
	char why[512] = "";
	int err;

	vb_log_capture_begin(why, sizeof(why));
	err = open_all(s, ep->fabric);
	vb_log_capture_end();
	/* Another server has not come yet. */
	if (err == -VB_EPEERGONE || err == -ETIMEDOUT)
		return -EAGAIN;
	if (err != 0)
		return vb_fail(err, "%s", why);
	return start_servers(s, ep, self, hosts);
}

void vb_serve_db_close(struct vb_serve_db *s)
{
	while (s->n_servers > 0)
		vb_db_server_stop(s->server[--s->n_servers]);
	free(s->server);
	s->server = NULL;
	(void)vb_db_close(s->db);
	s->db = NULL;
	if (s->has_load)
		vb_load_close(&s->load);
	s->has_load = false;
}
