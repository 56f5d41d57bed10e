/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbena bench fabric: what the floor costs, each number beside the bare thing it stands on,
 * measured in the same run.
 *
 *   faa             a fetch-and-add (64 and 128 bits) through the fabric against the bare instruction
 *   locks           uncontended acquire + release of each lock against two bare atomics, a
 *                   process-shared pthread_rwlock and a robust mutex
 *   table           the lock table's agent and clients on two threads, for each lock request,
 *                   against the same notified WRITEs with nothing done in between
 *   hot             two processes on one hot lock
 *   oversubscribed  twice as many processes as cores on one hot lock: where FIFO locks collapse if a
 *                   waiter keeps the core that the next holder needs
 *   sim             simulated verbs per second, memory per simulated client
 *   model           what each profile's network does in virtual time, beside what has been published
 *   switch          one coroutine switch
 *   ucx, verbs      verbs and locks between two processes against a bare TCP socket between them
 *   busy            a node that computes, and more pollers than cores (ucx)
 *   servers         verbs and a lock at each server of a cluster that runs, as a client of it (--servers)
 *
 * The two sides take turns; reported are both medians and the median of the turns' ratios, which
 * does not mind a machine that is slower for a while.
 */
#ifndef VB_LAB_BENCH_FABRIC_FABRIC_H
#define VB_LAB_BENCH_FABRIC_FABRIC_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/opt.h"
#include "lock/lock.h"

struct vb_floor_opts {
	const char *only, *json;
	const char *servers, *key, *fabric_options; /* of those who run already, or NULL */
	uint64_t repeat;
	uint64_t span_ns;
	uint64_t seed;
};

struct vb_published;

struct vb_floor_row {
	const char *section;
	char name[48];
	const char *unit; /* "ns", "us": less is better; "kops/s", "M/s", "Gb/s": more is; "KiB" */
	double value;
	const char *baseline; /* NULL: it stands alone */
	double base;
	double ratio; /* median over the turns, where the two took turns */
	/* model: whose it is, and what has been published of that; or NULL */
	const char *profile;
	const struct vb_published *published;
};

/* Cycles per second of `procs` processes that take one lock exclusively and do nothing else, as the
 * benchmark of locks has them.  0 or -error, said. */
typedef int vb_floor_hot_lock(const struct vb_lock_ops *ops, unsigned procs, uint64_t span_ns,
			      uint64_t seed, double *per_s);

#define VB_FLOOR_ROWS    512
#define VB_FLOOR_REPEATS 101

struct vb_floor {
	struct vb_floor_opts o;
	vb_floor_hot_lock *hot_lock;
	struct vb_floor_row row[VB_FLOOR_ROWS];
	unsigned n;
	char note[256]; /* of the section that has just run, instead of rows or behind them */
	bool aborted;
};

const struct vb_opt_group *vb_bench_fabric_groups(struct vb_floor_opts *opts, unsigned *n);
/* The whole command: an enum vb_exit. */
int vb_bench_fabric(const struct vb_floor_opts *opts, vb_floor_hot_lock *hot_lock);

/* ---- for the sections; each returns 0 or -error, said ---- */

int vb_floor_faa(struct vb_floor *f);
int vb_floor_locks(struct vb_floor *f);
int vb_floor_table(struct vb_floor *f);
int vb_floor_hot(struct vb_floor *f);
int vb_floor_oversubscribed(struct vb_floor *f);
int vb_floor_sim(struct vb_floor *f);
int vb_floor_model(struct vb_floor *f);
int vb_floor_switch(struct vb_floor *f);
int vb_floor_tcp(struct vb_floor *f);
int vb_floor_ucx(struct vb_floor *f);
int vb_floor_verbs(struct vb_floor *f);
int vb_floor_busy(struct vb_floor *f);
int vb_floor_served(struct vb_floor *f);

void vb_floor_add(struct vb_floor *f, const char *section, const char *name, const char *unit,
		  double value, const char *baseline, double base);
/* The same from n turns of each side; sorts both. */
void vb_floor_add_turns(struct vb_floor *f, const char *section, const char *name, double *values,
			const char *baseline, double *bases, unsigned n);
double vb_floor_median(double *values, unsigned n);

/* One thing beside another: `what` and `against` are numbers that the section's turn knows. */
struct vb_floor_pair {
	const char *name;
	unsigned what;
	const char *baseline;
	unsigned against;
};
/* Both in turn, as often as wanted, in one row.  A turn gives ns, or -error, which is returned. */
int vb_floor_turns(struct vb_floor *f, const char *section, const struct vb_floor_pair *p,
		   double (*turn)(void *ctx, unsigned what), void *ctx);

/* ns of each of n times that the rest is done. */
#define VB_FLOOR_TIMED(n, ...)                                                                     \
	({                                                                                         \
		uint64_t start_ = vb_clock_gettime_ns();                                           \
		for (unsigned i_ = 0; i_ < (n); i_++) {                                            \
			__VA_ARGS__;                                                               \
		}                                                                                  \
		(double)(vb_clock_gettime_ns() - start_) / (n);                                    \
	})

/* What locks are measured against, for processes that share it. */
struct vb_floor_rivals {
	pthread_mutex_t mutex; /* robust */
	pthread_rwlock_t rwlock;
};
void vb_floor_rivals_init(struct vb_floor_rivals *r);

/* ---- the rows from `first` on as a table, and all of them as JSON ---- */

struct vb_json_out;
void vb_floor_print(FILE *to, const struct vb_floor *f, unsigned first, const char *title);
/* 0 or -errno, logged. */
int vb_floor_write_json(const struct vb_floor *f, struct vb_json_out *out);

#endif
