/* SPDX-License-Identifier: Apache-2.0 */
/* vb_allocator_set: all memory of the library's own comes from there and goes back there; what it refuses is told; and
 * who sets it too late is refused. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <verbena/async.h>
#include <verbena/lock.h>
#include <verbena/names.h>
#include <verbena/txn.h>

#include "base/log.h"
#include "lock/lock.h"
#include "lock/protocols.h"

/* In front of each piece: whoever gives back what is not from here, or twice, is found out. */
#define MARK  0x7665726265726e61ull
#define FRONT 128u

struct front {
	uint64_t mark;
	void *piece; /* as the C library knows it */
	size_t bytes;
};

static struct store {
	long pieces;    /* that are out */
	uint64_t asked; /* ever */
	uint64_t fail;  /* the number of the one that is refused; 0: none */
} store;

static struct front *front_of(void *at)
{
	struct front *f = (struct front *)((char *)at - sizeof(struct front));

	if (f->mark != MARK)
		abort();
	return f;
}

static void *out(struct store *s, size_t align, size_t bytes, int fill)
{
	char *piece, *at;
	struct front *f;

	if (bytes == 0)
		abort();
	if (__atomic_add_fetch(&s->asked, 1, __ATOMIC_SEQ_CST) == s->fail)
		return NULL;
	piece = malloc(bytes + FRONT + align);
	if (piece == NULL)
		abort();
	at = (char *)(((uintptr_t)piece + FRONT + align - 1) & ~(uintptr_t)(align - 1));
	f = (struct front *)(at - sizeof(*f));
	*f = (struct front){.mark = MARK, .piece = piece, .bytes = bytes};
	memset(at, fill, bytes);
	__atomic_add_fetch(&s->pieces, 1, __ATOMIC_SEQ_CST);
	return at;
}

static void *alloc(void *ctx, size_t bytes)
{
	return out(ctx, 16, bytes, 0xa5);
}

static void *alloc_zeroed(void *ctx, size_t bytes)
{
	return out(ctx, 16, bytes, 0);
}

static void *alloc_aligned(void *ctx, size_t align, size_t bytes)
{
	if (bytes % align != 0)
		abort();
	return out(ctx, align, bytes, 0xa5);
}

static void release(void *ctx, void *at)
{
	struct store *s = ctx;
	struct front *f = front_of(at);

	f->mark = 0;
	memset(at, 0x5a, f->bytes);
	free(f->piece);
	__atomic_sub_fetch(&s->pieces, 1, __ATOMIC_SEQ_CST);
}

static void *resize(void *ctx, void *at, size_t bytes)
{
	size_t was = front_of(at)->bytes;
	void *to = out(ctx, 16, bytes, 0xa5);

	if (to == NULL)
		return NULL;
	memcpy(to, at, was < bytes ? was : bytes);
	release(ctx, at);
	return to;
}

static const struct vb_allocator mine = {
	.ctx = &store,
	.alloc = alloc,
	.alloc_zeroed = alloc_zeroed,
	.alloc_aligned = alloc_aligned,
	.resize = resize,
	.release = release,
};

/* ---- a program that uses much ---- */

static int use_lock(struct vb_fabric *f, const struct vb_lock_ops *ops)
{
	const struct vb_lock_space_params p = {
		.lock = ops->name, .name = ops->name, .locks = 20, .lease_ns = 2000000000};
	struct vb_lock_server *server = NULL;
	struct vb_lock_client *me = NULL;
	struct vb_lock_space *s = NULL;
	struct vb_names *names = NULL;
	struct vb_grant g;
	uint64_t lock;
	int err = vb_lock_space_open(f, &p, &s);

	if (err == 0)
		err = vb_lock_server_start(s, 0, 0, 1, &server);
	if (err == 0)
		err = vb_lock_client_open(s, 0, &me);
	if (err == 0)
		err = vb_names_open(s, NULL, &names);
	if (err == 0)
		err = vb_names_lock(names, me, "name", 4, &lock);
	if (err == 0)
		err = vb_lock_acquire(me, lock, VB_EXCLUSIVE, VB_FOREVER_NS, &g);
	if (err == 0)
		err = vb_lock_release(me, &g);
	vb_names_close(names);
	vb_lock_client_close(me);
	vb_lock_server_stop(server);
	vb_lock_space_close(s);
	if (err == 0)
		err = vb_lock_space_remove(f, ops->name);
	return err;
}

static int add(struct vb_coordinator *me, void *arg)
{
	uint64_t *v;
	int err = vb_txn_update(me, arg, 1, (void **)&v);

	if (err == 0)
		++*v;
	return err;
}

static int use_db(struct vb_fabric *f, const char *cc)
{
	const struct vb_db_params p = {.cc = cc, .name = cc, .coordinators = 2};
	const struct vb_table_params tp = {.name = "t", .record_bytes = 8, .records = 10};
	struct vb_db_server *server = NULL;
	struct vb_coordinator *me = NULL;
	struct vb_table *t = NULL;
	struct vb_db *db = NULL;
	uint64_t zero = 0;
	int err = vb_db_open(f, &p, &db);

	if (err == 0)
		err = vb_table_open(db, &tp, &t);
	if (err == 0)
		err = vb_db_server_start(db, 0, &server);
	if (err == 0)
		err = vb_table_load(t, 1, &zero);
	if (err == 0)
		err = vb_coordinator_open(db, 0, &me);
	if (err == 0)
		err = vb_txn_run(me, add, t, 0);
	vb_coordinator_close(me);
	vb_db_server_stop(server);
	vb_db_close(db);
	return err;
}

