/* SPDX-License-Identifier: Apache-2.0 */
/* Order, batches, atomicity; part of fabric_suite.h. */

#define SUITE_TASKS 8
#define SUITE_ADDS  150

static inline struct vb_verb suite_write(vb_addr a, const void *buf, uint32_t len, uint8_t flags)
{
	return (struct vb_verb){
		.op = VB_OP_WRITE, .flags = flags, .addr = a, .buf = (void *)buf, .len = len};
}

static inline struct vb_verb suite_read(vb_addr a, void *buf, uint32_t len)
{
	return (struct vb_verb){
		.op = VB_OP_READ, .flags = VB_SIGNALLED, .addr = a, .buf = buf, .len = len};
}

static inline struct vb_verb suite_faa(vb_addr a, uint64_t add, uint8_t flags)
{
	return (struct vb_verb){.op = VB_OP_FAA64, .flags = flags, .addr = a, .compare.lo = add};
}

/* A READ or atomic sees the WRITEs and atomics before it, signalled or not. */
static const char *check_write_then_read(struct suite *s)
{
	for (uint64_t i = 1; i <= 100; i++) {
		uint64_t one[4] = {i, i, i, i}, seen[4] = {0};
		struct vb_verb v[] = {
			suite_write(s->b, one, sizeof(one), 0),
			suite_faa(s->b, 10, VB_SIGNALLED),
			suite_faa(s->b + 8, 100, 0),
			suite_read(s->b, seen, sizeof(seen)),
		};

		want(vb_post_wait(s->ep, v, VB_ARRAY_SIZE(v)) == 0);
		want(v[1].old.lo == i);
		want(seen[0] == i + 10 && seen[1] == i + 100 && seen[2] == i && seen[3] == i);
	}
	return NULL;
}

/* WRITEs to one node land in the order they were posted: the last one stays. */
static const char *check_write_order(struct suite *s)
{
	for (uint64_t i = 0; i < 100; i++) {
		uint64_t x = 3 * i + 1, y = 3 * i + 2, z = 3 * i + 3;
		struct vb_verb v[] = {
			suite_write(s->b, &x, 8, 0),
			suite_write(s->b, &y, 8, 0),
			suite_write(s->b, &z, 8, VB_SIGNALLED),
		};

		want(vb_post_wait(s->ep, v, VB_ARRAY_SIZE(v)) == 0);
		want(suite_word(s, s->b) == z);
	}
	return NULL;
}

/* A WRITE with a fence does not overtake an earlier READ or atomic. */
static const char *check_fence(struct suite *s)
{
	for (uint64_t i = 0; i < 100; i++) {
		uint64_t seen = 77, before = 2 * i, after = 2 * i + 1;
		struct vb_verb v[] = {
			suite_read(s->b, &seen, 8),
			suite_faa(s->b + 8, 1, VB_SIGNALLED),
			suite_write(s->b, &after, 8, VB_SIGNALLED | VB_FENCE),
			suite_write(s->b + 8, &before, 8, VB_SIGNALLED | VB_FENCE),
		};

		want(vb_write(s->ep, s->b, &before, 8) == 0);
		want(vb_write(s->ep, s->b + 8, &before, 8) == 0);
		want(vb_post_wait(s->ep, v, VB_ARRAY_SIZE(v)) == 0);
		want(seen == before);
		want(v[1].old.lo == before);
		want(suite_word(s, s->b) == after);
		want(suite_word(s, s->b + 8) == before);
	}
	return NULL;
}

/* A batch that has been waited for is before whatever is posted afterwards, on its node. */
static const char *check_awaited_before(struct suite *s)
{
	for (uint64_t i = 1; i <= 100; i++) {
		uint64_t seen = 0;
		struct vb_verb first[] = {
			suite_read(s->b, &seen, 8),
			suite_faa(s->b + 8, 0, VB_SIGNALLED),
		};

		want(vb_post_wait(s->ep, first, 2) == 0);
		want(vb_write(s->ep, s->b, &i, 8) == 0); /* does not reach back */
		want(vb_write(s->ep, s->b + 8, &i, 8) == 0);
		want(seen == i - 1 && first[1].old.lo == i - 1);
	}
	return NULL;
}

