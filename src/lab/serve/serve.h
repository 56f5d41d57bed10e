/* SPDX-License-Identifier: Apache-2.0 */
/* One server of an elastic cluster as a program of its own: verbena serve. */
#ifndef VB_LAB_SERVE_H
#define VB_LAB_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include <verbena/lock.h>
#include <verbena/txn.h>

#include "base/opt.h"
#include "workload/load.h"

struct vb_ep;

struct vb_serve_opts {
	const char *servers, *as, *key, *bind, *state, *fresh, *fabric_options, *json;
	uint64_t nodes, node_bytes, clients, linger_ns, settle_ns;
};

const struct vb_opt_group *vb_serve_groups(struct vb_serve_opts *opts, unsigned *n);

/* Serves `word`, the lock spaces and databases that it is to have, until it is interrupted.  Returns an enum vb_exit. */
int vb_serve(const struct vb_serve_opts *opts, unsigned n_words, char **word);

/* ---- list.c: the servers as they were named ---- */

#define VB_SERVE_NAME    300
#define VB_SERVE_SERVERS 64

struct vb_serve_list {
	unsigned n;
	char name[VB_SERVE_SERVERS][VB_SERVE_NAME]; /* "HOST:PORT" */
};

/* A list with '+', or a file (a '/' is in its name).  0, -error: said. */
int vb_serve_list_read(struct vb_serve_list *l, const char *text);
/* Which of them `as` is, a number from 1 on or a name; NULL: there is one.  Or -EINVAL, said. */
int vb_serve_list_find(const struct vb_serve_list *l, const char *as);

/* ---- spaces.c: what it serves ---- */

#define VB_SERVE_SPACES 64

struct vb_serve_space {
	char name[32];
	const char *lock, *options; /* kept for as long as the process lives */
	uint64_t locks, servers, lease_ns, drift_ppm;
	bool fencing;
	/* while it is served */
	struct vb_lock_space *space;
	struct vb_lock_server *
		*server; /* [n_servers], those that the lock needs: on nodes of this process */
	unsigned n_servers;
};

struct vb_serve_spaces {
	unsigned n;
	struct vb_serve_space space[VB_SERVE_SPACES];
};

/* "NAME:lock=...,locks=...".  0, -EINVAL: said. */
int vb_serve_space_read(struct vb_serve_spaces *s, const char *word);
/* The protocol's, as vb_lock_space_params has them; the caller frees them.  NULL: no memory. */
char *vb_serve_space_options(const struct vb_serve_space *s);
/* The space and its servers on nodes self, self + hosts, ... of `nodes`.  0, -error: said. */
int vb_serve_space_open(struct vb_serve_space *s, struct vb_fabric *f, unsigned self,
			unsigned hosts);
void vb_serve_space_close(struct vb_serve_space *s);

/* ---- databases.c: what it serves besides ---- */

#define VB_SERVE_DBS          16
#define VB_SERVE_LOAD_OPTIONS 256

struct vb_serve_table {
	char name[32];
	uint64_t bytes, records, range_shift, ranges;
	int keys;
	bool ordered;
};

struct vb_serve_db {
	char name[32];
	const char *cc; /* kept for as long as the process lives */
	uint64_t coordinators, items, bytes, record_bytes, lease_ns, snapshot_lag_ns, copies;
	bool no_recovery;
	unsigned n;
	struct vb_serve_table table[VB_TABLES_MAX];
	/* Or they are those of a workload of `bench txn`, filled. */
	const struct vb_load_ops *workload; /* NULL: they are not */
	union {
		char bytes[VB_SERVE_LOAD_OPTIONS];
		uint64_t align;
	} load_options;
	/* while it is served */
	struct vb_load load;
	bool has_load; /* it is made, for the fabric's nodes */
	struct vb_db *db;
	unsigned n_open;              /* of its tables */
	struct vb_db_server **server; /* [n_servers], on nodes of this process */
	unsigned n_servers;
};

struct vb_serve_dbs {
	unsigned n;
	struct vb_serve_db db[VB_SERVE_DBS];
};

/* What a word of the command line is to be. */
enum vb_serve_word { VB_SERVE_SPACE, VB_SERVE_DB, VB_SERVE_TABLE };
enum vb_serve_word vb_serve_word_of(const char *word);
/* "NAME:cc=..." or, behind that, "NAME/TABLE:bytes=...".  0, -EINVAL: said. */
int vb_serve_db_read(struct vb_serve_dbs *all, const char *word);
/* Which node has a key of the table, as its word says it. */
const char *vb_serve_keys(const struct vb_serve_table *t);
/* As its word has it, and its workload, which is made, needs it; load: NULL if it has none. */
void vb_serve_db_params(const struct vb_serve_db *s, const struct vb_load *load,
			struct vb_db_params *p);
/* The database, its tables, and its servers on nodes self, self + hosts, ... of `ep`'s fabric.  0; -EAGAIN (not said):
 * another server is not there yet; -EINTR: it was interrupted; -error: said. */
int vb_serve_db_open(struct vb_serve_db *s, struct vb_ep *ep, unsigned self, unsigned hosts);
void vb_serve_db_close(struct vb_serve_db *s);

/* ---- loads.c: the tables of a workload ---- */

/* All servers fill them alike, and all clients know with what. */
#define VB_SERVE_SEED 1

/* "NAME,KEY=VALUE,..." of what stands behind "workload=".  0, -EINVAL: said. */
int vb_serve_load_read(struct vb_serve_db *s, const char *text);
/* The node's part of the tables, which are open, unless it is filled.  0; -EINTR: it was interrupted; -error: said. */
int vb_serve_load_fill(struct vb_serve_db *s, struct vb_ep *ep, uint16_t node);
/* By a client: until all nodes' parts are filled.  -error, said. */
int vb_serve_load_await(const struct vb_serve_db *s, struct vb_fabric *f);

/* ---- notify.c ---- */

/* Tells the service manager, if there is one ($NOTIFY_SOCKET, systemd's protocol): "READY=1". */
void vb_serve_notify(const char *what);

#endif
