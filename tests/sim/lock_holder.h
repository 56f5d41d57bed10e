/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vb_lock_holder, a part of test_lock_calls.c: who is told, dead ones too; that it is one READ; and when
 * there is nothing to tell.  What drtm's clocks do to it is in test_drtm.c, every lock on every fabric in
 * conformance/lock/suite_holder.h.
 */
#ifndef TEST_LOCK_HOLDER_H
#define TEST_LOCK_HOLDER_H

/* Whose words have all of a name; and whose servers do. */
static const char *const namers[] = {"cas", "cas-backoff", "drtm"};
static const char *const served[] = {"rpc", "traditional", "traditional-ro", "table"};

/* Asked by b: one READ, and the word is as it was. */
static struct vb_holder ask_holder(struct world *w, uint64_t lock)
{
	const vb_addr entry = vb_lock_entry(w->space, lock);
	uint64_t word = peek(w->f, entry), count[VB_OP_COUNT];
	struct vb_holder h;

	memset(&h, 0xff, sizeof(h));
	memcpy(count, w->b->ep->count, sizeof(count));
	must(vb_lock_holder(w->b, lock, &h));
	count[VB_OP_READ]++;
	assert_memory_equal(count, w->b->ep->count, sizeof(count));
	assert_true(peek(w->f, entry) == word);
	return h;
}

static void assert_nobody(struct world *w, uint64_t lock)
{
	struct vb_holder h = ask_holder(w, lock);

	assert_false(h.held || h.lapsed || h.readers != 0 || h.node != 0 || h.client != 0);
}

static void assert_named(struct world *w, uint64_t lock, vb_peer client)
{
	struct vb_holder h = ask_holder(w, lock);

	assert_true(h.held && !h.lapsed && h.mode == VB_EXCLUSIVE && h.readers == 0);
	assert_int_equal(h.node, vb_peer_node(client));
	assert_true(h.client == client);
}

static void test_holder_is_named(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(namers); i++) {
		struct vb_grant g, other;
		vb_peer a, b;
		struct world w;

		open_lock(&w, namers[i]);
		a = vb_lock_client_peer(w.a);
		b = vb_lock_client_peer(w.b);
		assert_true(a != b && vb_peer_node(a) == 1 && vb_peer_node(b) == 1);
		assert_nobody(&w, 5);
		must(vb_lock_acquire(w.a, 5, VB_EXCLUSIVE, 0, &g));
		must(vb_lock_acquire(w.b, 6, VB_EXCLUSIVE, 0, &other));
		assert_named(&w, 5, a);
		assert_named(&w, 6, b);
		assert_int_equal(vb_lock_try(w.b, 5, VB_EXCLUSIVE, &other), -EAGAIN);
		assert_named(&w, 5, a);
		must(vb_lock_release(w.a, &g));
		assert_nobody(&w, 5);
		/* Again, by another claim; and the dead is named for ever. */
		must(vb_lock_acquire(w.a, 5, VB_EXCLUSIVE, 0, &g));
		vb_lock_abandon(w.a, &g);
		vb_lock_client_close(w.a);
		w.a = NULL;
		pause_for(w.b, 100 * LEASE);
		assert_named(&w, 5, a);
		close_world(&w);
	}
}

static void test_readers_are_counted(void **state)
{
	struct vb_grant g[2], x;
	struct vb_holder h;
	struct world w;

	(void)state;
	open_lock(&w, "retry-on-fail");
	must(vb_lock_acquire(w.a, 5, VB_SHARED, 0, &g[0]));
	for (uint32_t n = 1; n <= 2; n++) {
		h = ask_holder(&w, 5);
		assert_true(h.held && !h.lapsed && h.mode == VB_SHARED && h.readers == n);
		assert_true(h.node == 0 && h.client == VB_PEER_NONE);
		if (n == 1)
			must(vb_lock_acquire(w.b, 5, VB_SHARED, 0, &g[1]));
	}
	must(vb_lock_release(w.a, &g[0]));
	assert_int_equal(ask_holder(&w, 5).readers, 1);
	must(vb_lock_release(w.b, &g[1]));
	assert_nobody(&w, 5);
	/* The word has a part of the writer's name only. */
	must(vb_lock_acquire(w.a, 5, VB_EXCLUSIVE, 0, &x));
	h = ask_holder(&w, 5);
	assert_true(h.held && h.mode == VB_EXCLUSIVE && h.readers == 0);
	assert_true(h.node == 1 && h.client == VB_PEER_NONE);
	must(vb_lock_release(w.a, &x));
	close_world(&w);
}

