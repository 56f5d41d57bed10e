/* SPDX-License-Identifier: Apache-2.0 */
/* The frames of a cluster: what is written is read, what is cut short or bent is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <verbena/cluster.h>

#include "base/compiler.h"
#include "base/rng.h"
#include "cluster/cluster.h"
#include "cluster/wire.h"
#include "seal/seal.h"

static uint8_t buf[CL_JOIN_MAX];

static struct cl_frame frame(size_t n, enum cl_type type)
{
	struct cl_frame f;
	const char *why = NULL;
	size_t need;

	assert_int_equal(cl_frame_get(buf, n, &f, &need, &why), (int)n);
	assert_int_equal(f.type, type);
	assert_int_equal(need, n);
	assert_int_equal(f.bytes, n - CL_HEADER);
	/* One byte less is not yet a frame, one byte more changes nothing. */
	assert_int_equal(cl_frame_get(buf, n - 1, &f, &need, &why), 0);
	assert_true(need == n || n == CL_HEADER);
	assert_int_equal(cl_frame_get(buf, n, &f, &need, &why), (int)n);
	return f;
}

static const struct cl_identity someone = {.pid = 4711, .host = "node-7", .machine = "boot 123"};

static void same_identity(const struct cl_identity *a, const struct cl_identity *b)
{
	assert_int_equal(a->pid, b->pid);
	assert_string_equal(a->host, b->host);
	assert_string_equal(a->machine, b->machine);
}

/* The wire is little-endian and never changes: these are its bytes. */
static void test_bytes(void **state)
{
	static const uint8_t ping[] = {8, 0, 0, 0, CL_PING, CL_VERSION, 'V', 'B',
				       8, 7, 6, 5, 4,       3,          2,   1};
	static const uint8_t gone[] = {5, 0, 0, 0, CL_GONE, CL_VERSION, 'V', 'B', 2, 1, 0, 0, 1};
	struct cl_about about = {.rank = 258, .flag = true};

	assert_int_equal(cl_put_ping(buf, 0x0102030405060708ull), sizeof(ping));
	assert_memory_equal(buf, ping, sizeof(ping));
	assert_int_equal(cl_put_about(buf, CL_GONE, &about), sizeof(gone));
	assert_memory_equal(buf, gone, sizeof(gone));
}

static void test_handshake(void **state)
{
	uint8_t bytes[CL_PROOF_MAX];
	struct cl_frame f;
	uint32_t got;

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 5);
	f = frame(cl_put_hello(buf, CL_HAS_AES | CL_WANTS_SEAL), CL_HELLO);
	assert_int_equal(cl_get_hello(&f, &got), 0);
	assert_int_equal(got, CL_HAS_AES | CL_WANTS_SEAL);
	buf[CL_HEADER] ^= 1; /* the magic word */
	assert_int_equal(cl_get_hello(&f, &got), -EPROTO);
	for (uint32_t mode = 0; mode <= VB_SEAL_MODES; mode++) {
		f = frame(cl_put_mode(buf, mode), CL_MODE);
		assert_int_equal(cl_get_mode(&f, &got), mode < VB_SEAL_MODES ? 0 : -EPROTO);
		assert_int_equal(got, mode);
	}
	f = frame(cl_put_bytes(buf, CL_PROOF, bytes, sizeof(bytes)), CL_PROOF);
	assert_memory_equal(f.payload, bytes, sizeof(bytes));
	frame(cl_put_bytes(buf, CL_GOODBYE, NULL, 0), CL_GOODBYE);
	frame(cl_put_bytes(buf, CL_NOTICE, bytes, CL_NOTICE_SIZE), CL_NOTICE);
}

static void test_join(void **state)
{
	static char config[CL_CONFIG];
	struct cl_join j = {.hosts = 7, .wanted = VB_CLUSTER_ANY_RANK, .who = someone}, got;
	struct cl_frame f;

	memset(config, 'c', sizeof(config));
	j.config = config;
	for (unsigned i = 0; i < 3; i++) {
		j.config_bytes = i * (CL_CONFIG / 2);
		f = frame(cl_put_join(buf, &j), CL_JOIN);
		assert_int_equal(cl_get_join(&f, &got), 0);
		assert_int_equal(got.hosts, 7);
		assert_int_equal(got.wanted, VB_CLUSTER_ANY_RANK);
		same_identity(&got.who, &someone);
		assert_int_equal(got.config_bytes, j.config_bytes);
		assert_memory_equal(got.config, config, j.config_bytes);
	}
	/* Every shorter payload is refused, whatever its header claims. */
	for (uint32_t n = 0; n < f.bytes; n += n < 64 ? 1 : 997) {
		struct cl_frame cut = {.type = CL_JOIN, .payload = f.payload, .bytes = n};

		assert_int_equal(cl_get_join(&cut, &got), -EPROTO);
	}
	j.config_bytes = 0;
	j.hosts = VB_CLUSTER_HOSTS_MAX + 1;
	f = frame(cl_put_join(buf, &j), CL_JOIN);
	assert_int_equal(cl_get_join(&f, &got), -EPROTO);
	j.hosts = 7;
	j.wanted = VB_CLUSTER_HOSTS_MAX;
	f = frame(cl_put_join(buf, &j), CL_JOIN);
	assert_int_equal(cl_get_join(&f, &got), -EPROTO);
}

