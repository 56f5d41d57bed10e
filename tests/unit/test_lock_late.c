/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node that stands still for longer than the fabric's bound refuses what it is asked (fabric/net/am):
 * nobody has died, and nothing was lost.  So no call fails for it, and no lock stays held or counted: also
 * under locks without leases, where nobody would find that out later.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/rng.h"
#include "lock/lock.h"

#define must(call) assert_int_equal(call, 0)
#define ROUNDS     200

static struct world {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	struct vb_rng rng;
	unsigned refused;
	int always; /* all of a are refused so; 0: as it comes */
} w;

static bool may_be_refused(const struct vb_batch *b)
{
	bool may = true;

	for (unsigned i = 0; i < b->n; i++)
		may &= b->verbs[i].flags & VB_SIGNALLED && b->verbs[i].op != VB_OP_SEND &&
		       b->verbs[i].op != VB_OP_WRITE_NOTIFY;
	return may;
}

/* As am_did_not_happen says it, of one batch in four. */
static int post(struct vb_ep *ep, struct vb_batch *b)
{
	if (!may_be_refused(b) || (w.always == 0 && vb_rng_below(&w.rng, 4) != 0))
		return w.real->post(ep, b);
	w.refused++;
	for (unsigned i = 0; i < b->n; i++)
		b->verbs[i].status = b->verbs[i].not_after_ns == 0 ? -VB_EUNKNOWN
				     : w.always != 0               ? w.always
								   : -VB_ETOOLATE;
	return 0;
}

static void rounds(struct vb_lock_client *a, struct vb_lock_client *b)
{
	struct vb_grant g;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct vb_lock_client *me = i % 3 == 0 ? b : a;
		enum vb_mode mode = i / 2 % 2 == 0 ? VB_SHARED : VB_EXCLUSIVE;

		/* A try may say that it does not know, and leaves nothing. */
		if (i % 5 == 4 && vb_lock_try(me, i % 2, mode, &g) != 0)
			continue;
		if (i % 5 != 4)
			must(vb_lock_acquire(me, i % 2, mode, VB_FOREVER_NS, &g));
		must(vb_lock_release(me, &g));
	}
}

static void late_on(const char *lock, const char *options, const char *fabric)
{
	const struct vb_fabric_params fp = {.fabric = "sim",
					    .options = fabric,
					    .nodes = 2,
					    .node_bytes = 4u << 20,
					    .endpoints = 8};
	const struct vb_lock_space_params sp = {
		.lock = lock, .options = options, .locks = 2, .lease_ns = 60000000000ull};
	struct vb_lock_server *server;
	struct vb_lock_client *a, *b;
	struct vb_lock_space *s;
	struct vb_fabric *f;
	struct vb_grant g;

	must(vb_fabric_open(&fp, &f));
	must(vb_lock_space_open(f, &sp, &s));
	must(vb_lock_server_start(s, 0, 0, 1, &server));
	must(vb_lock_client_open(s, 0, &a));
	must(vb_lock_client_open(s, 1, &b));
	w = (struct world){.real = a->ep->ops, .ops = *a->ep->ops};
	vb_rng_seed(&w.rng, 1, 0);
	w.ops.post = post;
	a->ep->ops = b->ep->ops = &w.ops;
	rounds(a, b);
	a->ep->ops = b->ep->ops = w.real;
	printf("%s: %u of its batches refused\n", lock, w.refused);
	assert_true(w.refused > ROUNDS / 4);
	for (unsigned i = 0; i < 2; i++) {
		must(vb_lock_try(a, i, VB_EXCLUSIVE, &g));
		must(vb_lock_release(a, &g));
	}
	assert_int_equal(a->recoveries + b->recoveries, 0);
	vb_lock_client_close(a);
	vb_lock_client_close(b);
	vb_lock_server_stop(server);
	must(vb_lock_space_close(s));
	must(vb_fabric_close(f));
}

static void late(const char *lock, const char *options)
{
	late_on(lock, options, NULL);
}

static void test_cas(void **state)
{
	(void)state;
	late("cas", NULL);
	late("cas-backoff", NULL);
}

static void test_retry_on_fail(void **state)
{
	(void)state;
	late("retry-on-fail", NULL);
}

