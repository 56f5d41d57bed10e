/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What include/verbena/lock.h says of single calls and no other test asks: the bounds of a space, what
 * a grant says, who cannot open, what a conversion may come to, what a token costs.
 */
#include "sim_test.h"

#include <errno.h>

#include <verbena/names.h>

#define VB_LOG_ROOM "test"
#include "base/log.h"
#include "lock/lock.h"
#include "lock/protocols.h"

#define US    1000ull
#define MS    1000000ull
#define LEASE (10 * MS)

static const struct vb_sim_faults none, lose = {.lose = 1.0};

#define must(call) assert_int_equal(call, 0)

/* The call says so, and the log says why. */
#define refused(call, wanted) refused_with(call, wanted, "")
#define refused_with(call, wanted, why)                                                            \
	do {                                                                                       \
		char said_[1024] = "";                                                             \
                                                                                                   \
		vb_log_capture_begin(said_, sizeof(said_));                                        \
		assert_int_equal(call, wanted);                                                    \
		vb_log_capture_end();                                                              \
		assert_true(said_[0] != '\0');                                                     \
		if (strstr(said_, why) == NULL)                                                    \
			fail_msg("'%s' does not say '%s'", said_, why);                            \
	} while (0)

struct world {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *a, *b;
};

static void open_world(struct world *w, const struct vb_lock_space_params *p)
{
	*w = (struct world){.f = cluster("profile=cx5", 2, 1)};
	must(vb_lock_space_open(w->f, p, &w->space));
	must(vb_lock_server_start(w->space, 0, 0, 1, &w->server));
	must(vb_lock_client_open(w->space, 1, &w->a));
	must(vb_lock_client_open(w->space, 1, &w->b));
}

static void close_world(struct world *w)
{
	vb_lock_client_close(w->a);
	vb_lock_client_close(w->b);
	vb_lock_server_stop(w->server);
	vb_lock_space_close(w->space);
	vb_fabric_close(w->f);
	vb_sched_destroy(vb_sched_self());
}

static void open_lock(struct world *w, const char *lock)
{
	open_world(w,
		   &(struct vb_lock_space_params){.lock = lock, .locks = 100, .lease_ns = LEASE});
}

static void pause_for(struct vb_lock_client *me, uint64_t ns)
{
	must(vb_ep_sleep(me->ep, ns));
}

/* ---- spaces ---- */

#define CHANGED(...)                                                                               \
	do {                                                                                       \
		struct vb_lock_space_params p = {.lock = "cas", .locks = 10};                      \
		struct vb_lock_space *s = NULL;                                                    \
                                                                                                   \
		__VA_ARGS__;                                                                       \
		refused(vb_lock_space_open(f, &p, &s), -EINVAL);                                   \
		assert_null(s);                                                                    \
	} while (0)

static void test_bounds_of_a_space(void **state)
{
	static const uint64_t leases[] = {10 * US, 3600 * 1000 * MS};
	struct vb_lock_space_params p = {.lock = "cas", .locks = 1, .servers = 2};
	struct vb_fabric *f = cluster("profile=cx5", 2, 1);
	struct vb_lock_space *s = NULL;

	(void)state;
	CHANGED(p.lock = NULL);
	CHANGED(p.lock = "cass");
	CHANGED(p.options = "no-such=1");
	CHANGED(p.locks = 0);
	CHANGED(p.locks = (1ull << 40) + 1);
	CHANGED(p.servers = 3);
	CHANGED(p.lease_ns = 10 * US - 1);
	CHANGED(p.lease_ns = 3600 * 1000 * MS + 1);
	CHANGED(p.drift_ppm = 10001);
	CHANGED(p.claims = 65537);
	/* Each server has a lock at least. */
	refused(vb_lock_space_open(f, &p, &s), -EINVAL);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(leases); i++) {
		char name[] = "space0";

		name[5] += (char)i;
		p = (struct vb_lock_space_params){.lock = "cas",
						  .name = name,
						  .locks = 1,
						  .lease_ns = leases[i],
						  .drift_ppm = 10000,
						  .claims = 65536};
		must(vb_lock_space_open(f, &p, &s));
		vb_lock_space_close(s);
	}
	/* So many are allowed, and do not fit here. */
	p = (struct vb_lock_space_params){.lock = "cas", .name = "many", .locks = 1ull << 40};
	refused(vb_lock_space_open(f, &p, &s), -ENOSPC);
	vb_lock_space_close(NULL);
	vb_fabric_close(f);
	/* A lease that a late verb could outlive. */
	f = cluster("profile=cx5,bound=30ms", 2, 1);
	CHANGED((p.lock = "dslr", p.lease_ns = 59 * MS));
	p = (struct vb_lock_space_params){.lock = "dslr", .locks = 1, .lease_ns = 60 * MS};
	must(vb_lock_space_open(f, &p, &s));
	vb_lock_space_close(s);
	vb_fabric_close(f);
}

