/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of memory behind something that failed, or when its time is over, does not happen:
 * by the CPU on the own node as by the card elsewhere, and where there is more than one batch takes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "fabric/hook/hooks.h"
#include "store/access.h"

#define must(call) assert_int_equal(call, 0)
#define VALUE      7u

static struct world {
	struct vb_fabric *f;
	struct vb_ep *ep;
	struct vb_acc acc;
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	unsigned lose; /* so many verbs happen, and nobody says so */
} w;

static int post_lossy(struct vb_ep *ep, struct vb_batch *b)
{
	if (w.lose == 0)
		return w.real->post(ep, b);
	w.lose -= w.lose < b->n ? w.lose : b->n;
	must(vb_post_wait(ep->lower, b->verbs, b->n));
	for (unsigned i = 0; i < b->n; i++)
		b->verbs[i].status = -VB_EUNKNOWN;
	return 0;
}

static void open_world(bool doorbell, bool outstanding)
{
	const struct vb_fabric_params p = {.fabric = "sim",
					   .options = "scope=global",
					   .nodes = 2,
					   .node_bytes = 1 << 20,
					   .endpoints = 4};

	memset(&w, 0, sizeof(w));
	must(vb_fabric_open(&p, &w.f));
	must(vb_hook_count(w.f, &w.f));
	must(vb_ep_open(w.f, 0, &w.ep));
	w.real = w.ep->ops;
	w.ops = *w.real;
	w.ops.post = post_lossy;
	w.ep->ops = &w.ops;
	vb_acc_init(&w.acc, w.ep, doorbell, outstanding);
}

static void close_world(void)
{
	vb_ep_close(w.ep);
	must(vb_fabric_close(w.f));
}

static vb_addr word(uint16_t node, unsigned i)
{
	return vb_addr_make(node, 65536 + 8 * i);
}

static uint64_t value_of(vb_addr at)
{
	return *(const uint64_t *)vb_local(w.f, at, 8);
}

/* The time of each is over before it is asked for. */
static void late(uint16_t node)
{
	const uint64_t value = VALUE;
	uint64_t old = 0;

	open_world(true, true);
	assert_true(w.acc.near_cpu);
	w.acc.not_after_ns = vb_ep_now(w.ep) + 1000;
	vb_acc_write(&w.acc, VB_WRITE_DI, word(node, 0), &value, 8);
	must(vb_acc_go(&w.acc));
	assert_int_equal(value_of(word(node, 0)), VALUE);
	must(vb_ep_sleep(w.ep, 2000));
	vb_acc_write(&w.acc, VB_WRITE_DI, word(node, 1), &value, 8);
	assert_int_equal(vb_acc_go(&w.acc), -VB_ETOOLATE);
	vb_acc_cas(&w.acc, VB_AMOD_IM, word(node, 2), 0, VALUE, &old);
	assert_int_equal(vb_acc_go(&w.acc), -VB_ETOOLATE);
	vb_acc_faa(&w.acc, VB_AMOD_IM, word(node, 3), VALUE, &old);
	assert_int_equal(vb_acc_go(&w.acc), -VB_ETOOLATE);
	for (unsigned i = 1; i < 4; i++)
		assert_int_equal(value_of(word(node, i)), 0);
	close_world();
}

static void late_near(void **state)
{
	(void)state;
	late(0);
}

static void late_far(void **state)
{
	(void)state;
	late(1);
}

/* A write whose answer is lost in the first of two batches; what would let the lock go is in the
 * second. */
static void behind_a_full_batch(void **state)
{
	const uint64_t value = VALUE;

	(void)state;
	for (unsigned how = 0; how < 4; how++) {
		uint64_t old = 0;

		open_world(how & 1, how & 2);
		for (unsigned i = 0; i < VB_BATCH_MAX; i++)
			vb_acc_write(&w.acc, VB_WRITE_DI, word(1, i), &value, 8);
		w.lose = VB_BATCH_MAX;
		vb_acc_cas(&w.acc, VB_AMOD_IM, word(1, VB_BATCH_MAX), 0, VALUE, &old);
		assert_true(w.lose < VB_BATCH_MAX);
		w.lose = 0;
		assert_int_equal(vb_acc_go(&w.acc), -VB_EUNKNOWN);
		assert_int_equal(value_of(word(1, 0)), VALUE);
		assert_int_equal(value_of(word(1, VB_BATCH_MAX)), 0);
		/* And nothing of it is left for the next one. */
		vb_acc_cas(&w.acc, VB_AMOD_IM, word(1, VB_BATCH_MAX), 0, VALUE, &old);
		must(vb_acc_go(&w.acc));
		assert_int_equal(value_of(word(1, VB_BATCH_MAX)), VALUE);
		close_world();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(late_near),
		cmocka_unit_test(late_far),
		cmocka_unit_test(behind_a_full_batch),
	};

	return cmocka_run_group_tests_name("store_late", tests, NULL, NULL);
}
