/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names: one lock for each, one name for each lock, whatever befalls who asks for them.  In small worlds
 * by all orders (check/litmus), in larger ones by seeds.  All names are of few hashes, so that what a
 * hash hides from other tests is what happens here.
 */
#include "sim_test.h"

#include <malloc.h>

#define VB_LOG_ROOM "test"
#include "base/log.h"
#include "check/litmus/world.h"
#include "names_told.h"

#if defined(VB_TSAN) || defined(VB_ASAN)
#define SEEDS 60u
#define RUNS  100u
#else
#define SEEDS 500u
#define RUNS  1500u
#endif

/* ---- small worlds, by all orders ---- */

#define PARTIES_MAX 3u
#define STEPS_MAX   4u

struct step {
	uint8_t call, name;
};

static const struct litmus_names {
	const char *name;
	uint32_t strikes;
	unsigned parties, names, delays;
	uint64_t locks;
	struct step steps[PARTIES_MAX][STEPS_MAX];
} worlds[] = {
	{.name = "one name",
	 .parties = 2,
	 .names = 1,
	 .delays = 100,
	 .locks = 2,
	 .steps = {{{CALL_LOCK, 0}}, {{CALL_LOCK, 0}}}},
	{.name = "twins",
	 .parties = 2,
	 .names = 2,
	 .delays = 100,
	 .locks = 2,
	 .steps = {{{CALL_LOCK, 0}}, {{CALL_LOCK, 1}}}},
	{.name = "one lock for two",
	 .parties = 2,
	 .names = 2,
	 .delays = 100,
	 .locks = 1,
	 .steps = {{{CALL_LOCK, 0}}, {{CALL_LOCK, 1}}}},
	{.name = "three",
	 .parties = 3,
	 .names = 3,
	 .delays = 4,
	 .locks = 2,
	 .steps = {{{CALL_LOCK, 0}}, {{CALL_LOCK, 1}}, {{CALL_LOCK, 0}, {CALL_LOCK, 2}}}},
	{.name = "who looks",
	 .parties = 3,
	 .names = 2,
	 .delays = 4,
	 .locks = 3,
	 .steps = {{{CALL_LOCK, 0}}, {{CALL_FIND, 0}, {CALL_FIND, 0}}, {{CALL_LOCK, 1}}}},
	{.name = "dies",
	 .strikes = LITMUS_DIES,
	 .parties = 2,
	 .names = 2,
	 .delays = 6,
	 .locks = 2,
	 .steps = {{{CALL_LOCK, 0}}, {{CALL_LOCK, 1}, {CALL_LOCK, 0}}}},
	{.name = "dies among three",
	 .strikes = LITMUS_DIES,
	 .parties = 3,
	 .names = 3,
	 .delays = 3,
	 .locks = 3,
	 .steps = {{{CALL_LOCK, 0}, {CALL_LOCK, 1}}, {{CALL_LOCK, 1}}, {{CALL_LOCK, 0}}}},
	{.name = "loses an answer",
	 .strikes = LITMUS_LOSES,
	 .parties = 2,
	 .names = 2,
	 .delays = 6,
	 .locks = 2,
	 .steps = {{{CALL_LOCK, 0}}, {{CALL_LOCK, 1}, {CALL_LOCK, 0}}}},
};

struct party {
	struct litmus_party is;
	struct vb_lock_client *client;
	struct vb_names *names;
};

struct world {
	struct litmus_world all;
	const struct litmus_names *w;
	struct vb_lock_space *space;
	struct told told;
	struct party party[PARTIES_MAX];
	struct vb_lock_client *heir;
	struct vb_names *heirs;
};

static struct world *world_of(const struct litmus_world *x)
{
	return vb_container_of(x, struct world, all);
}

static struct party *party_of(struct litmus_party *p)
{
	return vb_container_of(p, struct party, is);
}

static void begin(struct litmus_world *all)
{
	struct world *x = world_of(all);

	*x = (struct world){.all = *all, .w = x->w};
	for (unsigned i = 0; i < PARTIES_MAX; i++)
		x->all.party[i] = &x->party[i].is;
}

static int open_world(struct litmus_world *all)
{
	struct world *x = world_of(all);
	const struct vb_lock_space_params p = {
		.lock = "cas", .locks = x->w->locks, .lease_ns = all->lease_ns, .claims = 1};
	int err = vb_lock_space_open(all->fabric, &p, &x->space);

	if (err)
		return err;
	told_init(&x->told, all->fabric, x->w->names, 0, x->w->locks);
	x->told.whole = x->w->strikes == 0;
	open_names(&x->told, x->space, x->w->locks, &x->heirs);
	return 0;
}