/* Two names, two spaces; no name is "locks"; 0 means what the header says. */
static void test_spaces_by_name(void **state)
{
	struct vb_lock_space_params p = {.lock = "cas", .locks = 10, .name = "other"};
	struct vb_lock_space *second, *same;
	struct vb_lock_client *c;
	struct vb_grant g, h;
	struct world w;

	(void)state;
	open_lock(&w, "cas");
	assert_int_equal(w.space->servers, 1);
	assert_int_equal(w.space->claims, VB_CLAIMS_MAX);
	assert_int_equal(w.space->drift_ppm, 100);
	must(vb_lock_space_open(w.f, &p, &second));
	must(vb_lock_client_open(second, 1, &c));
	must(vb_lock_try(w.a, 3, VB_EXCLUSIVE, &g));
	must(vb_lock_try(c, 3, VB_EXCLUSIVE, &h));
	must(vb_lock_release(c, &h));
	vb_lock_client_close(c);
	p = (struct vb_lock_space_params){
		.lock = "cas", .locks = 100, .lease_ns = LEASE, .name = "locks"};
	must(vb_lock_space_open(w.f, &p, &same));
	must(vb_lock_client_open(same, 0, &c));
	assert_int_equal(vb_lock_try(c, 3, VB_EXCLUSIVE, &h), -EAGAIN);
	vb_lock_client_close(c);
	must(vb_lock_release(w.a, &g));
	vb_lock_space_close(same);
	vb_lock_space_close(second);
	close_world(&w);
}

/* ---- clients and servers ---- */

static void test_who_cannot_open(void **state)
{
	static const char *const served[] = {"rpc", "traditional", "traditional-ro", "table"};
	struct vb_fabric_params fp = {
		.fabric = "sim", .nodes = 2, .node_bytes = NODE_BYTES, .endpoints = 4};
	struct vb_lock_space_params p = {.lock = "mcs", .locks = 10};
	struct vb_lock_client *c[4], *none = NULL;
	struct vb_lock_server *server = NULL;
	struct vb_lock_space *s, *other;
	struct vb_fabric *f;

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(served); i++) {
		f = cluster("profile=cx5", 2, 1);
		p.lock = served[i];
		must(vb_lock_space_open(f, &p, &s));
		refused_with(vb_lock_client_open(s, 1, &none), -VB_EPEERGONE,
			     "vb_lock_server_start");
		assert_null(none);
		vb_lock_space_close(s);
		vb_fabric_close(f);
	}
	/* As many endpoints as the fabric has, and again when one is closed. */
	p.lock = "mcs";
	must(vb_fabric_open(&fp, &f));
	must(vb_lock_space_open(f, &p, &s));
	refused(vb_lock_client_open(s, 2, &none), -EINVAL);
	for (unsigned i = 0; i < 4; i++)
		must(vb_lock_client_open(s, 1, &c[i]));
	refused(vb_lock_client_open(s, 1, &none), -ENOSPC);
	vb_lock_client_close(c[0]);
	must(vb_lock_client_open(s, 0, &c[0]));
	p = (struct vb_lock_space_params){.lock = "rpc", .locks = 10, .name = "served"};
	must(vb_lock_space_open(f, &p, &other));
	refused(vb_lock_server_start(other, 0, 0, 1, &server), -ENOSPC);
	assert_null(server);
	vb_lock_space_close(other);
	for (unsigned i = 0; i < 4; i++)
		vb_lock_client_close(c[i]);
	vb_lock_client_close(NULL);
	vb_lock_space_close(s);
	vb_fabric_close(f);
}

