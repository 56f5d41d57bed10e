/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format of ucx's messages, without a wire: what one side writes the other executes and
 * answers, and what is cut short, bent or aims beyond this host's memory is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"
#include "fabric/net/am/wire.h"

#define NODES      5u
#define HOSTS      2u
#define HOST       1u /* nodes 1 and 3 live here */
#define NODE_BYTES 4096u
#define MEMORY     (2u * NODE_BYTES)

struct mailbox {
	unsigned n;
	uint32_t client;
	struct vb_msg last;
	int err;
};

static int deliver(void *ctx, uint32_t client, const struct vb_msg *m)
{
	struct mailbox *box = ctx;

	if (box->err == 0) {
		box->client = client;
		box->last = *m;
		box->n++;
	}
	return box->err;
}

static uint64_t clock_ns, clock_step_ns;

static uint64_t now(void)
{
	return clock_ns += clock_step_ns;
}

static _Alignas(16) uint8_t memory[MEMORY];
static uint8_t body[AM_BODY_MAX], reply[AM_BODY_MAX];
static struct mailbox box;
static const struct am_owner owner = {.memory = memory,
				      .node_bytes = NODE_BYTES,
				      .nodes = NODES,
				      .hosts = HOSTS,
				      .host = HOST,
				      .deliver = deliver,
				      .ctx = &box,
				      .now = now};

static int start(void **state)
{
	memset(memory, 0, sizeof(memory));
	box = (struct mailbox){0};
	clock_ns = clock_step_ns = 0;
	return 0;
}

static uint32_t execute(const struct am_owner *o, uint32_t bytes, uint32_t verbs, uint32_t *late)
{
	struct am_header h = {.kind = AM_VERBS, .host = 0, .verbs = verbs, .bytes = bytes};

	h.clock = 1000;
	return am_body_execute(o, &h, body, reply, late);
}

/* Writes, checks, executes and reads the answer of n signalled or unsignalled verbs. */
static void exchange(struct vb_verb *v, unsigned n, vb_peer from)
{
	uint32_t bytes = 0, most = 0, expected = 0, got, late;
	struct am_cursor c;

	for (unsigned i = 0; i < n; i++) {
		am_verb_put(body + bytes, &v[i], from);
		bytes += am_verb_bytes(&v[i]);
		expected += am_verb_answer(&v[i]);
		v[i].status = -EIO;
	}
	assert_int_equal(am_body_check(body, bytes, n, &most), 0);
	assert_int_equal(most, expected);
	got = execute(&owner, bytes, n, &late);
	assert_true(got <= most);
	assert_int_equal(late, 0);
	c = (struct am_cursor){reply, reply + got};
	for (unsigned i = 0; i < n; i++) {
		if (v[i].flags & VB_SIGNALLED)
			assert_int_equal(am_answer_get(&c, &v[i]), 0);
	}
	assert_ptr_equal(c.at, c.end);
}

static uint64_t word(uint32_t at)
{
	uint64_t v;

	memcpy(&v, memory + at, 8);
	return v;
}

static void test_header(void **state)
{
	const struct am_header h = {.kind = AM_VERBS,
				    .flags = 0,
				    .host = 0x01020304,
				    .epoch = 7,
				    .verbs = AM_VERBS_MAX,
				    .bytes = AM_BODY_MAX,
				    .session = 0x1122334455667788,
				    .number = UINT64_MAX,
				    .clock = 42};
	struct am_header got;
	uint8_t wire[AM_HEADER + 1], bad[AM_HEADER + 1];
	const char *why = NULL;

	am_header_put(wire, &h);
	assert_memory_equal(wire, "Vbux\2\0\3\0\x88\x77\x66\x55\x44\x33\x22\x11\4\3\2\1", 20);
	assert_int_equal(am_header_get(wire, AM_HEADER, &got, &why), 0);
	assert_int_equal(got.kind, h.kind);
	assert_int_equal(got.host, h.host);
	assert_int_equal(got.epoch, h.epoch);
	assert_int_equal(got.verbs, h.verbs);
	assert_int_equal(got.bytes, h.bytes);
	assert_true(got.session == h.session && got.number == h.number && got.clock == h.clock);
	for (unsigned n = 0; n <= AM_HEADER + 1; n++) {
		if (n != AM_HEADER)
			assert_int_equal(am_header_get(wire, n, &got, &why), -EBADMSG);
	}
	/* The magic, the version, the kind and the flags; the highest bytes of both counts. */
	for (unsigned i = 0; i < AM_HEADER; i++) {
		if (i >= 8 && i != 43 && i != 47)
			continue;
		memcpy(bad, wire, sizeof(bad));
		bad[i] ^= 0x80;
		why = NULL;
		assert_int_equal(am_header_get(bad, AM_HEADER, &got, &why), -EBADMSG);
		assert_non_null(why);
	}
}

