/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A root and a member, and this test between them: what they say is read, bent, repeated, put in another order or
 * cut, and nothing of it is believed.  Their connections are pairs of sockets, of which this test has the other ends.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <verbena/cluster.h>

#include "base/compiler.h"
#include "base/log.h"
#include "cluster/inner.h"

#define WIRE   65536u
#define KNOWN  "address=203.0.113.77:4711"
#define BEYOND true

enum way { TO_ROOT, TO_MEMBER, WAYS };

/* All that was said one way, as it was sent. */
struct wire {
	uint8_t at[WIRE];
	size_t n;
};

struct end {
	struct vb_cluster *c;
	struct cluster_conn *k;
	int other; /* the other end of its socket */
};

struct world {
	struct end root, member;
	struct wire wire[WAYS];
	/* What is between: byte `at` of one way is bent by `bend`. */
	enum way way;
	size_t at;
	uint8_t bend;
	bool bent;
};

static struct world w;

static struct vb_cluster *make(enum vb_cluster_role role, enum vb_cluster_seal seal,
			       const char *key)
{
	struct vb_cluster_params p = {
		.hosts = 2, .role = role, .rank = role == VB_CLUSTER_ROOT ? 0 : 1, .seal = seal};
	struct vb_cluster_key k;
	struct vb_cluster *c = NULL;

	p.config = KNOWN "\n";
	auth_key_of(&k, key, strlen(key));
	assert_int_equal(cluster_create(&p, &k, &c), 0);
	return c;
}

static void connect_end(struct end *e, enum cluster_phase phase, bool beyond)
{
	int fd[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
	e->k = conn_new(e->c, fd[0], "somebody");
	assert_non_null(e->k);
	e->k->phase = phase;
	e->k->beyond = beyond;
	e->other = fd[1];
}

static void begin(enum vb_cluster_seal root, enum vb_cluster_seal member, bool beyond)
{
	enum way way = w.way;
	size_t at = w.at;
	uint8_t bend = w.bend;

	memset(&w, 0, sizeof(w));
	w.way = way;
	w.at = at;
	w.bend = bend;
	w.root.c = make(VB_CLUSTER_ROOT, root, "the key");
	w.member.c = make(VB_CLUSTER_MEMBER, member, "the key");
	root_begin(w.root.c);
	connect_end(&w.root, CONN_HELLO, beyond);
	connect_end(&w.member, CONN_CONNECTING, beyond);
	member_begin(w.member.c, w.member.k);
}

static void end(void)
{
	close(w.root.other);
	close(w.member.other);
	cluster_free(w.root.c);
	cluster_free(w.member.c);
	w.bend = 0;
}

/* One end writes; what it wrote is recorded, and bent on its way to `to`.  How much there was. */
static size_t carry(struct end *from, enum way way, uint8_t *to, size_t room)
{
	struct wire *wire = &w.wire[way];
	size_t all = 0;
	ssize_t n;

	if (from->k == NULL || from->k->broken)
		return 0;
	conn_write(from->k);
	while (all < room && (n = recv(from->other, to + all, room - all, MSG_DONTWAIT)) > 0) {
		assert_true(wire->n + (size_t)n <= sizeof(wire->at));
		memcpy(wire->at + wire->n, to + all, (size_t)n);
		if (w.bend != 0 && w.way == way && w.at >= wire->n && w.at - wire->n < (size_t)n) {
			to[all + w.at - wire->n] ^= w.bend;
			w.bent = true;
		}
		wire->n += (size_t)n;
		all += (size_t)n;
	}
	return all;
}

static void give(struct end *e, const void *bytes, size_t n)
{
	if (e->k == NULL)
		return;
	conn_feed(e->c, e->k, bytes, n);
	if (!e->k->broken)
		return;
	if (e->c->is_root)
		root_lost(e->c, e->k);
	else
		member_lost(e->c, e->k);
	e->k = NULL;
}

/* Until neither says anything any more. */
static void talk(void)
{
	uint8_t bytes[WIRE];
	size_t up, down;

	do {
		up = carry(&w.member, TO_ROOT, bytes, sizeof(bytes));
		give(&w.root, bytes, up);
		down = carry(&w.root, TO_MEMBER, bytes, sizeof(bytes));
		give(&w.member, bytes, down);
	} while (up + down > 0);
}

static bool both_going(void)
{
	return w.root.c->started && w.member.c->started && w.root.k != NULL && w.member.k != NULL;
}

static bool seen(const void *what, size_t n)
{
	for (enum way way = 0; way < WAYS; way++)
		if (memmem(w.wire[way].at, w.wire[way].n, what, n) != NULL)
			return true;
	return false;
}

/* ---- what is agreed ---- */

/* Sealed if one wants it, and not at all if the other one never does. */
static void test_agreement(void **state)
{
	const enum vb_cluster_seal AUTO = VB_CLUSTER_SEAL_AUTO, ALWAYS = VB_CLUSTER_SEAL_ALWAYS,
				   NEVER = VB_CLUSTER_SEAL_NEVER_ON_A_TRUSTED_NETWORK;
	const struct {
		enum vb_cluster_seal root, member;
		bool beyond, meet, sealed;
	} tries[] = {
		{AUTO, AUTO, false, true, false},     {AUTO, AUTO, BEYOND, true, true},
		{ALWAYS, AUTO, false, true, true},    {AUTO, ALWAYS, false, true, true},
		{NEVER, AUTO, false, true, false},    {AUTO, NEVER, false, true, false},
		{NEVER, NEVER, BEYOND, true, false},  {NEVER, AUTO, BEYOND, false, false},
		{AUTO, NEVER, BEYOND, false, false},  {ALWAYS, NEVER, false, false, false},
		{NEVER, ALWAYS, false, false, false},
	};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(tries); i++) {
		char said[1024] = "";

		vb_log_capture_begin(said, sizeof(said));
		begin(tries[i].root, tries[i].member, tries[i].beyond);
		talk();
		vb_log_capture_end();
		assert_int_equal(both_going(), tries[i].meet);
		if (tries[i].meet) {
			assert_int_equal(w.root.k->seal != NULL, tries[i].sealed);
			assert_int_equal(w.member.k->seal != NULL, tries[i].sealed);
			assert_memory_equal(w.root.c->secret, w.member.c->secret, CL_SECRET);
		} else {
			assert_non_null(strstr(said, "never-on-a-trusted-network: give every "
						     "process the same option seal"));
			assert_int_equal(w.member.c->open_verdict.err, -EPROTO);
		}
		end();
	}
}

