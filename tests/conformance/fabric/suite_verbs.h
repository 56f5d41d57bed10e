/* SPDX-License-Identifier: Apache-2.0 */
/* What each verb does, bounds and alignment, regions, the client's clock; part of fabric_suite.h.
 */

static const char *check_read_write(struct suite *s)
{
	uint8_t shadow[SUITE_BYTES] = {0}, buf[SUITE_BYTES], seen[SUITE_BYTES];

	for (unsigned round = 0; round < 150; round++) {
		uint32_t len = 1 + (uint32_t)vb_rng_below(&s->rng, round % 3 == 0 ? 300 : 40);
		uint32_t at = (uint32_t)vb_rng_below(&s->rng, 100);

		for (uint32_t i = 0; i < len; i++)
			shadow[at + i] = buf[i] = (uint8_t)vb_rng_next(&s->rng);
		want(vb_write(s->ep, s->b + at, buf, len) == 0);
		at = (uint32_t)vb_rng_below(&s->rng, 100);
		want(vb_read(s->ep, s->b + at, seen, len) == 0);
		want(memcmp(seen, shadow + at, len) == 0);
	}
	want(vb_read(s->ep, s->b, seen, SUITE_BYTES) == 0);
	want(memcmp(seen, shadow, SUITE_BYTES) == 0);
	want(vb_read(s->ep, s->a, seen, SUITE_BYTES) == 0); /* the other node is untouched */
	for (unsigned i = 0; i < SUITE_BYTES; i++)
		want(seen[i] == 0);
	return NULL;
}

static const char *check_cas(struct suite *s)
{
	uint64_t old = 1;

	want(vb_cas64(s->ep, s->a, 0, 5, &old) == 0 && old == 0);
	want(suite_word(s, s->a) == 5);
	want(vb_cas64(s->ep, s->a, 4, 6, &old) == 0 && old == 5);
	want(suite_word(s, s->a) == 5);
	want(vb_cas64(s->ep, s->a, 5, UINT64_MAX, &old) == 0 && old == 5);
	want(suite_word(s, s->a) == UINT64_MAX);
	want(suite_word(s, s->a + 8) == 0 && suite_word(s, s->b) == 0);
	return NULL;
}

static const char *check_faa(struct suite *s)
{
	uint64_t old = 1;

	want(vb_faa64(s->ep, s->a + 8, 3, &old) == 0 && old == 0);
	want(vb_faa64(s->ep, s->a + 8, UINT64_MAX, &old) == 0 && old == 3);
	want(suite_word(s, s->a + 8) == 2);
	want(vb_faa64(s->ep, s->a + 8, UINT64_MAX - 1, &old) == 0 && old == 2);
	want(suite_word(s, s->a + 8) == 0); /* wraps, and carries nowhere */
	want(suite_word(s, s->a + 16) == 0 && suite_word(s, s->a) == 0);
	return NULL;
}

/* The slow way to say what a field-bounded addition is: bit by bit, the carry dropped after each
 * bit that ends a field.  `carry` goes from the low word to the high one. */
static inline uint64_t slow_add(uint64_t a, uint64_t b, uint64_t bounds, unsigned *carry)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < 64; i++) {
		unsigned n = (unsigned)(a >> i & 1) + (unsigned)(b >> i & 1) + *carry;

		sum |= (uint64_t)(n & 1) << i;
		*carry = (bounds >> i & 1) ? 0 : n >> 1;
	}
	return sum;
}

static inline uint64_t slow_masked(uint64_t old, uint64_t value, uint64_t mask)
{
	uint64_t r = 0;

	for (unsigned i = 0; i < 64; i++)
		r |= (((mask >> i & 1) ? value : old) >> i & 1) << i;
	return r;
}

static inline bool slow_match(uint64_t old, uint64_t expect, uint64_t mask)
{
	for (unsigned i = 0; i < 64; i++) {
		if ((mask >> i & 1) && (old >> i & 1) != (expect >> i & 1))
			return false;
	}
	return true;
}

