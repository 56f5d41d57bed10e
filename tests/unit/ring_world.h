/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of what ends at once on a ring have open; and who stands behind a holder without a task of its own. */
#ifndef VB_TESTS_RING_WORLD_H
#define VB_TESTS_RING_WORLD_H

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <verbena/async.h>

#include <cmocka.h>

#include "base/log.h"
#include "lock/lock.h"
#include "lock/shiftlock/shiftlock.h"

#define MS          1000000ull
#define PATIENCE_NS (60000 * MS)
#define LEASE_NS    (120000 * MS)
#define CLIENTS     3
#define HOT         5

static struct {
	struct vb_fabric *fabric;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *client[CLIENTS];
	struct vb_grant grant[CLIENTS];
	struct vb_ring *ring;
} w;

static inline void open_world(const char *fabric, const char *lock, uint32_t depth)
{
	const struct vb_fabric_params fp = {.fabric = fabric, .node_bytes = 8u << 20};
	/* drtm's readers have a lease of their own; no writer comes behind one here. */
	const char *options = strcmp(lock, "drtm") == 0 ? "read_lease=120s" : NULL;
	const struct vb_lock_space_params sp = {
		.lock = lock, .locks = 16, .lease_ns = LEASE_NS, .options = options};
	const struct vb_ring_params rp = {.depth = depth};

	memset(&w, 0, sizeof(w));
	assert_int_equal(vb_fabric_open(&fp, &w.fabric), 0);
	assert_int_equal(vb_lock_space_open(w.fabric, &sp, &w.space), 0);
	if (strcmp(fabric, "sim") == 0)
		assert_int_equal(vb_lock_server_start(w.space, 0, 0, 1, &w.server), 0);
	else
		assert_int_equal(vb_lock_server_thread_start(w.space, 0, &w.server), 0);
	for (unsigned i = 0; i < CLIENTS; i++)
		assert_int_equal(vb_lock_client_open(w.space, 0, &w.client[i]), 0);
	assert_int_equal(vb_ring_open(&rp, &w.ring), 0);
}

static inline void close_world(void)
{
	assert_int_equal(vb_ring_close(w.ring), 0);
	for (unsigned i = 0; i < CLIENTS; i++)
		vb_lock_client_close(w.client[i]);
	vb_lock_server_stop(w.server);
	assert_int_equal(vb_lock_space_close(w.space), 0);
	assert_int_equal(vb_fabric_close(w.fabric), 0);
}

static inline int acquire(unsigned i, uint64_t lock, enum vb_mode mode)
{
	return vb_lock_acquire_start(w.ring, w.client[i], lock, mode, VB_FOREVER_NS, &w.grant[i],
				     &w.client[i], NULL);
}

static inline int release(unsigned i, uint64_t *id)
{
	return vb_lock_release_start(w.ring, w.client[i], &w.grant[i], &w.client[i], id);
}

static inline vb_addr word_of(uint64_t lock)
{
	return vb_lock_entry(w.space, lock);
}

static inline void expect_nothing(void)
{
	struct vb_completion done;

	assert_int_equal(vb_ring_reap(w.ring, &done, 1), 0);
}

static inline void expect(unsigned i, int result)
{
	struct vb_completion done;

	assert_int_equal(vb_ring_wait(w.ring, PATIENCE_NS), 0);
	assert_int_equal(vb_ring_reap(w.ring, &done, 1), 1);
	assert_ptr_equal(done.tag, &w.client[i]);
	assert_int_equal(done.result, result);
}

/* rma-rw's writers have a task, in which they end as soon. */
static inline bool without_task(enum vb_mode mode)
{
	return mode == VB_SHARED || w.space->ops->try_verbs == 0;
}