static struct vb_verb faa(uint16_t node, uint64_t offset, uint64_t add)
{
	return (struct vb_verb){.op = VB_OP_FAA64,
				.flags = VB_SIGNALLED,
				.addr = vb_addr_make(node, offset),
				.compare.lo = add};
}

/* Every verb, in order, each with the effect and the result that it has anywhere. */
static void test_verbs(void **state)
{
	const vb_addr a = vb_addr_make(1, 64), b = vb_addr_make(3, 32);
	uint64_t in[3] = {1, 2, 3}, out[3] = {0};
	struct vb_verb v[] = {
		{.op = VB_OP_WRITE, .addr = a, .len = 24, .buf = in},
		{.op = VB_OP_READ, .flags = VB_SIGNALLED, .addr = a, .len = 24, .buf = out},
		{.op = VB_OP_CAS64,
		 .flags = VB_SIGNALLED,
		 .addr = a,
		 .compare.lo = 1,
		 .swap.lo = 100},
		{.op = VB_OP_FAA64, .flags = VB_SIGNALLED, .addr = a, .compare.lo = 5},
		{.op = VB_OP_MCAS64,
		 .flags = VB_SIGNALLED,
		 .addr = a + 8,
		 .compare.lo = 0xf2,
		 .compare_mask.lo = 0xf,
		 .swap.lo = 0x7700,
		 .swap_mask.lo = 0xff00},
		{.op = VB_OP_MFAA64,
		 .flags = VB_SIGNALLED,
		 .addr = a + 16,
		 .compare.lo = 0xfd,
		 .compare_mask.lo = 0x80},
		{.op = VB_OP_MCAS128,
		 .flags = VB_SIGNALLED,
		 .addr = b,
		 .swap = {7, 8},
		 .swap_mask = {UINT64_MAX, UINT64_MAX}},
		{.op = VB_OP_MFAA128,
		 .flags = VB_SIGNALLED,
		 .addr = b,
		 .compare = {UINT64_MAX, 1},
		 .compare_mask = {1ull << 63, 1ull << 63}},
		{.op = VB_OP_FAA64, .addr = b + 16, .compare.lo = 9},
	};

	exchange(v, VB_ARRAY_SIZE(v), vb_peer_make(0, 1));
	assert_memory_equal(out, in, sizeof(in));
	assert_int_equal(v[2].old.lo, 1);
	assert_int_equal(v[3].old.lo, 100);
	assert_int_equal(v[4].old.lo, 2);
	assert_int_equal(v[5].old.lo, 3);
	assert_true(v[6].old.lo == 0 && v[6].old.hi == 0);
	assert_true(v[7].old.lo == 7 && v[7].old.hi == 8);
	assert_int_equal(v[0].status, -EIO); /* unsignalled: untouched */
	assert_int_equal(word(64), 105);
	assert_int_equal(word(72), 0x7702);
	assert_int_equal(word(80), 0); /* 3 + 0xfd in a field of 8 bits */
	assert_true(word(NODE_BYTES + 32) == 6 && word(NODE_BYTES + 40) == 9);
	assert_int_equal(word(NODE_BYTES + 48), 9);
}

