/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of a server moves to another one while the former lives on with clients that reach it.  Whoever hears of the
 * later one gives the former up and tells it, and it stops; where nobody can hear, both grant, and a fencing token says
 * who is the later.  Here the former one's port is closed under it, which is what its clients see of that.
 */
#include "elastic_state.h"

#define LEASE_NS (100 * MS)
#define PATIENT  ",bound=50ms,settle=300ms,linger=500ms"
#define HOUR_NS  3600000000000ull

static const char *lock = "dslr";

/* Lock servers - 1 is on the last server's node. */
static int open_locks(struct world *w, struct vb_fabric *f, struct vb_lock_space **out)
{
	return vb_lock_space_open(f,
				  &(struct vb_lock_space_params){.lock = lock,
								 .locks = 16,
								 .servers = (uint16_t)w->servers,
								 .lease_ns = LEASE_NS,
								 .fencing = true},
				  out);
}

static bool is_first; /* of its name */

/* step[1]: servers of the last one's name that there have been. */
static void serve(struct world *w, struct vb_fabric *f)
{
	struct vb_lock_space *space;
	uint16_t node = (uint16_t)net_of(f)->host;
	struct vb_lock_server *server;
	uint64_t end = vb_clock_gettime_ns() + WAIT_NS;
	int err;

	while ((err = open_locks(w, f, &space)) != 0)
		MUST(vb_clock_gettime_ns() < end);
	if (space->ops->caps & VB_LOCK_SERVER)
		MUST_BE(0, vb_lock_server_start(space, node, 0, 1, &server));
	if (node == w->servers - 1)
		is_first = add(&w->b->step[1]) == 1;
}

/* The name is another's from now on, and so whoever calls; who is connected stays, but for the other server. */
static void lose_name(struct vb_fabric *f)
{
	pthread_mutex_lock(&net_of(f)->engine);
	close(via_of(f)->listener);
	via_of(f)->listener = -1;
	vb_list_for_each (it, &via_of(f)->conns) {
		struct tcp_conn *c = vb_container_of(it, struct tcp_conn, link);

		if (c->host != NULL && c->host->rank < net_of(f)->hosts)
			(void)shutdown(c->fd, SHUT_RDWR);
	}
	pthread_mutex_unlock(&net_of(f)->engine);
}

/* step[2]: the first one loses its name: 2, it has; step[3]: it has stopped. */
static void each(struct world *w, unsigned i, struct vb_fabric *f)
{
	if (i != w->servers - 1 || !is_first)
		return;
	if (get(&w->b->step[2]) == 1) {
		lose_name(f);
		set(&w->b->step[2], 2);
	}
	if (vb_node_gone(f, (uint16_t)i))
		set(&w->b->step[3], 1);
}

struct taker {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_client *me;
};

static void come(struct world *w, struct taker *t, uint16_t node)
{
	MUST_BE(0, open_client_as(w, w->key, ",retry=20ms", &t->f));
	MUST_BE(0, open_locks(w, t->f, &t->space));
	MUST_BE(0, vb_lock_client_open(t->space, node, &t->me));
}

/* 0, and the token; or why not.  On a busy machine answers are late. */
static int take(struct world *w, struct taker *t, uint64_t *token)
{
	struct vb_grant g;
	int err = vb_lock_acquire(t->me, w->servers - 1, VB_EXCLUSIVE, 500 * MS, &g);

	if (err != 0)
		return err;
	*token = g.token;
	(void)vb_lock_release(t->me, &g);
	return 0;
}

static void takes(struct world *w, struct taker *t, uint64_t *token)
{
	uint64_t end = vb_clock_gettime_ns() + WAIT_NS;

	while (take(w, t, token) != 0)
		MUST(vb_clock_gettime_ns() < end);
}

/* word[0]: the last token of the former one; step[4]: it is there; word[1]: its home. */
static void goes_on(struct world *w)
{
	uint64_t token = 0, end = vb_clock_gettime_ns() + WAIT_NS;
	struct taker t;

	come(w, &t, (uint16_t)get(&w->b->word[1]));
	takes(w, &t, &token);
	set(&w->b->word[0], token);
	add(&w->b->step[4]);
	while (!vb_node_gone(t.f, (uint16_t)(w->servers - 1))) {
		if (take(w, &t, &token) == 0)
			set(&w->b->word[0], token);
		MUST(vb_clock_gettime_ns() < end);
	}
	MUST_BE(-VB_EPEERGONE, take(w, &t, &token));
}

/* Is granted by the later one, with a larger token than any of the former. */
static void comes_new(struct world *w)
{
	uint64_t token = 0;
	struct taker t;

	come(w, &t, 0);
	takes(w, &t, &token);
	if (token <= get(&w->b->word[0]))
		fprintf(stderr, "token %llu, and before %llu\n", (unsigned long long)token,
			(unsigned long long)get(&w->b->word[0]));
	MUST(token > get(&w->b->word[0]));
	vb_lock_client_close(t.me);
	MUST_BE(0, vb_lock_space_close(t.space));
	MUST_BE(0, vb_fabric_close(t.f));
}