/* No task runs, nothing is queued, and the place of a completion is not asked for. */
static inline void cycle(enum vb_mode mode)
{
	struct vb_sched *s = w.client[0]->ep->sched;
	uint64_t switches = vb_sched_switches(s);

	for (unsigned n = 0; n < 3; n++) {
		uint64_t before = vb_sched_switches(s);

		assert_int_equal(acquire(0, HOT, mode), 0);
		assert_int_equal(vb_sched_switches(s) == before, without_task(mode));
		assert_true(vb_lock_valid(w.client[0], &w.grant[0]));
		assert_int_equal(release(0, NULL), 0);
		assert_false(vb_lock_valid(w.client[0], &w.grant[0]));
	}
	if (without_task(mode))
		assert_int_equal(vb_sched_switches(s), switches);
	expect_nothing();
	assert_int_equal(vb_ring_wait(w.ring, 0), -ENOENT);
}

/* How a writer names itself in a lock's word, and what it tells the one before it. */
struct queue {
	const char *lock;
	unsigned at; /* in the lock's entry */
	uint64_t (*name)(const struct vb_ep *ep);
	void (*tell)(uint64_t holder, uint64_t name, struct vb_msg *m);
};

/* mcs, and rma-rw in its group: 24 bits of a number. */
static inline uint64_t mcs_name(const struct vb_ep *ep)
{
	return ep->self << 24 | 1;
}

static inline void mcs_tell(uint64_t holder, uint64_t name, struct vb_msg *m)
{
	m->imm = (uint32_t)(holder << 8);
	m->len = sizeof(name);
	memcpy(m->data, &name, sizeof(name));
}

/* ncosed: 7 bits of a number over 17 that count readers. */
static inline uint64_t ncosed_name(const struct vb_ep *ep)
{
	return ep->self << 24 | 1 << 17;
}

static inline void ncosed_tell(uint64_t holder, uint64_t name, struct vb_msg *m)
{
	const struct {
		uint32_t number;
		uint8_t to, again;
		uint16_t reserved;
		uint64_t readers;
	} hello = {.number = 1, .to = holder >> 17 & 0x7f};

	(void)name;
	m->len = sizeof(hello);
	memcpy(m->data, &hello, sizeof(hello));
}

/* shiftlock: the lower word's tail; the generation is 0. */
static inline uint64_t shiftlock_name(const struct vb_ep *ep)
{
	return ep->self;
}

static inline void shiftlock_tell(uint64_t holder, uint64_t name, struct vb_msg *m)
{
	(void)holder;
	(void)name;
	m->tag = SL_SUCCESSOR;
	m->imm = sl_stamp(w.space, 0);
}

static const struct queue queues[] = {{"mcs", 0, mcs_name, mcs_tell},
				      {"ncosed", 0, ncosed_name, ncosed_tell},
				      {"shiftlock", 0, shiftlock_name, shiftlock_tell},
				      {"rma-rw", 8, mcs_name, mcs_tell}};

/* Client 1 has swapped its name into the word, and has told nobody. */
static inline void stands_behind(const struct queue *q, uint64_t *holder, uint64_t *name)
{
	struct vb_ep *ep = w.client[1]->ep;
	uint64_t seen;

	*name = q->name(ep);
	assert_int_equal(vb_read64(ep, word_of(HOT) + q->at, holder), 0);
	assert_int_equal(vb_cas64(ep, word_of(HOT) + q->at, *holder, *name, &seen), 0);
	assert_int_equal(seen, *holder);
}

/* Now it tells client 0. */
static inline void tells(const struct queue *q, uint64_t holder, uint64_t name)
{
	struct vb_msg m = {.subject = word_of(HOT), .tag = 1};
	struct vb_ep *ep = w.client[1]->ep;

	VB_SCHED_INSIDE(ep->sched);
	q->tell(holder, name, &m);
	assert_int_equal(vb_send(ep, w.client[0]->ep->self, &m), 0);
}

/* And leaves. */
static inline void is_through(const struct queue *q, uint64_t name)
{
	uint64_t seen;

	assert_int_equal(vb_cas64(w.client[1]->ep, word_of(HOT) + q->at, name, 0, &seen), 0);
	assert_int_equal(seen, name);
}

#endif
