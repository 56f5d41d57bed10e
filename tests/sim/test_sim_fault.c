/* SPDX-License-Identifier: Apache-2.0 */
/* The adversary: each fault occurs, does what it says, and stays within its bounds. */
#include "sim_test.h"

/* ---- order, under delays ---- */

/* A late READ or atomic is overtaken by a later WRITE, unless that is fenced; nothing else passes.
 */
static unsigned overtaken(uint8_t flags, uint64_t seed)
{
	struct vb_sim_faults late = {.delay = 0.5, .delay_max_ns = 20000};
	struct vb_fabric *f = cluster(NULL, 2, seed);
	struct vb_ep *ep = endpoint(f, 1);
	unsigned n = 0;

	vb_sim_set_faults(f, &late);
	for (uint64_t i = 1; i <= 200; i++) {
		uint64_t seen = 0, value = i, later = 0;
		struct vb_verb v[4] = {
			{.op = VB_OP_READ,
			 .flags = VB_SIGNALLED,
			 .addr = word(0, 0),
			 .buf = &seen,
			 .len = 8},
			{.op = VB_OP_WRITE,
			 .flags = flags,
			 .addr = word(0, 0),
			 .buf = &value,
			 .len = 8},
			{.op = VB_OP_FAA64, .flags = VB_SIGNALLED, .addr = word(0, 0)},
			{.op = VB_OP_READ,
			 .flags = VB_SIGNALLED,
			 .addr = word(0, 0),
			 .buf = &later,
			 .len = 8},
		};

		assert_int_equal(vb_post_wait(ep, v, 4), 0);
		/* Reads its own writes, in any case. */
		assert_int_equal(v[2].old.lo, i);
		assert_int_equal(later, i);
		assert_true(seen == i - 1 || seen == i);
		n += seen == i;
	}
	vb_ep_close(ep);
	vb_fabric_close(f);
	return n;
}

static void test_a_write_overtakes_a_late_read_unless_fenced(void **state)
{
	assert_in_range(overtaken(0, 1), 20, 180);
	assert_int_equal(overtaken(VB_FENCE, 1), 0);
}