static void test_no_such_server(void **state)
{
	struct vb_lock_server *none = NULL;
	struct world w;

	(void)state;
	open_lock(&w, "table");
	refused(vb_lock_server_start(w.space, 1, 0, 1, &none), -EINVAL); /* it has no locks */
	refused(vb_lock_server_start(w.space, 0, 1, 1, &none), -EINVAL);
	refused(vb_lock_server_start(w.space, 0, 0, 0, &none), -EINVAL);
	refused(vb_lock_server_start(w.space, 0, 0, 65, &none), -EINVAL);
	refused(vb_lock_server_thread_start(w.space, 0, &none), -EOPNOTSUPP);
	assert_null(none);
	close_world(&w);
	/* Where none is needed, none is there. */
	open_lock(&w, "mcs");
	assert_null(w.server);
	none = (struct vb_lock_server *)&w;
	must(vb_lock_server_thread_start(w.space, 0, &none));
	assert_null(none);
	vb_lock_server_stop(NULL);
	close_world(&w);
}

/* Both hold something, one gives up in a queue: a client that is closed leaves nothing. */
static void test_close_gives_back(void **state)
{
	for (const struct vb_lock_ops *const *l = vb_locks; *l; l++) {
		struct vb_lock_client *c;
		struct vb_grant g[2], h;
		struct world w;

		open_lock(&w, (*l)->name);
		must(vb_lock_client_open(w.space, 0, &c));
		must(vb_lock_acquire(c, 1, VB_EXCLUSIVE, VB_FOREVER_NS, &g[0]));
		must(vb_lock_acquire(c, 2, VB_SHARED, VB_FOREVER_NS, &g[1]));
		vb_lock_client_close(c);
		/* Long before a lease that nobody gave back. */
		must(vb_lock_acquire(w.a, 1, VB_EXCLUSIVE, LEASE / 4, &h));
		must(vb_lock_release(w.a, &h));
		/* Readers with leases give nothing back. */
		must(vb_lock_acquire(w.a, 2, VB_EXCLUSIVE,
				     (*l)->caps & VB_LOCK_READ_LEASE ? 4 * LEASE : LEASE / 4, &h));
		must(vb_lock_release(w.a, &h));
		close_world(&w);
	}
	(void)state;
}

/* ---- grants ---- */

static void test_what_a_grant_says(void **state)
{
	for (const struct vb_lock_ops *const *l = vb_locks; *l; l++) {
		bool leases = (*l)->caps & VB_LOCK_SURVIVES;
		uint64_t before, after;
		struct vb_grant g;
		struct world w;

		open_lock(&w, (*l)->name);
		before = vb_lock_now(w.a);
		must(vb_lock_acquire(w.a, 42, VB_EXCLUSIVE, 0, &g));
		after = vb_lock_now(w.a);
		assert_int_equal(g.lock, 42);
		assert_int_equal(g.mode, VB_EXCLUSIVE);
		assert_non_null(g.claim);
		assert_true(vb_lock_valid(w.a, &g));
		if (leases)
			assert_in_range(g.valid_until_ns, before + LEASE / 2, after + LEASE);
		else
			assert_true(g.valid_until_ns == VB_FOREVER_NS);
		/* To its end, and not longer. */
		if (leases) {
			must(vb_ep_sleep_until(w.a->ep, g.valid_until_ns - US));
			assert_true(vb_lock_valid(w.a, &g));
			must(vb_ep_sleep_until(w.a->ep, g.valid_until_ns));
			assert_false(vb_lock_valid(w.a, &g));
		}
		pause_for(w.a, 2 * LEASE);
		assert_true(vb_lock_now(w.a) >= after + 2 * LEASE);
		assert_int_equal(vb_lock_valid(w.a, &g), !leases);
		/* Nobody else has wanted it. */
		(void)vb_lock_release(w.a, &g);
		assert_null(g.claim);
		close_world(&w);
	}
	(void)state;
}

/* A grant names one hold: of the next one by the same client its copies can end, convert and tell
 * nothing. */
static void test_an_old_grant(void **state)
{
	(void)state;
	for (const struct vb_lock_ops *const *l = vb_locks; *l; l++) {
		struct vb_grant old, g, his;
		struct world w;

		open_lock(&w, (*l)->name);
		must(vb_lock_acquire(w.a, 42, VB_EXCLUSIVE, VB_FOREVER_NS, &g));
		old = g;
		must(vb_lock_release(w.a, &g));
		must(vb_lock_acquire(w.a, 42, VB_EXCLUSIVE, VB_FOREVER_NS, &g));
		assert_ptr_equal(old.claim, g.claim);
		assert_false(vb_lock_valid(w.a, &old));
		refused(vb_lock_release(w.a, &old), -EINVAL);
		refused(vb_lock_release_all(w.a, &old, 1), -EINVAL);
		refused(vb_lock_convert(w.a, &old, VB_SHARED, MS), -EINVAL);
		refused(vb_lock_renew(w.a, &old, MS), -EINVAL);
		assert_true(vb_lock_valid(w.a, &g));
		assert_int_equal(vb_lock_try(w.b, 42, VB_EXCLUSIVE, &his), -EAGAIN);
		must(vb_lock_release(w.a, &g));
		close_world(&w);
	}
}

