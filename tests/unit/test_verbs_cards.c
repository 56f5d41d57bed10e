/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric `verbs` on a device that is made up: what cards do and Soft-RoCE does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "vb_config.h"

#if !VB_HAVE_IBVERBS

static void cards(void **state)
{
	(void)state;
	print_message("built without the headers of libibverbs (Debian: libibverbs-dev)\n");
	skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(cards)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

#include <sys/resource.h>
#include <verbena/lock.h>
#include <verbena/txn.h>

#include "base/log.h"
#include "verbs_fake.h"

#define MS      1000000ull
#define LONG_NS 60000000000ull

struct here {
	struct vb_fabric *f;
	struct verbs *w;
	struct vb_ep *ep, *to;
	vb_addr at;
};

static int open_fabric(const char *options, struct vb_fabric **f)
{
	struct vb_fabric_params p = {
		.fabric = "verbs", .nodes = 2, .node_bytes = 1 << 20, .options = options};

	return vb_fabric_open(&p, f);
}

static void begin(struct here *h, const char *options)
{
	bool fresh;

	assert_int_equal(open_fabric(options, &h->f), 0);
	h->w = verbs_of(net_of(h->f));
	assert_int_equal(vb_ep_open(h->f, 0, &h->ep), 0);
	assert_int_equal(vb_ep_open(h->f, 1, &h->to), 0);
	assert_int_equal(vb_region(h->f, 1, "test", 4096, &h->at, &fresh), 0);
}

static void end(struct here *h)
{
	vb_ep_close(h->to);
	vb_ep_close(h->ep);
	vb_fabric_close(h->f);
}

static void rest(struct here *h)
{
	assert_int_equal(vb_ep_sleep(h->ep, MS), 0);
}

/* ---- receive buffers ---- */

static void take_all(struct here *h)
{
	struct vb_msg m;

	while (vb_ep_recv(h->to, &m) == 0)
		continue;
}

/* Messages that nobody has polled yet, and then the connection breaks. */
static void break_off(struct here *h)
{
	struct net_fabric *f = net_of(h->f);

	for (unsigned i = 0; i < 8; i++) {
		struct vb_msg m = {.imm = i};
		struct vb_verb v = {.op = VB_OP_SEND, .peer = h->to->self, .msg = &m};
		struct vb_batch b = {.verbs = &v, .n = 1};

		assert_true(vb_post(h->ep, &b) >= 0);
	}
	pthread_mutex_lock(&f->engine);
	f->t->flush(f);
	verbs_break(h->w, &h->w->hosts[0], VERBS_DOWN);
	verbs_done_flush(h->w);
	pthread_mutex_unlock(&f->engine);
}

static void come_back(struct here *h)
{
	uint64_t until = vb_ep_now(h->ep) + LONG_NS, v;
	int err;

	while ((err = vb_read64(h->ep, h->at, &v)) == -VB_EPEERGONE && vb_ep_now(h->ep) < until)
		rest(h);
	assert_int_equal(err, 0);
	take_all(h);
}

static void wait_for_the_dying(struct here *h)
{
	uint64_t until = vb_ep_now(h->ep) + LONG_NS;

	while (h->w->n_dying > 0 && vb_ep_now(h->ep) < until)
		rest(h);
	assert_int_equal(h->w->n_dying, 0);
}

/* Every buffer of the queue is used; again, until it is known which ones are lost. */
static void send_laps(struct here *h)
{
	unsigned laps = 0;

	do {
		for (uint32_t i = 0; i < h->w->n_recvs; i++) {
			assert_int_equal(
				vb_send_wait(h->ep, h->to->self, &(struct vb_msg){.imm = i}), 0);
			take_all(h);
		}
		rest(h);
	} while (h->w->doubt && ++laps < 1000);
}

/* A queue pair that is destroyed takes along what it holds and what nobody has polled: the queue is
 * as long as ever after any number of breaks. */
static void breaks_cost_no_buffers(void **state)
{
	char text[1024] = "";
	struct here h;

	(void)state;
	fake.late = 6;
	begin(&h, "lanes=2");
	assert_int_equal(fake_buffers(), h.w->n_recvs);
	vb_log_capture_begin(text, sizeof(text));
	for (unsigned i = 0; i < 200; i++) {
		break_off(&h);
		come_back(&h);
	}
	vb_log_capture_end();
	/* What comes of a broken connection gives no credits for the next one. */
	assert_string_equal(text, "");
	wait_for_the_dying(&h);
	assert_true(fake.destroyed >= 400);
	fake.late = 0;
	send_laps(&h);
	assert_int_equal(fake_buffers(), h.w->n_recvs);
	assert_int_equal(h.w->recvs_lost, 0);
	assert_false(h.w->doubt);
	end(&h);
}

/* A device that never says that it takes no more: the wait is bounded, spare buffers take the
 * places of those that went along, and it is said when there are none left. */
static void without_the_event(void **state)
{
	char text[4096] = "";
	struct here h;

	(void)state;
	fake.events = false;
	begin(&h, "");
	for (unsigned i = 0; i < 20; i++) {
		break_off(&h);
		come_back(&h);
	}
	assert_true(h.w->n_dying > 0);
	wait_for_the_dying(&h);
	send_laps(&h);
	assert_int_equal(h.w->recvs_lost, 20);
	assert_int_equal(fake_buffers(), h.w->n_recvs);
	vb_log_capture_begin(text, sizeof(text));
	for (unsigned i = 0; i < VERBS_SPARE_RECVS - 15; i++) {
		break_off(&h);
		come_back(&h);
	}
	wait_for_the_dying(&h);
	send_laps(&h);
	vb_log_capture_end();
	assert_int_equal(h.w->recvs_lost, VERBS_SPARE_RECVS + 5);
	assert_int_equal(fake_buffers(), h.w->n_recvs - 5);
	assert_non_null(strstr(text, "no spare one is left"));
	end(&h);
}

/* ---- what nobody waits for ---- */

static void write_unheard(struct here *h)
{
	uint64_t data = 7;
	struct vb_verb v = {.op = VB_OP_WRITE, .addr = h->at, .buf = &data, .len = sizeof(data)};
	struct vb_batch b = {.verbs = &v, .n = 1};

	assert_true(vb_post(h->ep, &b) >= 0);
}

/* A WRITE for which no completion is asked, and nothing behind it: it is heard of all the same, and
 * a connection on which it gets stuck is broken off. */
static void age_of_what_nobody_waits_for(void **state)
{
	struct here h;
	uint64_t until;

	(void)state;
	fake.vendor = FAKE_RXE;
	begin(&h, "timeout=1,retries=0");
	write_unheard(&h);
	until = vb_ep_now(h.ep) + LONG_NS;
	while (!verbs_idle(&h.w->qps[0]) && vb_ep_now(h.ep) < until)
		rest(&h);
	assert_true(verbs_idle(&h.w->qps[0]));
	assert_int_equal(h.w->n_unheard, 0);
	assert_int_equal(h.w->hosts[0].state, VERBS_UP);
	assert_int_equal(h.w->qps[0].round, 1);

	fake.swallows = true;
	write_unheard(&h);
	while (h.w->qps[0].round == 1 && vb_ep_now(h.ep) < until)
		rest(&h);
	assert_int_equal(h.w->qps[0].round, 2);
	fake.swallows = false;
	come_back(&h);
	end(&h);
}

/* ---- the bound, and leases ---- */

static uint64_t bound_of(const char *options)
{
	struct vb_fabric *f;
	uint64_t bound;

	assert_int_equal(open_fabric(options, &f), 0);
	bound = f->caps.verb_bound_ns;
	vb_fabric_close(f);
	return bound;
}

/* What the specification gives, to which come messages sent again and the time between two looks. */
#define MORE_NS (6 * 640000ull + 20 * MS)

static void bound_of_software(void **state)
{
	(void)state;
	fake.vendor = FAKE_RXE;
	assert_int_equal(bound_of(""), 5 * 4 * (4096ull << 12) + MORE_NS);
	assert_int_equal(bound_of("timeout=8,retries=2"), 3 * 4 * (4096ull << 8) + MORE_NS);
	assert_int_equal(bound_of("timeout=8,retries=2,lifetime=1s"),
			 3 * 4 * (4096ull << 8) + MORE_NS + 1000 * MS);
	assert_int_equal(bound_of("timeout=8,retries=2,measured=30ms"), 30 * MS + MORE_NS);
	fake.vendor = 0x626d74; /* siw */
	assert_int_equal(bound_of("timeout=8,retries=2"), 3 * 4 * (4096ull << 8) + MORE_NS);
}

static void bound_of_a_card(void **state)
{
	(void)state;
	assert_int_equal(bound_of(""), 500 * MS);
	assert_int_equal(bound_of("timeout=8,retries=2"), 500 * MS);
	assert_int_equal(bound_of("timeout=8,retries=2,lifetime=1s"), 1500 * MS);
	assert_true(bound_of("timeout=14,retries=6") > 1800 * MS);
	assert_int_equal(bound_of("timeout=8,retries=2,measured=30ms"), 30 * MS + MORE_NS);
	/* The formula counts where it is more than what was measured. */
	assert_int_equal(bound_of("measured=30ms"), 5 * 4 * (4096ull << 12) + MORE_NS);
	/* Nothing is known to be software because it says nothing. */
	fake.vendor = 0;
	assert_int_equal(bound_of(""), 500 * MS);
}

static int open_space(struct here *h, uint64_t lease_ns)
{
	struct vb_lock_space_params p = {.lock = "dslr", .locks = 4, .lease_ns = lease_ns};
	struct vb_lock_space *s;
	int err = vb_lock_space_open(h->f, &p, &s);

	if (err == 0)
		vb_lock_space_close(s);
	return err;
}

static int open_db(struct here *h, uint64_t lease_ns)
{
	struct vb_db_params p = {.cc = "no-wait", .lease_ns = lease_ns, .coordinators = 1};
	struct vb_db *db;
	int err = vb_db_open(h->f, &p, &db);

	if (err == 0)
		vb_db_close(db);
	return err;
}

/* What is refused names the lease, the bound and the way out. */
static void short_leases_on_a_card(void **state)
{
	char text[1024] = "";
	struct here h;

	(void)state;
	begin(&h, "timeout=8,retries=2");
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(open_space(&h, 999 * MS), -EINVAL);
	vb_log_capture_end();
	assert_non_null(strstr(text, "999000000 ns"));
	assert_non_null(strstr(text, "500000000 ns"));
	assert_non_null(strstr(text, "`verbena doctor` measures it"));
	assert_non_null(strstr(text, "measured=TIME"));
	text[0] = '\0';
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(open_db(&h, 999 * MS), -EINVAL);
	vb_log_capture_end();
	assert_non_null(strstr(text, "999000000 ns"));
	assert_non_null(strstr(text, "measured=TIME"));
	assert_int_equal(open_space(&h, 1000 * MS), 0);
	end(&h);

	begin(&h, "timeout=8,retries=2,measured=30ms");
	assert_int_equal(open_space(&h, 100 * MS), -EINVAL);
	assert_int_equal(open_space(&h, 108 * MS), 0);
	end(&h);
}

static void measures(void **state)
{
	struct verbs_give_up g;
	char text[1024] = "";

	(void)state;
	fake.gives_up_ns = 30 * MS;
	assert_int_equal(verbs_measure("timeout=8,retries=2", &g), 0);
	assert_true(g.card);
	assert_int_equal(g.timeout, 8);
	assert_int_equal(g.retries, 2);
	assert_int_equal(g.least_ns, 3 * (4096ull << 8));
	assert_int_equal(g.formula_ns, 3 * 4 * (4096ull << 8));
	assert_int_equal(g.bound_ns, 500 * MS);
	assert_in_range(g.took_ns, 30 * MS, LONG_NS);
	for (unsigned i = 0; i < FAKE_QPS; i++)
		assert_false(fake.qp[i].used);
	/* Any other end measures nothing. */
	fake.gives_up_as = IBV_WC_REM_ACCESS_ERR;
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(verbs_measure(NULL, &g), -EIO);
	vb_log_capture_end();
	assert_non_null(strstr(text, "a request to nobody ended with"));
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(verbs_measure("timeout=x", &g), -EINVAL);
	vb_log_capture_end();
}

/* ---- fork, pinned memory ---- */

static void fork_init_is_first(void **state)
{
	char text[1024] = "";
	struct here h;

	(void)state;
	begin(&h, "");
	assert_string_equal(fake.first, "fake_fork_init");
	assert_int_equal(fake.forks_inits, 1);
	end(&h);
	/* Too late, or not possible: who opens is told. */
	fake_end(NULL);
	fake_begin(NULL);
	fake.fork_err = EINVAL;
	verbs_lib_use(&fake_lib);
	vb_log_capture_begin(text, sizeof(text));
	begin(&h, "");
	vb_log_capture_end();
	assert_non_null(strstr(text, "ibv_fork_init"));
	end(&h);
}

static void pinned_memory_runs_out(void **state)
{
	struct rlimit was, little;
	char text[1024] = "";
	struct vb_fabric *f;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &was), 0);
	little = (struct rlimit){64 << 10, was.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &little), 0);
	fake.reg_errno = ENOMEM;
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(open_fabric("", &f), -ENOMEM);
	vb_log_capture_end();
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &was), 0);
	assert_non_null(strstr(text, "may pin 64 KiB"));
	assert_non_null(strstr(text, "`ulimit -l unlimited`"));
	assert_non_null(strstr(text, "LimitMEMLOCK=infinity"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fake_begin, fake_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(breaks_cost_no_buffers),
		CASE(without_the_event),
		CASE(age_of_what_nobody_waits_for),
		CASE(bound_of_software),
		CASE(bound_of_a_card),
		CASE(short_leases_on_a_card),
		CASE(measures),
		CASE(fork_init_is_first),
		CASE(pinned_memory_runs_out),
	};

	cmocka_set_test_filter(getenv("ONLY"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