static int open_party(struct litmus_party *is, struct vb_ep **ep)
{
	struct party *p = party_of(is);
	struct world *x = world_of(is->x);
	int err = vb_lock_client_open(x->space, (uint16_t)(1 + is->index), &p->client);

	if (err)
		return err;
	*ep = p->client->ep;
	open_names(&x->told, x->space, x->w->locks, &p->names);
	return 0;
}

static void close_party(struct litmus_party *is)
{
	struct party *p = party_of(is);

	vb_lock_client_close(p->client);
	p->client = NULL;
}

static void live(struct litmus_party *is)
{
	struct world *x = world_of(is->x);
	struct party *p = party_of(is);

	for (const struct step *s = x->w->steps[is->index]; s->call != CALL_END; s++) {
		int err = ask(&x->told, p->names, p->client, s->call, s->name);

		litmus_say(is->x->l, "client %u: name %u: %d\n", is->index, s->name, err);
	}
}

static void died(struct litmus_party *p)
{
}

static void judge(struct litmus_world *all, int err)
{
	struct world *x = world_of(all);

	if (all->l->stop)
		return;
	if (err != 0)
		blame(&x->told, "stuck", "somebody waits\n");
	litmus_world_leave(all);
	if (x->told.rule == NULL &&
	    vb_lock_client_open(x->space, (uint16_t)(1 + x->w->parties), &x->heir) == 0)
		inherit(&x->told, x->heirs, x->heir);
	if (x->told.rule != NULL)
		litmus_found(all->l, x->told.rule, x->told.story);
}

static void tear_down(struct litmus_world *all)
{
	struct world *x = world_of(all);

	if (all->sched != NULL)
		vb_sched_kill_all(all->sched);
	for (unsigned i = 0; i < x->w->parties; i++) {
		if (x->party[i].client != NULL)
			vb_lock_client_bury(x->party[i].client);
		vb_names_close(x->party[i].names);
	}
	if (x->heir != NULL)
		vb_lock_client_bury(x->heir);
	vb_names_close(x->heirs);
	vb_lock_space_close(x->space);
	if (all->fabric != NULL)
		vb_fabric_close(all->fabric);
}

static int tell_verb(const struct litmus_world *x, const struct vb_sim_verb *v, char *buf,
		     size_t size)
{
	return snprintf(buf, size, ", %u bytes", v->len);
}

static const struct litmus_kind kind = {
	.nodes_more = 2,
	.node_bytes = 64 << 10,
	.endpoints = 16,
	.patience_ns = 5000000,
	.begin = begin,
	.open = open_world,
	.open_party = open_party,
	.close_party = close_party,
	.live = live,
	.died = died,
	.judge = judge,
	.tear_down = tear_down,
	.tell_verb = tell_verb,
};

static void test_all_orders(void **state)
{
	for (unsigned i = 0; i < VB_ARRAY_SIZE(worlds); i++) {
		const struct litmus_names *w = &worlds[i];
		const struct vb_litmus_params p = {.runs = RUNS, .delays = w->delays};
		struct world x = {.all = {.kind = &kind,
					  .protocol = "names",
					  .name = w->name,
					  .parties = w->parties,
					  .strikes = w->strikes,
					  .lease_ns = 10000000},
				  .w = w};
		struct vb_litmus_result r;

		assert_int_equal(litmus_world_explore(&x.all, &p, &r), 0);
		if (r.rule != NULL)
			fail_msg("%s, schedule %s: %s: %s", w->name, r.schedule, r.rule, r.story);
		assert_true(r.runs > r.pruned);
		print_message("%s: %llu runs, %llu pruned, %s, %.2f s\n", w->name,
			      (unsigned long long)r.runs, (unsigned long long)r.pruned,
			      vb_litmus_exhausted(&r) ? "all"
			      : r.cut_runs            ? "runs"
						      : "delays",
			      r.seconds);
		vb_litmus_end(&r);
	}
}

/* ---- larger ones, by seeds ---- */

#define CROWD_MAX 6u
#define CALLS     10u
#define LEASE_NS  10000000ull
#define BOUND_NS  20000ull