static uint64_t atomics(const struct vb_lock_client *me)
{
	uint64_t n = 0;

	for (unsigned op = VB_OP_CAS64; op <= VB_OP_MFAA128; op++)
		n += me->ep->count[op];
	return n;
}

/* Of an exclusive cycle; *token: what the grant had. */
static uint64_t atomics_of(const char *lock, bool fencing, uint64_t *token)
{
	const struct vb_lock_space_params p = {
		.lock = lock, .locks = 10, .lease_ns = LEASE, .fencing = fencing};
	struct vb_grant g;
	struct world w;
	uint64_t n;

	open_world(&w, &p);
	must(vb_lock_acquire(w.a, 3, VB_EXCLUSIVE, VB_FOREVER_NS, &g));
	must(vb_lock_release(w.a, &g));
	n = atomics(w.a);
	must(vb_lock_acquire(w.a, 3, VB_EXCLUSIVE, VB_FOREVER_NS, &g));
	*token = g.token;
	must(vb_lock_release(w.a, &g));
	n = atomics(w.a) - n;
	close_world(&w);
	return n;
}

static void test_what_a_token_costs(void **state)
{
	for (const struct vb_lock_ops *const *l = vb_locks; *l; l++) {
		bool has = (*l)->caps & VB_LOCK_TOKEN;
		uint64_t without, with, token;

		without = atomics_of((*l)->name, false, &token);
		assert_true(has || token == 0);
		with = atomics_of((*l)->name, true, &token);
		assert_true(token > 0);
		assert_int_equal(with, without + !has);
	}
	(void)state;
}

/* ---- names ---- */

static void test_names(void **state)
{
	static const char *const names[VB_MODES] = {
		[VB_SHARED] = "shared",
		[VB_EXCLUSIVE] = "exclusive",
		[VB_UPDATE] = "update",
		[VB_INTENT_SHARED] = "intent-shared",
		[VB_INTENT_EXCLUSIVE] = "intent-exclusive",
		[VB_SHARED_INTENT_EXCLUSIVE] = "shared-intent-exclusive",
	};
	static const int not_granted[] = {-ETIMEDOUT, -EAGAIN,   -ECANCELED, -VB_EPEERGONE,
					  -EDEADLK,   -EBUSY,    -EINVAL,    -EOPNOTSUPP,
					  -ENOSPC,    -VB_ELOST, -ENOMEM};

	(void)state;
	for (unsigned m = 0; m < VB_MODES; m++)
		assert_string_equal(vb_lock_mode_name((enum vb_mode)m), names[m]);
	assert_string_equal(vb_lock_mode_name((enum vb_mode)VB_MODES), "?");
	assert_string_equal(vb_lock_mode_name((enum vb_mode) - 1), "?");
	assert_int_equal(vb_lock_outcome(0), VB_GRANTED);
	assert_int_equal(vb_lock_outcome(-VB_EUNKNOWN), VB_UNKNOWN);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(not_granted); i++)
		assert_int_equal(vb_lock_outcome(not_granted[i]), VB_NOT_GRANTED);
}

/* ---- modes ---- */

/* The table of the header, whoever of the two is first. */
static void test_modes_together(void **state)
{
	/* S, X, U, IS, IX, SIX. */
	static const bool together[VB_MODES][VB_MODES] = {
		{1, 0, 1, 1, 0, 0}, {0, 0, 0, 0, 0, 0}, {1, 0, 0, 1, 0, 0},
		{1, 0, 1, 1, 1, 1}, {0, 0, 0, 1, 1, 0}, {0, 0, 0, 1, 0, 0},
	};
	struct world w;

	(void)state;
	open_lock(&w, "table");
	for (unsigned i = 0; i < VB_MODES * VB_MODES; i++) {
		unsigned first = i / VB_MODES, second = i % VB_MODES;
		struct vb_grant g, h;
		int err;

		must(vb_lock_acquire(w.a, 5, (enum vb_mode)first, MS, &g));
		err = vb_lock_try(w.b, 5, (enum vb_mode)second, &h);
		assert_int_equal(err, together[first][second] ? 0 : -EAGAIN);
		if (err == 0)
			must(vb_lock_release(w.b, &h));
		must(vb_lock_release(w.a, &g));
	}
	close_world(&w);
}