static void test_member_and_start(void **state)
{
	struct cl_member m = {.rank = 3, .who = someone}, got_m;
	struct cl_start s = {.rank = 3,
			     .hosts = 5,
			     .clock = {.tsc_base = 1, .ns_base = 2, .mult = 3, .use_tsc = 1}};
	struct cl_start got;
	struct cl_frame f = frame(cl_put_member(buf, &m), CL_MEMBER);

	assert_int_equal(cl_get_member(&f, &got_m), 0);
	assert_int_equal(got_m.rank, 3);
	same_identity(&got_m.who, &someone);
	memset(s.secret, 0x5a, sizeof(s.secret));
	f = frame(cl_put_start(buf, &s), CL_START);
	assert_int_equal(cl_get_start(&f, &got), 0);
	assert_true(got.rank == 3 && got.hosts == 5);
	assert_memory_equal(got.secret, s.secret, sizeof(s.secret));
	assert_memory_equal(&got.clock, &s.clock, sizeof(s.clock));
	/* A rank that is not there, a clock that stands still. */
	s.rank = 5;
	f = frame(cl_put_start(buf, &s), CL_START);
	assert_int_equal(cl_get_start(&f, &got), -EPROTO);
	s.rank = 3;
	s.clock.mult = 0;
	f = frame(cl_put_start(buf, &s), CL_START);
	assert_int_equal(cl_get_start(&f, &got), -EPROTO);
	s.clock.use_tsc = 2;
	s.clock.mult = 3;
	f = frame(cl_put_start(buf, &s), CL_START);
	assert_int_equal(cl_get_start(&f, &got), -EPROTO);
}

static void test_verdicts(void **state)
{
	static const int errors[] = {-EACCES, -EPROTO, -ETIMEDOUT, -VB_EPEERGONE,
				     -EBUSY,  -ENOMEM, -E2BIG};
	struct cl_verdict v = {.seq = 99, .text = "because\n\x1b[31mof"}, got;
	struct cl_frame f;

	for (unsigned i = 0; i < VB_ARRAY_SIZE(errors); i++) {
		v.err = errors[i];
		f = frame(cl_put_end(buf, &v), CL_END);
		assert_int_equal(cl_get_end(&f, &got), 0);
		assert_int_equal(got.err, errors[i]);
		assert_int_equal(got.seq, 99);
		f = frame(cl_put_refuse(buf, errors[i], "no"), CL_REFUSE);
		assert_int_equal(cl_get_refuse(&f, &got), 0);
		assert_int_equal(got.err, errors[i]);
		assert_string_equal(got.text, "no");
	}
	/* Nothing that a terminal would obey comes out of a text. */
	f = frame(cl_put_end(buf, &v), CL_END);
	assert_int_equal(cl_get_end(&f, &got), 0);
	assert_string_equal(got.text, "because??[31mof");
	/* What has no number of its own is a matter of protocol; a refusal is always an error. */
	f = frame(cl_put_refuse(buf, -EIO, ""), CL_REFUSE);
	assert_int_equal(cl_get_refuse(&f, &got), 0);
	assert_int_equal(got.err, -EPROTO);
	buf[CL_HEADER] = 0;
	assert_int_equal(cl_get_refuse(&f, &got), -EPROTO);
	buf[CL_HEADER] = 200;
	assert_int_equal(cl_get_refuse(&f, &got), -EPROTO);
}

static void test_parts(void **state)
{
	struct cl_part p = {.seq = 1ull << 40,
			    .bytes = VB_CLUSTER_PART_MAX,
			    .timeout_ns = UINT64_MAX,
			    .to = VB_CLUSTER_TO_ROOT,
			    .partial = true,
			    .what = "thirty-one characters are most."},
		       got;
	struct cl_result r = {.seq = 5, .rank = 9, .bytes = 10}, got_r;
	struct cl_frame f = frame(cl_put_part(buf, &p), CL_PART);

	assert_int_equal(cl_get_part(&f, &got), 0);
	assert_true(got.seq == p.seq && got.bytes == p.bytes && got.timeout_ns == p.timeout_ns);
	assert_true(got.to == p.to && got.partial && !got.barrier && got.err == 0);
	assert_string_equal(got.what, p.what);
	p.bytes++;
	f = frame(cl_put_part(buf, &p), CL_PART);
	assert_int_equal(cl_get_part(&f, &got), -EPROTO);
	p.bytes = 1;
	p.err = -ENOMEM; /* nothing to give, and yet a byte */
	f = frame(cl_put_part(buf, &p), CL_PART);
	assert_int_equal(cl_get_part(&f, &got), -EPROTO);
	p.err = 0;
	p.to = 2;
	f = frame(cl_put_part(buf, &p), CL_PART);
	assert_int_equal(cl_get_part(&f, &got), -EPROTO);
	f = frame(cl_put_result(buf, &r), CL_RESULT);
	assert_int_equal(cl_get_result(&f, &got_r), 0);
	assert_true(got_r.seq == 5 && got_r.rank == 9 && got_r.bytes == 10);
	r.rank = VB_CLUSTER_HOSTS_MAX;
	f = frame(cl_put_result(buf, &r), CL_RESULT);
	assert_int_equal(cl_get_result(&f, &got_r), -EPROTO);
}

