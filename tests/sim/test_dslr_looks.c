/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a dslr client concludes from a look, each conclusion by itself: the word is put by hand to
 * what others would have made of it while the client did not look, or the client stands still at
 * the worst moment.  (In runs that come about by themselves these things are met now and then, and
 * mostly several at a time.)
 */
#include "sim_test.h"

#include "fabric/hook/hooks.h"
#include "lock/dslr/update.h"
#include "lock/lock.h"

#define LEASE 200000ull /* ns */
#define LOCK  0

static struct {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	struct vb_grant g;
	int err;
	bool done;
	/* Of a hooked endpoint: its first CAS is late. */
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	uint64_t late_ns, before, after;
} s;

static void open_scene_with(const char *lock, const char *options, uint32_t drift_ppm, bool hooked)
{
	const struct vb_lock_space_params p = {.lock = lock,
					       .options = options,
					       .locks = 1,
					       .lease_ns = LEASE,
					       .drift_ppm = drift_ppm};

	memset(&s, 0, sizeof(s));
	s.f = cluster("profile=cx5,bound=50us", 2, 3);
	if (hooked)
		assert_int_equal(vb_hook_count(s.f, &s.f), 0);
	assert_int_equal(vb_lock_space_open(s.f, &p, &s.space), 0);
	assert_int_equal(vb_lock_client_open(s.space, 1, &s.me), 0);
}

static void open_scene_of(const char *lock, uint32_t drift_ppm, bool hooked)
{
	open_scene_with(lock, "omega=1us,count_max=1024", drift_ppm, hooked);
}

static void open_scene(uint32_t drift_ppm, bool hooked)
{
	open_scene_of("dslr", drift_ppm, hooked);
}

static void close_scene(void)
{
	vb_lock_client_close(s.me);
	vb_lock_space_close(s.space);
	vb_fabric_close(s.f);
}

static uint64_t *entry(void)
{
	return vb_local(s.f, vb_lock_entry(s.space, LOCK), 8);
}

static void pass(uint64_t ns)
{
	assert_int_equal(vb_task_sleep_until(now() + ns), 0);
}

static void write_body(void *arg)
{
	(void)arg;
	s.err = vb_lock_acquire(s.me, LOCK, VB_EXCLUSIVE, 20 * LEASE, &s.g);
	s.done = true;
}

static void read_body(void *arg)
{
	(void)arg;
	s.err = vb_lock_acquire(s.me, LOCK, VB_SHARED, 20 * LEASE, &s.g);
	s.done = true;
}

/* The client waits as it must, and in the end has it from who lets it. */
static void finish(void)
{
	while (!s.done)
		pass(LEASE);
	assert_int_equal(s.err, 0);
	assert_int_equal(vb_lock_release(s.me, &s.g), 0);
}

/* Ticket 4 of the writers is another's, who does nothing; two readers have come and gone. */
static const struct {
	enum vb_mode mode;
	uint32_t n_x, n_s, max_x, max_s; /* what the word becomes while the client waits */
	bool out;                        /* its ticket is somebody else's now, or nobody's */
} cases[] = {
	{VB_EXCLUSIVE, 4, 2, 6, 2, false}, {VB_EXCLUSIVE, 4, 2, 9, 7, false}, /* others have come */
	{VB_EXCLUSIVE, 7, 2, 9, 2, true}, /* served past the ticket */
	{VB_EXCLUSIVE, 0, 2, 9, 2, true}, /* zeroed, and the numbers are past the ticket again: writers' */
	{VB_EXCLUSIVE, 4, 0, 9, 2, true}, /* readers' */
	{VB_EXCLUSIVE, 4, 2, 5, 2, true}, /* the ticket has not been drawn */
	{VB_EXCLUSIVE, 4, 3, 9, 3, true}, /* a reader who came later was served before */
	{VB_SHARED, 4, 2, 5, 3, false},    {VB_SHARED, 4, 2, 9, 9, false},
	{VB_SHARED, 6, 2, 9, 9, true},     {VB_SHARED, 0, 2, 9, 9, true},
	{VB_SHARED, 4, 0, 9, 9, true},     {VB_SHARED, 4, 2, 9, 2, true},
};

