/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers: the load of `verbena bench lock` on the locks that people use today.
 *
 *   peers.c      options, the run's phases, the result as a line and as JSON
 *   drive.c      what a client does: in an event loop (that sleeps, or spins), or by blocking calls in
 *                threads
 *   redis.c      SET key token NX PX lease, and a script that compares and deletes
 *   etcd.c       the v3 lock service over HTTP; a bare Put for scale
 *   etcd_wire.c  its requests and answers, as JSON through the gateway or as gRPC
 *
 * One client is one connection.  A cycle is an acquire and a release of one lock, drawn as ours
 * draws it: same distribution, same permutation, same random streams (workload/micro.h).
 */
#ifndef VB_BENCH_PEERS_H
#define VB_BENCH_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hist.h"
#include "workload/micro.h"

enum peer_drive { PEER_LOOP, PEER_SPIN, PEER_THREADS };
enum peer_wire { PEER_JSON, PEER_GRPC };

struct peer_opts {
	int peer, drive, wire; /* indices; enum peer_drive, enum peer_wire */
	const char *host;
	uint64_t port, clients, locks;
	const char *dist;
	uint64_t duration_ns, warmup_ns, hold_ns, backoff_ns, lease_ns, connect_ns;
	uint64_t seed;
	const char *json;
	bool free_port;
};
#define PEER_CLIENTS 1024
/* An answer that takes longer never comes. */
#define PEER_ANSWER_NS 20000000000ull

/* What is measured; one per thread. */
struct peer_tally {
	uint64_t ops;               /* cycles completed while measuring */
	uint64_t tries;             /* attempts to acquire that were answered while measuring */
	uint64_t lost;              /* releases that found the lock gone */
	uint64_t unfinished_max_ns; /* longest wait that lasted beyond the end of the span */
	struct vb_hist acquire, release;
};

/* The same for all clients. */
struct peer_run {
	const struct peer_opts *o;
	const struct peer_ops *ops;
	struct vb_micro micro;
	uint32_t *holders; /* of each lock: how many of our clients believe that they hold it */
	uint64_t violations;
	uint64_t measure_ns, end_ns, give_up_ns;
	int err; /* of a client that could not go on; it ends the run */
};

/* A file descriptor that a loop looks at. */
struct peer_watch {
	void (*ready)(struct peer_watch *w, uint32_t events);
	int fd;
	uint32_t armed; /* EPOLLIN, EPOLLOUT; 0: not in the set */
};

struct peer_loop {
	int epoll;
	bool spin;        /* never sleeps */
	unsigned running; /* clients that have not finished */
	unsigned n;
	struct peer_client *clients;
};

enum peer_doing { PEER_IDLE, PEER_ACQUIRE, PEER_BACKOFF, PEER_HOLD, PEER_RELEASE, PEER_FINISHED };

struct peer_client {
	struct peer_run *run;
	struct peer_tally *tally;
	struct peer_loop *loop; /* NULL: blocking calls */
	void *conn;             /* the peer's own */
	unsigned index;
	enum peer_doing doing;
	struct vb_micro_client micro;
	struct vb_micro_op op;
	struct vb_rng backoff;
	uint64_t since_ns; /* when the acquire, or the release, was called */
	uint64_t grants;   /* makes each grant's token another */
	uint64_t wake_ns;  /* loop: end of a backoff or hold; 0: none */
	uint64_t timer_ns; /* loop: when ops->expired is to be called; 0: never */
};

/* Answers to acquire and release. */
enum peer_answer {
	PEER_NO,  /* taken by another; not ours any more */
	PEER_YES, /* granted; released */
};

struct peer_ops {
	const char *name, *summary;
	const char *absent; /* NULL, or the package to install before building */
	bool no_release;    /* an acquire is the whole cycle */
	/* One attempt to reach the server and prepare it; 0 or -errno with the reason in why. */
	int (*probe)(const struct peer_opts *o, char *why, size_t size);
	/* 0 or -errno, said; after an error close is not called. */
	int (*open)(struct peer_client *c);
	void (*close)(struct peer_client *c);
	/* Blocking: an enum peer_answer or -errno, said. */
	int (*acquire)(struct peer_client *c);
	int (*release)(struct peer_client *c);
	/* In a loop: 0 or -errno, said; the answer goes to peer_done, later. */
	int (*start_acquire)(struct peer_client *c);
	int (*start_release)(struct peer_client *c);
	/* In a loop: timer_ns has passed.  NULL where no timer is used. */
	void (*expired)(struct peer_client *c);
};

extern const struct peer_ops peer_redis, peer_etcd, peer_etcd_put;

/* The answer (or -errno, said) to what was started. */
void peer_done(struct peer_client *c, int answer);
/* 0 or -errno, said; events 0 takes it out of the set. */
int peer_watch_set(struct peer_loop *l, struct peer_watch *w, uint32_t events);

/* How many tallies a drive needs. */
unsigned peer_drive_tallies(const struct peer_opts *o);
/* Opens the clients, runs them to the end of the span, closes them.  0 or -errno, said. */
int peer_drive(struct peer_run *run, struct peer_tally *tallies);

#endif
