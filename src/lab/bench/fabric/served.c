/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs and a lock at each server of a cluster that runs (verbena serve), as one of its clients.
 *
 * The memory for that is a lock space of the run's own, which goes with it: of the locks on a node, which lie side by
 * side, the last one is taken and given back, and the others' words are read and written.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/fabric/fabric.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hist.h"
#include "base/log.h"
#include "lab/bench/engine/servers.h"
#include "lab/run.h"

#define SPACE   "bench-fabric"
#define ROUNDS  100u /* of a turn */
#define SINGLES 1000u
#define BATCH   16u
#define MOST    512u /* bytes of a READ */
#define WORDS   65u  /* of a node: so many bytes, and the lock */
/* A verb that had no answer, or came too late, is tried again so often, so long after it. */
#define AGAIN    20u
#define AGAIN_NS 50000000ull

enum { READ8, READ512, WRITE64, FAA, FAA_BATCH, CYCLE };

struct served {
	struct vb_fabric *f;
	struct vb_ep *ep;
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	uint16_t node; /* of the server that is measured */
	vb_addr at;
	uint64_t lost; /* verbs without an answer */
};

static int faa_batch(struct served *s)
{
	struct vb_verb v[BATCH];

	for (unsigned i = 0; i < BATCH; i++)
		v[i] = (struct vb_verb){.op = VB_OP_FAA64,
					.flags = VB_SIGNALLED,
					.addr = s->at + 128 + 8 * i,
					.compare = {.lo = 1}};
	return vb_post_wait(s->ep, v, BATCH);
}

static int cycle(struct served *s)
{
	const uint64_t lock = (WORDS - 1) * (uint64_t)s->f->nodes + s->node;
	struct vb_grant g;
	int err = vb_lock_acquire(s->me, lock, VB_EXCLUSIVE, VB_FOREVER_NS, &g);

	return err != 0 ? err : vb_lock_release(s->me, &g);
}

static int once(struct served *s, unsigned what)
{
	static char buf[MOST];
	uint64_t old;

	switch (what) {
	case READ8:
		return vb_read(s->ep, s->at, buf, 8);
	case READ512:
		return vb_read(s->ep, s->at, buf, MOST);
	case WRITE64:
		return vb_write(s->ep, s->at + 64, buf, 64);
	case FAA:
		return vb_faa64(s->ep, s->at, 1, &old);
	case FAA_BATCH:
		return faa_batch(s);
	default:
		return cycle(s);
	}
}

/* A server that stands still for a moment, or has no core, costs time and not the run. */
static int round_of(struct served *s, unsigned what)
{
	int err = once(s, what);

	for (unsigned i = 0;
	     i < AGAIN && (err == -VB_EUNKNOWN || err == -VB_EPEERGONE || err == -VB_ETOOLATE);
	     i++) {
		s->lost++;
		(void)vb_ep_sleep(s->ep, AGAIN_NS);
		err = once(s, what);
	}
	return err;
}

static double turn(void *ctx, unsigned what)
{
	struct served *s = ctx;
	int err = 0;
	double ns = VB_FLOOR_TIMED(ROUNDS, {
		if (err == 0)
			err = round_of(s, what);
	});

	return err != 0 ? err : what == FAA_BATCH ? ns / BATCH : ns;
}

static const char read8[] = "READ, 8 bytes"; /* what all else is beside */

static int fail(const struct served *s, const char *what, int err)
{
	return vb_fail(err, "server %u: %s: %s", s->node + 1u, what, vb_strerror(err));
}

static int measure_read(struct vb_floor *f, struct served *s)
{
	struct vb_hist *h = malloc(sizeof(*h));
	char name[48];
	int err = h == NULL ? -ENOMEM : 0;

	if (err == 0)
		vb_hist_init(h);
	/* Connections are there, and pages touched. */
	for (unsigned i = 0; i < ROUNDS && err == 0; i++)
		err = round_of(s, READ8);
	for (unsigned i = 0; i < SINGLES && err == 0; i++) {
		uint64_t from = vb_clock_gettime_ns();

		err = round_of(s, READ8);
		vb_hist_record(h, vb_clock_gettime_ns() - from);
	}
	if (err == 0) {
		const double p50 = (double)vb_hist_percentile(h, 50);

		snprintf(name, sizeof(name), "server %u: %s", s->node + 1u, read8);
		vb_floor_add(f, "servers", name, "ns", p50, NULL, 0);
		snprintf(name, sizeof(name), "server %u: %s, p99", s->node + 1u, read8);
		vb_floor_add(f, "servers", name, "ns", (double)vb_hist_percentile(h, 99), read8,
			     p50);
	}
	free(h);
	return err != 0 ? fail(s, read8, err) : 0;
}

static int measure_one(struct vb_floor *f, struct served *s)
{
	static const struct vb_floor_pair rows[] = {
		{"READ, 512 bytes", READ512, read8, READ8},
		{"WRITE, 64 bytes", WRITE64, read8, READ8},
		{"FAA, 64 bits", FAA, read8, READ8},
		{"each of 16 FAAs", FAA_BATCH, "one FAA at a time", FAA},
		{"lock 'cas', a cycle", CYCLE, read8, READ8},
	};
	int err = measure_read(f, s);

	for (unsigned i = 0; i < VB_ARRAY_SIZE(rows) && err == 0 && !vb_interrupted; i++) {
		struct vb_floor_pair row = rows[i];
		char name[48];

		snprintf(name, sizeof(name), "server %u: %s", s->node + 1u, rows[i].name);
		row.name = name;
		err = vb_floor_turns(f, "servers", &row, turn, s);
		if (err != 0)
			err = fail(s, rows[i].name, err);
	}
	return err;
}

static int open_all(const struct vb_floor_opts *o, struct served *s)
{
	struct vb_lock_space_params p = {.name = SPACE, .lock = "cas"};
	int err = vb_bench_servers_open(o->servers, o->key, o->fabric_options, &s->f);

	if (err != 0)
		return err;
	p.servers = s->f->nodes;
	p.locks = (uint64_t)WORDS * s->f->nodes;
	err = vb_lock_space_open(s->f, &p, &s->space);
	if (err == 0)
		err = vb_lock_client_open(s->space, 0, &s->me);
	return err != 0 ? err : vb_ep_open(s->f, 0, &s->ep);
}

static void close_all(struct served *s)
{
	char others[256];

	vb_ep_close(s->ep);
	vb_lock_client_close(s->me);
	if (s->space != NULL) {
		vb_lock_space_close(s->space);
		/* Another such run may be at it. */
		vb_log_capture_begin(others, sizeof(others));
		(void)vb_lock_space_remove(s->f, SPACE);
		vb_log_capture_end();
	}
	if (s->f != NULL)
		vb_fabric_close(s->f);
}

int vb_floor_served(struct vb_floor *f)
{
	struct served s = {0};
	int err = open_all(&f->o, &s), servers;

	/* Node n is server n + 1's, as long as there are so many servers. */
	servers = err == 0 ? (int)s.f->caps.servers : 0;
	for (; s.node < servers && err == 0 && !vb_interrupted; s.node++) {
		s.at = vb_lock_entry(s.space, s.node);
		err = measure_one(f, &s);
	}
	if (s.lost != 0)
		snprintf(f->note, sizeof(f->note), "%" PRIu64 " verbs had no answer in time",
			 s.lost);
	close_all(&s);
	return err;
}