/* What is not this host's, not inside or not aligned does not happen; the rest does. */
static void test_addresses(void **state)
{
	uint8_t buf[16] = {0};
	struct vb_verb v[] = {
		faa(1, NODE_BYTES, 1),
		faa(0, 0, 1),
		faa(NODES, 0, 1),
		faa(UINT16_MAX, 0, 1),
		faa(3, NODE_BYTES - 4, 1),
		faa(3, 4, 1),
		faa(1, 1ull << 47, 1),
		faa(3, NODE_BYTES - 8, 1),
		faa(1, 8, 1),
		faa(1, 8, 1),
	};

	v[8].op = VB_OP_MFAA128; /* 8 is no place for it */
	v[9] = (struct vb_verb){.op = VB_OP_READ,
				.flags = VB_SIGNALLED,
				.addr = vb_addr_make(3, NODE_BYTES - 15),
				.len = 16,
				.buf = buf};
	exchange(v, VB_ARRAY_SIZE(v), vb_peer_make(0, 1));
	for (unsigned i = 0; i < VB_ARRAY_SIZE(v); i++) {
		int want = i == 5 || i == 8 ? -EINVAL : i == 7 ? 0 : -VB_EACCESS;

		assert_int_equal(v[i].status, want);
	}
	assert_int_equal(word(MEMORY - 8), 1);
	for (unsigned i = 0; i < MEMORY - 8; i++)
		assert_int_equal(memory[i], 0);
}

static void test_messages(void **state)
{
	const vb_peer me = vb_peer_make(2, 77), to = vb_peer_make(3, 0xabcdef);
	struct vb_msg m = {.from = 1, .subject = 5, .tag = 6, .len = 3, .imm = 7, .data = "ab"};
	struct vb_verb v[] = {
		{.op = VB_OP_SEND, .flags = VB_SIGNALLED, .peer = to, .msg = &m},
		{.op = VB_OP_WRITE_NOTIFY,
		 .flags = VB_SIGNALLED,
		 .addr = vb_addr_make(3, 3),
		 .len = 4,
		 .buf = "wxyz",
		 .peer = to,
		 .msg = &m},
	};

	exchange(v, 1, me);
	assert_int_equal(v[0].status, 0);
	assert_int_equal(box.n, 1);
	assert_int_equal(box.client, 0xabcdef);
	assert_true(box.last.from == me && box.last.subject == 5 && box.last.tag == 6 &&
		    box.last.len == 3 && box.last.imm == 7);
	assert_memory_equal(box.last.data, "ab", 3);
	assert_int_equal(box.last.data[3], 0);
	exchange(v + 1, 1, me);
	assert_true(v[1].status == 0 && box.n == 2);
	assert_memory_equal(memory + NODE_BYTES + 3, "wxyz", 4);

	/* No room: the data is there, and the sender hears that it was not told. */
	box.err = -EAGAIN;
	v[1].buf = "1234";
	exchange(v, 2, me);
	assert_true(v[0].status == -EAGAIN && v[1].status == -EAGAIN && box.n == 2);
	assert_memory_equal(memory + NODE_BYTES + 3, "1234", 4);
	box.err = 0;

	/* A false name, somebody else's endpoint, another node's data. */
	exchange(v, 1, vb_peer_make(1, 77));
	assert_int_equal(v[0].status, -EINVAL);
	exchange(v, 1, VB_PEER_NONE);
	assert_int_equal(v[0].status, -EINVAL);
	v[0].peer = vb_peer_make(2, 1);
	exchange(v, 1, me);
	assert_int_equal(v[0].status, -VB_EPEERGONE);
	v[0].peer = to | 1ull << 40;
	exchange(v, 1, me);
	assert_int_equal(v[0].status, -EINVAL);
	v[1].addr = vb_addr_make(1, 0);
	exchange(v + 1, 1, me);
	assert_int_equal(v[1].status, -EINVAL);
	assert_int_equal(box.n, 2);
}