static void test_mcs(void **state)
{
	(void)state;
	late("mcs", NULL);
}

static void test_ncosed(void **state)
{
	(void)state;
	late("ncosed", NULL);
}

static void test_rma_rw(void **state)
{
	(void)state;
	late("rma-rw", NULL);
}

/* One group: no queue at the root. */
static void test_rma_rw_one_group(void **state)
{
	(void)state;
	late("rma-rw", "group=2");
}

/* In either form of the entry.  A recovery would find it out, three leases later: there is none. */
static void test_shiftlock(void **state)
{
	(void)state;
	late_on("shiftlock", NULL, "profile=cx5");
	late_on("shiftlock", "max_writers=1", "profile=cx5");
	late_on("shiftlock", NULL, "profile=plain64");
}

/* They would find it out, a lease later. */
static void test_with_leases(void **state)
{
	(void)state;
	late("dslr", NULL);
	late("dslr-update", NULL);
	late("drtm", NULL);
}

/* ---- for good ---- */

/* A release whose verbs are refused without an end asks so often and no more, and says that it does not know. */
static void ends(const char *lock, enum vb_mode mode, int how)
{
	const struct vb_fabric_params fp = {
		.fabric = "sim", .nodes = 2, .node_bytes = 4u << 20, .endpoints = 8};
	const struct vb_lock_space_params sp = {
		.lock = lock, .locks = 2, .lease_ns = 60000000000ull};
	struct vb_lock_server *server;
	struct vb_lock_client *a, *b;
	struct vb_lock_space *s;
	struct vb_fabric *f;
	struct vb_grant g;
	uint64_t begin, asks;

	must(vb_fabric_open(&fp, &f));
	must(vb_lock_space_open(f, &sp, &s));
	must(vb_lock_server_start(s, 0, 0, 1, &server));
	must(vb_lock_client_open(s, 0, &a));
	must(vb_lock_client_open(s, 1, &b));
	must(vb_lock_acquire(a, 1, mode, VB_FOREVER_NS, &g));
	w = (struct world){.real = a->ep->ops, .ops = *a->ep->ops, .always = how};
	w.ops.post = post;
	a->ep->ops = &w.ops;
	begin = vb_ep_now(a->ep);
	assert_int_equal(vb_lock_release(a, &g), -VB_EUNKNOWN);
	asks = vb_lock_asks(s);
	printf("%s, %s: %u\n", lock, vb_strerror(how), w.refused);
	assert_int_equal(w.refused, asks);
	assert_true(vb_ep_now(a->ep) - begin < (asks + 1) * 5 / 4 * f->caps.verb_bound_ns);
	a->ep->ops = w.real;
	vb_lock_client_close(a);
	vb_lock_client_close(b);
	vb_lock_server_stop(server);
	must(vb_lock_space_close(s));
	must(vb_fabric_close(f));
}

static void test_refused_for_good(void **state)
{
	static const int how[] = {-VB_ETOOLATE, -VB_EPEERGONE, -VB_EUNKNOWN};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(how); i++) {
		ends("cas", VB_EXCLUSIVE, how[i]);
		ends("retry-on-fail", VB_EXCLUSIVE, how[i]);
		ends("mcs", VB_EXCLUSIVE, how[i]);
		ends("ncosed", VB_EXCLUSIVE, how[i]);
		/* What becomes of an addition that is lost is not asked for. */
		if (how[i] != -VB_EUNKNOWN)
			ends("retry-on-fail", VB_SHARED, how[i]);
		/* What is lost is left to the recovery. */
		if (how[i] != -VB_EUNKNOWN)
			ends("shiftlock", VB_EXCLUSIVE, how[i]);
		if (how[i] == -VB_EPEERGONE)
			ends("shiftlock", VB_SHARED, how[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cas),
		cmocka_unit_test(test_retry_on_fail),
		cmocka_unit_test(test_mcs),
		cmocka_unit_test(test_ncosed),
		cmocka_unit_test(test_rma_rw),
		cmocka_unit_test(test_rma_rw_one_group),
		cmocka_unit_test(test_shiftlock),
		cmocka_unit_test(test_with_leases),
		cmocka_unit_test(test_refused_for_good),
	};

	return cmocka_run_group_tests_name("late", tests, NULL, NULL);
}