struct member {
	struct crowd *x;
	struct vb_lock_client *client;
	struct vb_names *names;
	struct vb_rng rng;
	bool ended;
};

struct crowd {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct told told;
	struct vb_task *waiter;
	unsigned n, n_ended;
	struct member member[CROWD_MAX];
};

/* What all seeds together have seen: who looks for nothing finds nothing. */
static struct {
	unsigned died, unknown, refused, full, missing, half, given;
} seen;

static void member_ends(struct member *m)
{
	if (m->ended)
		return;
	m->ended = true;
	m->x->n_ended++;
	if (m->x->waiter != NULL)
		vb_task_wake(m->x->waiter);
}

static void on_death(struct vb_ep *ep, void *arg)
{
	struct crowd *x = arg;

	for (unsigned i = 0; i < x->n; i++) {
		if (x->member[i].client == NULL || x->member[i].client->ep != ep)
			continue;
		seen.died++;
		member_ends(&x->member[i]);
	}
}

static void member_body(void *arg)
{
	struct member *m = arg;

	for (unsigned i = 0; i < CALLS && m->x->told.rule == NULL; i++) {
		enum call call = vb_rng_chance(&m->rng, 0.7) ? CALL_LOCK : CALL_FIND;
		int err = ask(&m->x->told, m->names, m->client, call,
			      (unsigned)vb_rng_below(&m->rng, m->x->told.n_names));

		seen.unknown += err == -VB_EUNKNOWN;
		seen.refused += err == -VB_EPEERGONE;
		seen.full += err == -ENOSPC;
		seen.missing += err == -ENOENT;
		seen.given += err == 0;
		(void)vb_ep_sleep(m->client->ep, vb_rng_below(&m->rng, 3 * BOUND_NS));
	}
	member_ends(m);
}

static void wait_for_all(void *arg)
{
	struct crowd *x = arg;

	while (x->n_ended < x->n)
		vb_task_suspend(VB_FOREVER);
}

static void draw_faults(struct vb_rng *r, struct vb_sim_faults *f)
{
	*f = (struct vb_sim_faults){
		.die = vb_rng_chance(r, 0.7) ? 0.03 : 0,
		.pause = vb_rng_chance(r, 0.5) ? 0.1 : 0,
		.pause_max_ns = 14 * LEASE_NS,
		.delay = vb_rng_chance(r, 0.7) ? 0.4 : 0,
		.delay_max_ns = BOUND_NS,
		.tear = vb_rng_chance(r, 0.7) ? 0.5 : 0,
		.tear_words = vb_rng_chance(r, 0.5),
		.lose = vb_rng_chance(r, 0.6) ? 0.15 : 0,
		.early = vb_rng_chance(r, 0.4) ? 0.15 : 0,
		.deaf = vb_rng_chance(r, 0.2) ? 0.02 : 0,
		.deaf_max_ns = 20 * BOUND_NS,
		.partition = vb_rng_chance(r, 0.3) ? 0.03 : 0,
		.partition_max_ns = 10 * BOUND_NS,
		.refuse = 0.5,
	};
}

static void open_crowd(struct crowd *x, struct vb_rng *r, uint64_t seed)
{
	static const struct vb_task_params params = {.name = "member", .daemon = true},
					   waiter = {.name = "waiter"};
	struct vb_lock_space_params p = {.lock = "cas", .lease_ns = LEASE_NS, .claims = 1};
	struct vb_task *t;

	*x = (struct crowd){.n = 3 + (unsigned)vb_rng_below(r, CROWD_MAX - 2)};
	x->f = cluster("profile=zero,bound=20us", (uint16_t)(3 + CROWD_MAX + 1), seed);
	vb_sim_on_death(x->f, on_death, x);
	p.servers = (uint16_t)(1 + vb_rng_below(r, 3));
	p.locks = p.servers + vb_rng_below(r, LOCKS_MAX - 3);
	assert_int_equal(vb_lock_space_open(x->f, &p, &x->space), 0);
	told_init(&x->told, x->f, 4 + (unsigned)vb_rng_below(r, NAMES_MAX - 3),
		  (unsigned)(seed % 600), p.locks);
	for (unsigned i = 0; i < x->n; i++) {
		struct member *m = &x->member[i];

		m->x = x;
		vb_rng_seed(&m->rng, seed, 100 + i);
		open_names(&x->told, x->space, p.locks, &m->names);
		assert_int_equal(vb_lock_client_open(x->space, (uint16_t)(3 + i), &m->client), 0);
		vb_sim_ep_mortal(m->client->ep, true);
		assert_int_equal(vb_task_spawn(vb_sched_self(), member_body, m, &params, &t), 0);
	}
	assert_int_equal(vb_task_spawn(vb_sched_self(), wait_for_all, x, &waiter, &x->waiter), 0);
}