static const char *check_mcas64(struct suite *s)
{
	uint64_t old, was, e, em, v, vm;

	if (!(s->f->caps.flags & VB_CAP_MASKED64)) {
		want(vb_mcas64(s->ep, s->a, 0, 0, 1, 1, &old) == -EOPNOTSUPP);
		return NULL;
	}
	for (unsigned i = 0; i < 300; i++) {
		was = suite_bits(s);
		em = suite_bits(s);
		e = vb_rng_chance(&s->rng, 0.6) ? slow_masked(suite_bits(s), was, em)
						: suite_bits(s);
		v = suite_bits(s);
		vm = suite_bits(s);
		want(suite_set(s, s->a, was, ~was) == 0);
		want(vb_mcas64(s->ep, s->a, e, em, v, vm, &old) == 0);
		want(old == was);
		want(suite_word(s, s->a) ==
		     (slow_match(was, e, em) ? slow_masked(was, v, vm) : was));
		want(suite_word(s, s->a + 8) == ~was);
	}
	return NULL;
}

static const char *check_mfaa64(struct suite *s)
{
	uint64_t old;

	if (!(s->f->caps.flags & VB_CAP_MASKED64)) {
		want(vb_mfaa64(s->ep, s->a, 1, 1, &old) == -EOPNOTSUPP);
		return NULL;
	}
	for (unsigned i = 0; i < 300; i++) {
		uint64_t was = suite_bits(s), add = suite_bits(s), bounds = suite_bits(s);
		unsigned carry = 0;

		want(suite_set(s, s->a, was, ~was) == 0);
		want(vb_mfaa64(s->ep, s->a, add, bounds, &old) == 0);
		want(old == was);
		want(suite_word(s, s->a) == slow_add(was, add, bounds, &carry));
		want(suite_word(s, s->a + 8) == ~was);
	}
	return NULL;
}

static const char *check_mcas128(struct suite *s)
{
	struct vb_u128 old, was, e, em, v, vm, now;

	if (!(s->f->caps.flags & VB_CAP_MASKED128)) {
		want(vb_mcas128(s->ep, s->a, (struct vb_u128){0}, (struct vb_u128){0},
				(struct vb_u128){0}, (struct vb_u128){0}, &old) == -EOPNOTSUPP);
		return NULL;
	}
	for (unsigned i = 0; i < 300; i++) {
		bool same = vb_rng_chance(&s->rng, 0.6);
		bool match;

		was = (struct vb_u128){suite_bits(s), suite_bits(s)};
		em = (struct vb_u128){suite_bits(s), suite_bits(s)};
		e = (struct vb_u128){suite_bits(s), suite_bits(s)};
		if (same)
			e = (struct vb_u128){slow_masked(e.lo, was.lo, em.lo),
					     slow_masked(e.hi, was.hi, em.hi)};
		v = (struct vb_u128){suite_bits(s), suite_bits(s)};
		vm = (struct vb_u128){suite_bits(s), suite_bits(s)};
		want(suite_set(s, s->a + 16, was.lo, was.hi) == 0);
		want(vb_mcas128(s->ep, s->a + 16, e, em, v, vm, &old) == 0);
		want(vb_u128_eq(old, was));
		match = slow_match(was.lo, e.lo, em.lo) && slow_match(was.hi, e.hi, em.hi);
		now = suite_pair(s, s->a + 16);
		want(now.lo == (match ? slow_masked(was.lo, v.lo, vm.lo) : was.lo));
		want(now.hi == (match ? slow_masked(was.hi, v.hi, vm.hi) : was.hi));
	}
	want(suite_word(s, s->a + 8) == 0 && suite_word(s, s->a + 32) == 0);
	return NULL;
}