/* An unsignalled verb needs nothing of the caller once it is posted. */
static const char *check_unsignalled(struct suite *s)
{
	for (uint64_t i = 1; i <= 50; i++) {
		uint64_t buf[VB_INLINE_MAX / 8];
		struct vb_verb v[2];
		struct vb_batch batch = {.verbs = v, .n = 2};

		for (unsigned j = 0; j < VB_ARRAY_SIZE(buf); j++)
			buf[j] = i;
		v[0] = suite_write(s->b, buf, sizeof(buf), 0);
		v[1] = suite_faa(s->b + 64, 1, 0);
		want(vb_post(s->ep, &batch) >= 0);
		want(batch.pending == 0);
		memset(buf, 0xee, sizeof(buf));
		memset(v, 0xee, sizeof(v));
		want(vb_read(s->ep, s->b, buf, sizeof(buf)) == 0);
		for (unsigned j = 0; j < VB_ARRAY_SIZE(buf); j++)
			want(buf[j] == i);
		want(suite_word(s, s->b + 64) == i);
	}
	return NULL;
}

/* Sizes, statuses, both nodes at once, and what is refused as a whole. */
static const char *check_batches(struct suite *s)
{
	struct vb_verb v[VB_BATCH_MAX + 1];
	uint8_t big[VB_INLINE_MAX + 1] = {0};

	for (unsigned i = 0; i <= VB_BATCH_MAX; i++)
		v[i] = suite_faa((i % 2 == 0 ? s->a : s->b) + 8 * (i / 2), 1 + i, VB_SIGNALLED);
	want(vb_post_wait(s->ep, v, 0) == -EINVAL);
	want(vb_post_wait(s->ep, v, VB_BATCH_MAX + 1) == -EINVAL);
	want(suite_word(s, s->a) == 0);
	want(vb_post_wait(s->ep, v, VB_BATCH_MAX) == 0);
	for (unsigned i = 0; i < VB_BATCH_MAX; i++) {
		want(v[i].status == 0 && v[i].old.lo == 0);
		want(suite_word(s, v[i].addr) == 1 + i);
	}
	/* One bad address: its own status, and the others happen. */
	v[1].addr = vb_addr_make(1, s->f->node_bytes);
	want(vb_post_wait(s->ep, v, 4) == -VB_EACCESS);
	want(v[0].status == 0 && v[1].status == -VB_EACCESS && v[2].status == 0 &&
	     v[3].status == 0);
	want(suite_word(s, v[3].addr) == 8);
	v[0] = suite_write(s->a, big, sizeof(big), 0);
	want(vb_post_wait(s->ep, v, 1) == -EINVAL);
	return NULL;
}

static void suite_no_body(void *arg)
{
	(void)arg;
}

/* A doorbell that waits for other tasks may ring when the time is over: what is told is what has
 * happened. */
static const char *check_late_doorbell(struct suite *s)
{
	struct vb_verb v = suite_faa(s->b, 1, VB_SIGNALLED);
	struct vb_batch b = {.verbs = &v, .n = 1};
	int err;

	if (s->f->caps.flags & (VB_CAP_VIRTUAL | VB_CAP_INLINE))
		return NULL;
	want(vb_task_spawn(s->ep->sched, suite_no_body, NULL, NULL, NULL) == 0);
	v.not_after_ns = vb_ep_now(s->ep) + 1000000;
	want(vb_post(s->ep, &b) >= 0);
	while (vb_ep_now(s->ep) <= v.not_after_ns)
		vb_cpu_relax();
	err = vb_wait(s->ep, &b);
	want(err == 0 || err == -VB_ETOOLATE);
	want(suite_word(s, s->b) == (err == 0 ? 3 : 2));
	return NULL;
}

static const char *check_not_after(struct suite *s)
{
	uint64_t now = vb_ep_now(s->ep), old = 42;
	struct vb_verb v = suite_faa(s->b, 1, 0);

	want(now > 0 || vb_ep_sleep(s->ep, 1000) == 0);
	now = vb_ep_now(s->ep);
	v.not_after_ns = now - 1;
	want(vb_verb_run(s->ep, &v) == -VB_ETOOLATE);
	want(vb_faa64_before(s->ep, s->b, 1, now - 1, &old) == -VB_ETOOLATE && old == 42);
	want(suite_word(s, s->b) == 0);
	v.not_after_ns = vb_ep_now(s->ep) + 10000000000ull;
	want(vb_verb_run(s->ep, &v) == 0);
	want(vb_faa64_before(s->ep, s->b, 1, v.not_after_ns, &old) == 0 && old == 1);
	want(suite_word(s, s->b) == 2);
	return check_late_doorbell(s);
}

struct suite_adder {
	struct suite *s;
	unsigned number;
	int err;
};