/* A verb that is taken back leaves the others as they were. */
static void test_drop(void **state)
{
	struct vb_verb v[] = {faa(1, 0, 1), faa(1, 8, 1), faa(1, 16, 1)};
	uint32_t n = am_verb_bytes(&v[0]), most, got, late;
	struct am_cursor c;

	for (unsigned i = 0; i < 3; i++)
		am_verb_put(body + i * n, &v[i], vb_peer_make(0, 1));
	am_verb_drop(body + n, n);
	assert_int_equal(am_body_check(body, 3 * n, 3, &most), 0);
	got = execute(&owner, 3 * n, 3, &late);
	assert_true(got == 20 && most == 20);
	c = (struct am_cursor){reply, reply + got};
	assert_int_equal(am_answer_get(&c, &v[0]), 0);
	assert_int_equal(am_answer_get(&c, &v[2]), 0);
	assert_true(word(0) == 1 && word(8) == 0 && word(16) == 1);
}

/* The time is over before, within or after the message: what comes later does not happen and says
 * so. */
static void test_late(void **state)
{
	for (unsigned before = 0; before <= 3; before++) {
		struct vb_verb v[] = {faa(1, 0, 1), faa(1, 8, 1), faa(1, 16, 1)};
		uint32_t n = am_verb_bytes(&v[0]), got, late;
		struct am_cursor c;

		start(state);
		clock_step_ns = 10;
		clock_ns = 1000 - 10 * before; /* so many looks at the clock are in time */
		for (unsigned i = 0; i < 3; i++)
			am_verb_put(body + i * n, &v[i], vb_peer_make(0, 1));
		got = execute(&owner, 3 * n, 3, &late);
		assert_int_equal(late, 3 - before);
		c = (struct am_cursor){reply, reply + got};
		for (unsigned i = 0; i < 3; i++) {
			assert_int_equal(am_answer_get(&c, &v[i]), 0);
			assert_int_equal(v[i].status, i < before ? 0 : -VB_ETOOLATE);
			assert_int_equal(word(8 * i), i < before);
		}
		assert_ptr_equal(c.at, c.end);
	}
}

/* Some verbs of all kinds. */
static unsigned draw(struct vb_rng *rng, struct vb_verb *v, unsigned n, struct vb_msg *m,
		     uint8_t *data)
{
	for (unsigned i = 0; i < n; i++) {
		v[i] = (struct vb_verb){.op = (uint8_t)vb_rng_below(rng, VB_OP_COUNT),
					.flags = vb_rng_chance(rng, 0.7) ? VB_SIGNALLED : 0,
					.len = (uint32_t)vb_rng_below(rng, 100),
					.addr = vb_addr_make(vb_rng_chance(rng, 0.5) ? 1 : 3,
							     16 * vb_rng_below(rng, 250)),
					.peer = vb_peer_make(3, 1),
					.buf = data,
					.msg = m,
					.compare = {vb_rng_next(rng), 1},
					.compare_mask = {2, 3},
					.swap = {4, 5},
					.swap_mask = {6, 7}};
		m->len = (uint16_t)vb_rng_below(rng, VB_MSG_DATA + 1);
	}
	return n;
}

/* Cut short anywhere, or with more behind it or another number of verbs: refused as a whole. */
static void test_cut(void **state)
{
	struct vb_rng rng;
	uint8_t data[100] = {0};

	vb_rng_seed(&rng, 3, 1);
	for (unsigned round = 0; round < 200; round++) {
		struct vb_msg m = {.len = 40};
		struct vb_verb v[6];
		uint32_t bytes = 0, most;
		unsigned n = draw(&rng, v, 1 + (unsigned)vb_rng_below(&rng, 6), &m, data);

		for (unsigned i = 0; i < n; i++) {
			am_verb_put(body + bytes, &v[i], vb_peer_make(0, 1));
			bytes += am_verb_bytes(&v[i]);
		}
		assert_int_equal(am_body_check(body, bytes, n, &most), 0);
		assert_int_equal(am_body_check(body, bytes, n - 1, &most), -EBADMSG);
		assert_int_equal(am_body_check(body, bytes, n + 1, &most), -EBADMSG);
		for (uint32_t k = 0; k < bytes; k++)
			assert_int_equal(am_body_check(body, k, n, &most), -EBADMSG);
		body[bytes] = 0;
		assert_int_equal(am_body_check(body, bytes + 1, n, &most), -EBADMSG);
	}
	assert_int_equal(am_body_check(body, 0, AM_VERBS_MAX + 1, &(uint32_t){0}), -EBADMSG);
}