static void close_crowd(struct crowd *x)
{
	vb_sched_kill_all(vb_sched_self());
	for (unsigned i = 0; i < x->n; i++) {
		vb_lock_client_bury(x->member[i].client);
		vb_names_close(x->member[i].names);
	}
	assert_int_equal(vb_lock_space_close(x->space), 0);
	assert_int_equal(vb_fabric_close(x->f), 0);
}

/* Places that are begun and not finished. */
static unsigned half_written(const struct crowd *x)
{
	unsigned n = 0;

	for (uint64_t l = 0; l < x->told.locks; l++) {
		const uint16_t servers = x->space->servers;
		vb_addr at = vb_addr_make((uint16_t)(l % servers), vb_addr_offset(x->told.place)) +
			     l / servers * x->told.place_bytes;

		if (peek(x->f, at) != 0 && peek(x->f, at + 24) == 0)
			n++;
	}
	return n;
}

static void run_seed(uint64_t seed)
{
	static const struct vb_sim_faults none;
	struct vb_lock_client *heir;
	struct vb_sim_faults faults;
	struct vb_names *heirs;
	struct vb_rng r;
	struct crowd x;

	vb_rng_seed(&r, seed, 1);
	open_crowd(&x, &r, seed);
	draw_faults(&r, &faults);
	x.told.whole =
		faults.lose == 0 && faults.early == 0 && faults.deaf == 0 && faults.partition == 0;
	vb_sim_set_faults(x.f, &faults);
	vb_log_mute();
	assert_int_equal(vb_sched_run(vb_sched_self(), NULL, now() + 1000 * LEASE_NS), 0);
	vb_sim_set_faults(x.f, &none);
	seen.half += half_written(&x);
	if (x.told.whole && faults.die == 0)
		assert_int_equal(half_written(&x), 0);
	open_names(&x.told, x.space, x.told.locks, &heirs);
	assert_int_equal(vb_lock_client_open(x.space, 3 + CROWD_MAX, &heir), 0);
	if (x.told.rule == NULL)
		inherit(&x.told, heirs, heir);
	vb_log_unmute();
	vb_lock_client_close(heir);
	vb_names_close(heirs);
	if (x.told.rule != NULL)
		fail_msg("seed %llu: %s: %s", (unsigned long long)seed, x.told.rule, x.told.story);
	close_crowd(&x);
}

static void test_seeds(void **state)
{
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		run_seed(seed);
	print_message("died %u, unknown %u, refused %u, full %u, missing %u, half %u, given %u\n",
		      seen.died, seen.unknown, seen.refused, seen.full, seen.missing, seen.half,
		      seen.given);
	assert_true(seen.died > 0 && seen.unknown + seen.refused > 0 && seen.full > 0 &&
		    seen.missing > 0 && seen.half > 0 && seen.given > SEEDS);
}

/* ---- what single calls say ---- */

#define must(call) assert_int_equal(call, 0)
/* The call says so, and the log says why. */
#define refused(call, wanted, why)                                                                 \
	do {                                                                                       \
		char said_[1024] = "";                                                             \
                                                                                                   \
		vb_log_capture_begin(said_, sizeof(said_));                                        \
		assert_int_equal(call, wanted);                                                    \
		vb_log_capture_end();                                                              \
		if (strstr(said_, why) == NULL)                                                    \
			fail_msg("'%s' does not say '%s'", said_, why);                            \
	} while (0)

static struct {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_client *me;
} c;

static void open_calls(uint64_t locks, uint16_t servers)
{
	const struct vb_lock_space_params p = {.lock = "cas", .locks = locks, .servers = servers};

	c.f = cluster("profile=cx5", 4, 1);
	must(vb_lock_space_open(c.f, &p, &c.space));
	must(vb_lock_client_open(c.space, 3, &c.me));
}

static void close_calls(void)
{
	vb_lock_client_close(c.me);
	must(vb_lock_space_close(c.space));
	must(vb_fabric_close(c.f));
	vb_sched_destroy(vb_sched_self());
}

static struct vb_names *names(uint64_t n, uint32_t bytes, uint32_t known)
{
	struct vb_names *d;