static const char *check_mfaa128(struct suite *s)
{
	struct vb_u128 old, was, add, bounds, now;

	if (!(s->f->caps.flags & VB_CAP_MASKED128)) {
		want(vb_mfaa128(s->ep, s->a, (struct vb_u128){1, 0}, (struct vb_u128){0}, &old) ==
		     -EOPNOTSUPP);
		return NULL;
	}
	for (unsigned i = 0; i < 300; i++) {
		unsigned carry = 0;

		was = (struct vb_u128){suite_bits(s), suite_bits(s)};
		add = (struct vb_u128){suite_bits(s), suite_bits(s)};
		bounds = (struct vb_u128){suite_bits(s), suite_bits(s)};
		want(suite_set(s, s->a + 16, was.lo, was.hi) == 0);
		want(vb_mfaa128(s->ep, s->a + 16, add, bounds, &old) == 0);
		want(vb_u128_eq(old, was));
		now = suite_pair(s, s->a + 16);
		want(now.lo == slow_add(was.lo, add.lo, bounds.lo, &carry));
		want(now.hi == slow_add(was.hi, add.hi, bounds.hi, &carry));
	}
	want(suite_word(s, s->a + 8) == 0 && suite_word(s, s->a + 32) == 0);
	return NULL;
}

static const char *check_swap(struct suite *s)
{
	uint64_t old = 1;

	want(vb_swap64(s->ep, s->a, 7, VB_FOREVER, &old) == 0 && old == 0);
	want(vb_swap64(s->ep, s->a, UINT64_MAX, VB_FOREVER, &old) == 0 && old == 7);
	want(vb_swap64(s->ep, s->a, 0, VB_FOREVER, &old) == 0 && old == UINT64_MAX);
	want(suite_word(s, s->a) == 0);
	return NULL;
}

static const char *check_bounds(struct suite *s)
{
	uint64_t end = s->f->node_bytes, old = 42, buf[4] = {0};
	vb_addr last = vb_addr_make(1, end - 8);

	want(vb_faa64(s->ep, last, 1, &old) == 0 && old == 0);
	want(vb_faa64(s->ep, last + 8, 1, &old) == -VB_EACCESS && old == 0);
	want(vb_cas64(s->ep, vb_addr_make(1, 1ull << 40), 0, 1, &old) == -VB_EACCESS);
	want(vb_read64(s->ep, last + 8, &old) == -VB_EACCESS);
	want(vb_read(s->ep, last, buf, 8) == 0 && buf[0] == 1);
	want(vb_read(s->ep, last, buf, 16) == -VB_EACCESS);
	want(vb_write(s->ep, last, buf, 9) == -VB_EACCESS);
	want(vb_write(s->ep, vb_addr_make(1, (1ull << 48) - 8), buf, 16) == -VB_EACCESS);
	want(vb_faa64(s->ep, vb_addr_make(2, 64), 1, &old) == -VB_EACCESS); /* no such node */
	want(vb_read(s->ep, vb_addr_make(65535, 64), buf, 8) == -VB_EACCESS);
	want(suite_word(s, last) == 1);
	return NULL;
}

static const char *check_alignment(struct suite *s)
{
	struct vb_u128 zero = {0}, pair;
	uint64_t old = 42;

	want(vb_faa64(s->ep, s->a + 4, 1, &old) == -EINVAL);
	want(vb_cas64(s->ep, s->a + 1, 0, 1, &old) == -EINVAL && old == 42);
	if (s->f->caps.flags & VB_CAP_MASKED64) {
		want(vb_mcas64(s->ep, s->a + 2, 0, 0, 1, 1, &old) == -EINVAL);
		want(vb_mfaa64(s->ep, s->a + 4, 1, 0, &old) == -EINVAL);
	}
	if (s->f->caps.flags & VB_CAP_MASKED128) {
		want(vb_mcas128(s->ep, s->a + 8, zero, zero, zero, zero, &pair) == -EINVAL);
		want(vb_mfaa128(s->ep, s->a + 8, (struct vb_u128){1, 1}, zero, &pair) == -EINVAL);
	}
	want(suite_word(s, s->a) == 0 && suite_word(s, s->a + 8) == 0);
	return NULL;
}