static pid_t move_name(struct world *w)
{
	pid_t former = w->pid[w->servers - 1];

	set(&w->b->step[2], 1);
	await(get(&w->b->step[2]) == 2);
	server_start(w, w->servers - 1, serve);
	await(get(&w->b->step[1]) == 2);
	return former;
}

/* A client is there by the server whose name then moves, the last: it has come when step[4] is 1.  The former server. */
static pid_t takes_a_name(struct world *w, unsigned servers, uint16_t home,
			  void (*body)(struct world *w), pid_t *pid)
{
	lock = "dslr";
	server_each = each;
	world_open(w, servers, PATIENT);
	set(&w->b->word[1], home);
	servers_start(w, serve);
	*pid = client(w, body);
	await(get(&w->b->step[4]) == 1);
	return move_name(w);
}

static void former_ends(struct world *w, pid_t former)
{
	set(&w->b->stop[w->servers - 1], 1);
	ended(former);
	world_close(w);
	server_each = NULL;
}

static void told(uint16_t home)
{
	struct world w;
	pid_t pid, former;

	former = takes_a_name(&w, 2, home, goes_on, &pid);
	/* Its client hears from the other server, and it from its client. */
	ended(pid);
	await(get(&w.b->step[3]));
	ended(client(&w, comes_new));
	former_ends(&w, former);
}

static void test_told(void **state)
{
	(void)state;
	told(0);
	told(1);
}

/* ---- what goes on with the later one ---- */

/* Its place at the former one is the second that there was, at the later one it is the first. */
static void goes_on_with_the_later(struct world *w)
{
	const uint32_t last = w->servers - 1;
	uint64_t end = vb_clock_gettime_ns() + WAIT_NS;
	struct net_elastic *e;
	uint8_t former[NET_ID];
	struct vb_fabric *f;
	bool met = false;

	MUST_BE(0, open_client_as(w, w->key, ",retry=20ms", &f));
	MUST_BE(0, vb_fabric_close(f));
	MUST_BE(0, open_client_as(w, w->key, ",retry=20ms", &f));
	e = net_of(f)->elastic;
	pthread_mutex_lock(&net_of(f)->engine);
	MUST(e->up[last] && e->place[last] == 2);
	memcpy(former, e->seen[last], NET_ID);
	pthread_mutex_unlock(&net_of(f)->engine);
	add(&w->b->step[4]);
	while (!met) {
		MUST(vb_clock_gettime_ns() < end && !net_host_gone(net_of(f), (uint16_t)last));
		usleep(1000);
		pthread_mutex_lock(&net_of(f)->engine);
		met = e->up[last] && e->met[last] && memcmp(former, e->seen[last], NET_ID) != 0;
		pthread_mutex_unlock(&net_of(f)->engine);
	}
	MUST(vb_node_gone(f, (uint16_t)last));
}

/* A client that has no endpoint there goes on with the later one, also if another server was the first to tell of it. */
static void test_place(void **state)
{
	struct world w;
	pid_t pid, former;

	(void)state;
	former = takes_a_name(&w, 2, 0, goes_on_with_the_later, &pid);
	ended(pid);
	former_ends(&w, former);
}

/* ---- told while a connection begins ---- */

/* step[0]: 1: server 1 hears of a later server 2 when its client has not yet said what it has; 2: it has. */
static void hears_early(struct world *w, unsigned i, struct vb_fabric *fab)
{
	struct net_elastic *e = net_of(fab)->elastic;

	if (i != 0 || get(&w->b->step[0]) != 1)
		return;
	pthread_mutex_lock(&net_of(fab)->engine);
	if (e->member[0].live) {
		e->member[0].live = false;
		e->later[1] += HOUR_NS;
		set(&w->b->word[0], e->later[1]);
		set(&w->b->step[0], 2);
	}
	pthread_mutex_unlock(&net_of(fab)->engine);
}

/* By server 1. */
static uint64_t known_of_2(struct net_fabric *n)
{
	uint64_t later;

	pthread_mutex_lock(&n->engine);
	later = n->elastic->up[0] ? n->elastic->later[1] : 0;
	pthread_mutex_unlock(&n->engine);
	return later;
}

