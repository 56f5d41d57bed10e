/* SPDX-License-Identifier: Apache-2.0 */
/* Rings of two processes on tcp, whose locks are at either's node: what ends at once is a near lock's, and who stands
 * behind its holder, or gives up there, may be a client of the other process. */
#include <errno.h>

#include <verbena/async.h>

#include "../conformance/fabric/crowd.h"

#include "base/compiler.h"
#include "base/rng.h"

#define HOSTS  2
#define EACH   3 /* clients of a process */
#define LOCKS  2
#define CYCLES 150
#define MS     1000000ull

/* Of both processes. */
static struct {
	uint32_t inside[LOCKS]; /* atomic */
	uint64_t token[LOCKS];  /* the holder's */
} * hot;

static const char *lock_name;

struct asker {
	struct vb_ring *ring;
	struct vb_lock_client *client;
	struct vb_grant grant;
	uint64_t lock, id;
	struct vb_rng rng;
	unsigned left;
	bool asks;
};

/* Alone, and with a token that is larger than all before it. */
static void under_lock(struct asker *a)
{
	crowd_must(__atomic_fetch_add(&hot->inside[a->lock], 1, __ATOMIC_SEQ_CST) == 0);
	crowd_must(a->grant.token > hot->token[a->lock]);
	hot->token[a->lock] = a->grant.token;
	sched_yield();
	__atomic_fetch_sub(&hot->inside[a->lock], 1, __ATOMIC_SEQ_CST);
}

static int next_acquire(struct asker *a)
{
	static const uint64_t timeouts[] = {0, 50000, VB_FOREVER_NS, VB_FOREVER_NS};
	uint64_t timeout_ns = timeouts[vb_rng_below(&a->rng, VB_ARRAY_SIZE(timeouts))];

	a->lock = vb_rng_below(&a->rng, LOCKS);
	a->asks = true;
	return vb_lock_acquire_start(a->ring, a->client, a->lock, VB_EXCLUSIVE, timeout_ns,
				     &a->grant, a, &a->id);
}

/* A call of it has ended: starts the next ones, until one is under way.  False: it is through. */
static bool go_on(struct asker *a, int result)
{
	do {
		if (a->asks && result == 0) {
			under_lock(a);
			a->asks = false;
			result = vb_lock_release_start(a->ring, a->client, &a->grant, a, &a->id);
			continue;
		}
		crowd_must(result == 0 ||
			   (a->asks && (result == -ETIMEDOUT || result == -ECANCELED)));
		a->asks = false;
		if (a->left-- == 0)
			return false;
		result = next_acquire(a);
	} while (result != VB_STARTED);
	if (vb_rng_below(&a->rng, 8) == 0) {
		int err = vb_ring_cancel(a->ring, a->id);

		/* The keeper may have had its turn, and have ended it. */
		crowd_must(err == 0 || err == -ENOENT);
	}
	return true;
}

static void ask(struct vb_ring *ring, struct asker *a)
{
	unsigned live = 0;

	for (unsigned i = 0; i < EACH; i++)
		live += go_on(&a[i], 0);
	while (live > 0) {
		struct vb_completion done;

		crowd_must(vb_ring_wait(ring, 30000 * MS) == 0);
		if (vb_ring_reap(ring, &done, 1) == 1)
			live -= !go_on(done.tag, done.result);
	}
}

static void body(struct crowd *c)
{
	const struct vb_lock_space_params sp = {.lock = lock_name,
						.locks = LOCKS,
						.servers = HOSTS,
						.lease_ns = 60000 * MS,
						.fencing = true};
	struct vb_lock_server *server;
	struct vb_lock_space *space;
	struct asker a[EACH];
	struct vb_ring *ring;

	crowd_must(vb_lock_space_open(c->f, &sp, &space) == 0);
	crowd_must(vb_lock_server_thread_start(space, (uint16_t)c->rank, &server) == 0);
	/* shiftlock's clients look for the servers of all nodes. */
	crowd_must(vb_cluster_barrier(c->cluster) == 0);
	crowd_must(vb_ring_open(NULL, &ring) == 0);
	for (unsigned i = 0; i < EACH; i++) {
		a[i] = (struct asker){.ring = ring, .left = CYCLES};
		vb_rng_seed(&a[i].rng, c->rank, i);
		crowd_must(vb_lock_client_open(space, (uint16_t)c->rank, &a[i].client) == 0);
	}
	ask(ring, a);
	for (unsigned i = 0; i < EACH; i++)
		vb_lock_client_close(a[i].client);
	crowd_must(vb_cluster_barrier(c->cluster) == 0);
	crowd_must(vb_ring_close(ring) == 0);
	vb_lock_server_stop(server);
	crowd_must(vb_lock_space_close(space) == 0);
}

static void test_two(void **state)
{
	static const char *const locks[] = {"cas",    "retry-on-fail", "drtm",
					    "dslr",   "dslr-update",   "mcs",
					    "ncosed", "rma-rw",        "shiftlock"};
	static const crowd_body bodies[] = {body, body};

	(void)state;
	hot = mmap(NULL, sizeof(*hot), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(hot != MAP_FAILED);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(locks); i++) {
		memset(hot, 0, sizeof(*hot));
		lock_name = locks[i];
		munmap(crowd_run("tcp", "bound=10s,silence=25s", HOSTS, bodies, CROWD_MAX),
		       sizeof(struct crowd_page));
	}
	munmap(hot, sizeof(*hot));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_two)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