	must(vb_names_open(c.space, &(struct vb_names_params){n, bytes, known}, &d));
	return d;
}

static void test_bounds(void **state)
{
	static const struct vb_names_params wrong[] = {
		{.names = 101}, {.bytes = 256}, {.known = (1u << 24) + 1}};
	struct vb_names *d = NULL, *e;
	char text[256] = "", long_name[256];
	uint64_t lock = UNKNOWN;
	size_t bytes;

	open_calls(100, 3);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(wrong); i++)
		refused(vb_names_open(c.space, &wrong[i], &d), -EINVAL, "names");
	assert_null(d);
	d = names(99, 255, 0);
	/* Who opens it otherwise is told both. */
	refused(vb_names_open(c.space, NULL, &e), -EINVAL, "names 99, bytes 255");
	refused(vb_names_open(c.space, &(struct vb_names_params){.names = 98, .bytes = 255}, &e),
		-EINVAL, "asked for: names 98, bytes 255");
	e = names(99, 255, 7);
	memset(long_name, 0xff, sizeof(long_name));
	refused(vb_names_lock(d, c.me, "", 0, &lock), -EINVAL, "1 to 255");
	refused(vb_names_lock(d, c.me, long_name, 256, &lock), -EINVAL, "1 to 255");
	assert_true(lock == UNKNOWN);
	/* Any bytes, zeros too, as many as may be. */
	for (unsigned n = 1; n <= 255; n += 23) {
		uint64_t same = UNKNOWN;

		memset(long_name, n % 2 ? 0 : 0xff, sizeof(long_name));
		must(vb_names_lock(d, c.me, long_name, n, &lock));
		must(vb_names_find(e, c.me, long_name, n, &same));
		assert_int_equal(lock, same);
		assert_true(lock < 99);
		must(vb_names_of(e, c.me, lock, text, n, &bytes));
		assert_int_equal(bytes, n);
		assert_memory_equal(text, long_name, n);
		refused(vb_names_of(e, c.me, lock, text, n - 1, &bytes), -ENOSPC, "room");
	}
	refused(vb_names_of(e, c.me, 99, text, 256, &bytes), -EINVAL, "0 to 98");
	vb_names_close(e);
	vb_names_close(d);
	close_calls();
}

static int stop_at_two(void *user, uint64_t lock, const void *name, size_t bytes)
{
	return ++*(int *)user == 2 ? 77 : 0;
}

static int count(void *user, uint64_t lock, const void *name, size_t bytes)
{
	++*(int *)user;
	return 0;
}

/* Asks the directory that is being read, and takes what is listed. */
static int takes(void *user, uint64_t lock, const void *name, size_t bytes)
{
	struct vb_grant g;
	char text[8];
	uint64_t same;
	size_t n;

	must(vb_names_find(user, c.me, name, bytes, &same));
	assert_int_equal(same, lock);
	must(vb_names_of(user, c.me, lock, text, sizeof(text), &n));
	assert_int_equal(n, bytes);
	assert_memory_equal(text, name, bytes);
	must(vb_lock_try(c.me, lock, VB_EXCLUSIVE, &g));
	must(vb_lock_release(c.me, &g));
	return 0;
}

/* As many names as locks, on nodes of which one has none; the next one changes nothing. */
static void test_full(void **state)
{
	bool taken[7] = {false};
	struct vb_names *d, *e;
	uint64_t lock;
	char name[8];
	int n;

	open_calls(8, 3);
	d = names(2, 8, 1);
	must(vb_names_lock(d, c.me, "a", 1, &lock));
	must(vb_names_lock(d, c.me, "b", 1, &lock));
	refused(vb_names_lock(d, c.me, "c", 1, &lock), -ENOSPC, "each of its 2 locks");
	assert_int_equal(vb_names_find(d, c.me, "c", 1, &lock), -ENOENT);
	vb_names_close(d);
	close_calls();
	open_calls(7, 3);
	d = names(0, 8, 1);
	e = names(7, 8, 0);
	for (unsigned i = 0; i < 7; i++) {
		n = snprintf(name, sizeof(name), "%u", i);
		must(vb_names_lock(i % 2 ? d : e, c.me, name, (size_t)n, &lock));
		assert_true(lock < 7 && !taken[lock]);
		taken[lock] = true;
	}
	refused(vb_names_lock(d, c.me, "more", 4, &lock), -ENOSPC, "each of its 7 locks");
	assert_int_equal(vb_names_find(d, c.me, "more", 4, &lock), -ENOENT);
	for (unsigned i = 0; i < 7; i++) {
		n = snprintf(name, sizeof(name), "%u", i);
		must(vb_names_find(d, c.me, name, (size_t)n, &lock));
	}
	n = 0;
	must(vb_names_each(d, c.me, count, &n));
	assert_int_equal(n, 7);
	n = 0;
	assert_int_equal(vb_names_each(d, c.me, stop_at_two, &n), 77);
	assert_int_equal(n, 2);
	must(vb_names_each(d, c.me, takes, d));
	vb_names_close(d);
	vb_names_close(e);
	close_calls();
}