/* What somebody between reads: where frames are sealed nothing of what is said, and nowhere the run's secret. */
static void test_read(void **state)
{
	for (unsigned sealed = 0; sealed < 2; sealed++) {
		begin(VB_CLUSTER_SEAL_AUTO, VB_CLUSTER_SEAL_AUTO, sealed);
		talk();
		assert_true(both_going());
		assert_int_equal(seen(KNOWN, strlen(KNOWN)), !sealed);
		assert_int_equal(seen(w.root.c->me.host, strlen(w.root.c->me.host)), !sealed);
		assert_false(seen(w.root.c->secret, CL_SECRET));
		assert_false(seen(w.root.c->key.bytes, sizeof(w.root.c->key.bytes)));
		end();
	}
}

/* Another secret each time, and other bytes for the same words. */
static void test_fresh(void **state)
{
	static struct wire first;

	begin(VB_CLUSTER_SEAL_ALWAYS, VB_CLUSTER_SEAL_ALWAYS, false);
	talk();
	first = w.wire[TO_ROOT];
	end();
	begin(VB_CLUSTER_SEAL_ALWAYS, VB_CLUSTER_SEAL_ALWAYS, false);
	talk();
	assert_int_equal(first.n, w.wire[TO_ROOT].n);
	assert_memory_not_equal(first.at + first.n - 64, w.wire[TO_ROOT].at + first.n - 64, 32);
	end();
}

/* Who has another key gets no word of what is said, whichever end it is. */
static void test_other_key(void **state)
{
	char said[1024] = "";

	begin(VB_CLUSTER_SEAL_ALWAYS, VB_CLUSTER_SEAL_ALWAYS, false);
	auth_key_of(&w.member.c->key, "another", 7);
	auth_psk(&w.member.c->key, w.member.c->psk);
	vb_log_capture_begin(said, sizeof(said));
	talk();
	vb_log_capture_end();
	assert_non_null(strstr(said, "has another key than the root"));
	assert_int_equal(w.member.c->open_verdict.err, -EACCES);
	assert_false(w.root.c->started || w.member.c->started);
	end();
}

/* ---- one who bends ---- */

/* Of a record of TLS the second and third byte are to be ignored (RFC 8446, 5.1): who bends them changes nothing. */
static bool is_nothing(const struct wire *wire, size_t at)
{
	const uint8_t *p = wire->at;
	size_t frame = 0;

	while (frame + CL_HEADER <= at && p[frame + 6] == 'V' && p[frame + 7] == 'B') {
		size_t end = frame + CL_HEADER + (p[frame] | (size_t)p[frame + 1] << 8);

		for (size_t tls = frame + CL_HEADER;
		     (p[frame + 4] == CL_PROOF || p[frame + 4] == CL_PROOF_ROOT) && tls < end;
		     tls += 5 + ((size_t)p[tls + 3] << 8 | p[tls + 4]))
			if (at == tls + 1 || at == tls + 2)
				return true;
		frame = end;
	}
	return false;
}