static void test_tickets_that_are_gone(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(cases); i++) {
		open_scene(0, false);
		*entry() = dslr_word(4, 2, 5, 2);
		spawn(cases[i].mode == VB_SHARED ? read_body : write_body, NULL);
		pass(LEASE / 4);
		assert_false(s.done);
		assert_int_equal(s.me->lost, 0);
		*entry() = dslr_word(cases[i].n_x, cases[i].n_s, cases[i].max_x, cases[i].max_s);
		pass(LEASE / 4);
		if (s.me->lost != cases[i].out)
			fail_msg("case %u: given up %u times, not %d", i, (unsigned)s.me->lost,
				 cases[i].out);
		finish();
		close_scene();
	}
}

/* Who has not looked for a lease gives its ticket up, whatever it sees then. */
static void test_blind(void **state)
{
	(void)state;
	open_scene(0, false);
	*entry() = dslr_word(4, 2, 5, 2);
	spawn(write_body, NULL);
	pass(LEASE / 4);
	vb_sim_ep_pause(s.me->ep, now() + LEASE + LEASE / 4);
	pass(LEASE + LEASE / 2);
	assert_int_equal(s.me->lost, 1);
	finish();
	close_scene();
}

/* Nor does who was refused count the time in which it did not look. */
static void test_blind_and_refused(void **state)
{
	uint64_t full = dslr_word(4, 2, 1024, 2);

	(void)state;
	open_scene(0, false);
	*entry() = full;
	spawn(write_body, NULL);
	pass(LEASE / 2);
	full = *entry();
	vb_sim_ep_pause(s.me->ep, now() + 3 * LEASE);
	pass(4 * LEASE);
	assert_int_equal(*entry(), full);
	assert_int_equal(s.me->recoveries, 0);
	pass(2 * LEASE);
	assert_int_equal(s.me->recoveries, 1);
	finish();
	close_scene();
}

/* A full counter is not free, though nobody holds. */
static void test_try_when_full(void **state)
{
	(void)state;
	open_scene(0, false);
	*entry() = dslr_word(1024, 2, 1024, 2);
	assert_int_equal(vb_lock_try(s.me, LOCK, VB_EXCLUSIVE, &s.g), -EAGAIN);
	assert_int_equal(vb_lock_try(s.me, LOCK, VB_SHARED, &s.g), -EAGAIN);
	assert_int_equal(*entry(), dslr_word(1024, 2, 1024, 2));
	*entry() = dslr_word(4, 2, 4, 2);
	assert_int_equal(vb_lock_try(s.me, LOCK, VB_EXCLUSIVE, &s.g), 0);
	assert_int_equal(vb_lock_release(s.me, &s.g), 0);
	close_scene();
}

/* ---- late releases of readers ---- */

static int release_late(uint64_t word)
{
	assert_int_equal(vb_lock_acquire(s.me, LOCK, VB_SHARED, 0, &s.g), 0);
	pass(LEASE + LEASE / 10);
	if (word != 0)
		*entry() = word;
	return vb_lock_release(s.me, &s.g);
}

static void test_a_reader_is_late(void **state)
{
	/* Others' readers have gone meanwhile: that is no harm. */
	static const uint64_t fine[] = {0, 4ull << 48 | 3ull << 32 | 4 << 16 | 4};
	/* A reset; a word that was zeroed. */
	static const uint64_t lost[] = {5ull << 48 | 2ull << 32 | 5 << 16 | 3,
					4ull << 48 | 0ull << 32 | 4 << 16 | 1};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		open_scene(0, false);
		*entry() = dslr_word(4, 2, 4, 2);
		assert_int_equal(release_late(fine[i]), 0);
		assert_int_equal(dslr_n_s(*entry()), fine[i] != 0 ? 4 : 3);
		close_scene();
		open_scene(0, false);
		*entry() = dslr_word(4, 2, 4, 2);
		assert_int_equal(release_late(lost[i]), -VB_ELOST);
		assert_int_equal(*entry(), lost[i]);
		close_scene();
	}
}

/* ---- resets ---- */

/* Where clocks may differ others' leases last longer, by our own. */
static void test_patience_and_drift(void **state)
{
	uint64_t begin, patience;

	(void)state;
	open_scene(10000, false);
	*entry() = dslr_word(4, 2, 5, 2);
	patience = vb_lock_stretch(s.space, 2 * LEASE);
	assert_true(patience >= 2 * LEASE + LEASE / 50);
	begin = now();
	spawn(write_body, NULL);
	while (s.me->recoveries == 0)
		pass(1000);
	assert_true(now() - begin >= patience);
	/* Looks, and the verb that resets. */
	assert_true(now() - begin <= patience + 20000);
	finish();
	close_scene();
}