static void test_headers(void **state)
{
	struct cl_frame f;
	const char *why = NULL;
	size_t need, n = cl_put_ping(buf, 1);

	/* The size is bounded by the header alone, before anything else has come. */
	for (unsigned type = 0; type < 256; type++) {
		uint8_t huge[CL_HEADER] = {0xff,          0xff,       0xff, 0x7f,
					   (uint8_t)type, CL_VERSION, 'V',  'B'};

		assert_int_equal(cl_frame_get(huge, sizeof(huge), &f, &need, &why), -EPROTO);
		assert_non_null(why);
	}
	buf[6] = 'X';
	assert_int_equal(cl_frame_get(buf, n, &f, &need, &why), -EPROTO);
	buf[6] = 'V';
	buf[5] = CL_VERSION + 1;
	assert_int_equal(cl_frame_get(buf, n, &f, &need, &why), -EPROTONOSUPPORT);
	/* A refusal is understood whatever its version. */
	n = cl_put_refuse(buf, -EPROTO, "too old");
	buf[5] = CL_VERSION + 1;
	assert_int_equal(cl_frame_get(buf, n, &f, &need, &why), (int)n);
	for (unsigned type = 1; type < CL_TYPES; type++)
		assert_string_not_equal(cl_type_name((enum cl_type)type), "?");
	assert_string_equal(cl_type_name(CL_TYPES), "?");
}

/* Any bytes: no frame is longer than it may be, and no parser says yes to a payload it has not read
 * to its end. */
static void test_noise(void **state)
{
	struct vb_rng rng;
	uint8_t noise[300];

	vb_rng_seed(&rng, 3, 1);
	for (unsigned i = 0; i < 200000; i++) {
		uint32_t n = (uint32_t)vb_rng_below(&rng, sizeof(noise));
		struct cl_frame f = {.payload = noise, .bytes = n};
		struct cl_part part;
		struct cl_join join;
		struct cl_member member;

		for (uint32_t at = 0; at < n; at++)
			noise[at] = (uint8_t)(vb_rng_below(&rng, 4) ? vb_rng_below(&rng, 9)
								    : vb_rng_next(&rng));
		if (cl_get_part(&f, &part) == 0)
			assert_true(part.bytes <= VB_CLUSTER_PART_MAX &&
				    strlen(part.what) <= CL_WHAT);
		if (cl_get_join(&f, &join) == 0)
			assert_true(join.config_bytes < n && join.hosts <= VB_CLUSTER_HOSTS_MAX);
		if (cl_get_member(&f, &member) == 0)
			assert_true(strlen(member.who.host) + strlen(member.who.machine) + 10 == n);
	}
}

static bool differs(const char *ours, const char *theirs, char *text)
{
	return cl_config_differs(ours, strlen(ours), theirs, strlen(theirs), "rank 2", text, 512);
}

static void test_configs(void **state)
{
	char text[512];

	assert_false(differs("", "", text));
	assert_false(differs("a=1\nb=2\n", "a=1\nb=2\n", text));
	assert_false(
		differs("a=1\nb=2\n", "\nb=2\n\na=1", text)); /* order and blanks are nothing */
	assert_true(differs("--seed=1\nx=\n", "x=\n--seed=7", text));
	assert_string_equal(text, "--seed: rank 2 has 7, the root has 1");
	assert_true(differs("a=1\nb=2\n", "a=1\n", text));
	assert_string_equal(text, "b: rank 2 has none, the root has 2");
	assert_true(differs("a=1\n", "a=1\nb=2\n", text));
	assert_string_equal(text, "b: rank 2 has 2, the root has none");
	assert_true(differs("a=1\n", "a=1 \n", text));
	assert_true(differs("a=1\n", "a=1\x1b[2J\n", text));
	assert_string_equal(text, "a: rank 2 has 1?[2J, the root has 1");
	assert_true(differs("a\n", "a=x\n", text));
	assert_string_equal(text, "a: rank 2 has x, the root has ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),    cmocka_unit_test(test_handshake),
		cmocka_unit_test(test_join),     cmocka_unit_test(test_member_and_start),
		cmocka_unit_test(test_verdicts), cmocka_unit_test(test_parts),
		cmocka_unit_test(test_headers),  cmocka_unit_test(test_noise),
		cmocka_unit_test(test_configs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