/* ---- conversions ---- */

/* Which may become which: more, or less, or neither. */
static void test_more_or_less(void **state)
{
	/* S, X, U, IS, IX, SIX: what a hold in the first permits of the second. */
	static const bool covers[VB_MODES][VB_MODES] = {
		{1, 0, 0, 1, 0, 0}, {1, 1, 1, 1, 1, 1}, {1, 0, 1, 1, 0, 0},
		{0, 0, 0, 1, 0, 0}, {0, 0, 0, 1, 1, 0}, {1, 0, 0, 1, 1, 1},
	};
	struct world w;

	(void)state;
	open_lock(&w, "table");
	for (unsigned from = 0; from < VB_MODES; from++) {
		for (unsigned to = 0; to < VB_MODES; to++) {
			uint64_t until, token;
			struct vb_grant g;

			must(vb_lock_acquire(w.a, 5, (enum vb_mode)from, VB_FOREVER_NS, &g));
			until = g.valid_until_ns;
			token = g.token;
			if (!covers[from][to] && !covers[to][from]) {
				refused(vb_lock_convert(w.a, &g, (enum vb_mode)to, 0), -EINVAL);
				assert_int_equal(g.mode, from);
			} else {
				pause_for(w.a, 10 * US);
				must(vb_lock_convert(w.a, &g, (enum vb_mode)to, MS));
				assert_int_equal(g.mode, to);
				assert_true(vb_lock_valid(w.a, &g));
				assert_true(from == to || g.valid_until_ns > until);
				assert_true(to != VB_EXCLUSIVE || from == to || g.token > token);
			}
			must(vb_lock_release(w.a, &g));
		}
	}
	close_world(&w);
}

struct waiter {
	struct world *w;
	struct vb_grant g;
	enum vb_mode mode;
	bool converts, done;
	int err;
};

static void waiter_body(void *arg)
{
	struct waiter *x = arg;

	x->err = x->converts ? vb_lock_convert(x->w->b, &x->g, x->mode, VB_FOREVER_NS)
			     : vb_lock_acquire(x->w->b, 5, x->mode, VB_FOREVER_NS, &x->g);
	x->done = true;
}

/* Less is had at once, whoever waits; and those who can go on then do. */
static void test_less_never_waits(void **state)
{
	struct waiter x = {.mode = VB_SHARED};
	struct vb_grant g;
	struct world w;

	(void)state;
	open_lock(&w, "table");
	x.w = &w;
	must(vb_lock_acquire(w.a, 5, VB_EXCLUSIVE, VB_FOREVER_NS, &g));
	spawn(waiter_body, &x);
	pause_for(w.a, 100 * US);
	assert_false(x.done);
	must(vb_lock_convert(w.a, &g, VB_SHARED, 0));
	pause_for(w.a, 100 * US);
	assert_true(x.done);
	must(x.err);
	must(vb_lock_release(w.a, &g));
	must(vb_lock_release(w.b, &x.g));
	close_world(&w);
}

/* A conversion whose task is cancelled leaves the hold as it was. */
static void test_cancelled_conversion(void **state)
{
	static const char *const locks[] = {"table", "dslr-update"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(locks); i++) {
		struct waiter x = {.mode = VB_EXCLUSIVE, .converts = true};
		struct vb_task *task;
		struct vb_grant g;
		struct world w;

		open_lock(&w, locks[i]);
		x.w = &w;
		must(vb_lock_acquire(w.a, 5, VB_SHARED, VB_FOREVER_NS, &g));
		must(vb_lock_acquire(w.b, 5, VB_UPDATE, VB_FOREVER_NS, &x.g));
		must(vb_task_spawn(vb_sched_self(), waiter_body, &x, NULL, &task));
		pause_for(w.a, 100 * US);
		assert_false(x.done);
		vb_task_cancel(task);
		pause_for(w.a, 100 * US);
		assert_true(x.done);
		assert_int_equal(x.err, -ECANCELED);
		assert_int_equal(x.g.mode, VB_UPDATE);
		must(vb_lock_release(w.a, &g));
		must(vb_lock_convert(w.b, &x.g, VB_EXCLUSIVE, MS));
		must(vb_lock_release(w.b, &x.g));
		close_world(&w);
	}
}