static void test_no_holder_to_tell(void **state)
{
	unsigned can = 0, cannot = 0;

	(void)state;
	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++) {
		struct vb_holder h;
		struct world w;

		open_lock(&w, (*l)->name);
		refused(vb_lock_holder(w.a, 100, &h), -EINVAL);
		refused(vb_lock_holder(w.a, UINT64_MAX, &h), -EINVAL);
		if ((*l)->holder == NULL) {
			cannot++;
			refused_with(vb_lock_holder(w.a, 5, &h), -EOPNOTSUPP, (*l)->name);
			refused_with(vb_lock_holder(w.a, 5, &h), -EOPNOTSUPP, "verbena list");
		} else {
			can++;
			must(vb_lock_holder(w.a, 5, &h));
		}
		close_world(&w);
	}
	assert_int_equal(can, VB_ARRAY_SIZE(namers) + 1 + VB_ARRAY_SIZE(served));
	assert_true(cannot > 0);
}

static struct vb_holder ask_server(struct world *w, uint64_t lock)
{
	struct vb_holder h;

	memset(&h, 0xff, sizeof(h));
	must(vb_lock_holder(w->b, lock, &h));
	return h;
}

static void assert_told(struct vb_holder h, enum vb_mode mode, uint32_t readers, vb_peer client)
{
	assert_true(h.held && !h.lapsed);
	assert_int_equal(h.mode, mode);
	assert_int_equal(h.readers, readers);
	assert_int_equal(h.node, client != VB_PEER_NONE ? vb_peer_node(client) : 0);
	assert_true(h.client == client);
}

static void assert_free(struct vb_holder h)
{
	assert_false(h.held || h.lapsed || h.readers != 0 || h.node != 0 || h.client != 0);
}

/* The server tells of a holder, of one that has died until its lease is over, and of readers. */
static void test_server_tells_the_holder(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(served); i++) {
		bool is_table = strcmp(served[i], "table") == 0;
		struct vb_grant g, r[2];
		struct vb_holder h;
		struct world w;
		vb_peer a;

		open_lock(&w, served[i]);
		a = vb_lock_client_peer(w.a);
		assert_free(ask_server(&w, 5));
		for (uint32_t n = 0; n < 2; n++) {
			must(vb_lock_acquire(n ? w.b : w.a, 6, VB_SHARED, 0, &r[n]));
			assert_told(ask_server(&w, 6), VB_SHARED, n + 1, VB_PEER_NONE);
		}
		must(vb_lock_release(w.a, &r[0]));
		assert_told(ask_server(&w, 6), VB_SHARED, 1, VB_PEER_NONE);
		must(vb_lock_acquire(w.a, 5, VB_EXCLUSIVE, 0, &g));
		assert_told(ask_server(&w, 5), VB_EXCLUSIVE, 0, a);
		/* Who asks in vain does not change it, nor does who only asks who has it. */
		assert_int_equal(vb_lock_try(w.b, 5, VB_EXCLUSIVE, &r[0]), -EAGAIN);
		assert_true(vb_lock_valid(w.a, &g));
		must(vb_lock_renew(w.a, &g, LEASE));
		assert_told(ask_server(&w, 5), VB_EXCLUSIVE, 0, a);
		vb_lock_abandon(w.a, &g);
		pause_for(w.b, LEASE / 2);
		assert_told(ask_server(&w, 5), VB_EXCLUSIVE, 0, a);
		pause_for(w.b, LEASE);
		h = ask_server(&w, 5);
		assert_false(h.held);
		assert_true(h.lapsed == !is_table);
		assert_true(is_table || (h.mode == VB_EXCLUSIVE && h.client == a));
		/* Readers that have not given back are over after two leases. */
		vb_lock_abandon(w.b, &r[1]);
		pause_for(w.b, 2 * LEASE);
		h = ask_server(&w, 6);
		assert_false(h.held);
		assert_true(h.lapsed == !is_table && h.readers == 0);
		must(vb_lock_acquire(w.b, 5, VB_EXCLUSIVE, LEASE, &g));
		assert_told(ask_server(&w, 5), VB_EXCLUSIVE, 0, vb_lock_client_peer(w.b));
		must(vb_lock_release(w.b, &g));
		assert_free(ask_server(&w, 5));
		close_world(&w);
	}
}