/* Adds to a word, to four fields of a word, to two fields of a pair, and swaps a counter by CAS. */
static void suite_add_body(void *arg)
{
	struct suite_adder *me = arg;
	uint32_t caps = me->s->f->caps.flags;
	const uint64_t bounds = 0x8000800080008000ull, tops = 1ull << 63;
	struct vb_u128 pair;
	struct vb_ep *ep;
	uint64_t old, expect = 0;

	me->err = vb_ep_open(me->s->f, (uint16_t)(me->number % 2), &ep);
	if (me->err != 0)
		return;
	for (unsigned i = 0; i < SUITE_ADDS && me->err == 0; i++) {
		me->err = vb_faa64(ep, me->s->b, 1, &old);
		if (me->err == 0 && (caps & VB_CAP_MASKED64))
			me->err = vb_mfaa64(ep, me->s->b + 8, 0xffff000100010001ull, bounds, &old);
		if (me->err == 0 && (caps & VB_CAP_MASKED128))
			me->err = vb_mfaa128(ep, me->s->b + 16, (struct vb_u128){1, 2},
					     (struct vb_u128){tops, tops}, &pair);
		while (me->err == 0) {
			me->err = vb_cas64(ep, me->s->b + 32, expect, expect + 1, &old);
			if (me->err != 0 || old == expect)
				break;
			expect = old;
		}
		expect++;
	}
	vb_ep_close(ep);
}

static const char *check_atomicity(struct suite *s)
{
	struct suite_adder adders[SUITE_TASKS];
	const uint64_t total = SUITE_TASKS * SUITE_ADDS;
	struct vb_sched *sched = s->ep->sched;
	struct vb_u128 pair;

	for (unsigned i = 0; i < SUITE_TASKS; i++) {
		adders[i] = (struct suite_adder){.s = s, .number = i};
		want(vb_task_spawn(sched, suite_add_body, &adders[i], NULL, NULL) == 0);
	}
	want(vb_sched_run(sched, NULL, vb_sched_now(sched) + SUITE_RUN_NS) == 0);
	for (unsigned i = 0; i < SUITE_TASKS; i++)
		want(adders[i].err == 0);
	want(suite_word(s, s->b) == total);
	want(suite_word(s, s->b + 32) == total);
	if (s->f->caps.flags & VB_CAP_MASKED64)
		want(suite_word(s, s->b + 8) ==
		     ((uint64_t)(uint16_t)-total << 48 | total << 32 | total << 16 | total));
	pair = suite_pair(s, s->b + 16);
	if (s->f->caps.flags & VB_CAP_MASKED128)
		want(pair.lo == total && pair.hi == 2 * total);
	return NULL;
}

struct suite_pairs {
	struct suite *s;
	bool stop;
	int err;
};

/* Writes 16 bytes whose halves belong together, and 48 bytes made of three such pairs. */
static void suite_pairs_body(void *arg)
{
	struct suite_pairs *me = arg;
	struct vb_ep *ep;

	me->err = vb_ep_open(me->s->f, 1, &ep);
	if (me->err != 0)
		return;
	for (uint64_t i = 1; !me->stop && me->err == 0; i++) {
		uint64_t v[6] = {i, ~i, i, ~i, i, ~i};

		me->err = vb_write(ep, me->s->b + 64, v, 16);
		if (me->err == 0)
			me->err = vb_write(ep, me->s->b + 128, v, 48);
		if (me->err == 0)
			vb_task_yield();
	}
	vb_ep_close(ep);
}

/* 16 aligned bytes are never torn; longer ones only at 16-byte boundaries. */
static const char *check_whole_pairs(struct suite *s)
{
	struct vb_sched *sched = s->ep->sched;
	struct suite_pairs writer = {.s = s};
	uint64_t v[6] = {0, UINT64_MAX, 0, UINT64_MAX, 0, UINT64_MAX};
	const char *why = NULL;

	want(vb_write(s->ep, s->b + 64, v, 16) == 0 && vb_write(s->ep, s->b + 128, v, 48) == 0);
	want(vb_task_spawn(sched, suite_pairs_body, &writer, NULL, NULL) == 0);
	for (unsigned i = 0; i < 300 && why == NULL; i++) {
		if (vb_read(s->ep, s->b + 64, v, 16) != 0 || v[0] != ~v[1])
			why = "16 aligned bytes were torn";
		else if (vb_read(s->ep, s->b + 128, v, 48) != 0 || v[0] != ~v[1] || v[2] != ~v[3] ||
			 v[4] != ~v[5])
			why = "48 bytes were torn inside a 16-byte piece";
		vb_task_yield();
	}
	writer.stop = true;
	want(vb_sched_run(sched, NULL, vb_sched_now(sched) + SUITE_RUN_NS) == 0);
	want(writer.err == 0);
	return why;
}