static void test_cut_answer(void **state)
{
	uint8_t data[32];
	struct vb_verb v[] = {
		{.op = VB_OP_READ, .flags = VB_SIGNALLED, .len = 32, .buf = data, .status = 9},
		{.op = VB_OP_MFAA128, .flags = VB_SIGNALLED, .status = 9},
		{.op = VB_OP_CAS64, .flags = VB_SIGNALLED, .status = 9},
		{.op = VB_OP_SEND, .flags = VB_SIGNALLED, .status = 9},
	};
	const uint8_t wire[64] = {0};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(v); i++) {
		uint32_t whole = am_verb_answer(&v[i]);

		for (uint32_t k = 0; k < whole; k++) {
			struct am_cursor c = {wire, wire + k};

			assert_int_equal(am_answer_get(&c, &v[i]), -EBADMSG);
			assert_true(c.at == wire && v[i].status == 9);
		}
		assert_int_equal(am_answer_get(&(struct am_cursor){wire, wire + whole}, &v[i]), 0);
		assert_int_equal(v[i].status, 0);
	}
}

/* The longest verb there is, either way; one byte more is not taken. */
static void test_longest(void **state)
{
	static uint8_t big_memory[2 * AM_VERB_MAX], data[AM_VERB_MAX];
	const struct am_owner big = {.memory = big_memory,
				     .node_bytes = sizeof(big_memory),
				     .nodes = 1,
				     .hosts = 1,
				     .deliver = deliver,
				     .ctx = &box,
				     .now = now};
	struct vb_verb w = {.op = VB_OP_WRITE,
			    .flags = VB_SIGNALLED,
			    .addr = vb_addr_make(0, 5),
			    .len = AM_VERB_MAX,
			    .buf = data};
	struct vb_verb r = w;
	uint32_t most, got, late;
	struct am_cursor c;

	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 256);
	am_verb_put(body, &w, vb_peer_make(0, 1));
	assert_int_equal(am_body_check(body, am_verb_bytes(&w), 1, &most), 0);
	assert_int_equal(execute(&big, am_verb_bytes(&w), 1, &late), 2);
	assert_memory_equal(big_memory + 5, data, sizeof(data));
	r.op = VB_OP_READ;
	memset(data, 0, sizeof(data));
	am_verb_put(body, &r, vb_peer_make(0, 1));
	assert_int_equal(am_body_check(body, am_verb_bytes(&r), 1, &most), 0);
	got = execute(&big, am_verb_bytes(&r), 1, &late);
	c = (struct am_cursor){reply, reply + got};
	assert_int_equal(am_answer_get(&c, &r), 0);
	assert_memory_equal(big_memory + 5, data, sizeof(data));
	r.len++;
	am_verb_put(body, &r, vb_peer_make(0, 1));
	assert_int_equal(am_body_check(body, am_verb_bytes(&r), 1, &most), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_header, start),
		cmocka_unit_test_setup(test_verbs, start),
		cmocka_unit_test_setup(test_addresses, start),
		cmocka_unit_test_setup(test_messages, start),
		cmocka_unit_test_setup(test_drop, start),
		cmocka_unit_test_setup(test_late, start),
		cmocka_unit_test_setup(test_cut, start),
		cmocka_unit_test_setup(test_cut_answer, start),
		cmocka_unit_test_setup(test_longest, start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