/* Who names no numbers has all locks, names of 49 bytes, and remembers 4096 of them. */
static void test_usual(void **state)
{
	char name[50];
	struct vb_names *d, *e;
	uint64_t lock;

	open_calls(100, 3);
	must(vb_names_open(c.space, NULL, &d));
	e = names(100, 49, 0);
	refused(vb_names_open(c.space, &(struct vb_names_params){.bytes = 50}, &e), -EINVAL,
		"names 100, bytes 49");
	memset(name, 'x', sizeof(name));
	must(vb_names_lock(d, c.me, name, 49, &lock));
	refused(vb_names_lock(d, c.me, name, 50, &lock), -EINVAL, "1 to 49");
	vb_names_close(d);
	vb_names_close(e);
	close_calls();
}

/* The locks are there, and there is no room for their names. */
static void test_no_room(void **state)
{
	const uint64_t locks = NODE_BYTES / 64;
	struct vb_names *d = NULL;

	open_calls(locks, 1);
	refused(vb_names_open(c.space, &(struct vb_names_params){.bytes = 255}, &d), -ENOSPC,
		"name:locks");
	assert_null(d);
	/* Nothing is left of it, and who wants fewer names has them. */
	must(vb_names_open(c.space, &(struct vb_names_params){.names = 10}, &d));
	vb_names_close(d);
	close_calls();
}

static void test_whose_client(void **state)
{
	struct vb_lock_space *other;
	struct vb_lock_client *theirs;
	struct vb_names *d;
	uint64_t lock;
	int n = 0;

	open_calls(8, 1);
	d = names(0, 0, 0);
	must(vb_lock_space_open(
		c.f, &(struct vb_lock_space_params){.lock = "cas", .locks = 8, .name = "other"},
		&other));
	must(vb_lock_client_open(other, 1, &theirs));
	refused(vb_names_lock(d, theirs, "a", 1, &lock), -EINVAL, "another space");
	refused(vb_names_each(d, theirs, count, &n), -EINVAL, "another space");
	/* Each space has names of its own. */
	must(vb_names_lock(d, c.me, "a", 1, &lock));
	vb_names_close(d);
	must(vb_names_open(other, NULL, &d));
	assert_int_equal(vb_names_find(d, theirs, "a", 1, &lock), -ENOENT);
	refused(vb_lock_space_close(other), -EBUSY, "lock client");
	vb_lock_client_close(theirs);
	refused(vb_lock_space_close(other), -EBUSY, "directory of names");
	vb_names_close(d);
	must(vb_lock_space_close(other));
	close_calls();
}

static uint64_t verbs(enum vb_op op)
{
	uint64_t n = c.me->ep->count[op];

	c.me->ep->count[op] = 0;
	return n;
}

/* One READ and a CAS for each 7 bytes and one; one READ; nothing. */
static void test_cost(void **state)
{
	struct vb_names *d, *e;
	uint64_t lock, same;

	open_calls(100, 1);
	d = names(0, 49, 0);
	(void)verbs(VB_OP_READ);
	(void)verbs(VB_OP_CAS64);
	must(vb_names_lock(d, c.me, "orders/7", 8, &lock));
	assert_int_equal(verbs(VB_OP_READ), 1);
	assert_int_equal(verbs(VB_OP_CAS64), 3);
	for (unsigned i = 0; i < 3; i++) {
		must(vb_names_lock(d, c.me, "orders/7", 8, &lock));
		must(vb_names_find(d, c.me, "orders/7", 8, &lock));
	}
	assert_int_equal(verbs(VB_OP_READ), 0);
	/* The names stay when nobody has the directory open. */
	vb_names_close(d);
	e = names(0, 49, 0);
	must(vb_names_lock(e, c.me, "orders/7", 8, &same));
	assert_int_equal(same, lock);
	assert_int_equal(verbs(VB_OP_READ), 1);
	assert_int_equal(verbs(VB_OP_CAS64), 0);
	vb_names_close(e);
	close_calls();
}