static void begins(struct world *w)
{
	const struct control_count all = {.kind = CONTROL_HAVE_ALL, .version = CONTROL_VERSION};
	uint64_t end = vb_clock_gettime_ns() + WAIT_NS, later = 0;
	struct net_fabric *n;
	struct vb_fabric *f;

	MUST_BE(0, open_client_as(w, w->key, ",retry=20ms", &f));
	n = net_of(f);
	while (later == 0) {
		MUST(vb_clock_gettime_ns() < end);
		usleep(1000);
		later = known_of_2(n);
	}
	set(&w->b->step[0], 1);
	while (get(&w->b->step[0]) != 2)
		usleep(1000);
	pthread_mutex_lock(&n->engine);
	MUST_BE(0, n->t->control(n, 0, &all, sizeof(all)));
	n->t->flush(n);
	pthread_mutex_unlock(&n->engine);
	while (later != get(&w->b->word[0])) {
		MUST(vb_clock_gettime_ns() < end);
		usleep(1000);
		later = known_of_2(n);
	}
}

static void test_begins(void **state)
{
	struct world w;

	(void)state;
	server_each = hears_early;
	world_open(&w, 2, PATIENT);
	servers_start(&w, NULL);
	ended(client(&w, begins));
	world_close(&w);
	server_each = NULL;
}

/* ---- told who does not read ---- */

/* step[0]: 1: server 1 hears of a later server 2 when no more may wait for its client; 2: it has. */
static void hears_with_all_full(struct world *w, unsigned i, struct vb_fabric *fab)
{
	const struct control_ask none = {.kind = CONTROL_TIME, .version = CONTROL_VERSION};
	struct net_fabric *n = net_of(fab);

	if (i != 0 || get(&w->b->step[0]) != 1)
		return;
	pthread_mutex_lock(&n->engine);
	if (n->elastic->member[0].live) {
		n->elastic->later[1] += HOUR_NS;
		set(&w->b->word[0], n->elastic->later[1]);
		while (n->t->control(n, n->hosts, &none, sizeof(none)) == 0)
			;
		net_later_tell(n, n->hosts);
		set(&w->b->step[0], 2);
	}
	pthread_mutex_unlock(&n->engine);
}

static void hears_over_the_next(struct world *w)
{
	uint64_t end = vb_clock_gettime_ns() + WAIT_NS;
	struct vb_fabric *f;

	MUST_BE(0, open_client_as(w, w->key, ",retry=20ms", &f));
	while (known_of_2(net_of(f)) == 0) {
		MUST(vb_clock_gettime_ns() < end);
		usleep(1000);
	}
	set(&w->b->step[0], 1);
	while (get(&w->b->step[0]) != 2 || known_of_2(net_of(f)) != get(&w->b->word[0])) {
		MUST(vb_clock_gettime_ns() < end);
		usleep(1000);
	}
}

/* The connection ends, and it hears over the next one. */
static void test_full(void **state)
{
	struct world w;

	(void)state;
	server_each = hears_with_all_full;
	world_open(&w, 2, PATIENT);
	servers_start(&w, NULL);
	ended(client(&w, hears_over_the_next));
	world_close(&w);
	server_each = NULL;
}

/* ---- where nobody hears ---- */

/* step[5]: it has held on to the end. */
static void holds_on(struct world *w)
{
	uint64_t token = 0;
	struct taker t;

	come(w, &t, 0);
	takes(w, &t, &token);
	set(&w->b->word[0], token);
	add(&w->b->step[4]);
	while (get(&w->b->step[5]) == 0)
		if (take(w, &t, &token) == 0)
			set(&w->b->word[0], token);
	takes(w, &t, &token);
	MUST(token < get(&w->b->word[2]));
	MUST(!vb_node_gone(t.f, 0));
}

static void comes_beside(struct world *w)
{
	uint64_t token = 0;
	struct taker t;

	come(w, &t, 0);
	takes(w, &t, &token);
	MUST(token > get(&w->b->word[0]));
	set(&w->b->word[2], token);
}

/* One server, and clients of each of the two: both are granted, and the tokens say by whom. */
static void test_unheard(void **state)
{
	struct world w;
	pid_t pid, former;

	(void)state;
	former = takes_a_name(&w, 1, 0, holds_on, &pid);
	ended(client(&w, comes_beside));
	set(&w.b->step[5], 1);
	ended(pid);
	assert_int_equal(get(&w.b->step[3]), 0);
	former_ends(&w, former);
}

/* ---- who met the later one first ---- */

/* step[0]: 1: the server is the one before, to all that it can show; 2: it is. */
static void as_former(struct world *w, unsigned i, struct vb_fabric *fab)
{
	struct net_elastic *e = net_of(fab)->elastic;

	(void)i;
	if (get(&w->b->step[0]) == 1) {
		pthread_mutex_lock(&net_of(fab)->engine);
		memset(e->id, 0x55, NET_ID);
		e->born -= HOUR_NS;
		pthread_mutex_unlock(&net_of(fab)->engine);
		set(&w->b->step[0], 2);
		cut_all(fab);
	}
	if (vb_node_gone(fab, 0))
		set(&w->b->step[3], 1);
}