static int post_late(struct vb_ep *ep, struct vb_batch *b)
{
	uint64_t ns = s.late_ns;
	int err;

	if (ns == 0 || b->verbs[0].op != VB_OP_CAS64)
		return s.real->post(ep, b);
	s.late_ns = 0;
	s.before = *entry();
	assert_int_equal(vb_task_sleep_until(now() + ns), 0);
	err = s.real->post(ep, b);
	assert_int_equal(vb_task_sleep_until(now() + 20000), 0);
	s.after = *entry();
	return err;
}

/* What a reset compares with may have come round: it takes effect soon after the look, or not. */
static void test_a_reset_is_late(void **state)
{
	(void)state;
	open_scene(0, true);
	*entry() = dslr_word(4, 2, 5, 2);
	s.real = s.me->ep->ops;
	s.ops = *s.real;
	s.ops.post = post_late;
	s.me->ep->ops = &s.ops;
	s.late_ns = LEASE;
	spawn(write_body, NULL);
	while (s.after == 0)
		pass(LEASE);
	assert_int_equal(s.before, dslr_word(4, 2, 6, 2));
	assert_int_equal(s.after, s.before);
	finish();
	assert_int_equal(s.me->recoveries, 1);
	close_scene();
}

/* A reader's release that landed behind a reset has gone past the readers that have come: a writer takes no
 * ticket after the other, each of which is thrown out at once, but resets the word; and a reader, whose ticket
 * that release has served, takes another. */
static void test_overrun(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		open_scene(0, false);
		*entry() = dslr_word(4, 3, 4, 2);
		spawn(i == 0 ? write_body : read_body, NULL);
		for (unsigned n = 0; n < 32 && !s.done; n++)
			pass(LEASE / 8);
		assert_true(s.done);
		assert_int_equal(s.err, 0);
		assert_int_equal(s.me->lost, 0);
		assert_int_equal(s.me->recoveries, i == 0);
		finish();
		assert_true(dslr_n_s(*entry()) <= dslr_max_s(*entry()));
		close_scene();
	}
}

/* The same of dslr-update, where a writer would wait, and a reader that is there would not be counted. */
static void test_overrun_update(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		open_scene_of("dslr-update", 0, false);
		*entry() = upd_word(1, 4, 3, 4, 2);
		spawn(i == 0 ? write_body : read_body, NULL);
		for (unsigned n = 0; n < 32 && !s.done; n++)
			pass(LEASE / 8);
		assert_true(s.done);
		assert_int_equal(s.err, 0);
		assert_int_equal(s.me->recoveries, i == 0);
		assert_int_equal(upd_max_s(*entry()) - upd_n_s(*entry()), i);
		finish();
		assert_int_equal(upd_max_s(*entry()), upd_n_s(*entry()));
		close_scene();
	}
}

/* A writer and forty readers are ahead: READs while they stay. */
static uint64_t looks(const char *options, void (*body)(void *))
{
	uint64_t n;

	open_scene_with("dslr", options, 0, false);
	*entry() = dslr_word(4, 2, 5, 42);
	spawn(body, NULL);
	pass(LEASE / 4);
	assert_false(s.done);
	n = s.me->ep->count[VB_OP_READ];
	finish();
	close_scene();
	return n;
}

static void test_whom_a_reader_counts(void **state)
{
	uint64_t all, writers;

	(void)state;
	all = looks("omega=1us", read_body);
	writers = looks("omega=1us,counted=writers", read_body);
	/* Every 41 us and a round trip, every 1 us and a round trip, for 50 us. */
	assert_true(all >= 1 && all <= 2);
	assert_true(writers > 10);
	assert_int_equal(looks("omega=1us", write_body),
			 looks("omega=1us,counted=writers", write_body));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whom_a_reader_counts),
		cmocka_unit_test(test_tickets_that_are_gone),
		cmocka_unit_test(test_blind),
		cmocka_unit_test(test_blind_and_refused),
		cmocka_unit_test(test_try_when_full),
		cmocka_unit_test(test_a_reader_is_late),
		cmocka_unit_test(test_patience_and_drift),
		cmocka_unit_test(test_a_reset_is_late),
		cmocka_unit_test(test_overrun),
		cmocka_unit_test(test_overrun_update),
	};

	return cmocka_run_group_tests_name("dslr looks", tests, NULL, NULL);
}