/* What a directory of 4000 places is asked when n of them are taken: one READ for each name, rarely more. */
static void cost_of_many(uint32_t bytes, unsigned n)
{
	struct vb_names *d, *e;
	uint64_t lock;
	char name[16];

	open_calls(4000, 2);
	d = names(0, bytes, 1);
	for (unsigned i = 0; i < n; i++)
		must(vb_names_lock(d, c.me, name, (size_t)snprintf(name, sizeof(name), "%u", i),
				   &lock));
	e = names(0, bytes, n);
	(void)verbs(VB_OP_READ);
	for (unsigned i = 0; i < n; i++)
		must(vb_names_find(e, c.me, name, (size_t)snprintf(name, sizeof(name), "%u", i),
				   &lock));
	assert_in_range(verbs(VB_OP_READ), n, n + n / 10);
	/* What did not fit into what is remembered is asked for again, and nothing else. */
	for (unsigned i = 0; i < n; i++)
		must(vb_names_find(e, c.me, name, (size_t)snprintf(name, sizeof(name), "%u", i),
				   &lock));
	assert_in_range(verbs(VB_OP_READ), n / 10, n / 6);
	vb_names_close(d);
	/* In room for twice as many hardly one is lost. */
	d = names(0, bytes, 2 * n);
	for (unsigned pass = 0; pass < 2; pass++) {
		(void)verbs(VB_OP_READ);
		for (unsigned i = 0; i < n; i++)
			must(vb_names_find(d, c.me, name,
					   (size_t)snprintf(name, sizeof(name), "%u", i), &lock));
	}
	assert_in_range(verbs(VB_OP_READ), 0, n / 100);
	vb_names_close(d);
	vb_names_close(e);
	close_calls();
}

/* At three quarters of its places; and at half of them where a READ has three. */
static void test_cost_of_many(void **state)
{
	(void)state;
	cost_of_many(0, 3000);
	cost_of_many(VB_NAME_MAX, 2000);
}

/* Lost answers are asked for again; when they stay lost that is said, and the next call tells. */
static void test_lost_answers(void **state)
{
	static const struct vb_sim_faults none, lose = {.lose = 1.0};
	struct vb_names *d;
	uint64_t lock = UNKNOWN;

	open_calls(8, 1);
	d = names(0, 0, 0);
	vb_sim_set_faults(c.f, &lose);
	refused(vb_names_lock(d, c.me, "a", 1, &lock), -VB_EUNKNOWN, "out of reach");
	refused(vb_names_find(d, c.me, "a", 1, &lock), -VB_EUNKNOWN, "out of reach");
	assert_true(lock == UNKNOWN);
	vb_sim_set_faults(c.f, &none);
	must(vb_names_lock(d, c.me, "a", 1, &lock));
	vb_sim_lose_node(c.f, 0);
	refused(vb_names_lock(d, c.me, "b", 1, &lock), -VB_EPEERGONE, "out of reach");
	/* What is known is known. */
	must(vb_names_find(d, c.me, "a", 1, &lock));
	vb_names_close(d);
	close_calls();
}

/* The names are as alike as they are meant to be. */
static void test_twins(void **state)
{
	char a[TWIN_BYTES], b[TWIN_BYTES];

	for (unsigned f = 0; f < 600; f += 7) {
		twin_name(f, 0, a);
		for (unsigned i = 1; i < TWINS; i++) {
			twin_name(f, i, b);
			assert_true(XXH64(a, TWIN_BYTES, 0) == XXH64(b, TWIN_BYTES, 0));
			assert_memory_equal(a, b, 7);
			assert_true(memcmp(a, b, TWIN_BYTES) != 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_twins),        cmocka_unit_test(test_all_orders),
		cmocka_unit_test(test_seeds),        cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_usual),        cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_full),         cmocka_unit_test(test_whose_client),
		cmocka_unit_test(test_cost),         cmocka_unit_test(test_cost_of_many),
		cmocka_unit_test(test_lost_answers),
	};

	/* A world is made and unmade some thousand times a second: its memory is kept. */
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	mallopt(M_TOP_PAD, 4 << 20);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
