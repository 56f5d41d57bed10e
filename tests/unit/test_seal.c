/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed records and their buffers, and addresses of the fabric tcp: what was not sealed by the other end, in
 * that order, does not open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "fabric/tcp/inner.h"

#define RECORDS 4u

struct pair {
	struct vb_seal *a, *b;
	struct vb_buf wire, plain;
	size_t at[RECORDS + 1]; /* where records begin */
};

static const uint8_t one[VB_SEAL_KEY] = "one way is thirty-two bytes long",
		     two[VB_SEAL_KEY] = "the other";

static void seal_some(struct pair *p, enum vb_seal_mode mode)
{
	uint8_t text[64];

	*p = (struct pair){.a = vb_seal_new(mode, one, two), .b = vb_seal_new(mode, two, one)};
	assert_non_null(p->a);
	assert_non_null(p->b);
	for (unsigned i = 0; i < RECORDS; i++) {
		memset(text, 'a' + (int)i, sizeof(text));
		assert_true(vb_buf_reserve(&p->wire, sizeof(text) + VB_SEAL_MORE));
		p->at[i] = p->wire.end;
		p->wire.end += vb_seal_put(p->a, p->wire.at + p->wire.end, text, i + 1);
	}
	p->at[RECORDS] = p->wire.end;
}

static void end(struct pair *p)
{
	vb_seal_free(p->a);
	vb_seal_free(p->b);
	vb_buf_free(&p->wire);
	vb_buf_free(&p->plain);
}

static bool has(enum vb_seal_mode mode)
{
	assert_true(sodium_init() >= 0);
	return mode != VB_SEAL_AES || crypto_aead_aes256gcm_is_available();
}

static void test_whole(void **state)
{
	for (enum vb_seal_mode mode = VB_SEAL_AES; mode < VB_SEAL_MODES; mode++) {
		struct vb_buf part = {0};
		struct pair p;

		if (!has(mode))
			continue;
		seal_some(&p, mode);
		/* Byte by byte: a record opens when its last one is there. */
		for (size_t i = 0, opened = 0; i < p.wire.end; i++) {
			assert_true(vb_buf_reserve(&part, 1));
			part.at[part.end++] = p.wire.at[i];
			assert_int_equal(vb_seal_get(p.b, &part, &p.plain),
					 i + 1 == p.at[opened + 1]);
			opened += i + 1 == p.at[opened + 1];
		}
		assert_int_equal(vb_buf_bytes(&p.plain), 10);
		assert_memory_equal(p.plain.at, "abbcccdddd", 10);
		vb_buf_free(&part);
		end(&p);
	}
}

/* Any bit of any record, its length too. */
static void test_flipped(void **state)
{
	for (enum vb_seal_mode mode = VB_SEAL_AES; mode < VB_SEAL_MODES; mode++) {
		struct pair p;
		size_t bits;

		if (!has(mode))
			continue;
		seal_some(&p, mode);
		bits = 8 * p.at[1];
		end(&p);
		for (size_t bit = 0; bit < bits; bit++) {
			seal_some(&p, mode);
			p.wire.at[bit / 8] ^= (uint8_t)(1u << bit % 8);
			/* A longer one waits for the rest, which is not its own. */
			assert_true(vb_seal_get(p.b, &p.wire, &p.plain) != 1);
			assert_int_equal(vb_buf_bytes(&p.plain), 0);
			end(&p);
		}
	}
}

/* Dropped, repeated, out of order, sent back to its sender, or under another key. */
static void test_order(void **state)
{
	for (enum vb_seal_mode mode = VB_SEAL_AES; mode < VB_SEAL_MODES; mode++) {
		struct vb_buf again = {0};
		struct pair p;

		if (!has(mode))
			continue;
		seal_some(&p, mode);
		vb_buf_take(&p.wire, p.at[1]);
		assert_int_equal(vb_seal_get(p.b, &p.wire, &p.plain), -EBADMSG);
		end(&p);

		seal_some(&p, mode);
		assert_true(vb_buf_reserve(&again, p.at[1]));
		memcpy(again.at, p.wire.at, p.at[1]);
		again.end = p.at[1];
		assert_int_equal(vb_seal_get(p.b, &p.wire, &p.plain), 1);
		assert_int_equal(vb_seal_get(p.b, &again, &p.plain), -EBADMSG);
		vb_buf_free(&again);
		end(&p);

		seal_some(&p, mode);
		assert_int_equal(vb_seal_get(p.a, &p.wire, &p.plain), -EBADMSG);
		end(&p);
	}
}