/* Whether a region is in the list of its node, with its size. */
static bool is_listed(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes)
{
	struct vb_region_info all[16];
	int n = vb_regions(f, node, all, VB_ARRAY_SIZE(all));

	for (int i = 0; i < n && i < (int)VB_ARRAY_SIZE(all); i++)
		if (strcmp(all[i].name, name) == 0)
			return all[i].bytes == bytes;
	return false;
}

/* What has a name on a node is listed, whoever has made it. */
static const char *check_listed(struct suite *s)
{
	struct vb_region_info one = {0}, kept;
	int n = vb_regions(s->f, 1, &one, 1);
	bool fresh;
	vb_addr a;

	want(n >= 1 && one.bytes > 0 && one.name[0] != '\0');
	want(is_listed(s->f, 0, "suite", SUITE_BYTES) && is_listed(s->f, 1, "suite", SUITE_BYTES));
	want(vb_region(s->f, 1, "listed", 100, &a, &fresh) == 0 && fresh);
	want(is_listed(s->f, 1, "listed", 100) && !is_listed(s->f, 0, "listed", 100));
	/* More than there is room for: counted, and nothing is written behind. */
	kept = one;
	want(vb_regions(s->f, 1, &one, 1) == n + 1);
	want(memcmp(&one, &kept, sizeof(one)) == 0);
	want(vb_regions(s->f, 1, NULL, 0) == n + 1);
	want(vb_regions(s->f, 2, &one, 1) == -EINVAL);
	return NULL;
}

static const char *check_regions(struct suite *s)
{
	vb_addr one, same, two;
	bool fresh = false;

	want(vb_region(s->f, 1, "one", 100, &one, &fresh) == 0 && fresh);
	want(vb_region(s->f, 1, "two", 64, &two, &fresh) == 0 && fresh);
	want(vb_region(s->f, 1, "one", 100, &same, &fresh) == 0 && !fresh && same == one);
	want(vb_addr_node(one) == 1 && vb_addr_offset(one) % 64 == 0);
	want(two >= one + 100 || one >= two + 64);
	want(vb_region(s->f, 0, "one", 100, &same, &fresh) == 0 && fresh);
	want(vb_addr_node(same) == 0);
	want(vb_region(s->f, 1, "one", 101, &same, &fresh) == -EINVAL);
	want(vb_region(s->f, 1, "huge", s->f->node_bytes, &same, &fresh) == -ENOSPC);
	want(vb_region(s->f, 2, "one", 8, &same, &fresh) == -EINVAL);
	want(suite_word(s, one) == 0 && suite_word(s, two + 56) == 0);
	return NULL;
}

/* vb_ep_base is the inverse of vb_ep_local, rounded up. */
static const char *check_clock(struct suite *s)
{
	static const int64_t drifts[] = {0, 1, -1, 50000, -50000, 999999, -100000000};
	struct vb_ep ep = *s->ep;

	for (unsigned i = 0; i < VB_ARRAY_SIZE(drifts); i++) {
		ep.drift_ppb = drifts[i];
		for (unsigned j = 0; j < 100; j++) {
			uint64_t local, base;

			ep.offset_ns = vb_rng_below(&s->rng, 1ull << 40);
			local = ep.offset_ns + 10 + vb_rng_below(&s->rng, 1ull << (j % 50));
			base = vb_ep_base(&ep, local);
			want(vb_ep_local(&ep, base) >= local);
			want(base == 0 || vb_ep_local(&ep, base - 1) < local);
		}
		want(vb_ep_base(&ep, VB_FOREVER) == VB_FOREVER);
		want(vb_ep_base(&ep, 0) == 0);
	}
	return NULL;
}