/* Too late: others may have had it, and what is left is to release the grant. */
static void test_conversion_of_what_is_lost(void **state)
{
	static const char *const locks[] = {"table", "dslr-update"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(locks); i++) {
		struct vb_grant g, his;
		struct world w;

		open_lock(&w, locks[i]);
		must(vb_lock_acquire(w.a, 5, VB_UPDATE, VB_FOREVER_NS, &g));
		pause_for(w.a, LEASE);
		must(vb_lock_acquire(w.b, 5, VB_EXCLUSIVE, 10 * LEASE, &his));
		assert_int_equal(vb_lock_convert(w.a, &g, VB_EXCLUSIVE, MS), -VB_ELOST);
		assert_true(vb_lock_valid(w.b, &his));
		assert_int_equal(vb_lock_release(w.a, &g), -VB_ELOST);
		must(vb_lock_release(w.b, &his));
		close_world(&w);
	}
}

/* ---- many at once ---- */

/* One of three is lost: the others are given back all the same, and the answer is the worst; a list
 * that is wrong gives back nothing.  By every protocol with leases, of which `table` has a message for it. */
static void test_release_all_of_any(void **state)
{
	(void)state;
	for (const struct vb_lock_ops *const *l = vb_locks; *l; l++) {
		struct vb_grant g[4], his;
		struct world w;

		if (!((*l)->caps & VB_LOCK_SURVIVES))
			continue;
		open_lock(&w, (*l)->name);
		must(vb_lock_acquire(w.a, 2, VB_EXCLUSIVE, VB_FOREVER_NS, &g[1]));
		pause_for(w.a, LEASE);
		must(vb_lock_acquire(w.b, 2, VB_EXCLUSIVE, 10 * LEASE, &his));
		must(vb_lock_acquire(w.a, 1, VB_EXCLUSIVE, VB_FOREVER_NS, &g[0]));
		must(vb_lock_acquire(w.a, 3, VB_EXCLUSIVE, VB_FOREVER_NS, &g[2]));
		/* Twice; another's. */
		for (unsigned k = 0; k < 2; k++) {
			g[3] = k ? his : g[0];
			refused(vb_lock_release_all(w.a, g, 4), -EINVAL);
			assert_int_equal(vb_lock_try(w.b, 1, VB_EXCLUSIVE, &g[3]), -EAGAIN);
			assert_int_equal(vb_lock_try(w.b, 3, VB_EXCLUSIVE, &g[3]), -EAGAIN);
			assert_true(vb_lock_valid(w.a, &g[0]) && vb_lock_valid(w.a, &g[2]));
		}
		assert_int_equal(vb_lock_release_all(w.a, g, 3), -VB_ELOST);
		must(vb_lock_release(w.b, &his));
		for (unsigned k = 0; k < 3; k++)
			assert_null(g[k].claim);
		must(vb_lock_try(w.b, 1, VB_EXCLUSIVE, &g[0]));
		must(vb_lock_try(w.b, 3, VB_EXCLUSIVE, &g[1]));
		must(vb_lock_release_all(w.b, g, 2));
		close_world(&w);
	}
}

/* ---- paths ---- */

static void test_longest_path(void **state)
{
	uint64_t path[VB_PATH_MAX + 1];
	struct vb_grant g[VB_PATH_MAX + 1];
	struct vb_lock_space_params p = {
		.lock = "table", .locks = 100, .lease_ns = LEASE, .claims = 100};
	struct world w;

	(void)state;
	open_world(&w, &p);
	for (unsigned i = 0; i <= VB_PATH_MAX; i++)
		path[i] = i;
	refused(vb_lock_acquire_path(w.a, path, VB_PATH_MAX + 1, VB_SHARED, MS, g), -EINVAL);
	must(vb_lock_acquire_path(w.a, path, VB_PATH_MAX, VB_SHARED, 5 * MS, g));
	must(vb_lock_release_all(w.a, g, VB_PATH_MAX));
	close_world(&w);
}

