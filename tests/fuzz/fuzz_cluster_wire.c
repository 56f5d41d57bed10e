/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arbitrary bytes to the root of a cluster and to a member, at every point of their acquaintance.
 *
 * Whatever comes: nothing is read or written outside of what it is in, no more is allocated than
 * the protocol allows, all that goes out is well formed, and nobody gets in without a proof.
 *
 * Input: the first byte says who listens and how far they are, the second in what pieces the bytes
 * come.  With its upper bit set the rest are not bytes but frames, each of a type, two bytes of
 * length and a payload, and get a right header: so the fuzzer comes deeper than by guessing.  With the bit
 * below that what comes is sealed, as the other end would: one that has the key and says anything.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cluster/inner.h"

#define HOSTS     3
#define CALLS     2
#define INPUT_MAX 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum scene {
	ROOT_HELLO,
	ROOT_PROOF,
	ROOT_JOIN,
	ROOT_JOINED,
	ROOT_GOING,
	MEMBER_MODE,
	MEMBER_PROOF,
	MEMBER_WAITING,
	MEMBER_GOING,
	SCENES,
};

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fuzz_cluster_wire: %s\n", what);
	abort();
}

/* ---- the world ---- */

static void knows_all(struct vb_cluster *c)
{
	struct cl_identity who = {.pid = 7, .host = "elsewhere", .machine = "another boot"};

	for (uint32_t r = 0; r < HOSTS; r++)
		cluster_set_peer(c, r, r == c->rank ? &c->me : &who);
	c->started = true;
	cluster_open_ends(c, 0, "open");
}

static struct cluster_conn *going(struct vb_cluster *c, uint32_t rank)
{
	struct cluster_conn *k = conn_new(c, -1, "peer");

	must(k != NULL, "no memory");
	k->phase = CONN_GOING;
	k->rank = rank;
	c->peers[rank].conn = k;
	return k;
}

static struct cluster_conn *make(struct vb_cluster *c, enum scene scene)
{
	static const enum cluster_phase phases[SCENES] = {
		CONN_HELLO, CONN_PROOF,      CONN_JOIN,    CONN_JOINED, CONN_GOING,
		CONN_MODE,  CONN_PROOF_ROOT, CONN_WAITING, CONN_GOING,
	};
	struct cluster_conn *k;

	if (scene <= ROOT_GOING)
		root_begin(c);
	else
		c->rank = 1;
	if (scene == ROOT_GOING || scene == MEMBER_GOING) {
		knows_all(c);
		if (c->is_root)
			going(c, 2);
		return going(c, c->is_root ? 1 : 0);
	}
	k = conn_new(c, -1, "peer");
	must(k != NULL, "no memory");
	k->phase = phases[scene];
	k->wanted = VB_CLUSTER_ANY_RANK;
	k->mode = VB_SEAL_CHACHA;
	if (scene == MEMBER_MODE)
		member_begin(c, k);
	if (scene == ROOT_PROOF || scene == MEMBER_PROOF)
		must(proof_begin(c, k, scene == ROOT_PROOF) == 0, "no handshake");
	return k;
}

/* Calls of this process that wait for an answer. */
static void begin_calls(struct vb_cluster *c, struct cluster_call *calls)
{
	struct cl_part p = {.what = "step", .timeout_ns = 1000000000};

	for (unsigned i = 0; i < CALLS; i++) {
		struct cluster_call *call = &calls[i];

		*call = (struct cluster_call){.seq = c->next_seq++};
		call->parts.n = HOSTS;
		call->parts.data = calloc(HOSTS, sizeof(void *));
		call->parts.bytes = calloc(HOSTS, sizeof(size_t));
		must(call->parts.data != NULL && call->parts.bytes != NULL, "no memory");
		vb_list_init(&call->link);
		vb_list_push(&c->calls, &call->link);
		p.seq = call->seq;
		if (c->is_root && i == 0)
			steps_came(c, 0, &p, NULL);
	}
}

static void end_calls(struct cluster_call *calls)
{
	for (unsigned i = 0; i < CALLS; i++) {
		for (uint32_t r = 0; r < HOSTS; r++)
			must(calls[i].parts.data[r] != NULL || calls[i].parts.bytes[r] == 0,
			     "a length without a part");
		must(!calls[i].done || calls[i].verdict.err <= 0, "an error that is none");
		cluster_result_put(calls[i].result);
		vb_cluster_parts_free(&calls[i].parts);
	}
}

/* ---- in and out ---- */

static bool has_proved(enum scene scene)
{
	return (scene >= ROOT_JOIN && scene <= ROOT_GOING) || scene >= MEMBER_WAITING;
}

static struct vb_seal *theirs; /* NULL: frames are plain */

static void seal(struct cluster_conn *k)
{
	static const uint8_t one[VB_SEAL_KEY] = {1}, two[VB_SEAL_KEY] = {2};
	struct vb_seal *ours = vb_seal_new(VB_SEAL_CHACHA, one, two);

	theirs = vb_seal_new(VB_SEAL_CHACHA, two, one);
	must(ours != NULL && theirs != NULL, "no memory");
	conn_seal(k, ours);
}

