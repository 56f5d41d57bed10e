/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process is killed in the midst of a commit, on a network, and its node's memory goes with it.  Its transaction
 * holds records on two other nodes.  With two copies of its log their processes finish it if it had committed, and
 * free what it held if not; without copies they get -EAGAIN for good.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "child.h"
#include "cluster/cluster.h"
#include "txn/db.h"

#define MS          1000000ull
#define HOSTS       4u
#define DIES        3u /* its copies: 0 and 1 */
#define KEYS        2u
#define PATIENCE_NS (60000 * MS)
#define BOUND_MS    100u

enum when { BEFORE_LOG, BEHIND_INSTALL, BEFORE_WRITES };

/* What the processes tell each other. */
struct board {
	uint32_t opened, held, ended, stop, failed;
	uint64_t value[HOSTS][KEYS];
	int told[HOSTS];
	char why[256];
};

struct host {
	struct board *b;
	const char *cc;
	enum when when;
	uint32_t copies;
	unsigned rank;
	int listening;
	uint16_t port;
	struct vb_cluster *cluster;
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *t;
	struct vb_coordinator *me;
};

/* ---- in a process ---- */

VB_NORETURN static void fail_by(struct host *h, const char *what, int err)
{
	snprintf(h->b->why, sizeof(h->b->why), "rank %u: %s: %s", h->rank, what, vb_strerror(err));
	__atomic_store_n(&h->b->failed, 1, __ATOMIC_SEQ_CST);
	_exit(1);
}
#define MUST(h, call)                                                                              \
	do {                                                                                       \
		int err_ = (call);                                                                 \
		if (err_ != 0)                                                                     \
			fail_by(h, #call, err_);                                                   \
	} while (0)

static uint64_t key_of(unsigned i)
{
	return (uint64_t)(1 + i) << 48 | 1;
}

/* The protocol, for the one that dies: instead of its commit stage, or behind its install stage. */
static const struct vb_cc_ops *whole;
static struct vb_cc_ops mute;
static struct vb_stage_ops stages[VB_STAGES_MAX];

static void dies(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	(void)s;
	(void)items;
	(void)n;
	raise(SIGKILL);
}

static void installs_and_dies(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	whole->stages[whole->install].run(s, items, n);
	raise(SIGKILL);
}

static void on_prepared(void *ctx, const struct vb_txn *t)
{
	struct host *h = ctx;
	struct vb_db *db = t->me->db;

	if (h->when == BEFORE_LOG)
		raise(SIGKILL);
	whole = db->cc;
	mute = *whole;
	memcpy(stages, mute.stages, mute.n_stages * sizeof(stages[0]));
	if (h->when == BEHIND_INSTALL)
		stages[mute.install].run = installs_and_dies;
	else
		stages[mute.commit].run = dies;
	mute.stages = stages;
	db->cc = &mute;
}

static void on_ended(void *ctx, const struct vb_txn *t, bool committed)
{
	(void)ctx;
	(void)t;
	(void)committed;
}

static void on_unknown(void *ctx, const struct vb_txn *t)
{
	(void)ctx;
	(void)t;
}

static void open_host(struct host *h)
{
	struct vb_cluster_params cp = {.hosts = HOSTS, .timeout_ns = PATIENCE_NS};
	char meet[32], options[32];
	const struct vb_db_params dp = {.cc = h->cc,
					.coordinators = 2,
					.items_max = 8,
					.bytes_max = 256,
					.record_bytes_max = 64,
					.copies = h->copies};
	const struct vb_table_params tp = {
		.name = "t", .record_bytes = 8, .records = 64, .partition = VB_PARTITION_TOP16};
	const struct vb_fabric_params fp = {.fabric = "tcp",
					    .options = options,
					    .nodes = HOSTS,
					    .node_bytes = 8 << 20,
					    .endpoints = 16};
	struct vb_fabric_params with = fp;
	struct vb_db_server *server;
	uint64_t one = 1;

	vb_sched_forget();
	if (h->rank == 0) {
		MUST(h, vb_cluster_open_on(&cp, h->listening, &h->cluster));
	} else {
		close(h->listening);
		snprintf(meet, sizeof(meet), "127.0.0.1:%u", h->port);
		cp.role = VB_CLUSTER_MEMBER;
		cp.rank = h->rank;
		cp.meet = meet;
		MUST(h, vb_cluster_open(&cp, &h->cluster));
	}
	snprintf(options, sizeof(options), "bound=%ums", BOUND_MS);
	with.cluster = h->cluster;
	MUST(h, vb_fabric_open(&with, &h->f));
	MUST(h, vb_db_open(h->f, &dp, &h->db));
	MUST(h, vb_table_open(h->db, &tp, &h->t));
	for (unsigned i = 0; i < KEYS; i++)
		if (vb_table_node(h->t, key_of(i)) == h->rank)
			MUST(h, vb_table_load(h->t, key_of(i), &one));
	MUST(h, vb_db_server_start(h->db, (uint16_t)h->rank, &server));
	MUST(h, vb_cluster_barrier(h->cluster));
	MUST(h, vb_coordinator_open(h->db, (uint16_t)h->rank, &h->me));
	__atomic_add_fetch(&h->b->opened, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&h->b->opened, __ATOMIC_SEQ_CST) < HOSTS)
		vb_ep_sleep(h->me->ep, MS);
}

