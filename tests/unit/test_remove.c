/* SPDX-License-Identifier: Apache-2.0 */
/* vb_lock_space_remove: all of a space goes, and nothing of another; nobody who uses it loses it; and who dies in the
 * middle leaves no half. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <verbena/lock.h>
#include <verbena/names.h>

#include "base/log.h"
#include "child.h"
#include "fabric/fabric.h"
#include "fabric/own/inner.h"
#include "lock/lock.h"
#include "lock/protocols.h"
#include "own_memory.h"

#define NODES      2
#define NODE_BYTES (2u << 20)
#define LOCKS      100

extern const struct vb_lock_ops vb_lock_dslr;

#define SAYS(call, want, words)                                                                    \
	do {                                                                                       \
		char said_[512] = "";                                                              \
		int err_;                                                                          \
		vb_log_capture_begin(said_, sizeof(said_));                                        \
		err_ = (call);                                                                     \
		vb_log_capture_end();                                                              \
		assert_int_equal(err_, want);                                                      \
		if (strstr(said_, words) == NULL)                                                  \
			fail_msg("said '%s', not '%s'", said_, words);                             \
	} while (0)

static unsigned regions(struct vb_fabric *f)
{
	struct vb_region_info all[64];
	unsigned n = 0;

	for (uint16_t node = 0; node < f->nodes; node++)
		n += (unsigned)vb_regions(f, node, all, 64);
	return n;
}

static struct vb_lock_space *open_space(struct vb_fabric *f, const char *name, const char *lock,
					uint64_t locks)
{
	const struct vb_lock_space_params p = {
		.lock = lock, .name = name, .locks = locks, .servers = NODES, .fencing = true};
	struct vb_lock_space *s;

	assert_int_equal(vb_lock_space_open(f, &p, &s), 0);
	return s;
}

/* Takes a lock and gives it back: its token. */
static uint64_t use(struct vb_lock_space *s)
{
	struct vb_lock_client *me;
	struct vb_grant g;

	assert_int_equal(vb_lock_client_open(s, 0, &me), 0);
	assert_int_equal(vb_lock_acquire(me, 7, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	assert_int_equal(vb_lock_release(me, &g), 0);
	vb_lock_client_close(me);
	return g.token;
}

/* ---- all of it, and nothing else ---- */

/* With all that a space can have, by this protocol. */
static void fill(struct vb_fabric *f, const struct vb_lock_ops *ops)
{
	const struct vb_lock_space_params p = {.lock = ops->name,
					       .name = "s",
					       .locks = LOCKS,
					       .servers = NODES,
					       .fencing = true,
					       .visible = f->ops->local != NULL};
	struct vb_lock_server *server[NODES] = {NULL};
	struct vb_lock_client *me[NODES];
	struct vb_lock_space *s;
	struct vb_names *names;
	struct vb_grant g;
	uint64_t lock;

	assert_int_equal(vb_lock_space_open(f, &p, &s), 0);
	assert_int_equal(vb_names_open(s, NULL, &names), 0);
	for (uint16_t n = 0; n < NODES; n++)
		assert_int_equal(vb_lock_server_start(s, n, 0, 1, &server[n]), 0);
	for (uint16_t n = 0; n < NODES; n++)
		assert_int_equal(vb_lock_client_open(s, n, &me[n]), 0);
	assert_int_equal(vb_names_lock(names, me[0], "a", 1, &lock), 0);
	for (uint16_t n = 0; n < NODES; n++) {
		assert_int_equal(vb_lock_acquire(me[n], lock, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
		assert_int_equal(vb_lock_release(me[n], &g), 0);
	}
	SAYS(vb_lock_space_remove(f, "s"), -EBUSY, "in use");
	for (uint16_t n = 0; n < NODES; n++)
		vb_lock_client_close(me[n]);
	for (uint16_t n = 0; n < NODES; n++)
		vb_lock_server_stop(server[n]);
	vb_names_close(names);
	assert_int_equal(vb_lock_space_close(s), 0);
}

/* Every byte that a new region may get is zero. */
static void all_zero(struct vb_fabric *f)
{
	for (uint16_t node = 0; node < NODES; node++) {
		uint64_t bytes = f->node_bytes / 2;
		const unsigned char *at;
		vb_addr addr;
		bool fresh;

		assert_int_equal(vb_region(f, node, "all", bytes, &addr, &fresh), 0);
		assert_true(fresh);
		at = vb_local(f, addr, bytes);
		assert_non_null(at);
		for (uint64_t i = 0; i < bytes; i++)
			if (at[i] != 0)
				fail_msg("byte %llu of node %u is %u", (unsigned long long)i, node,
					 at[i]);
	}
}

static void everything(struct vb_fabric *f)
{
	struct vb_lock_space *other;
	unsigned before, with;
	uint64_t token;

	/* Names that begin, or end, as the other's. */
	other = open_space(f, "s:1", "dslr", 10);
	assert_int_equal(vb_lock_space_close(open_space(f, "ss", "dslr", 10)), 0);
	token = use(other);
	before = regions(f);
	for (const struct vb_lock_ops *const *ops = vb_locks; *ops != NULL; ops++) {
		if ((*ops)->needs & ~f->caps.flags)
			continue;
		fill(f, *ops);
		with = regions(f);
		assert_true(with > before);
		/* Named as a numbered piece of it may be. */
		assert_int_equal(vb_lock_space_close(open_space(f, "s:0", "dslr", 10)), 0);
		assert_int_equal(vb_lock_space_remove(f, "s:0"), 0);
		if (regions(f) != with)
			fail_msg("of %s something has gone with another space", (*ops)->name);
		assert_int_equal(vb_lock_space_remove(f, "s"), 0);
		if (regions(f) != before)
			fail_msg("%s leaves something", (*ops)->name);
		SAYS(vb_lock_space_remove(f, "s"), -ENOENT, "'s'");
	}
	assert_true(use(other) > token);
	assert_int_equal(vb_lock_space_close(other), 0);
	SAYS(vb_lock_space_remove(f, ""), -EINVAL, "31");
	SAYS(vb_lock_space_remove(f, "a name of more than 31 characters"), -EINVAL, "31");
	assert_int_equal(vb_lock_space_remove(f, "s:1"), 0);
	assert_int_equal(vb_lock_space_remove(f, "ss"), 0);
	assert_int_equal(regions(f), 0);
	all_zero(f);
}

static struct vb_fabric *open_fabric(const char *fabric, const char *options)
{
	const struct vb_fabric_params p = {.fabric = fabric,
					   .options = options,
					   .nodes = NODES,
					   .node_bytes = NODE_BYTES,
					   .endpoints = 32};
	struct vb_fabric *f;

	assert_int_equal(vb_fabric_open(&p, &f), 0);
	return f;
}

/* Whose verbs are late by no more than a test can wait for. */
static struct memory *new_memory(void)
{
	struct memory *m = memory_new(NODES, NODE_BYTES, BUG_NONE);

	assert_non_null(m);
	m->p.verb_bound_ns = 1000000;
	return m;
}

static void test_shm(void **state)
{
	struct vb_fabric *f = open_fabric("shm", NULL);

	(void)state;
	everything(f);
	assert_int_equal(vb_fabric_close(f), 0);
}

static void test_sim(void **state)
{
	struct vb_fabric *f = open_fabric("sim", NULL);

	(void)state;
	everything(f);
	assert_int_equal(vb_fabric_close(f), 0);
}

/* What those have posted who have closed the space, or died, lands in no memory of what is opened next. */
static void test_lets_land(void **state)
{
	struct vb_fabric *f = open_fabric("sim", NULL);
	uint64_t began;

	(void)state;
	assert_true(f->caps.verb_bound_ns > 0);
	assert_int_equal(vb_lock_space_close(open_space(f, "s", "cas", LOCKS)), 0);
	began = vb_sched_now(vb_sched_self());
	assert_int_equal(vb_lock_space_remove(f, "s"), 0);
	assert_true(vb_sched_now(vb_sched_self()) - began >= f->caps.verb_bound_ns);
	assert_int_equal(vb_fabric_close(f), 0);
}

static void test_tcp(void **state)
{
	struct vb_fabric *f = open_fabric("tcp", "bound=50ms");

	(void)state;
	everything(f);
	assert_int_equal(vb_fabric_close(f), 0);
}

static void test_own(void **state)
{
	struct memory *m = new_memory();
	struct vb_fabric *f;

	(void)state;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	everything(f);
	assert_int_equal(vb_fabric_close(f), 0);
	memory_free(m);
}

/* A piece of one space's list of clients is no region of the space that is called so. */
static void test_number_in_name(void **state)
{
	struct vb_fabric *f = open_fabric("sim", NULL);
	struct vb_lock_space *s = open_space(f, "s", "cas", LOCKS);
	vb_addr at;
	bool fresh;

	(void)state;
	assert_int_equal(vb_region(f, 0, "names:s:1", 64, &at, &fresh), 0);
	assert_int_equal(vb_lock_space_close(open_space(f, "s:1", "cas", LOCKS)), 0);
	assert_int_equal(vb_lock_space_remove(f, "s:1"), 0);
	assert_int_equal(vb_region(f, 0, "names:s:1", 64, &at, &fresh), 0);
	assert_false(fresh);
	assert_int_equal(vb_lock_space_close(s), 0);
	assert_int_equal(vb_lock_space_remove(f, "s"), 0);
	assert_int_equal(regions(f), 0);
	assert_int_equal(vb_fabric_close(f), 0);
}

/* ---- what is given back is used again ---- */

/* Spaces that fill more than half of a node, many more than a node has room for. */
static void again_and_again(struct vb_fabric *f)
{
	const uint64_t locks = NODES * (uint64_t)NODE_BYTES * 2 / 3 / 16;
	uint64_t first = 0;

	for (unsigned i = 0; i < 40; i++) {
		char name[16];
		struct vb_lock_space *s;
		uint64_t token;

		snprintf(name, sizeof(name), "space-%u", i);
		s = open_space(f, name, "cas", locks);
		token = use(s);
		first = i == 0 ? token : first;
		assert_int_equal(token, first);
		assert_int_equal(vb_lock_space_close(s), 0);
		assert_int_equal(vb_lock_space_remove(f, name), 0);
	}
	assert_int_equal(regions(f), 0);
}

/* One in the middle: its place is used, and its neighbours stay. */
static void in_the_middle(struct vb_fabric *f)
{
	struct vb_lock_space *a = open_space(f, "a", "cas", LOCKS);
	struct vb_lock_space *b = open_space(f, "b", "cas", LOCKS);
	struct vb_lock_space *c = open_space(f, "c", "cas", LOCKS), *d, *e;
	vb_addr was = b->base[0];
	uint64_t ta = use(a), tc = use(c);

	assert_int_equal(vb_lock_space_close(b), 0);
	assert_int_equal(vb_lock_space_remove(f, "b"), 0);
	/* Too large for the hole, and then one that fits. */
	d = open_space(f, "d", "cas", 4 * LOCKS);
	assert_int_not_equal(d->base[0], was);
	e = open_space(f, "e", "cas", LOCKS / 2);
	assert_int_equal(e->base[0], was);
	assert_int_equal(use(d), ta);
	assert_int_equal(use(e), ta);
	assert_int_equal(use(a), ta + 1);
	assert_int_equal(use(c), tc + 1);
	assert_int_equal(vb_lock_space_close(a), 0);
	assert_int_equal(vb_lock_space_close(c), 0);
	assert_int_equal(vb_lock_space_close(d), 0);
	assert_int_equal(vb_lock_space_close(e), 0);
	for (const char *name = "acde"; *name != '\0'; name++)
		assert_int_equal(vb_lock_space_remove(f, (char[]){*name, '\0'}), 0);
}

static void test_again(void **state)
{
	static const char *const fabrics[][2] = {
		{"shm", NULL}, {"sim", NULL}, {"tcp", "bound=1ms"}};

	(void)state;
	for (size_t i = 0; i < VB_ARRAY_SIZE(fabrics); i++) {
		struct vb_fabric *f = open_fabric(fabrics[i][0], fabrics[i][1]);

		in_the_middle(f);
		again_and_again(f);
		assert_int_equal(vb_fabric_close(f), 0);
	}
}

static void test_again_own(void **state)
{
	struct memory *m = new_memory();
	struct vb_fabric *f;

	(void)state;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	in_the_middle(f);
	again_and_again(f);
	assert_int_equal(vb_fabric_close(f), 0);
	memory_free(m);
}

/* ---- processes ---- */

static void tell(int fd, char c)
{
	if (write(fd, &c, 1) != 1)
		_exit(2);
}

static void hear(int fd)
{
	char c;

	if (read(fd, &c, 1) != 1)
		_exit(2);
}

/* A space that a process has open stays until that has ended, however it ends; the locks that it held go with it. */
static void test_processes(void **state)
{
	char name[40], who[32];
	struct vb_fabric_params p = {
		.name = name, .nodes = NODES, .node_bytes = NODE_BYTES, .endpoints = 32};
	struct vb_lock_space *s;
	struct vb_fabric *f;
	uint64_t first;
	int up[2];
	pid_t child;

	(void)state;
	snprintf(name, sizeof(name), "remove-%d", (int)getpid());
	assert_int_equal(vb_fabric_open(&p, &f), 0);
	s = open_space(f, "s", "cas", LOCKS);
	first = use(s);
	use(s);
	assert_int_equal(vb_lock_space_close(s), 0);
	assert_int_equal(pipe(up), 0);
	child = fork_child();
	if (child == 0) {
		struct vb_lock_client *me;
		struct vb_grant g;

		p.attach = true;
		if (vb_fabric_open(&p, &f) != 0)
			_exit(1);
		s = open_space(f, "s", "cas", LOCKS);
		if (vb_lock_client_open(s, 0, &me) != 0 ||
		    vb_lock_acquire(me, 7, VB_EXCLUSIVE, 0, &g) != 0)
			_exit(1);
		tell(up[1], 'o');
		pause();
	}
	hear(up[0]);
	snprintf(who, sizeof(who), "process %d", (int)child);
	SAYS(vb_lock_space_remove(f, "s"), -EBUSY, who);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(vb_lock_space_remove(f, "s"), 0);
	s = open_space(f, "s", "cas", LOCKS);
	assert_int_equal(use(s), first);
	SAYS(vb_lock_space_remove(f, "s"), -EBUSY, "this one");
	assert_int_equal(vb_lock_space_close(s), 0);
	assert_int_equal(vb_fabric_close(f), 0);
	close(up[0]);
	close(up[1]);
}

/* A forked child has what its parent opened from its first client on; if it is gone by then, the child is told. */
static void forks(struct vb_fabric *f, bool uses)
{
	struct vb_lock_space *s = open_space(f, "s", "cas", LOCKS);
	int up[2], down[2], status;
	pid_t child;

	assert_int_equal(pipe(up), 0);
	assert_int_equal(pipe(down), 0);
	child = fork_child();
	if (child == 0) {
		struct vb_lock_client *me;
		int err;

		vb_fabric_after_fork(f);
		if (uses && vb_lock_client_open(s, 0, &me) != 0)
			_exit(1);
		tell(up[1], 'u');
		hear(down[0]);
		err = uses ? 0 : vb_lock_client_open(s, 0, &me);
		if (uses)
			vb_lock_client_close(me);
		if (vb_lock_space_close(s) != 0 || vb_fabric_close(f) != 0)
			_exit(3);
		_exit(err == (uses ? 0 : -ENOENT) ? 0 : 1);
	}
	hear(up[0]);
	assert_int_equal(vb_lock_space_close(s), 0);
	assert_int_equal(vb_lock_space_remove(f, "s"), uses ? -EBUSY : 0);
	/* Another one of that name is not what the child's parent had. */
	assert_int_equal(vb_lock_space_close(open_space(f, "s", "cas", LOCKS)), 0);
	tell(down[1], 'g');
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(vb_lock_space_remove(f, "s"), 0);
	for (unsigned i = 0; i < 2; i++) {
		close(up[i]);
		close(down[i]);
	}
}

static void test_forks(void **state)
{
	char name[40];
	const struct vb_fabric_params named = {
		.name = name, .nodes = NODES, .node_bytes = NODE_BYTES, .endpoints = 32};
	struct vb_fabric *f = open_fabric("shm", NULL);

	(void)state;
	forks(f, true);
	forks(f, false);
	assert_int_equal(vb_fabric_close(f), 0);
	snprintf(name, sizeof(name), "remove-%d", (int)getpid());
	assert_int_equal(vb_fabric_open(&named, &f), 0);
	forks(f, true);
	forks(f, false);
	assert_int_equal(vb_fabric_close(f), 0);
}

/* Takes the space as who removes it does, removes some of it, and is killed. */
static void die_removing(struct vb_fabric *f, unsigned regions_removed)
{
	pid_t child = fork_child();

	if (child == 0) {
		struct vb_region_info all[64];
		struct vb_ep *ep;
		int n;

		vb_fabric_after_fork(f);
		if (vb_ep_open(f, 0, &ep) != 0 || vb_region_take(f, "lock:s", ep->self) != 0)
			_exit(1);
		n = vb_regions(f, 1, all, 64);
		for (int i = 0; i < n && regions_removed > 0; i++, regions_removed--)
			if (vb_region_remove(f, 1, all[i].id) != 0)
				_exit(1);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_dies_in_the_middle(void **state)
{
	char name[40];
	const struct vb_fabric_params p = {
		.name = name, .nodes = NODES, .node_bytes = NODE_BYTES, .endpoints = 32};
	struct vb_fabric *f;

	(void)state;
	snprintf(name, sizeof(name), "remove-%d", (int)getpid());
	assert_int_equal(vb_fabric_open(&p, &f), 0);
	for (unsigned removed = 0; removed < 2; removed++) {
		struct vb_lock_space *s = open_space(f, "s", "cas", LOCKS);
		uint64_t first = use(s);

		use(s);
		assert_int_equal(vb_lock_space_close(s), 0);
		die_removing(f, removed);
		/* Of another kind, too. */
		s = open_space(f, "s", removed ? "cas" : "dslr", 2 * LOCKS);
		if (removed)
			assert_int_equal(use(s), first);
		assert_int_equal(vb_lock_space_close(s), 0);
		die_removing(f, removed);
		assert_int_equal(vb_lock_space_remove(f, "s"), 0);
		assert_int_equal(regions(f), 0);
	}
	assert_int_equal(vb_fabric_close(f), 0);
}

/* Between its beginning and its end nobody else has it. */
static void taken(struct vb_fabric *f)
{
	const struct vb_lock_space_params p = {
		.lock = "cas", .name = "s", .locks = LOCKS, .servers = NODES, .fencing = true};
	struct vb_lock_space *s = open_space(f, "s", "cas", LOCKS);
	struct vb_ep *ep;

	assert_int_equal(vb_lock_space_close(s), 0);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	assert_int_equal(vb_region_take(f, "lock:s", ep->self), 0);
	SAYS(vb_lock_space_open(f, &p, &s), -EAGAIN, "being removed");
	SAYS(vb_lock_space_remove(f, "s"), -EAGAIN, "being removed");
	vb_ep_close(ep);
	/* Who gives up has done nothing that the next one does not do. */
	assert_int_equal(vb_lock_space_open(f, &p, &s), 0);
	assert_int_equal(vb_lock_space_close(s), 0);
	assert_int_equal(vb_lock_space_remove(f, "s"), 0);
}

static void test_taken(void **state)
{
	static const char *const fabrics[][2] = {
		{"shm", NULL}, {"sim", NULL}, {"tcp", "bound=1ms"}};
	struct memory *m = new_memory();
	struct vb_fabric *f;

	(void)state;
	for (size_t i = 0; i < VB_ARRAY_SIZE(fabrics); i++) {
		f = open_fabric(fabrics[i][0], fabrics[i][1]);
		taken(f);
		assert_int_equal(vb_fabric_close(f), 0);
	}
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	taken(f);
	assert_int_equal(vb_fabric_close(f), 0);
	memory_free(m);
}

/* As long as anything of it is there, nobody opens it. */
static int (*really_remove)(struct vb_fabric *f, uint16_t node, uint64_t id);
static unsigned looked;

static int remove_and_look(struct vb_fabric *f, uint16_t node, uint64_t id)
{
	const struct vb_lock_space_params p = {
		.lock = "cas", .name = "s", .locks = LOCKS, .servers = NODES, .fencing = true};
	struct vb_lock_space *s;
	int err = really_remove(f, node, id);

	if (regions(f) > 0) {
		assert_int_equal(vb_lock_space_open(f, &p, &s), -EAGAIN);
		looked++;
	}
	return err;
}

static void test_first_is_last(void **state)
{
	struct vb_fabric *f = open_fabric("shm", NULL);
	const struct vb_fabric_ops *ops = f->ops;
	struct vb_fabric_ops looking = *ops;

	(void)state;
	fill(f, &vb_lock_dslr);
	really_remove = ops->region_remove;
	looking.region_remove = remove_and_look;
	looked = 0;
	f->ops = &looking;
	vb_log_mute();
	assert_int_equal(vb_lock_space_remove(f, "s"), 0);
	vb_log_unmute();
	f->ops = ops;
	assert_int_equal(regions(f), 0);
	/* Two regions with locks, two with names, two boards: none is looked for behind the last. */
	assert_int_equal(looked, 5);
	assert_int_equal(vb_fabric_close(f), 0);
}

/* Who holds on a provider's memory looks again, behind its own word, whether somebody has begun to remove. */
static struct {
	bool on, held;
	vb_peer remover;
	uint64_t number; /* of the region's entry */
} between;

static uint64_t *mark_of(struct memory *m)
{
	return (uint64_t *)(m->node[0] + between.number * OWN_ENTRY +
			    offsetof(struct own_entry, by));
}

/* In front of the first verb behind the word, another process's CAS of the entry's `by` lands. */
static int post_between(void *ctx, void *ep, const struct vb_provider_verb *v, unsigned n)
{
	struct memory *m = ctx;

	if (between.held)
		__atomic_store_n(mark_of(m), between.remover, __ATOMIC_SEQ_CST);
	between.held = between.on && v->op == VB_PROVIDER_CAS && v->compare == 0 &&
		       v->offset >= OWN_ENTRY * OWN_ENTRIES && v->value >> 40 != 0 &&
		       v->value >> 40 < OWN_ENTRIES;
	if (between.held)
		between.number = v->value >> 40;
	between.on &= !between.held;
	return memory_post(ctx, ep, v, n);
}

static void test_own_looks_again(void **state)
{
	const struct vb_lock_space_params p = {
		.lock = "cas", .name = "s", .locks = LOCKS, .servers = NODES, .fencing = true};
	struct memory *m = new_memory();
	struct vb_lock_space *s;
	struct vb_fabric *f;
	struct vb_ep *ep;

	(void)state;
	m->p.post = post_between;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	assert_int_equal(vb_lock_space_close(open_space(f, "s", "cas", LOCKS)), 0);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	between.remover = ep->self;
	between.on = true;
	SAYS(vb_lock_space_open(f, &p, &s), -EAGAIN, "being removed");
	assert_false(between.on);
	vb_ep_close(ep);
	/* Its word is given back: nobody holds. */
	assert_int_equal(vb_lock_space_remove(f, "s"), 0);
	assert_int_equal(vb_fabric_close(f), 0);
	memory_free(m);
}

/* Whoever asks has read the mark. */
static bool gives_back(void *ctx, uint16_t node, uint32_t client)
{
	struct memory *m = ctx;

	if (between.remover == VB_PEER_NONE || client != vb_peer_client(between.remover))
		return memory_alive(ctx, node, client);
	__atomic_store_n(mark_of(m), VB_PEER_NONE, __ATOMIC_SEQ_CST);
	between.remover = VB_PEER_NONE;
	return false;
}

/* Who would remove finds it in use, gives his mark back and is no more; another has read the mark before. */
static void test_own_given_back(void **state)
{
	struct memory *m = new_memory();
	struct vb_lock_space *first, *second;
	struct vb_fabric *f, *other;
	struct vb_ep *ep;

	(void)state;
	m->p.post = post_between;
	m->p.alive = gives_back;
	between.remover = VB_PEER_NONE;
	between.on = true;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	assert_int_equal(vb_fabric_provide(&m->p, &other), 0);
	first = open_space(f, "s", "cas", LOCKS);
	assert_false(between.on);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	between.remover = ep->self;
	vb_ep_close(ep);
	__atomic_store_n(mark_of(m), between.remover, __ATOMIC_SEQ_CST);
	second = open_space(other, "s", "cas", LOCKS);
	assert_int_equal(between.remover, VB_PEER_NONE);
	assert_int_equal(vb_lock_space_close(second), 0);
	assert_int_equal(vb_lock_space_close(first), 0);
	assert_int_equal(vb_lock_space_remove(f, "s"), 0);
	assert_int_equal(vb_fabric_close(other), 0);
	assert_int_equal(vb_fabric_close(f), 0);
	memory_free(m);
}

/* ---- processes of a provider's memory: a fabric each ---- */

#define PROCESSES 3
#define TURNS     15 /* each open takes an entry of 127 at most */

struct at_once {
	struct vb_fabric *f;
	unsigned *inside, *removed, number;
};

static struct vb_lock_space *open_some(struct vb_fabric *f, unsigned number)
{
	const struct vb_lock_space_params p = {.lock = "cas",
					       .name = "s",
					       .locks = 20000,
					       .servers = NODES,
					       .lease_ns = 1000000000};
	struct vb_lock_space *s;
	int err;

	do
		err = vb_lock_space_open(f, &p, &s);
	while (err == -EAGAIN);
	if (err != 0)
		fail_msg("process %u cannot open it: %s", number, vb_strerror(err));
	return s;
}

static void *process_main(void *arg)
{
	struct at_once *a = arg;

	vb_log_mute();
	for (unsigned i = 0; i < TURNS; i++) {
		struct vb_lock_space *s = open_some(a->f, a->number);
		struct vb_lock_client *me;
		struct vb_grant g;
		int err;

		assert_int_equal(vb_lock_client_open(s, 0, &me), 0);
		assert_int_equal(vb_lock_acquire(me, 7, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
		/* Were there two spaces of the name, two would be here. */
		assert_int_equal(__atomic_fetch_add(a->inside, 1, __ATOMIC_SEQ_CST), 0);
		usleep(200);
		__atomic_fetch_sub(a->inside, 1, __ATOMIC_SEQ_CST);
		assert_int_equal(vb_lock_release(me, &g), 0);
		vb_lock_client_close(me);
		assert_int_equal(vb_lock_space_close(s), 0);
		err = vb_lock_space_remove(a->f, "s");
		assert_true(err == 0 || err == -EBUSY || err == -EAGAIN || err == -ENOENT);
		__atomic_fetch_add(a->removed, err == 0, __ATOMIC_SEQ_CST);
	}
	vb_log_unmute();
	return NULL;
}

static void test_own_at_once(void **state)
{
	struct memory *m = new_memory();
	struct at_once a[PROCESSES];
	pthread_t thread[PROCESSES];
	unsigned inside = 0, removed = 0;

	(void)state;
	for (unsigned i = 0; i < PROCESSES; i++) {
		a[i] = (struct at_once){.inside = &inside, .removed = &removed, .number = i};
		assert_int_equal(vb_fabric_provide(&m->p, &a[i].f), 0);
	}
	for (unsigned i = 0; i < PROCESSES; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, process_main, &a[i]), 0);
	for (unsigned i = 0; i < PROCESSES; i++)
		pthread_join(thread[i], NULL);
	assert_true(removed > 0);
	for (unsigned i = 0; i < PROCESSES; i++)
		assert_int_equal(vb_fabric_close(a[i].f), 0);
	memory_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shm),
		cmocka_unit_test(test_sim),
		cmocka_unit_test(test_lets_land),
		cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_own),
		cmocka_unit_test(test_number_in_name),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_again_own),
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_forks),
		cmocka_unit_test(test_dies_in_the_middle),
		cmocka_unit_test(test_taken),
		cmocka_unit_test(test_first_is_last),
		cmocka_unit_test(test_own_looks_again),
		cmocka_unit_test(test_own_given_back),
		cmocka_unit_test(test_own_at_once),
	};

	return cmocka_run_group_tests_name("remove", tests, NULL, NULL);
}