/* All that waits to be sent is whole frames of ours. */
static void look_at_output(struct cluster_conn *k)
{
	struct cl_frame f;
	const char *why;
	size_t need;
	int n;

	for (unsigned i = 0; i < 100 && !k->broken; i++) {
		conn_fill(k);
		while (k->tx_at < k->tx_len) {
			n = cl_frame_get(k->tx + k->tx_at, k->tx_len - k->tx_at, &f, &need, &why);
			must(n > 0, "what goes out is no whole frame");
			k->tx_at += (size_t)n;
		}
	}
}

static void feed_bytes(struct vb_cluster *c, struct cluster_conn *k, const uint8_t *data,
		       size_t size, size_t piece)
{
	while (size > 0 && !k->broken) {
		size_t n = piece < size ? piece : size;
		/* Exactly as long as what comes, for the address sanitizer. */
		size_t bytes = n + (theirs != NULL ? VB_SEAL_MORE : 0);
		uint8_t *copy = malloc(bytes);

		must(copy != NULL, "no memory");
		if (theirs != NULL)
			(void)vb_seal_put(theirs, copy, data, n);
		else
			memcpy(copy, data, n);
		conn_feed(c, k, copy, bytes);
		free(copy);
		data += n;
		size -= n;
	}
}

static void feed_frames(struct vb_cluster *c, struct cluster_conn *k, const uint8_t *data,
			size_t size, size_t piece)
{
	while (size >= 3 && !k->broken) {
		uint32_t n = data[1] | (uint32_t)data[2] << 8;
		uint8_t header[CL_HEADER] = {0, 0, 0, 0, data[0], CL_VERSION, 'V', 'B'};

		if (n > size - 3)
			n = (uint32_t)size - 3;
		header[0] = (uint8_t)n;
		header[1] = (uint8_t)(n >> 8);
		feed_bytes(c, k, header, sizeof(header), piece);
		feed_bytes(c, k, data + 3, n, piece);
		data += 3 + n;
		size -= 3 + n;
		steps_look(c, cluster_now());
	}
}

static void nobody_got_in(struct vb_cluster *c, struct cluster_conn *k, enum scene scene)
{
	if (scene == ROOT_HELLO || scene == ROOT_PROOF) {
		must(k->phase == CONN_HELLO || k->phase == CONN_PROOF || k->phase == CONN_LEAVING,
		     "got in without a proof");
		must(k->rx_size <= CL_CONTROL_MAX, "much memory for somebody unproved");
	}
	if (scene == MEMBER_MODE || scene == MEMBER_PROOF)
		must(!c->started && (!c->open_done || c->open_verdict.err < 0),
		     "believed a root without a proof");
	must(k->rx_size <= CL_HEADER + CL_CHUNK && k->rx_len <= k->rx_size, "much memory");
	must(c->n_gone <= HOSTS, "more gone than there were");
	must(vb_buf_bytes(&k->raw) <= VB_SEAL_MAX + VB_SEAL_MORE, "much memory for a record");
}

static void two_configs(const uint8_t *data, size_t size)
{
	char text[CL_TEXT + 1];
	size_t half = size / 2;
	bool differ = cl_config_differs((const char *)data, half, (const char *)data + half,
					size - half, "rank 1", text, sizeof(text));

	if (differ)
		must(strlen(text) < sizeof(text), "a text without an end");
	must(!cl_config_differs((const char *)data, half, (const char *)data, half, "rank 1", text,
				sizeof(text)),
	     "a configuration that differs from itself");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_cluster_params p = {.hosts = HOSTS, .role = VB_CLUSTER_ROOT, .config = "a=1\n"};
	struct cluster_call calls[CALLS];
	struct cluster_conn *k;
	struct vb_cluster *c;
	enum scene scene;
	char text[1024];

	if (size < 2 || size > INPUT_MAX)
		return 0;
	scene = (enum scene)((data[0] & 0x3f) % SCENES);
	vb_log_capture_begin(text, sizeof(text));
	must(cluster_create(&p, NULL, &c) == 0, "no cluster");
	k = make(c, scene);
	begin_calls(c, calls);
	if ((data[0] & 0x40) != 0 && has_proved(scene))
		seal(k);
	if (data[0] & 0x80)
		feed_frames(c, k, data + 2, size - 2, data[1] + 1u);
	else
		feed_bytes(c, k, data + 2, size - 2, data[1] + 1u);
	nobody_got_in(c, k, scene);
	look_at_output(k);
	if (k->broken) {
		if (c->is_root)
			root_lost(c, k);
		else
			member_lost(c, k);
	}
	steps_look(c, cluster_now());
	cluster_free(c);
	vb_seal_free(theirs);
	theirs = NULL;
	end_calls(calls);
	two_configs(data + 2, size - 2);
	vb_log_capture_end();
	return 0;
}