static int change(struct vb_coordinator *me, void *arg)
{
	struct host *h = arg;
	int err = 0;

	for (unsigned i = 0; i < KEYS && err == 0; i++) {
		uint64_t *record;

		err = vb_txn_update(me, h->t, key_of(i), (void **)&record);
		if (err != 0)
			break;
		h->b->value[h->rank][i] = *record;
		*record = h->rank == DIES ? 7 : *record + 100;
	}
	return err;
}

static void be_killed(struct host *h)
{
	struct vb_txn_watch watch = {
		.ctx = h, .prepared = on_prepared, .ended = on_ended, .unknown = on_unknown};

	h->db->watch = &watch;
	MUST(h, vb_txn_begin(h->me));
	MUST(h, change(h->me, h));
	__atomic_store_n(&h->b->held, 1, __ATOMIC_SEQ_CST);
	(void)vb_txn_commit(h->me);
	fail_by(h, "it lives", 0);
}

/* Until it has had all records, or for a few suspect times without copies. */
static void take_over(struct host *h)
{
	const uint64_t most = h->copies != 0 ? PATIENCE_NS : 6 * h->db->suspect_ns;
	const uint64_t end = vb_clock_gettime_ns() + most;
	int err = -EAGAIN;

	while (!__atomic_load_n(&h->b->held, __ATOMIC_SEQ_CST))
		vb_ep_sleep(h->me->ep, MS);
	vb_ep_sleep(h->me->ep, 200 * MS);
	while (err != 0 && vb_clock_gettime_ns() < end)
		err = vb_txn_run(h->me, change, h, 1);
	h->b->told[h->rank] = err;
}

VB_NORETURN static void be_host(struct host *h)
{
	alarm(4 * PATIENCE_NS / (1000 * MS));
	open_host(h);
	if (h->rank == DIES)
		be_killed(h);
	if (h->rank != 0)
		take_over(h);
	__atomic_add_fetch(&h->b->ended, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&h->b->stop, __ATOMIC_SEQ_CST))
		vb_ep_sleep(h->me->ep, MS);
	_exit(0);
}

/* ---- the test ---- */

static void wait_for(struct board *b)
{
	const uint64_t end = vb_clock_gettime_ns() + 3 * PATIENCE_NS;

	while (__atomic_load_n(&b->ended, __ATOMIC_SEQ_CST) < HOSTS - 1) {
		if (__atomic_load_n(&b->failed, __ATOMIC_SEQ_CST) || vb_clock_gettime_ns() > end)
			return;
		usleep(1000);
	}
}

static struct board play(const char *cc, enum when when, uint32_t copies)
{
	struct host h = {.cc = cc, .when = when, .copies = copies};
	struct board seen;
	pid_t pid[HOSTS];

	h.b = mmap(NULL, sizeof(*h.b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(h.b != MAP_FAILED);
	assert_int_equal(vb_cluster_listen("127.0.0.1", 0, &h.listening, &h.port), 0);
	fflush(NULL);
	for (unsigned i = 0; i < HOSTS; i++) {
		pid[i] = fork_child();
		assert_true(pid[i] >= 0);
		h.rank = i;
		if (pid[i] == 0)
			be_host(&h);
	}
	close(h.listening);
	wait_for(h.b);
	__atomic_store_n(&h.b->stop, 1, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < HOSTS; i++) {
		if (h.b->failed)
			kill(pid[i], SIGKILL);
		while (waitpid(pid[i], NULL, 0) < 0 && errno == EINTR)
			;
	}
	seen = *h.b;
	munmap(h.b, sizeof(*h.b));
	if (seen.failed)
		fail_msg("%s: %s", cc, seen.why);
	assert_int_equal(seen.ended, HOSTS - 1);
	return seen;
}

/* One of the two after the other. */
static void finished(const char *cc, enum when when)
{
	const uint64_t was = when == BEFORE_WRITES ? 7 : 1;
	struct board seen = play(cc, when, 2);
	unsigned first = seen.value[1][0] < seen.value[2][0] ? 1 : 2;

	for (unsigned i = 1; i < 3; i++)
		if (seen.told[i] != 0)
			fail_msg("%s: rank %u: %s", cc, i, vb_strerror(seen.told[i]));
	for (unsigned k = 0; k < KEYS; k++) {
		assert_int_equal(seen.value[first][k], was);
		assert_int_equal(seen.value[3 - first][k], was + 100);
	}
}

static void rolled_forward(void **state)
{
	(void)state;
	finished("silo", BEFORE_WRITES);
	finished("no-wait", BEFORE_WRITES);
	finished("maat", BEFORE_WRITES);
	finished("to-cascade", BEFORE_WRITES);
}

static void rolled_back(void **state)
{
	(void)state;
	finished("silo", BEFORE_LOG);
	finished("wound-wait-sx", BEFORE_LOG);
	finished("maat", BEFORE_LOG);
	finished("to-cascade", BEHIND_INSTALL);
}

static void stays_without_copies(void **state)
{
	struct board seen = play("no-wait", BEFORE_WRITES, 0);

	(void)state;
	assert_int_not_equal(seen.told[1], 0);
	assert_int_not_equal(seen.told[2], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rolled_forward),
		cmocka_unit_test(rolled_back),
		cmocka_unit_test(stays_without_copies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