/* Any one bit of all that is said until both are going: the connection ends, and neither the member's words nor the
 * root's are believed. */
static void test_bent(void **state)
{
	static struct wire said_so[WAYS];
	char said[1024];

	begin(VB_CLUSTER_SEAL_ALWAYS, VB_CLUSTER_SEAL_ALWAYS, false);
	talk();
	assert_true(both_going());
	memcpy(said_so, w.wire, sizeof(said_so));
	end();
	for (enum way way = 0; way < WAYS; way++) {
		for (size_t at = 0; at < said_so[way].n; at++) {
			if (is_nothing(&said_so[way], at))
				continue;
			w.way = way;
			w.at = at;
			w.bend = (uint8_t)(1u << at % 8);
			vb_log_capture_begin(said, sizeof(said));
			begin(VB_CLUSTER_SEAL_ALWAYS, VB_CLUSTER_SEAL_ALWAYS, false);
			talk();
			vb_log_capture_end();
			assert_true(w.bent);
			if (both_going() || w.member.c->started ||
			    (way == TO_ROOT && w.root.c->started))
				fail_msg("byte %zu of way %d: believed", at, (int)way);
			end();
		}
	}
}

/* What is bent to be plain, or to be sealed otherwise, is not done. */
static void test_talked_down(void **state)
{
	const struct {
		enum way way;
		size_t at;
		uint8_t bend;
		bool at_once; /* the member sees it before it has proved anything */
	} tries[] = {
		{TO_ROOT, CL_HEADER + 8, CL_WANTS_SEAL, false},
		{TO_ROOT, CL_HEADER + 8, CL_HAS_AES, false},
		{TO_ROOT, CL_HEADER + 8, CL_WANTS_SEAL | CL_NEVER_SEALS, false},
		{TO_MEMBER, CL_HEADER, VB_SEAL_AES ^ VB_SEAL_PLAIN, true},
		{TO_MEMBER, CL_HEADER, VB_SEAL_AES ^ VB_SEAL_CHACHA, false},
		{TO_MEMBER, CL_HEADER, VB_SEAL_CHACHA ^ VB_SEAL_PLAIN, true},
	};
	char said[1024];

	/* The root would not mind: it is the member that wants it. */
	for (unsigned i = 0; i < VB_ARRAY_SIZE(tries); i++) {
		w.way = tries[i].way;
		w.at = tries[i].at;
		w.bend = tries[i].bend;
		vb_log_capture_begin(said, sizeof(said));
		begin(VB_CLUSTER_SEAL_AUTO, VB_CLUSTER_SEAL_ALWAYS, false);
		talk();
		vb_log_capture_end();
		assert_true(w.bent);
		assert_false(w.root.c->started || w.member.c->started);
		assert_false(seen(KNOWN, strlen(KNOWN)));
		/* Not as if a key were wrong. */
		if (tries[i].at_once)
			assert_int_equal(w.member.c->open_verdict.err, -EPROTO);
		end();
	}
}

/* ---- one who repeats, reorders, cuts ---- */

#define RECORDS 3u

/* Notices of the member's, each in a record of its own, on their way to the root. */
struct flight {
	uint8_t at[RECORDS][256];
	size_t n[RECORDS];
};

static void take_off(struct flight *f)
{
	begin(VB_CLUSTER_SEAL_ALWAYS, VB_CLUSTER_SEAL_ALWAYS, false);
	talk();
	assert_true(both_going());
	for (unsigned i = 0; i < RECORDS; i++) {
		memset(w.member.c->peers[1].notice, 'a' + (int)i, VB_CLUSTER_NOTICE);
		w.member.k->notice_due = true;
		conn_notice(w.member.c, w.member.k);
		f->n[i] = carry(&w.member, TO_ROOT, f->at[i], sizeof(f->at[i]));
		assert_int_equal(f->n[i], CL_HEADER + CL_NOTICE_SIZE + VB_SEAL_MORE);
	}
}

/* What the root has heard last; '-': nothing. */
static char heard(void)
{
	return w.root.c->peers[1].noticed ? (char)w.root.c->peers[1].notice[0] : '-';
}

static void ends(const char *said)
{
	assert_null(w.root.k);
	assert_non_null(strstr(said, "is dead: its connection ended without a goodbye (brought a "
				     "frame that the other end has not sealed so)"));
}