/* One that waits for another. */
static int use_ring(struct vb_fabric *f)
{
	const struct vb_lock_space_params p = {.lock = "cas", .name = "ring", .locks = 20};
	struct vb_lock_client *me = NULL, *other = NULL;
	struct vb_lock_space *s = NULL;
	struct vb_completion done;
	struct vb_ring *ring = NULL;
	struct vb_grant g, before;
	int err = vb_lock_space_open(f, &p, &s);

	if (err == 0)
		err = vb_lock_client_open(s, 0, &me);
	if (err == 0)
		err = vb_lock_client_open(s, 0, &other);
	if (err == 0)
		err = vb_ring_open(NULL, &ring);
	if (err == 0)
		err = vb_lock_acquire(other, 3, VB_EXCLUSIVE, 0, &before);
	if (err == 0)
		err = vb_lock_acquire_start(ring, me, 3, VB_EXCLUSIVE, VB_FOREVER_NS, &g, NULL,
					    NULL);
	if (err == VB_STARTED)
		err = vb_lock_release(other, &before);
	if (err == 0)
		err = vb_ring_wait(ring, 10000000000);
	if (err == 0)
		err = vb_ring_reap(ring, &done, 1) == 1 ? vb_lock_release(me, &g) : -EIO;
	(void)vb_ring_close(ring);
	vb_lock_client_close(me);
	vb_lock_client_close(other);
	vb_lock_space_close(s);
	return err;
}

struct use {
	const char *fabric, *options;
	bool all, quiet;
	const char *at; /* what it has come to */
	int err;
};

/* In a thread, whose own state goes with it. */
static void *use(void *arg)
{
	struct use *u = arg;
	const struct vb_fabric_params p = {.fabric = u->fabric,
					   .options = u->options,
					   .node_bytes = 8u << 20,
					   .endpoints = 32};
	struct vb_fabric *f;

	if (u->quiet)
		vb_log_mute();
	u->err = vb_fabric_open(&p, &f);
	if (u->err != 0)
		return NULL;
	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL && u->err == 0; l++)
		if (u->all || strcmp((*l)->name, "cas") == 0 || strcmp((*l)->name, "table") == 0)
			u->err = use_lock(f, *l), u->at = (*l)->name;
	if (u->err == 0)
		u->err = use_db(f, "silo"), u->at = "silo";
	if (u->err == 0 && u->all)
		u->err = use_db(f, "no-wait"), u->at = "no-wait";
	if (u->err == 0 && u->all)
		u->err = use_ring(f), u->at = "ring";
	if (vb_fabric_close(f) != 0 && u->err == 0)
		u->err = -EBUSY;
	return NULL;
}

static int use_in_thread(struct use *u)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, use, u), 0);
	pthread_join(thread, NULL);
	return u->err;
}

/* ---- tests ---- */

static void test_before_anything(void **state)
{
	struct vb_allocator less = mine;
	char said[256] = "";

	(void)state;
	less.resize = NULL;
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_allocator_set(&less), -EINVAL);
	vb_log_capture_end();
	assert_non_null(strstr(said, "resize"));
	assert_int_equal(vb_allocator_set(&mine), 0);
	assert_int_equal(vb_allocator_set(NULL), 0);
	assert_int_equal(vb_allocator_set(&mine), 0);
}

static void test_all_comes_back(void **state)
{
	static const char *const fabrics[][2] = {
		{"shm", NULL}, {"sim", NULL}, {"tcp", "bound=20ms,silence=20s"}};
	char said[256] = "";

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct use u = {.fabric = fabrics[i][0], .options = fabrics[i][1], .all = true};
		uint64_t before = store.asked;

		if (use_in_thread(&u) != 0)
			fail_msg("%s: %s at %s", fabrics[i][0], vb_strerror(u.err), u.at);
		assert_true(store.asked > before + 100);
		if (store.pieces != 0)
			fail_msg("%ld pieces have not come back from %s", store.pieces,
				 fabrics[i][0]);
	}
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_allocator_set(NULL), -EBUSY);
	vb_log_capture_end();
	assert_non_null(strstr(said, "before any other call"));
}

/* One after the other is refused, and all that was had until then comes back. */
static void test_refusals(void **state)
{
	unsigned refused = 0;
	uint64_t n = 1;

	(void)state;
	for (;; n += n < 50 ? 1 : 9) {
		struct use u = {.fabric = "sim", .quiet = true};
		uint64_t at = store.asked + n;
		int err;

		store.fail = at;
		err = use_in_thread(&u);
		store.fail = 0;
		if (store.pieces != 0)
			fail_msg("%ld pieces have not come back when the %llu-th was refused",
				 store.pieces, (unsigned long long)n);
		if (store.asked < at)
			break;
		if (err != 0 && err != -ENOMEM && err != -ENOSPC && err != -EAGAIN)
			fail_msg("the %llu-th was refused: %s", (unsigned long long)n,
				 vb_strerror(err));
		refused += err != 0;
	}
	assert_true(refused > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_before_anything),
		cmocka_unit_test(test_all_comes_back),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests_name("allocator", tests, NULL, NULL);
}