/* A key is replaced at both ends at once, and the one before it opens nothing more. */
static void test_life(void **state)
{
	const uint32_t seals = 1u << 20;
	uint8_t record[1 + VB_SEAL_MORE];
	struct vb_seal *old;
	struct vb_buf wire = {.at = record, .room = sizeof(record)};
	struct pair p;

	if (!has(VB_SEAL_AES))
		skip();
	seal_some(&p, VB_SEAL_AES);
	p.plain.begin = p.plain.end = 0;
	for (uint32_t i = 0; i < seals + 2; i++) {
		if (i < RECORDS) {
			assert_int_equal(vb_seal_get(p.b, &p.wire, &p.plain), 1);
			continue;
		}
		wire.begin = 0;
		wire.end = vb_seal_put(p.a, record, (const uint8_t *)"x", 1);
		/* The first of the new key under the old one, whose counter stands there, too. */
		if (i == seals) {
			old = vb_seal_new(VB_SEAL_AES, two, one);
			assert_int_equal(vb_seal_get(old, &wire, &p.plain), -EBADMSG);
			vb_seal_free(old);
		}
		assert_int_equal(vb_seal_get(p.b, &wire, &p.plain), 1);
		p.plain.begin = p.plain.end = 0;
	}
	end(&p);
}

static void test_addresses(void **state)
{
	static const char *const texts[] = {"127.0.0.1", "::1", "192.0.2.7", "2001:db8::7"};
	uint8_t wire[TCP_ADDRESS];
	struct tcp_address a, b;
	char text[TCP_ADDRESS_TEXT], again[TCP_ADDRESS_TEXT];

	for (unsigned i = 0; i < VB_ARRAY_SIZE(texts); i++) {
		assert_int_equal(tcp_address_find(&a, texts[i]), 0);
		assert_int_equal(tcp_address_is_loopback(&a), i < 2);
		((struct sockaddr_in *)&a.sa)->sin_port = htons(4711);
		a.flags = TCP_HAS_AES;
		tcp_address_put(wire, &a);
		assert_int_equal(tcp_address_get(&b, wire, sizeof(wire)), 0);
		tcp_address_say(&a.sa, text);
		tcp_address_say(&b.sa, again);
		assert_string_equal(text, again);
		assert_int_equal(b.flags, TCP_HAS_AES);
		assert_true(tcp_address_same_owner(&a.sa, &b.sa));
		assert_int_equal(tcp_address_get(&b, wire, sizeof(wire) - 1), -EPROTO);
		wire[4] = 5; /* no family */
		assert_int_equal(tcp_address_get(&b, wire, sizeof(wire)), -EPROTO);
	}
}

/* Whatever comes and goes, what is in a buffer is what was put there and not taken. */
static void test_buffer(void **state)
{
	struct vb_buf b = {0};
	struct vb_rng rng;
	uint8_t in = 0, out = 0;

	vb_rng_seed(&rng, 3, 1);
	for (unsigned i = 0; i < 20000; i++) {
		size_t n = vb_rng_below(&rng, 300), have = vb_buf_bytes(&b);

		if (vb_rng_chance(&rng, 0.5)) {
			assert_true(vb_buf_reserve(&b, n));
			assert_int_equal(vb_buf_bytes(&b), have);
			for (size_t j = 0; j < n; j++)
				b.at[b.end++] = in++;
		} else {
			n = n < have ? n : have;
			for (size_t j = 0; j < n; j++)
				assert_int_equal(b.at[b.begin + j], out++);
			vb_buf_take(&b, n);
			assert_int_equal(vb_buf_bytes(&b), have - n);
		}
	}
	vb_buf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),     cmocka_unit_test(test_flipped),
		cmocka_unit_test(test_order),     cmocka_unit_test(test_life),
		cmocka_unit_test(test_addresses), cmocka_unit_test(test_buffer),
	};

	return cmocka_run_group_tests_name("tcp: seals", tests, NULL, NULL);
}