static void met_the_later(struct world *w)
{
	struct net_elastic *e;
	uint8_t id[NET_ID];
	struct vb_fabric *f;

	MUST_BE(0, open_client_as(w, w->key, ",retry=20ms", &f));
	e = net_of(f)->elastic;
	pthread_mutex_lock(&net_of(f)->engine);
	memcpy(id, e->seen[0], NET_ID);
	pthread_mutex_unlock(&net_of(f)->engine);
	add(&w->b->step[4]);
	while (!get(&w->b->step[3]))
		usleep(1000);
	pthread_mutex_lock(&net_of(f)->engine);
	MUST(!e->up[0] && memcmp(id, e->seen[0], NET_ID) == 0);
	pthread_mutex_unlock(&net_of(f)->engine);
}

static void test_met_first(void **state)
{
	struct world w;
	pid_t pid;

	(void)state;
	server_each = as_former;
	world_open(&w, 1, PATIENT);
	servers_start(&w, NULL);
	pid = client(&w, met_the_later);
	await(get(&w.b->step[4]));
	set(&w.b->step[0], 1);
	/* By the card of its client. */
	await(get(&w.b->step[3]));
	ended(pid);
	world_close(&w);
	server_each = NULL;
}

/* ---- a calendar that is behind ---- */

/* What one server knows is later than what the other one begins with: it does not go on, and says so. */
static void knows_a_later(struct world *w, unsigned i, struct vb_fabric *fab)
{
	struct net_elastic *e = net_of(fab)->elastic;

	if (i == 0 && get(&w->b->step[0]) == 1) {
		pthread_mutex_lock(&net_of(fab)->engine);
		e->later[1] += HOUR_NS;
		pthread_mutex_unlock(&net_of(fab)->engine);
		set(&w->b->step[0], 2);
	}
	if (i == 1 && vb_node_gone(fab, 1))
		set(&w->b->step[3], 1);
	if (i == 0)
		set(&w->b->step[5], e->up[1]);
}

static void test_behind(void **state)
{
	struct world w;

	(void)state;
	server_each = knows_a_later;
	world_open(&w, 2, PATIENT);
	servers_start(&w, NULL);
	await(get(&w.b->step[5]));
	server_kill(&w, 1);
	set(&w.b->step[0], 1);
	await(get(&w.b->step[0]) == 2);
	server_start(&w, 1, NULL);
	await(get(&w.b->step[3]));
	world_close(&w);
	server_each = NULL;
}

/* Told once, it does not begin again with its state, not even where nobody tells it. */
static void test_stays_stopped(void **state)
{
	struct vb_fabric *f;
	struct world w;
	pid_t pid;

	(void)state;
	server_each = knows_a_later;
	state_open_of(&w, 2, PATIENT);
	servers_start(&w, NULL);
	await(get(&w.b->step[5]));
	server_kill(&w, 1);
	set(&w.b->step[0], 1);
	await(get(&w.b->step[0]) == 2);
	server_start(&w, 1, NULL);
	await(get(&w.b->step[3]));
	server_kill(&w, 1);
	server_kill(&w, 0);
	pid = child();
	if (pid == 0) {
		MUST_BE(-ESTALE, open_server(&w, 1, &f));
		_exit(0);
	}
	ended(pid);
	state_close(&w);
	server_each = NULL;
}

/* ---- tokens ---- */

static void notes_token(struct world *w)
{
	uint64_t token = 0;
	struct taker t;

	come(w, &t, 0);
	for (unsigned i = 0; i < 3; i++) {
		uint64_t before = token;

		takes(w, &t, &token);
		MUST(token > before);
	}
	MUST(token > get(&w->b->word[0]));
	set(&w->b->word[0], token);
	vb_lock_client_close(t.me);
	MUST_BE(0, vb_lock_space_close(t.space));
	MUST_BE(0, vb_fabric_close(t.f));
}

static void test_tokens(void **state)
{
	static const char *const names[] = {"dslr", "shiftlock", "rpc", "table", "traditional"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(names); i++) {
		struct world w;

		lock = names[i];
		world_open(&w, 1, PATIENT);
		servers_start(&w, serve);
		for (unsigned life = 0; life < 3; life++) {
			ended(client(&w, notes_token));
			server_kill(&w, 0);
			server_start(&w, 0, serve);
			await(get(&w.b->server[0].up));
		}
		world_close(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_told),   cmocka_unit_test(test_unheard),
		cmocka_unit_test(test_place),  cmocka_unit_test(test_begins),
		cmocka_unit_test(test_full),   cmocka_unit_test(test_met_first),
		cmocka_unit_test(test_behind), cmocka_unit_test(test_stays_stopped),
		cmocka_unit_test(test_tokens),
	};

	vb_clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
