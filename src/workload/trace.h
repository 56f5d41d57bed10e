/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lock traces of transactions: which locks, in which modes, the transactions of a benchmark take.
 *
 * Nothing of a transaction is here but its locks and how long it computes while it has them.  That
 * is what lock managers are compared with (DSLR, ShiftLock, Barthels et al.): the data is not
 * missed, and a transaction of a trace costs nothing but its locks.
 *
 *	vb_trace_open(&trace, "tpcc", &params);            trace.locks is known from here on
 *	vb_trace_client_open(&trace, number, &client);
 *	txn = vb_trace_next(&client);                      take txn->lock[0 .. n-1], compute, give back
 *
 * A generator is one file with one `const struct vb_trace_ops`.  What a client draws depends on the
 * seed, the options and its number only, not on what happens to it: the same transactions run under
 * every protocol and on every fabric.
 *
 * Where locks lie.  A lock space puts lock i on server i mod N.  A generator whose data belongs to
 * homes (a warehouse) numbers its locks so that a home's locks lie on the home's server.
 */
#ifndef VB_WORKLOAD_TRACE_H
#define VB_WORKLOAD_TRACE_H

#include <verbena/lock.h>

#include "base/opt.h"
#include "base/rng.h"

#define VB_TRACE_TYPES_MAX 8u
#define VB_TRACE_LOCKS_MAX 4096u    /* that one transaction takes */
#define VB_TRACE_FILE      "trace:" /* before a file's name, where a trace is named */

struct vb_trace_lock {
	uint64_t lock;
	enum vb_mode mode;
};

struct vb_trace_txn {
	unsigned type;              /* index into the trace's types */
	uint32_t home;              /* which warehouse, say; 0 where there are none */
	uint64_t think_ns;          /* how long it computes while it has all its locks */
	unsigned n;                 /* 0: it reads what it needs without locks */
	struct vb_trace_lock *lock; /* in the order in which they are needed, each once */
};

struct vb_trace_params {
	const char *options; /* the generator's own, "key=value,..."; NULL: defaults */
	unsigned clients;    /* at least 1 */
	unsigned hosts;      /* nodes with clients: client i is at host i mod hosts; at least 1 */
	unsigned servers;    /* nodes with locks; at least 1 */
	uint64_t seed;
	/* Chance that a transaction is a scan of a whole table, which is locked for scan_ns.  Where
	 * it is above 0 the others lock that table, too (DSLR section 6.4). */
	double scan_rate;
	uint64_t scan_ns;
};

struct vb_trace_ops;

struct vb_trace {
	const struct vb_trace_ops *ops;
	struct vb_trace_params p;
	void *options; /* the generator's own struct */
	/* What ops->init says. */
	uint64_t locks;     /* numbers are below this */
	unsigned locks_max; /* that one transaction takes, before the same lock twice is made one */
	const char *const *types;
	unsigned n_types;
	uint32_t modes;    /* bit (1 << mode) for each mode that may occur */
	uint64_t think_ns; /* of a transaction, as the source has it */
	void *own;         /* the generator's */
	const char *file;  /* "trace:FILE": where it is, and a hash of what it says */
	uint64_t digest;
};

/* For finding a lock that a transaction already has. */
struct vb_trace_slot {
	uint64_t lock;
	uint32_t round, at;
};

struct vb_trace_client {
	const struct vb_trace *t;
	struct vb_rng rng;
	unsigned number, host;
	uint64_t drawn; /* transactions so far */
	struct vb_trace_txn txn;
	struct vb_trace_slot *slot; /* [mask + 1] */
	uint32_t mask;
};

struct vb_trace_ops {
	const char *name, *summary, *source;
	const struct vb_opt *options;
	size_t options_bytes;
	bool scans; /* has a table that is scanned */
	/* Checks the options and says what is needed.  -EINVAL, -ENOMEM: said. */
	int (*init)(struct vb_trace *t);
	void (*fini)(struct vb_trace *t); /* NULL: nothing to do */
	/* Draws the client's next transaction into c->txn, which is empty: type, home, think_ns
	 * where it is not the trace's, and its locks by vb_trace_add.  Allocates nothing. */
	void (*next)(struct vb_trace_client *c);
};

/* All generators, NULL at the end; and by name. */
extern const struct vb_trace_ops *const vb_traces[];
const struct vb_trace_ops *vb_trace_find(const char *name);

/* name: a generator's, or "trace:FILE", and stays the caller's.  -EINVAL, -ENOMEM: said. */
int vb_trace_open(struct vb_trace *t, const char *name, const struct vb_trace_params *p);
void vb_trace_close(struct vb_trace *t);
/* number is below p->clients.  -ENOMEM, said. */
int vb_trace_client_open(const struct vb_trace *t, unsigned number, struct vb_trace_client *c);
void vb_trace_client_close(struct vb_trace_client *c);
/* The client's, until the next call. */
struct vb_trace_txn *vb_trace_next(struct vb_trace_client *c);

/* In the order of the locks' numbers: whoever takes them so never waits in a circle. */
void vb_trace_sort(struct vb_trace_txn *txn);

/* ---- for generators ---- */

/* The transaction takes one more lock; one that it has already is then taken in a mode that does
 * for both. */
void vb_trace_add(struct vb_trace_client *c, uint64_t lock, enum vb_mode mode);
/* The type that `percent` (which add up to 100) give. */
unsigned vb_trace_draw_type(struct vb_rng *rng, const unsigned *percent);
/* NURand of TPC-C and TATP without its constant: uniform in [0, n) where A is 0, and otherwise with
 * the skew of a bitwise or with a number up to A. */
uint64_t vb_trace_nurand(struct vb_rng *rng, uint64_t a, uint64_t n);
/* The weakest mode that does what both do. */
enum vb_mode vb_trace_both(enum vb_mode a, enum vb_mode b);

#endif