/* Each mode's intention; below what covers everything nothing is taken. */
static void test_intentions_of_a_path(void **state)
{
	static const uint64_t path[] = {1, 2, 3};
	struct vb_grant root, g[3];
	struct world w;

	(void)state;
	open_lock(&w, "table");
	for (unsigned m = 0; m < VB_MODES; m++) {
		enum vb_mode intent = m == VB_SHARED || m == VB_INTENT_SHARED ? VB_INTENT_SHARED
									      : VB_INTENT_EXCLUSIVE;

		must(vb_lock_acquire_path(w.a, path, 3, (enum vb_mode)m, MS, g));
		assert_int_equal(g[0].mode, intent);
		assert_int_equal(g[1].mode, intent);
		assert_int_equal(g[2].mode, m);
		must(vb_lock_release_all(w.a, g, 3));
		/* Exclusive is enough for anything below it, intent-exclusive for nothing. */
		must(vb_lock_acquire(w.a, 1, VB_EXCLUSIVE, MS, &root));
		must(vb_lock_acquire_path(w.a, path, 3, (enum vb_mode)m, MS, g));
		assert_null(g[0].claim);
		assert_null(g[1].claim);
		assert_null(g[2].claim);
		must(vb_lock_release(w.a, &root));
	}
	close_world(&w);
	open_lock(&w, "mcs");
	refused(vb_lock_acquire_path(w.a, path, 3, VB_SHARED, MS, g), -EOPNOTSUPP);
	close_world(&w);
}

/* ---- answers that are lost ---- */

/* All answers of a request are lost: nobody knows whether the lock was taken, and others have it within
 * the stated time. */
static void test_unknown_acquire(void **state)
{
	static const char *const locks[] = {"dslr", "dslr-update", "shiftlock"};
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(locks); i++) {
		char said[4096] = "";
		struct vb_grant g;
		struct world w;
		uint64_t bound;

		open_lock(&w, locks[i]);
		bound = w.space->ops->recovery_leases * vb_lock_stretch(w.space, LEASE);
		vb_log_capture_begin(said, sizeof(said));
		vb_sim_set_faults(w.f, &lose);
		assert_int_equal(vb_lock_acquire(w.a, 5, VB_EXCLUSIVE, VB_FOREVER_NS, &g),
				 -VB_EUNKNOWN);
		vb_sim_set_faults(w.f, &none);
		vb_log_capture_end();
		must(vb_lock_acquire(w.b, 5, VB_EXCLUSIVE, bound, &g));
		must(vb_lock_release(w.b, &g));
		close_world(&w);
	}
}

/* Of two grants one is lost, of the other nobody knows: that is the worse. */
static void test_worst_of_many(void **state)
{
	static const char *const locks[] = {"dslr", "dslr-update", "shiftlock"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(locks); i++) {
		char said[4096] = "";
		struct vb_grant g[2], his;
		struct world w;

		open_lock(&w, locks[i]);
		must(vb_lock_acquire(w.a, 1, VB_EXCLUSIVE, VB_FOREVER_NS, &g[1]));
		pause_for(w.a, LEASE);
		must(vb_lock_acquire(w.b, 1, VB_EXCLUSIVE, 10 * LEASE, &his));
		must(vb_lock_acquire(w.a, 2, VB_EXCLUSIVE, VB_FOREVER_NS, &g[0]));
		vb_log_capture_begin(said, sizeof(said));
		vb_sim_set_faults(w.f, &lose);
		assert_int_equal(vb_lock_release_all(w.a, g, 2), -VB_EUNKNOWN);
		vb_sim_set_faults(w.f, &none);
		vb_log_capture_end();
		(void)vb_lock_release(w.b, &his);
		close_world(&w);
	}
}

/* For seconds it asks again; then it says that nobody knows. */
static void test_node_out_of_reach(void **state)
{
	const struct vb_lock_space_params p = {.lock = "rpc", .locks = 100, .lease_ns = LEASE};
	struct vb_lock_client *me = NULL;
	struct vb_lock_space *view;
	uint64_t begun;
	struct world w;

	(void)state;
	open_lock(&w, "rpc");
	must(vb_lock_space_open(w.f, &p, &view));
	begun = now();
	vb_sim_set_faults(w.f, &lose);
	refused(vb_lock_client_open(view, 1, &me), -VB_EUNKNOWN);
	vb_sim_set_faults(w.f, &none);
	assert_null(me);
	assert_in_range(now() - begun, 1000 * MS, 60000 * MS);
	must(vb_lock_client_open(view, 1, &me));
	vb_lock_client_close(me);
	vb_lock_space_close(view);
	close_world(&w);
}