static void test_order(void **state)
{
	/* Which records come, in which order, and what is believed at the end. */
	static const struct {
		unsigned n, order[4];
		char heard;
		bool ends;
	} tries[] = {
		{3, {0, 1, 2}, 'c', false}, {2, {0, 0}, 'a', true},    {1, {1}, '-', true},
		{2, {1, 0}, '-', true},     {3, {0, 2, 1}, 'a', true}, {4, {0, 1, 2, 1}, 'c', true},
	};
	struct flight f;
	char said[1024];

	for (unsigned i = 0; i < VB_ARRAY_SIZE(tries); i++) {
		take_off(&f);
		said[0] = '\0';
		vb_log_capture_begin(said, sizeof(said));
		for (unsigned r = 0; r < tries[i].n; r++)
			give(&w.root, f.at[tries[i].order[r]], f.n[tries[i].order[r]]);
		vb_log_capture_end();
		assert_int_equal(heard(), tries[i].heard);
		if (tries[i].ends)
			ends(said);
		else
			assert_non_null(w.root.k);
		end();
	}
}

/* A length that was bent may ask for much more. */
static void go_on(struct flight *f)
{
	give(&w.root, f->at[1], f->n[1]);
	for (unsigned i = 0; i < 2000 && w.root.k != NULL; i++)
		give(&w.root, f->at[2], f->n[2]);
}

/* Every bit of a record counts, and one that is cut is not believed, nor what comes in its place. */
static void test_records(void **state)
{
	struct flight f;
	char said[1024];
	bool was_all;

	for (unsigned at = 0; at < CL_HEADER + CL_NOTICE_SIZE + VB_SEAL_MORE; at++) {
		take_off(&f);
		f.at[0][at] ^= (uint8_t)(1u << at % 8);
		said[0] = '\0';
		vb_log_capture_begin(said, sizeof(said));
		give(&w.root, f.at[0], f.n[0]);
		go_on(&f);
		vb_log_capture_end();
		assert_int_equal(heard(), '-');
		ends(said);
		end();
		take_off(&f);
		said[0] = '\0';
		vb_log_capture_begin(said, sizeof(said));
		give(&w.root, f.at[0], at);
		assert_int_equal(heard(), '-');
		go_on(&f);
		vb_log_capture_end();
		/* What comes in its place may by chance be what was cut: one last byte in 256. */
		was_all = memcmp(f.at[0] + at, f.at[1], f.n[0] - at) == 0;
		assert_int_equal(heard(), was_all ? 'a' : '-');
		ends(said);
		end();
	}
}

/* Plain frames, a root's own words sent back to it, and all that a member has ever said: of no use to anybody. */
static void test_replay(void **state)
{
	static struct wire all;
	uint8_t bytes[WIRE];
	char said[1024] = "";
	size_t n;

	begin(VB_CLUSTER_SEAL_ALWAYS, VB_CLUSTER_SEAL_ALWAYS, false);
	talk();
	n = cl_put_bytes(bytes, CL_GOODBYE, NULL, 0);
	memset(bytes + n, 0, 64);
	vb_log_capture_begin(said, sizeof(said));
	give(&w.root, bytes, n + 64);
	vb_log_capture_end();
	ends(said);
	assert_int_equal(w.root.c->peers[1].state, PEER_DIED); /* it has not said goodbye */
	end();

	begin(VB_CLUSTER_SEAL_ALWAYS, VB_CLUSTER_SEAL_ALWAYS, false);
	talk();
	all = w.wire[TO_ROOT];
	conn_pong(w.root.k, 1);
	n = carry(&w.root, TO_MEMBER, bytes, sizeof(bytes));
	vb_log_capture_begin(said, sizeof(said));
	give(&w.root, bytes, n);
	vb_log_capture_end();
	ends(said);
	end();

	begin(VB_CLUSTER_SEAL_ALWAYS, VB_CLUSTER_SEAL_ALWAYS, false);
	vb_log_capture_begin(said, sizeof(said));
	give(&w.root, all.at, all.n);
	vb_log_capture_end();
	assert_false(w.root.c->started);
	assert_true(w.root.k == NULL || w.root.k->phase == CONN_LEAVING);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_agreement), cmocka_unit_test(test_read),
		cmocka_unit_test(test_fresh),     cmocka_unit_test(test_other_key),
		cmocka_unit_test(test_bent),      cmocka_unit_test(test_talked_down),
		cmocka_unit_test(test_order),     cmocka_unit_test(test_records),
		cmocka_unit_test(test_replay),
	};

	setenv("VERBENA_LOG", "warn", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
