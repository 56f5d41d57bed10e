/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processes of a day (scripts/day.sh) share: a file that all have mapped, outside of Verbena.  It is the
 * resource that the locks guard, and the judge of them.
 *
 * Each grant is entered when its call is back and taken out before it is given back, by the kernel's clock, whatever
 * a process takes its own clock for; a grant with a lease is there until its end at the longest.  So what is
 * entered lies within what was true, and two entries that exclude each other and overlap are two holders.  Of two
 * that enter at once the later one sees the other.
 */
#ifndef TEST_NET_DAY_H
#define TEST_NET_DAY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <verbena/lock.h>

#define DAY_SPACES 5
#define DAY_LOCKS  16
#define DAY_ENTRIES                                                                                \
	24 /* holders of a lock that are looked at: readers, and the dead until their leases are over */
#define DAY_CLIENTS  512
#define DAY_SERVERS  8
#define DAY_DRIFT    1000 /* ppm: both clocks slewed by 500 */
#define DAY_LEASE_NS 1000000000ull
#define MS           1000000ull

#define get(p)    __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define set(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define add(p)    __atomic_add_fetch((p), 1, __ATOMIC_SEQ_CST)

/* The kernel's clock, past whatever is preloaded (slew.c). */
static inline uint64_t day_now(void)
{
	struct timespec t;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

struct entry {
	uint64_t owner; /* 0: free; else a number of its own */
	uint64_t ready; /* the same: what follows is its */
	uint64_t granted_ns, until_ns, mode, pid;
};

struct watched {
	struct entry entry[DAY_ENTRIES];
	uint64_t token; /* the largest that was shown */
	/* FAAs of 1 that holders have done on a server's word: begun, and known to be done. */
	uint64_t begun, done;
};

/* What a client is doing: who never comes back from a call is found. */
struct life {
	uint32_t pid, stopped;
	uint64_t since_ns, bound_ns; /* since_ns 0: not in a call */
	char what[32];
};

struct counts {
	uint64_t came, left, killed, stopped, again, late;        /* clients */
	uint64_t grants, not_now, gone, unknown, lost, unentered; /* calls and grants */
	uint64_t findings;
};

struct board {
	uint32_t rest, over; /* nobody comes, and who is there leaves; for good */
	uint64_t owners;     /* numbers given to entries */
	struct counts count;
	struct watched lock[DAY_SPACES][DAY_LOCKS];
	struct life life[DAY_CLIENTS];
};

struct board *day_board(const char *path, bool make);
/* One line on stderr, counted. */
void day_found(struct board *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What a client has opened. */
struct day_client {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	uint64_t word[DAY_SERVERS]; /* one on each server; 0: not known yet */
	unsigned which;             /* space */
};

/* The space of a number; `day spaces` says them to the servers. */
struct vb_lock_space_params day_space(unsigned which);
int day_come(struct board *b, struct life *l, struct day_client *c, const char *servers,
	     const char *key, unsigned home);
void day_leave(struct life *l, struct day_client *c);
/* One FAA under the grant, counted; 0 or the call's error. */
int day_count(struct board *b, struct day_client *c, const struct vb_grant *g);
/* What the word of that lock is now. */
int day_counted(struct day_client *c, uint64_t lock, uint64_t *value);

/* Enters the grant, which was asked for when `token` was the largest shown; NULL: no room. */
struct entry *day_enter(struct board *b, const struct day_client *c, const struct vb_grant *g,
			uint64_t token, uint64_t *owner);
void day_exit(struct entry *e, uint64_t owner);

static inline void day_call(struct life *l, const char *what, uint64_t bound_ns)
{
	if (l == NULL)
		return;
	snprintf(l->what, sizeof(l->what), "%s", what);
	l->bound_ns = bound_ns;
	set(&l->since_ns, day_now());
}
static inline void day_back(struct life *l)
{
	if (l != NULL)
		set(&l->since_ns, 0);
}

/* A crowd of clients that come and go until the day is over. */
int day_crowd(struct board *b, const char *servers, const char *key, unsigned most, unsigned first,
	      uint64_t seed);

#endif