/* Of two modes the stronger one, and who has it if nobody else can. */
static void test_table_tells_modes(void **state)
{
	static const struct {
		enum vb_mode a, b, told;
		bool a_named, b_named;
	} pairs[] = {
		{VB_INTENT_SHARED, VB_INTENT_EXCLUSIVE, VB_INTENT_EXCLUSIVE, false, false},
		{VB_INTENT_SHARED, VB_SHARED, VB_SHARED, false, false},
		{VB_SHARED, VB_UPDATE, VB_UPDATE, false, true},
		{VB_UPDATE, VB_INTENT_SHARED, VB_UPDATE, true, false},
		{VB_SHARED_INTENT_EXCLUSIVE, VB_INTENT_SHARED, VB_SHARED_INTENT_EXCLUSIVE, true,
		 false},
	};
	struct world w;

	(void)state;
	open_lock(&w, "table");
	for (unsigned i = 0; i < VB_ARRAY_SIZE(pairs); i++) {
		bool named = pairs[i].a_named || pairs[i].b_named;
		struct vb_grant a, b;

		must(vb_lock_acquire(w.a, 5, pairs[i].a, 0, &a));
		must(vb_lock_acquire(w.b, 5, pairs[i].b, 0, &b));
		assert_told(ask_server(&w, 5), pairs[i].told, named ? 1 : 2,
			    pairs[i].a_named   ? vb_lock_client_peer(w.a)
			    : pairs[i].b_named ? vb_lock_client_peer(w.b)
					       : VB_PEER_NONE);
		must(vb_lock_release(w.a, &a));
		must(vb_lock_release(w.b, &b));
		assert_free(ask_server(&w, 5));
	}
	close_world(&w);
}

/* A server that has stopped is gone; the one after it tells of what was granted, or says that it does not know. */
static void test_holder_after_a_server(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(served); i++) {
		struct vb_holder h = {.readers = 77};
		struct vb_grant g;
		struct world w;

		open_lock(&w, served[i]);
		must(vb_lock_acquire(w.a, 5, VB_EXCLUSIVE, 0, &g));
		vb_lock_server_stop(w.server);
		w.server = NULL;
		assert_int_equal(vb_lock_holder(w.b, 5, &h), -VB_EPEERGONE);
		assert_int_equal(h.readers, 77);
		must(vb_lock_server_start(w.space, 0, 0, 1, &w.server));
		if (strcmp(served[i], "table") == 0) {
			assert_int_equal(vb_lock_holder(w.b, 5, &h), -EAGAIN);
			assert_int_equal(h.readers, 77);
			pause_for(w.b, 2 * LEASE);
			assert_free(ask_server(&w, 5));
		} else {
			assert_told(ask_server(&w, 5), VB_EXCLUSIVE, 0, vb_lock_client_peer(w.a));
			must(vb_lock_release(w.a, &g));
			assert_free(ask_server(&w, 5));
		}
		close_world(&w);
	}
}

/* Nothing is said then; the next call tells, if somebody answers it. */
static void test_holder_without_an_answer(void **state)
{
	(void)state;
	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++) {
		struct vb_holder h = {.readers = 77};
		struct world w;

		if ((*l)->holder == NULL)
			continue;
		open_lock(&w, (*l)->name);
		/* Who asks a server asks again. */
		vb_sim_set_faults(w.f, &lose);
		assert_int_equal(vb_lock_holder(w.a, 5, &h),
				 (*l)->caps & VB_LOCK_SERVER ? 0 : -VB_EUNKNOWN);
		vb_sim_set_faults(w.f, &none);
		assert_int_equal(h.readers, (*l)->caps & VB_LOCK_SERVER ? 0 : 77);
		must(vb_lock_holder(w.a, 5, &h));
		assert_int_equal(h.readers, 0);
		h.readers = 77;
		/* A server that cannot be reached, and is not known to be gone, is asked for as long as it may be. */
		vb_sim_lose_node(w.f, 0);
		assert_int_equal(vb_lock_holder(w.a, 5, &h),
				 (*l)->caps & VB_LOCK_SERVER ? -VB_EUNKNOWN : -VB_EPEERGONE);
		assert_int_equal(h.readers, 77);
		close_world(&w);
	}
}

struct asker {
	struct world *w;
	struct vb_holder h;
	int err;
};

static void asker_body(void *arg)
{
	struct asker *x = arg;

	x->err = vb_lock_holder(x->w->b, 5, &x->h);
}

/* While the server says nothing. */
static void test_holder_cancelled(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(served); i++) {
		struct asker x = {.h.readers = 77, .err = 1};
		struct vb_task *task;
		struct world w;

		open_lock(&w, served[i]);
		x.w = &w;
		vb_sim_ep_pause(w.server->ep, now() + LEASE);
		must(vb_task_spawn(vb_sched_self(), asker_body, &x, NULL, &task));
		pause_for(w.a, 50 * US);
		assert_int_equal(x.err, 1);
		vb_task_cancel(task);
		pause_for(w.a, 200 * US);
		assert_int_equal(x.err, -ECANCELED);
		assert_int_equal(x.h.readers, 77);
		pause_for(w.a, 2 * LEASE);
		assert_free(ask_server(&w, 5));
		close_world(&w);
	}
}

#endif
