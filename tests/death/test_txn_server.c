/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers that are killed or stopped while they work for a transaction, on shm.
 *
 *	stopped in a commit   the server has looked whether the coordinator still holds the record, and is
 *	                      stopped before it writes; the coordinator is killed.  Others may have the record
 *	                      when the server has gone on or is gone: what they commit then stays
 *	killed over a lock    the server has taken a lock by RPC and is killed before it answers.  A new server
 *	                      is started.  Others have the record soon, whatever the coordinator does
 */
#include <errno.h>
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

#include "child.h"
#include "txn/db.h"

#define MS       UINT64_C(1000000)
#define LEASE_NS (50 * MS)
#define SOON_NS  (10 * LEASE_NS + 5000 * MS) /* two leases, on a machine with other work */
#define RECORD   64
#define HELD     1 /* the record that it is about */
#define OTHER    2

static const struct protocol {
	const char *cc, *commits, *locks; /* by RPC */
} protocols[] = {
	{"no-wait", "010", "100"},
	{"wound-wait", "010", "100"},
	{"silo", "00010", "01000"},
	{"sundial", "00010", "01000"},
};

struct board {
	int server_up, armed, reached, client_idle, client_on;
	uint64_t client_commits;
};

struct scene {
	const struct protocol *p;
	const char *hybrid;
	struct board *b;
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *t;
	struct vb_coordinator *me; /* of the one who wants the record */
	pid_t server, client;
};

#define get(x)    __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define put(x, v) __atomic_store_n(&(x), v, __ATOMIC_SEQ_CST)

static void open_all(struct scene *s, const char *hybrid)
{
	const struct vb_db_params dp = {.cc = s->p->cc, .hybrid = hybrid, .lease_ns = LEASE_NS};
	const struct vb_table_params tp = {.name = "t", .record_bytes = RECORD, .records = 16};

	assert_int_equal(vb_db_open(s->f, &dp, &s->db), 0);
	s->db->patience_ns = 4 * LEASE_NS;
	assert_int_equal(vb_table_open(s->db, &tp, &s->t), 0);
}

