/* SPDX-License-Identifier: Apache-2.0 */
/* Opens, uses, removals and removers that die, in the orders that seeds draw: who has a space open keeps it, who finds
 * it anew finds zeros, and what was removed is gone. */
#include "sim_test.h"

#include <errno.h>
#include <stdio.h>

#include <verbena/lock.h>

#define VB_LOG_ROOM "test"
#include "base/log.h"
#include "base/rng.h"
#include "lock/lock.h"

#if defined(VB_TSAN) || defined(VB_ASAN)
#define SEEDS 60u
#else
#define SEEDS 600u
#endif
#define TASKS  4u
#define ROUNDS 12u
#define NODES  2u
#define IDS    512u

struct race {
	struct vb_fabric *f;
	struct vb_rng rng;
	unsigned inside;     /* of lock 1, of any space of the name */
	unsigned open[IDS];  /* how many have the space with that id */
	uint64_t token[IDS]; /* the last one of it */
	unsigned opens, removals, refusals, halves;
};

static void rest(struct race *r, struct vb_ep *ep)
{
	(void)vb_ep_sleep(ep, vb_rng_below(&r->rng, 40000));
}

static unsigned listed(struct race *r, const char *name, uint64_t id)
{
	struct vb_region_info all[64];
	unsigned found = 0;

	for (uint16_t node = 0; node < NODES; node++) {
		int n = vb_regions(r->f, node, all, 64);

		for (int i = 0; i < n; i++)
			found += strcmp(all[i].name, name) == 0 &&
				 (id == 0 || (node == 0 && all[i].id == id));
	}
	return found;
}

/* It is there as long as it is open, on both nodes. */
static void check_open(struct race *r, const struct vb_lock_space *s)
{
	assert_true(r->open[s->held[0].id] > 0);
	assert_int_equal(listed(r, "lock:s", s->held[0].id), 1);
	assert_int_equal(listed(r, "lock:s", 0), NODES);
}

static void use_lock(struct race *r, struct vb_lock_space *s, struct vb_ep *ep)
{
	struct vb_lock_client *me;
	struct vb_grant g;

	assert_int_equal(vb_lock_client_open(s, (uint16_t)vb_rng_below(&r->rng, NODES), &me), 0);
	rest(r, ep);
	check_open(r, s);
	assert_int_equal(vb_lock_acquire(me, 1, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	assert_int_equal(r->inside++, 0);
	assert_int_equal(g.token, r->token[s->held[0].id] + 1);
	r->token[s->held[0].id] = g.token;
	rest(r, ep);
	check_open(r, s);
	r->inside--;
	assert_int_equal(vb_lock_release(me, &g), 0);
	vb_lock_client_close(me);
}

static void opens(struct race *r, struct vb_ep *ep)
{
	const struct vb_lock_space_params p = {
		.lock = "cas",
		.name = "s",
		.locks = 10 + 1000 * vb_rng_below(&r->rng, 2),
		.servers = NODES,
		.fencing = true,
	};
	struct vb_lock_space *s;
	int err = vb_lock_space_open(r->f, &p, &s);

	if (err == -EAGAIN || err == -EINVAL) {
		r->refusals++;
		return;
	}
	assert_int_equal(err, 0);
	assert_in_range(s->held[0].id, 1, IDS - 1);
	r->opens++;
	r->open[s->held[0].id]++;
	check_open(r, s);
	rest(r, ep);
	if (vb_rng_below(&r->rng, 3) > 0)
		use_lock(r, s, ep);
	check_open(r, s);
	r->open[s->held[0].id]--;
	assert_int_equal(vb_lock_space_close(s), 0);
}

static void removes(struct race *r)
{
	int err = vb_lock_space_remove(r->f, "s");

	if (err == 0) {
		r->removals++;
		/* Nobody has run since the last of it went. */
		assert_int_equal(listed(r, "lock:s", 0), 0);
	} else {
		r->refusals++;
		assert_true(err == -EBUSY || err == -EAGAIN || err == -ENOENT);
	}
}

/* Dies somewhere on the way: its endpoint is not alive any more. */
static void half_removes(struct race *r, struct vb_ep *ep)
{
	struct vb_region_info all[64];
	struct vb_ep *mine = endpoint(r->f, 0);

	if (vb_region_take(r->f, "lock:s", mine->self) == 0) {
		r->halves++;
		rest(r, ep);
		if (vb_rng_below(&r->rng, 2)) {
			int n = vb_regions(r->f, 1, all, 64);

			for (int i = 0; i < n; i++)
				if (strcmp(all[i].name, "lock:s") == 0)
					assert_int_equal(vb_region_remove(r->f, 1, all[i].id), 0);
			rest(r, ep);
		}
	}
	vb_ep_close(mine);
}

static void one_of_many(void *arg)
{
	struct race *r = arg;
	struct vb_ep *ep = endpoint(r->f, 1);

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t what = vb_rng_below(&r->rng, 6);

		rest(r, ep);
		if (what < 2)
			opens(r, ep);
		else if (what < 5)
			removes(r);
		else
			half_removes(r, ep);
	}
	vb_ep_close(ep);
}

static void check_zeros(struct vb_fabric *f)
{
	for (uint16_t node = 0; node < NODES; node++) {
		const uint64_t *at = vb_local(f, vb_addr_make(node, 0), 65536);

		for (unsigned i = 0; i < 65536 / 8; i++)
			assert_int_equal(at[i], 0);
	}
}

static void test_seeds(void **state)
{
	struct race all = {.f = NULL};

	(void)state;
	for (unsigned seed = 1; seed <= SEEDS; seed++) {
		struct race r = {.f = cluster("bound=20us", NODES, seed)};
		int err;

		vb_rng_seed(&r.rng, seed, 1);
		for (unsigned i = 0; i < TASKS; i++)
			spawn(one_of_many, &r);
		vb_log_mute();
		run_all();
		err = vb_lock_space_remove(r.f, "s");
		vb_log_unmute();
		assert_true(err == 0 || err == -ENOENT);
		assert_int_equal(listed(&r, "lock:s", 0), 0);
		check_zeros(r.f);
		assert_int_equal(vb_fabric_close(r.f), 0);
		all.opens += r.opens;
		all.removals += r.removals;
		all.refusals += r.refusals;
		all.halves += r.halves;
	}
	print_message("%u opens, %u removals, %u left half done, %u refused\n", all.opens,
		      all.removals, all.halves, all.refusals);
	assert_true(all.opens > SEEDS && all.removals > SEEDS && all.halves > SEEDS / 4 &&
		    all.refusals > SEEDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_seeds),
	};

	return cmocka_run_group_tests_name("remove_race", tests, NULL, NULL);
}