static void test_messages_stay_in_order(void **state)
{
	struct vb_sim_faults late = {.delay = 0.3, .delay_max_ns = 50000};
	struct vb_fabric *f = cluster(NULL, 2, 4);
	struct vb_ep *ep = endpoint(f, 1), *to = endpoint(f, 0);
	struct vb_msg m = {0}, got;
	uint64_t first, last;

	vb_sim_set_faults(f, &late);
	for (m.imm = 0; m.imm < 300; m.imm++)
		assert_int_equal(vb_send(ep, to->self, &m), 0);
	first = now();
	for (unsigned i = 0; i < 300; i++) {
		while (vb_ep_recv(to, &got) != 0)
			assert_int_equal(vb_ep_wait(to, VB_FOREVER), 0);
		assert_int_equal(got.imm, i);
	}
	last = now();
	assert_true(last - first > 20000);
	vb_ep_close(to);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

/* ---- tearing ---- */

#define TORN_WORDS  32
#define TORN_WRITES 40

struct torn {
	struct vb_ep *ep;
	bool *stop;
	uint64_t torn, halves, rounds;
};

static void torn_writer(void *arg)
{
	struct torn *t = arg;
	uint64_t buf[TORN_WORDS];

	for (uint64_t i = 1; i <= t->rounds; i++) {
		for (unsigned k = 0; k < TORN_WORDS; k++)
			buf[k] = i;
		assert_int_equal(vb_write(t->ep, word(0, 0), buf, sizeof(buf)), 0);
	}
	*t->stop = true;
}

static void torn_reader(void *arg)
{
	struct torn *t = arg;
	uint64_t buf[TORN_WORDS];

	while (!*t->stop) {
		bool differs = false;

		assert_int_equal(vb_read(t->ep, word(0, 0), buf, sizeof(buf)), 0);
		for (unsigned k = 1; k < TORN_WORDS; k++)
			differs |= buf[k] != buf[0];
		/* Aligned pairs are whole, always. */
		for (unsigned k = 0; k < TORN_WORDS; k += 2)
			t->halves += buf[k] != buf[k + 1];
		t->torn += differs;
	}
}

static uint64_t torn_reads(double chance, uint64_t *halves)
{
	struct vb_sim_faults tear = {.tear = chance};
	struct vb_fabric *f = cluster(NULL, 3, 1);
	bool stop = false;
	struct torn w = {.ep = endpoint(f, 1), .stop = &stop, .rounds = 2000};
	struct torn r = {.ep = endpoint(f, 2), .stop = &stop};

	vb_sim_set_faults(f, &tear);
	spawn(torn_writer, &w);
	spawn(torn_reader, &r);
	run_all();
	*halves = r.halves;
	vb_ep_close(w.ep);
	vb_ep_close(r.ep);
	vb_fabric_close(f);
	return r.torn;
}

static void test_long_accesses_tear_and_short_ones_do_not(void **state)
{
	uint64_t halves;

	assert_int_equal(torn_reads(0, &halves), 0);
	assert_true(torn_reads(0.5, &halves) > 50);
	assert_int_equal(halves, 0);
}

/* WRITEs of one endpoint to one node wait for each other, piece by piece.  None is late by that. */
static void test_torn_writes_land_in_time(void **state)
{
	struct vb_sim_faults tear = {.tear = 1, .delay_max_ns = 100000};
	struct vb_fabric *f = cluster(NULL, 2, 7);
	struct vb_ep *ep = endpoint(f, 1);
	const uint64_t bound = f->caps.verb_bound_ns;
	uint64_t longest = 0;
	uint64_t buf[TORN_WORDS], seen[TORN_WORDS];

	vb_sim_set_faults(f, &tear);
	for (uint64_t round = 1; round <= 20; round++) {
		struct vb_verb v[TORN_WRITES];
		uint64_t begin = now();

		for (unsigned k = 0; k < TORN_WORDS; k++)
			buf[k] = round;
		for (unsigned i = 0; i < TORN_WRITES; i++)
			v[i] = (struct vb_verb){.op = VB_OP_WRITE,
						.flags = VB_SIGNALLED,
						.addr = word(0, i * TORN_WORDS),
						.buf = buf,
						.len = sizeof(buf)};
		assert_int_equal(vb_post_wait(ep, v, TORN_WRITES), 0);
		longest = now() - begin > longest ? now() - begin : longest;
		assert_in_range(now() - begin, 0, bound + 10000);
		for (unsigned i = 0; i < TORN_WRITES; i++) {
			assert_int_equal(v[i].status, 0);
			assert_int_equal(vb_read(ep, word(0, i * TORN_WORDS), seen, sizeof(seen)),
					 0);
			assert_memory_equal(seen, buf, sizeof(buf));
		}
	}
	/* They take nearly all the time that there is. */
	assert_true(longest > bound / 4 * 3);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

/* ---- lost completions ---- */

static void test_a_lost_completion_is_unknown_and_bounded(void **state)
{
	struct vb_sim_faults lose = {.lose = 0.3};
	struct vb_fabric *f = cluster(NULL, 2, 3);
	struct vb_ep *ep = endpoint(f, 1);
	unsigned known = 0, unknown = 0, hidden = 0;
	uint64_t counted = 0;

	vb_sim_set_faults(f, &lose);
	for (unsigned i = 0; i < 400; i++) {
		uint64_t old = 0, start = now(), after;
		int err = vb_faa64(ep, word(0, 0), 1, &old);

		after = peek(f, word(0, 0));
		assert_true(now() - start < f->caps.verb_bound_ns + 5000);
		if (err == 0) {
			known++;
			assert_int_equal(old, counted);
			assert_int_equal(after, counted + 1);
		} else {
			assert_int_equal(err, -VB_EUNKNOWN);
			unknown++;
			hidden += after == counted + 1;
		}
		counted = after;
	}
	/* Some of the unknown ones ran, some did not. */
	assert_in_range(unknown, 60, 180);
	assert_in_range(hidden, unknown / 4, unknown * 3 / 4);
	assert_int_equal(known + unknown, 400);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

/* Times in which one client hears nothing, one behind the other and longer than any verb takes; the
 * other hears everything. */
static void test_the_deaf_hear_nothing_for_a_while(void **state)
{
	struct vb_sim_faults deaf = {.deaf = 0.02, .deaf_max_ns = 5000000};
	struct vb_fabric *f = cluster(NULL, 2, 3);
	struct vb_ep *ep = endpoint(f, 1), *other = endpoint(f, 1);
	uint64_t since = 0, longest = 0;
	unsigned times = 0, heard = 0;

	vb_sim_ep_mortal(ep, true);
	vb_sim_set_faults(f, &deaf);
	for (unsigned i = 0; i < 2000; i++) {
		uint64_t old, begin = now();
		int err = vb_faa64(ep, word(0, 0), 1, &old);

		assert_int_equal(vb_faa64(other, word(0, 1), 1, &old), 0);
		heard += err == 0;
		if (err == 0) {
			since = 0;
			continue;
		}
		assert_int_equal(err, -VB_EUNKNOWN);
		times += since == 0;
		since = since != 0 ? since : begin;
		longest = now() - since > longest ? now() - since : longest;
	}
	assert_in_range(times, 10, 60);
	assert_in_range(heard, 1500, 1990);
	assert_in_range(longest, 2500000, 12000000);
	vb_sim_set_faults(f, &(struct vb_sim_faults){.delay = 0.5, .delay_max_ns = 1});
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(vb_write(ep, word(0, 2), &since, 8), 0);
	vb_ep_close(other);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

/* A reliable connection does not deliver what comes after something lost: data, then its flag. */
static void test_behind_a_lost_write_nothing_lands(void **state)
{
	struct vb_sim_faults lose = {.lose = 0.2};
	struct vb_fabric *f = cluster(NULL, 2, 3);
	struct vb_ep *ep = endpoint(f, 1);
	unsigned errors = 0;

	vb_sim_set_faults(f, &lose);
	for (uint64_t i = 1; i <= 300; i++) {
		struct vb_verb v[2] = {
			{.op = VB_OP_WRITE, .addr = word(0, 0), .buf = &i, .len = 8},
			{.op = VB_OP_WRITE,
			 .flags = VB_SIGNALLED,
			 .addr = word(0, 1),
			 .buf = &i,
			 .len = 8},
		};

		errors += vb_post_wait(ep, v, 2) != 0;
		assert_true(peek(f, word(0, 1)) <= peek(f, word(0, 0)));
	}
	assert_in_range(errors, 30, 200);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

#define ADRIFT_STEP_NS 50

/* Answers of one kind of verb alone: what is behind one that did not run is not lost, either; what
 * was given up early is adrift until it has landed, and not until its end is back. */
static void test_only_what_was_chosen_is_lost(void **state)
{
	struct vb_sim_faults cas = {.lose = 0.3, .lose_ops = 1u << VB_OP_CAS64};
	struct vb_fabric *f = cluster(NULL, 2, 3);
	struct vb_ep *ep = endpoint(f, 1);
	unsigned unknown = 0, adrift = 0;
	uint64_t old;

	vb_sim_set_faults(f, &cas);
	for (unsigned i = 0; i < 300; i++) {
		struct vb_verb v[2] = {
			{.op = VB_OP_CAS64, .flags = VB_SIGNALLED, .addr = word(0, 0)},
			{.op = VB_OP_FAA64,
			 .flags = VB_SIGNALLED,
			 .addr = word(0, 1),
			 .compare = {.lo = 1}},
		};

		unknown += vb_post_wait(ep, v, 2) == -VB_EUNKNOWN;
		assert_int_equal(v[1].status, 0);
		assert_int_equal(peek(f, word(0, 1)), i + 1);
	}
	assert_in_range(unknown, 50, 150);
	cas = (struct vb_sim_faults){.early = 0.3, .lose_ops = 1u << VB_OP_CAS64};
	vb_sim_set_faults(f, &cas);
	for (unsigned i = 0; i < 300; i++) {
		int err = vb_cas64(ep, word(0, 0), i, i + 1, &old);

		assert_int_equal(vb_sim_ep_adrift(ep), err == -VB_EUNKNOWN);
		adrift += vb_sim_ep_adrift(ep);
		for (unsigned n = 0; vb_sim_ep_adrift(ep) != 0; n++) {
			assert_int_equal(peek(f, word(0, 0)), i);
			assert_true((uint64_t)n * ADRIFT_STEP_NS <= f->caps.verb_bound_ns);
			assert_int_equal(vb_ep_sleep(ep, ADRIFT_STEP_NS), 0);
		}
		assert_int_equal(peek(f, word(0, 0)), i + 1);
	}
	assert_in_range(adrift, 50, 150);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

/* ---- stalls and partitions: in time, or never ---- */

struct probe {
	struct vb_ep *ep;
	struct vb_fabric *f;
	unsigned n, late, unknown;
	uint64_t slow_ns, longest;
};

static void probe_main(void *arg)
{
	struct probe *p = arg;

	for (unsigned i = 0; i < p->n; i++) {
		uint64_t old, start = now(), took;
		int err = vb_faa64(p->ep, word(0, 0), 1, &old);

		took = now() - start;
		assert_true(err == 0 || err == -VB_EUNKNOWN);
		assert_true(took < p->f->caps.verb_bound_ns + 5000);
		p->unknown += err != 0;
		p->late += err == 0 && took > p->slow_ns;
		p->longest = took > p->longest ? took : p->longest;
	}
}

static struct probe probe(const struct vb_sim_faults *faults)
{
	struct vb_fabric *f = cluster(NULL, 2, 9);
	struct probe p = {.ep = endpoint(f, 1), .f = f, .n = 500, .slow_ns = 10000};

	vb_sim_set_faults(f, faults);
	spawn(probe_main, &p);
	run_all();
	vb_ep_close(p.ep);
	vb_fabric_close(f);
	return p;
}

static void test_a_stalled_nic_is_slow_and_then_lost(void **state)
{
	struct vb_sim_faults mild = {.nic_stall = 0.1, .nic_stall_max_ns = 500000};
	struct vb_sim_faults wild = {.nic_stall = 0.1, .nic_stall_max_ns = 4000000};
	struct probe p = probe(&mild);

	assert_in_range(p.late, 20, 100);
	assert_int_equal(p.unknown, 0);
	assert_in_range(p.longest, 100000, 510000);
	p = probe(&wild);
	assert_in_range(p.unknown, 10, 200);
	assert_true(p.late > 0);
}

static void test_a_partition_is_slow_and_then_lost(void **state)
{
	struct vb_sim_faults mild = {.partition = 0.1, .partition_max_ns = 500000};
	struct vb_sim_faults wild = {.partition = 0.1, .partition_max_ns = 4000000};
	struct probe p = probe(&mild);

	assert_in_range(p.late, 20, 100);
	assert_int_equal(p.unknown, 0);
	p = probe(&wild);
	assert_in_range(p.unknown, 10, 400);
	assert_true(p.late > 0);
}

/* ---- cuts that refuse ---- */

struct refused {
	struct vb_ep *ep;
	vb_peer to;
	unsigned done, unknown, refused;
};

static void refused_main(void *arg)
{
	struct refused *p = arg;
	struct vb_msg m = {0};

	for (unsigned i = 0; i < 4000; i++) {
		bool sends = i % 8 == 7;
		uint64_t old, start = now();
		int err = sends ? vb_send_wait(p->ep, p->to, &m)
				: vb_faa64(p->ep, word(0, 0), 1, &old);

		assert_true(err == 0 || err == -VB_EUNKNOWN || err == -VB_EPEERGONE);
		/* It does not wait for the link. */
		assert_true(err != -VB_EPEERGONE || now() - start < 1000);
		p->done += err == 0 && !sends;
		p->unknown += err == -VB_EUNKNOWN && !sends;
		p->refused += err == -VB_EPEERGONE;
		vb_ep_sleep(p->ep, 50000);
	}
}

/* What is refused has not been executed; what was under way when the link went down is late or lost, as
 * ever. */
static struct refused refused_by(double share)
{
	struct vb_sim_faults cuts = {
		.partition = 0.02, .partition_max_ns = 2000000, .refuse = share};
	struct vb_fabric *f = cluster(NULL, 2, 9);
	struct vb_ep *to = endpoint(f, 0);
	struct refused p = {.ep = endpoint(f, 1), .to = to->self};

	vb_sim_set_faults(f, &cuts);
	spawn(refused_main, &p);
	run_all();
	assert_in_range(peek(f, word(0, 0)), p.done, p.done + p.unknown);
	vb_ep_close(p.ep);
	vb_ep_close(to);
	vb_fabric_close(f);
	return p;
}

static void test_a_cut_link_may_refuse(void **state)
{
	struct refused p = refused_by(0);

	(void)state;
	assert_int_equal(p.refused, 0);
	p = refused_by(1);
	assert_in_range(p.refused, 400, 3000);
	assert_true(p.unknown > 5 && p.done > 1000);
	assert_in_range(refused_by(0.3).refused, 50, p.refused);
}

/* Whatever is in its way, late, torn or lost: what has not taken effect within the bound never does,
 * and whoever waits for it is told by then. */
#define AREA 256u

static void area_of(struct vb_fabric *f, uint8_t *to)
{
	memcpy(to, vb_local(f, word(0, 0), AREA), AREA);
}

static unsigned messages_for(struct vb_ep *to)
{
	struct vb_msg m;
	unsigned n = 0;

	while (vb_ep_recv(to, &m) == 0)
		n++;
	return n;
}

static int changes_something(struct vb_ep *ep, vb_peer to, unsigned i)
{
	const struct vb_u128 one = {1, 1}, none = {0};
	struct vb_u128 pair;
	struct vb_msg m = {0};
	uint8_t buf[AREA];
	uint64_t old;

	memset(buf, (int)(i & 0xff), sizeof(buf));
	switch (i % 5) {
	case 0:
		return vb_write(ep, word(0, 0), buf, 8);
	case 1:
		return vb_faa64(ep, word(0, 0), 1, &old);
	case 2:
		return vb_mfaa128(ep, word(0, 0), one, none, &pair);
	case 3:
		return vb_send_wait(ep, to, &m);
	default:
		return vb_write(ep, word(0, 0), buf, sizeof(buf));
	}
}

static void test_in_time_or_never(void **state)
{
	const struct vb_sim_faults all = {.delay = 0.3,
					  .delay_max_ns = 1000000,
					  .tear = 0.8,
					  .lose = 0.05,
					  .early = 0.1,
					  .nic_stall = 0.5,
					  .nic_stall_max_ns = 1500000,
					  .partition = 0.1,
					  .partition_max_ns = 1500000};
	struct vb_fabric *f = cluster(NULL, 2, 21);
	struct vb_ep *ep = endpoint(f, 1), *to = endpoint(f, 0);
	const uint64_t bound = f->caps.verb_bound_ns;
	unsigned happened = 0, not = 0;
	uint8_t before[AREA], in_time[AREA], after[AREA];

	vb_sim_set_faults(f, &all);
	for (unsigned i = 1; i <= 3000; i++) {
		const uint64_t begin = now();
		unsigned came;

		area_of(f, before);
		(void)changes_something(ep, to->self, i);
		assert_true(now() - begin < bound + 5000);
		assert_int_equal(vb_ep_sleep_until(to, begin + bound + 5000), 0);
		area_of(f, in_time);
		came = messages_for(to);
		assert_int_equal(vb_ep_sleep_until(to, begin + 3 * bound), 0);
		area_of(f, after);
		assert_memory_equal(in_time, after, AREA);
		assert_int_equal(messages_for(to), 0);
		if (came > 0 || memcmp(before, in_time, AREA) != 0)
			happened++;
		else
			not ++;
	}
	assert_true(happened > 1000 && not > 200);
	vb_ep_close(to);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

static void test_faults_can_be_turned_off(void **state)
{
	struct vb_sim_faults all = {.delay = 1,
				    .delay_max_ns = 700000,
				    .lose = 0.5,
				    .partition = 1,
				    .partition_max_ns = 900000};
	struct vb_sim_faults none = {0};
	struct vb_fabric *f = cluster(NULL, 2, 5);
	struct probe p = {.ep = endpoint(f, 1), .f = f, .n = 50, .slow_ns = 10000};

	vb_sim_set_faults(f, &all);
	spawn(probe_main, &p);
	run_all();
	assert_true(p.unknown > 0 && p.late > 0);
	vb_sim_set_faults(f, &none);
	p.unknown = p.late = 0;
	spawn(probe_main, &p);
	run_all();
	assert_true(p.unknown == 0 && p.late == 0);
	vb_ep_close(p.ep);
	vb_fabric_close(f);
}

/* ---- pauses, and what not_after is for ---- */

static void test_a_pause_before_the_doorbell_meets_not_after(void **state)
{
	struct vb_sim_faults pause = {.pause = 0.5, .pause_max_ns = 1000000};
	struct vb_fabric *f = cluster(NULL, 2, 5);
	struct vb_ep *ep = endpoint(f, 1);
	unsigned late = 0, slow = 0;
	uint64_t in_time = 0;

	vb_sim_ep_mortal(ep, true);
	vb_sim_set_faults(f, &pause);
	for (unsigned i = 0; i < 400; i++) {
		uint64_t old = 0, start = vb_ep_now(ep), before = peek(f, word(0, 0));
		int err = vb_faa64_before(ep, word(0, 0), 1, start + 100000, &old);
		uint64_t took = vb_ep_now(ep) - start;

		assert_true(took <= 2 * 1000000 + 5000);
		if (err == -VB_ETOOLATE) {
			late++;
			assert_true(took > 100000);
			assert_int_equal(peek(f, word(0, 0)), before);
		} else {
			assert_int_equal(err, 0);
			in_time++;
			/* Paused after its completion: late too, but it happened in time. */
			slow += took > 110000;
		}
	}
	assert_in_range(late, 50, 150);
	assert_in_range(slow, 50, 150);
	assert_int_equal(peek(f, word(0, 0)), in_time);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

/* ---- until a word comes round ---- */

#define AROUND_NS 100000

struct around {
	struct vb_fabric *f;
	struct vb_ep *ep;
	uint64_t took_ns, old;
	int err;
	bool reads, returns;
};

static void around_main(void *arg)
{
	struct around *a = arg;
	uint64_t start = now();

	a->err = a->reads ? vb_read64(a->ep, word(0, 0), &a->old)
			  : vb_cas64(a->ep, word(0, 0), 5, 9, &a->old);
	a->took_ns = now() - start;
}

static void goes_round(void *arg)
{
	const struct around *a = arg;
	uint64_t *w = vb_local(a->f, word(0, 0), 8);

	vb_task_sleep_until(now() + 20000);
	*w = 7 | 7ull << 32;
	vb_task_sleep_until(now() + 20000);
	if (a->returns)
		*w = 5;
}

static void stand_until_it_comes_round(struct around *a, uint64_t seed)
{
	struct vb_sim_faults around = {.around = 1, .around_max_ns = AROUND_NS};

	a->f = cluster(NULL, 2, seed);
	a->ep = endpoint(a->f, 1);
	vb_sim_ep_mortal(a->ep, true);
	*(uint64_t *)vb_local(a->f, word(0, 0), 8) = 5;
	vb_sim_set_faults(a->f, &around);
	spawn(around_main, a);
	spawn(goes_round, a);
	run_all();
	assert_int_equal(a->err, 0);
}

/* Who compares waits before the doorbell until it would succeed once more. */
static void test_a_cas_waits_until_the_word_comes_round(void **state)
{
	struct around a = {.returns = true};

	stand_until_it_comes_round(&a, 3);
	assert_in_range(a.took_ns, 40000, 50000);
	assert_int_equal(a.old, 5);
	assert_int_equal(peek(a.f, word(0, 0)), 9);
	vb_ep_close(a.ep);
	vb_fabric_close(a.f);
}

/* Who has read waits with what it knows, some of them; and not for ever. */
static void test_who_has_read_waits_until_the_word_comes_round(void **state)
{
	unsigned stood[2] = {0, 0};

	for (unsigned i = 0; i < 40; i++) {
		struct around a = {.reads = true, .returns = i % 2 == 0};
		uint64_t least = a.returns ? 40000 : AROUND_NS;

		stand_until_it_comes_round(&a, i);
		assert_int_equal(a.old, 5);
		if (a.took_ns > 10000) {
			assert_in_range(a.took_ns, least, least + 10000);
			stood[i % 2]++;
		}
		vb_ep_close(a.ep);
		vb_fabric_close(a.f);
	}
	assert_in_range(stood[0], 1, 15);
	assert_in_range(stood[1], 1, 15);
}

/* ---- death ---- */

#define MORTALS 200

struct mortal {
	struct vb_ep *ep;
	uint64_t done, proxy_done;
	bool ended;
};

static unsigned told;

static void on_death(struct vb_ep *ep, void *arg)
{
	assert_true(vb_sim_ep_dead(ep));
	assert_ptr_equal(arg, &told);
	assert_null(vb_task_self());
	told++;
}

static void mortal_main(void *arg)
{
	struct mortal *m = arg;
	uint64_t old, big[8] = {0};

	for (unsigned i = 0; i < 50; i++) {
		struct vb_verb v[2] = {
			{.op = VB_OP_READ,
			 .flags = VB_SIGNALLED,
			 .addr = word(0, 0),
			 .buf = big,
			 .len = sizeof(big)},
			{.op = VB_OP_FAA64, .addr = word(0, 0), .compare.lo = 1},
		};

		if (vb_post_wait(m->ep, v, 2) != 0 || vb_faa64(m->ep, word(0, 0), 1, &old) != 0)
			fail();
		assert_false(vb_sim_ep_dead(m->ep));
		m->done += 2;
	}
	m->ended = true;
}

/* Another task of the same client, which waits in every way there is. */
static void proxy_main(void *arg)
{
	struct mortal *m = arg;

	for (unsigned i = 0; !m->ended; i++) {
		if (i % 3 == 0)
			(void)vb_ep_wait(m->ep, vb_ep_now(m->ep) + 3000);
		else if (i % 3 == 1)
			assert_int_equal(vb_ep_sleep(m->ep, 2000), 0);
		else
			assert_int_equal(vb_sim_compute(m->ep, 500), 0);
		assert_false(vb_sim_ep_dead(m->ep));
		m->proxy_done++;
	}
}

/* Waits for ever for a message that never comes; ends only by dying. */
static void waiter_main(void *arg)
{
	struct mortal *m = arg;

	(void)vb_ep_wait(m->ep, VB_FOREVER);
	assert_true(m->ended && !vb_sim_ep_dead(m->ep));
}

static void test_a_dead_client_is_silent_for_ever(void **state)
{
	struct vb_sim_faults die = {.die = 0.02, .tear = 0.1, .delay = 0.1, .delay_max_ns = 5000};
	struct vb_fabric *f = cluster(NULL, 5, 11);
	struct mortal m[MORTALS] = {0};
	struct vb_ep *watch = endpoint(f, 0);
	unsigned dead = 0;
	uint64_t sum = 0;

	told = 0;
	vb_sim_on_death(f, on_death, &told);
	vb_sim_set_faults(f, &die);
	for (unsigned i = 0; i < MORTALS; i++) {
		m[i].ep = endpoint(f, (uint16_t)(1 + i % 4));
		vb_sim_ep_mortal(m[i].ep, true);
		spawn(mortal_main, &m[i]);
		spawn(proxy_main, &m[i]);
		spawn(waiter_main, &m[i]);
	}
	/* The waiters of those who live are the only ones left. */
	for (unsigned i = 0; i < 200; i++)
		assert_int_equal(vb_ep_sleep(watch, 200000), 0);
	for (unsigned i = 0; i < MORTALS; i++) {
		struct vb_msg msg = {0};

		assert_int_equal(vb_peer_alive(f, m[i].ep->self), !vb_sim_ep_dead(m[i].ep));
		assert_int_equal(m[i].ended, !vb_sim_ep_dead(m[i].ep));
		dead += vb_sim_ep_dead(m[i].ep);
		sum += m[i].done;
		assert_int_equal(vb_send_wait(watch, m[i].ep->self, &msg),
				 m[i].ended ? 0 : -VB_EPEERGONE);
	}
	run_all();
	assert_in_range(dead, MORTALS / 2, MORTALS - 1);
	assert_int_equal(told, dead);
	/* What the dead had posted may have landed: up to one batch each, two adds at most. */
	assert_in_range(peek(f, word(0, 0)), sum, sum + 2 * dead);
	assert_true(peek(f, word(0, 0)) > sum);
	for (unsigned i = 0; i < MORTALS; i++)
		vb_ep_close(m[i].ep);
	vb_ep_close(watch);
	vb_fabric_close(f);
}

/* Who is struck before the doorbell and right behind it has lived until then, and what it has posted lands within
 * one bound of its death: no verb of the dead comes later. */
static void test_who_stands_still_dies_behind_the_bell(void **state)
{
	struct vb_sim_faults both = {
		.pause = 1, .pause_min_ns = 1000000, .pause_max_ns = 5000000, .die = 1};
	unsigned behind = 0;

	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct vb_fabric *f = cluster(NULL, 2, seed);
		struct vb_ep *watch = endpoint(f, 0);
		struct mortal m = {.ep = endpoint(f, 1)};
		uint64_t at_death;

		vb_sim_ep_mortal(m.ep, true);
		vb_sim_set_faults(f, &both);
		spawn(mortal_main, &m);
		while (!vb_sim_ep_dead(m.ep))
			assert_int_equal(vb_ep_sleep(watch, 100), 0);
		behind += vb_ep_now(watch) > both.pause_min_ns;
		assert_int_equal(vb_ep_sleep(watch, f->caps.verb_bound_ns), 0);
		at_death = peek(f, word(0, 0));
		assert_int_equal(vb_ep_sleep(watch, 2 * both.pause_max_ns), 0);
		assert_int_equal(peek(f, word(0, 0)), at_death);
		run_all();
		vb_ep_close(m.ep);
		vb_ep_close(watch);
		vb_fabric_close(f);
	}
	assert_true(behind >= 5);
}

static void test_only_the_mortal_die(void **state)
{
	struct vb_sim_faults die = {.die = 1};
	struct vb_fabric *f = cluster(NULL, 2, 1);
	struct mortal m = {.ep = endpoint(f, 1)};

	vb_sim_set_faults(f, &die);
	spawn(mortal_main, &m);
	run_all();
	assert_true(m.ended);
	m.ended = false;
	vb_sim_ep_mortal(m.ep, true);
	spawn(mortal_main, &m);
	run_all();
	assert_true(!m.ended && vb_sim_ep_dead(m.ep));
	vb_ep_close(m.ep);
	vb_fabric_close(f);
}

/* ---- clocks ---- */

/* Also where the product of time and drift needs more than 64 bits. */
static void test_drift_is_exact(void **state)
{
	static const int64_t drift[] = {1, -1, 999, 10000000, -10000000, 999999999};

	for (unsigned i = 0; i < sizeof(drift) / sizeof(drift[0]); i++) {
		for (unsigned bit = 0; bit < 63; bit++) {
			uint64_t base = (1ull << bit) + bit * 12345;
			struct vb_ep ep = {.drift_ppb = drift[i], .offset_ns = 77};
			__int128 ahead = (__int128)base * drift[i] / 1000000000;

			assert_int_equal(vb_ep_local(&ep, base), base + 77 + (uint64_t)ahead);
		}
	}
}

static void test_clocks_drift_within_their_bound(void **state)
{
	enum { N = 100 };
	struct vb_sim_faults drift = {.drift_max_ppb = 100000};
	struct vb_fabric *f = cluster(NULL, 2, 1);
	struct vb_ep *ep[N], *exact = endpoint(f, 0);
	int64_t widest = 0;
	unsigned fast = 0;

	assert_int_equal(exact->drift_ppb, 0);
	vb_sim_set_faults(f, &drift);
	for (unsigned i = 0; i < N; i++) {
		ep[i] = endpoint(f, 1);
		assert_in_range(ep[i]->drift_ppb + 100000, 0, 200000);
		fast += ep[i]->drift_ppb > 0;
		widest = llabs(ep[i]->drift_ppb) > widest ? llabs(ep[i]->drift_ppb) : widest;
	}
	assert_in_range(fast, N / 4, N * 3 / 4);
	assert_true(widest > 90000);
	assert_int_equal(vb_ep_sleep(exact, 1000000000), 0);
	for (unsigned i = 0; i < N; i++) {
		int64_t gone = (int64_t)(vb_ep_now(ep[i]) - ep[i]->offset_ns - now());

		assert_true(llabs(gone) <= 100000);
		assert_true(gone == 0 || (gone > 0) == (ep[i]->drift_ppb > 0));
		vb_ep_close(ep[i]);
	}
	vb_ep_close(exact);
	vb_fabric_close(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_write_overtakes_a_late_read_unless_fenced),
		cmocka_unit_test(test_messages_stay_in_order),
		cmocka_unit_test(test_long_accesses_tear_and_short_ones_do_not),
		cmocka_unit_test(test_torn_writes_land_in_time),
		cmocka_unit_test(test_a_lost_completion_is_unknown_and_bounded),
		cmocka_unit_test(test_the_deaf_hear_nothing_for_a_while),
		cmocka_unit_test(test_behind_a_lost_write_nothing_lands),
		cmocka_unit_test(test_only_what_was_chosen_is_lost),
		cmocka_unit_test(test_a_stalled_nic_is_slow_and_then_lost),
		cmocka_unit_test(test_a_partition_is_slow_and_then_lost),
		cmocka_unit_test(test_a_cut_link_may_refuse),
		cmocka_unit_test(test_in_time_or_never),
		cmocka_unit_test(test_faults_can_be_turned_off),
		cmocka_unit_test(test_a_pause_before_the_doorbell_meets_not_after),
		cmocka_unit_test(test_a_cas_waits_until_the_word_comes_round),
		cmocka_unit_test(test_who_has_read_waits_until_the_word_comes_round),
		cmocka_unit_test(test_a_dead_client_is_silent_for_ever),
		cmocka_unit_test(test_who_stands_still_dies_behind_the_bell),
		cmocka_unit_test(test_only_the_mortal_die),
		cmocka_unit_test(test_drift_is_exact),
		cmocka_unit_test(test_clocks_drift_within_their_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