static void scene_open(struct scene *s, const struct protocol *p, const char *hybrid)
{
	const struct vb_fabric_params fp = {.fabric = "shm", .nodes = 1, .node_bytes = 64 << 20};
	char record[RECORD];

	*s = (struct scene){.p = p, .hybrid = hybrid};
	s->b = mmap(NULL, sizeof(*s->b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(s->b != MAP_FAILED);
	assert_int_equal(vb_fabric_open(&fp, &s->f), 0);
	open_all(s, NULL);
	memset(record, '0', sizeof(record));
	for (uint64_t k = 0; k < 4; k++)
		assert_int_equal(vb_table_load(s->t, k, record), 0);
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	kill(pid, SIGCONT);
	waitpid(pid, NULL, 0);
}

static void scene_close(struct scene *s)
{
	end(s->client);
	end(s->server);
	vb_coordinator_close(s->me);
	vb_db_close(s->db);
	vb_fabric_close(s->f);
	munmap(s->b, sizeof(*s->b));
}

static void await(const int *what)
{
	uint64_t until = vb_clock_ns() + 60000 * MS;

	while (!__atomic_load_n(what, __ATOMIC_SEQ_CST)) {
		assert_true(vb_clock_ns() < until);
		usleep(200);
	}
}

/* ---- the server ---- */

static struct {
	struct scene *s;
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	vb_addr tuple;
	uint32_t bytes;
	int at_lock; /* it dies over the lock word, and otherwise stops before its WRITE */
} fuse;

static int fused_write(struct vb_ep *ep, vb_addr a, const void *buf, uint32_t len)
{
	bool here = !fuse.at_lock && a >= fuse.tuple && a < fuse.tuple + fuse.bytes;

	if (here && __atomic_exchange_n(&fuse.s->b->armed, 0, __ATOMIC_SEQ_CST)) {
		put(fuse.s->b->reached, 1);
		raise(SIGSTOP);
	}
	return fuse.real->write(ep, a, buf, len);
}

static int fused_cas64(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t value, uint64_t *old)
{
	bool here = fuse.at_lock && a == fuse.tuple + fuse.s->t->layout.lock_at;
	int err = fuse.real->cas64(ep, a, expect, value, old);

	if (here && *old == expect && __atomic_exchange_n(&fuse.s->b->armed, 0, __ATOMIC_SEQ_CST)) {
		put(fuse.s->b->reached, 1);
		kill(getpid(), SIGKILL);
	}
	return err;
}

static void light_fuse(struct scene *s, struct vb_ep *ep, int at_lock)
{
	/* A keeper may be running the server. */
	VB_SCHED_INSIDE(ep->sched);

	fuse.s = s;
	fuse.real = ep->ops;
	fuse.ops = *ep->ops;
	fuse.ops.write = fused_write;
	fuse.ops.cas64 = fused_cas64;
	fuse.tuple = vb_table_find(s->t, 0, HELD);
	fuse.bytes = s->t->layout.bytes;
	fuse.at_lock = at_lock;
	ep->ops = &fuse.ops;
}

static void serve(struct scene *s, int at_lock)
{
	struct vb_db_server *server;

	vb_fabric_after_fork(s->f);
	open_all(s, s->hybrid);
	assert_int_equal(vb_db_server_start(s->db, 0, &server), 0);
	light_fuse(s, vb_db_server_ep(server), at_lock);
	put(s->b->server_up, 1);
	for (;;)
		vb_task_suspend(vb_sched_now(vb_sched_self()) + 1000 * MS);
}

static void start_server(struct scene *s, int at_lock)
{
	put(s->b->server_up, 0);
	fflush(NULL);
	s->server = fork_child();
	assert_true(s->server >= 0);
	if (s->server == 0)
		serve(s, at_lock);
	await(&s->b->server_up);
}

/* ---- transactions ---- */

static int write_record(struct scene *s, struct vb_coordinator *me, uint64_t key, char c, char *was)
{
	void *record;
	int err = vb_txn_begin(me);

	if (err == 0)
		err = vb_txn_update(me, s->t, key, &record);
	if (err == 0) {
		*was = *(char *)record;
		memset(record, c, RECORD);
		err = vb_txn_commit(me);
	}
	vb_txn_abort(me);
	return err;
}

/* True: committed by then; *was: what stood there. */
static bool write_until(struct scene *s, uint64_t key, char c, uint64_t until_ns, char *was)
{
	do {
		int err = write_record(s, s->me, key, c, was);

		if (err == 0)
			return true;
		assert_int_equal(err, -EAGAIN);
		usleep(500);
	} while (vb_clock_ns() < until_ns);
	return false;
}

static char read_record(struct scene *s, uint64_t key)
{
	uint64_t until = vb_clock_ns() + SOON_NS;
	char record[RECORD] = {0};
	int err;

	do {
		err = vb_txn_begin(s->me);
		if (err == 0)
			err = vb_txn_read(s->me, s->t, key, record);
		if (err == 0)
			err = vb_txn_commit(s->me);
		vb_txn_abort(s->me);
	} while (err == -EAGAIN && vb_clock_ns() < until);
	assert_int_equal(err, 0);
	return record[0];
}

/* A client whose transaction never comes back, or with an error. */
static void victim(struct scene *s)
{
	struct vb_coordinator *me;
	char was;

	vb_fabric_after_fork(s->f);
	open_all(s, s->hybrid);
	if (vb_coordinator_open(s->db, 0, &me) != 0)
		_exit(1);
	(void)write_record(s, me, HELD, 'C', &was);
	put(s->b->client_idle, 1);
	await(&s->b->client_on);
	for (;;)
		if (write_record(s, me, OTHER, 'c', &was) == 0)
			__atomic_add_fetch(&s->b->client_commits, 1, __ATOMIC_SEQ_CST);
}

static void start_client(struct scene *s)
{
	fflush(NULL);
	s->client = fork_child();
	assert_true(s->client >= 0);
	if (s->client == 0)
		victim(s);
}

/* ---- stopped in a commit ---- */

static uint64_t owner_of(struct scene *s, uint32_t coordinator)
{
	const struct vb_place_head *head =
		vb_local(s->f, vb_db_place(s->db, coordinator * VB_PLACES_EACH), sizeof(*head));

	return head->owner;
}

/* A process that has had the next coordinator's place and is gone. */
static void come_and_go(struct scene *s)
{
	pid_t pid;

	fflush(NULL);
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct vb_coordinator *me;

		vb_fabric_after_fork(s->f);
		open_all(s, s->hybrid);
		_exit(vb_coordinator_open(s->db, 0, &me) != 0);
	}
	waitpid(pid, NULL, 0);
	assert_true(owner_of(s, 1) != 0);
}

static void stopped_in_a_commit(const struct protocol *p, bool goes_on)
{
	struct scene s;
	uint64_t freed;
	char was = 0;
	bool done;

	scene_open(&s, p, p->commits);
	start_server(&s, 0);
	put(s.b->armed, 1);
	start_client(&s);
	await(&s.b->reached);
	kill(s.client, SIGKILL);
	waitpid(s.client, NULL, 0);
	come_and_go(&s);
	assert_int_equal(vb_coordinator_open(s.db, 0, &s.me), 0);
	done = write_until(&s, HELD, 'W', vb_clock_ns() + 8 * LEASE_NS, &was);
	/* The other records are none the worse for it. */
	assert_true(write_until(&s, OTHER, 'W', vb_clock_ns() + SOON_NS, &was));
	assert_int_equal(vb_db_recover(s.me, 0, &freed), done ? 0 : -ETIMEDOUT);
	/* A place that has to wait for the server keeps its own and no other. */
	assert_true((owner_of(&s, 0) == 0) == done);
	if (owner_of(&s, 1) != 0)
		fail_msg("%s: one place that must wait keeps that of another", p->cc);
	if (goes_on) {
		kill(s.server, SIGCONT);
	} else {
		end(s.server);
	}
	if (!done)
		assert_true(write_until(&s, HELD, 'W', vb_clock_ns() + SOON_NS, &was));
	if (was != 'C')
		fail_msg("%s: a transaction past its commit point has not happened", p->cc);
	assert_int_equal(vb_call_is_done(s.me, 0, SOON_NS), 0);
	if (read_record(&s, HELD) != 'W')
		fail_msg("%s: a committed write is lost: the server wrote over it", p->cc);
	assert_int_equal(vb_db_recover(s.me, 0, &freed), 0);
	scene_close(&s);
}

static void stopped_server(void **state)
{
	(void)state;
	for (size_t i = 0; i < VB_ARRAY_SIZE(protocols); i++) {
		stopped_in_a_commit(&protocols[i], true);
		stopped_in_a_commit(&protocols[i], false);
	}
}

/* ---- killed over a lock ---- */

static void killed_over_a_lock(const struct protocol *p, bool busy)
{
	struct scene s;
	uint64_t before;
	char was;

	scene_open(&s, p, p->locks);
	start_server(&s, 1);
	put(s.b->armed, 1);
	start_client(&s);
	await(&s.b->reached);
	waitpid(s.server, NULL, 0);
	await(&s.b->client_idle);
	start_server(&s, 1);
	put(s.b->client_on, busy);
	before = get(s.b->client_commits);
	assert_int_equal(vb_coordinator_open(s.db, 0, &s.me), 0);
	if (!write_until(&s, HELD, 'W', vb_clock_ns() + SOON_NS, &was))
		fail_msg("%s: what a dead server had locked is not had, its coordinator being %s",
			 p->cc, busy ? "busy" : "idle");
	assert_int_equal(read_record(&s, HELD), 'W');
	for (uint64_t until = vb_clock_ns() + SOON_NS;
	     busy && get(s.b->client_commits) == before && vb_clock_ns() < until;)
		usleep(1000);
	assert_true(!busy || get(s.b->client_commits) > before);
	scene_close(&s);
}

static void killed_server(void **state)
{
	(void)state;
	for (size_t i = 0; i < VB_ARRAY_SIZE(protocols); i++) {
		killed_over_a_lock(&protocols[i], true);
		killed_over_a_lock(&protocols[i], false);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stopped_server),
		cmocka_unit_test(killed_server),
	};

	return cmocka_run_group_tests_name("death of database servers", tests, NULL, NULL);
}