/* As on a network, where headers are written by verbs: whoever opens it knows no more than its answers, and can do so
 * later. */
static void test_opened_out_of_reach(void **state)
{
	const struct vb_lock_space_params p = {.lock = "cas", .locks = 10, .servers = 2};
	struct vb_fabric *f = cluster("profile=cx5", 2, 1);
	struct vb_lock_space *s = NULL;
	struct vb_names *names = NULL;
	uint64_t begun = now();

	(void)state;
	f->caps.flags |= VB_CAP_CLUSTER;
	vb_sim_set_faults(f, &lose);
	refused(vb_lock_space_open(f, &p, &s), -VB_EUNKNOWN);
	assert_null(s);
	assert_in_range(now() - begun, 1000 * MS, 60000 * MS);
	vb_sim_set_faults(f, &none);
	must(vb_lock_space_open(f, &p, &s));
	vb_sim_set_faults(f, &lose);
	refused(vb_names_open(s, NULL, &names), -VB_EUNKNOWN);
	assert_null(names);
	vb_sim_set_faults(f, &none);
	must(vb_names_open(s, NULL, &names));
	vb_names_close(names);
	vb_sim_lose_node(f, 1);
	refused(vb_names_open(s, NULL, &names), -VB_EPEERGONE);
	must(vb_lock_space_close(s));
	s = NULL;
	refused(vb_lock_space_open(f, &p, &s), -VB_EPEERGONE);
	assert_null(s);
	vb_fabric_close(f);
}

/* ---- a server that tends ---- */

static unsigned tended;

/* For about as long as a client is away. */
static uint64_t tends_slowly(struct vb_lock_server *s)
{
	tended++;
	(void)vb_ep_sleep(s->ep, 3 * US);
	return VB_FOREVER;
}

/* A request that comes while its server tends is answered then, and not when it is sent again. */
static void test_request_while_tending(void **state)
{
	static struct vb_lock_ops slow;
	static const struct vb_lock_ops *const more[] = {&slow, NULL};
	uint64_t longest = 0;
	struct world w;

	slow = vb_lock_rpc;
	slow.name = "rpc-tends-slowly";
	slow.tend = tends_slowly;
	vb_lock_register(more);
	open_lock(&w, slow.name);
	for (unsigned i = 0; i < 200; i++) {
		uint64_t since = now();
		struct vb_grant g;

		must(vb_lock_acquire(w.a, 1, VB_EXCLUSIVE, VB_FOREVER_NS, &g));
		must(vb_lock_release(w.a, &g));
		longest = now() - since > longest ? now() - since : longest;
		pause_for(w.a, 100 * i);
	}
	assert_true(tended >= 200);
	assert_true(longest < LEASE / 100);
	close_world(&w);
}

#include "lock_holder.h"

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bounds_of_a_space),
		cmocka_unit_test(test_spaces_by_name),
		cmocka_unit_test(test_who_cannot_open),
		cmocka_unit_test(test_no_such_server),
		cmocka_unit_test(test_close_gives_back),
		cmocka_unit_test(test_what_a_grant_says),
		cmocka_unit_test(test_an_old_grant),
		cmocka_unit_test(test_what_a_token_costs),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_modes_together),
		cmocka_unit_test(test_more_or_less),
		cmocka_unit_test(test_less_never_waits),
		cmocka_unit_test(test_cancelled_conversion),
		cmocka_unit_test(test_conversion_of_what_is_lost),
		cmocka_unit_test(test_release_all_of_any),
		cmocka_unit_test(test_longest_path),
		cmocka_unit_test(test_intentions_of_a_path),
		cmocka_unit_test(test_unknown_acquire),
		cmocka_unit_test(test_worst_of_many),
		cmocka_unit_test(test_node_out_of_reach),
		cmocka_unit_test(test_opened_out_of_reach),
		cmocka_unit_test(test_request_while_tending),
		cmocka_unit_test(test_holder_is_named),
		cmocka_unit_test(test_readers_are_counted),
		cmocka_unit_test(test_no_holder_to_tell),
		cmocka_unit_test(test_server_tells_the_holder),
		cmocka_unit_test(test_table_tells_modes),
		cmocka_unit_test(test_holder_after_a_server),
		cmocka_unit_test(test_holder_without_an_answer),
		cmocka_unit_test(test_holder_cancelled),
	};

	return cmocka_run_group_tests_name("lock calls", tests, NULL, NULL);
}
