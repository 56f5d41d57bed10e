/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an open connection of the fabric tcp brings: frames in any order, whole, cut, or none at all, from
 * a member that may be anybody's by now.  Behind it stands the engine of active messages, over a carrier
 * of this file's that hands a process's messages back to itself.
 *
 * Whatever comes: nothing outside of the fabric's memory is touched, nothing grows beyond its bound, and
 * afterwards the process can be talked to, perhaps over a new connection.
 *
 * Input: the first byte's lowest bit says whether frames are sealed.  Then steps: a byte says what comes,
 *	0..63    so many bytes of the input, as they are
 *	64..     a header of kind (byte % 8), whose epoch, number and host are right but for what the bits of
 *	         the next byte spoil; then a byte n, and a body of the next n bytes of the input, n claimed
 */
#include <stdio.h>
#include <stdlib.h>

#include "fabric/tcp/inner.h"

#define PENDING 256u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *at, *end;
};

/* ---- a carrier ---- */

static struct {
	uint8_t *at;
	size_t bytes;
} pending[PENDING];
static unsigned pending_n;

static int loop_open(struct am_wire *w, const void *options, void *address, size_t *bytes)
{
	w->via = &pending;
	memset(address, 0, 1);
	*bytes = 1;
	return 0;
}

static void loop_close(struct am_wire *w)
{
	w->via = NULL;
}

static int loop_link(struct am_host *h)
{
	return 0;
}

static void loop_unlink(struct am_host *h)
{
	for (unsigned i = 0; i < pending_n; i++)
		free(pending[i].at);
	pending_n = 0;
}

/* What finds no room is lost: nobody awaits it for long. */
static int loop_send(struct am_msg *m)
{
	size_t bytes = AM_HEADER + (size_t)m->bytes;
	uint8_t *at = pending_n < PENDING ? malloc(bytes) : NULL;

	if (at != NULL) {
		memcpy(at, m->buffer, bytes);
		pending[pending_n].at = at;
		pending[pending_n++].bytes = bytes;
	}
	am_sent(m);
	return 0;
}

static void loop_look(struct am_wire *w)
{
	while (pending_n > 0) {
		uint8_t *at = pending[0].at;
		size_t bytes = pending[0].bytes;

		memmove(&pending[0], &pending[1], --pending_n * sizeof(pending[0]));
		(void)am_came(w, at, AM_HEADER, at + AM_HEADER, bytes - AM_HEADER, false);
		free(at);
	}
}

static int loop_arm(struct am_wire *w)
{
	return pending_n == 0 ? 0 : -EBUSY;
}

static bool loop_idle(const struct am_wire *w)
{
	return pending_n == 0;
}

static const struct am_carrier loop = {
	.name = "loop",
	.lasting = true,
	.open = loop_open,
	.close = loop_close,
	.link = loop_link,
	.unlink = loop_unlink,
	.send = loop_send,
	.look = loop_look,
	.arm = loop_arm,
	.idle = loop_idle,
};

static int transport_open(struct net_fabric *f, const void *options, void *address, size_t *bytes)
{
	return am_open(f, &loop, options, address, bytes);
}

static const struct net_transport transport = {
	.name = "loop", .open = transport_open, AM_TRANSPORT};
static const struct vb_fabric_ops ops = {
	.name = "loop", NET_FABRIC_OPS, .caps = {.flags = AM_CAP_FLAGS}};

/* ---- the world ---- */

static struct net_fabric *f;
static struct am_wire *w;
static struct am_host *host;
static struct tcp_via via;

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fuzz_tcp_frames: %s\n", what);
	abort();
}

static void begin(void)
{
	static const struct am_options o = {.bound_ns = 10 * AM_S,
					    .retry_ns = 1,
					    .silence_ns = 600 * AM_S,
					    .window = 16,
					    .queue = 64,
					    .local = AM_LOCAL_WIRE};
	static const struct vb_fabric_params p = {.nodes = 2, .node_bytes = 4096};
	struct vb_fabric *fabric;

	setenv("VERBENA_LOG", "net:error", 0);
	must(net_open(&p, &o, &ops, &transport, &fabric) == 0, "the fabric does not open");
	f = net_of(fabric);
	w = am_of(f);
	host = &w->host[0];
	via.w = w;
	vb_list_init(&via.conns);
	vb_list_init(&via.push);
	must(sodium_init() >= 0, "no libsodium");
}

/* ---- the input ---- */

static uint8_t byte(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static void append(struct vb_buf *to, const void *bytes, size_t n)
{
	must(vb_buf_reserve(to, n), "no memory");
	if (n > 0)
		memcpy(to->at + to->end, bytes, n);
	to->end += n;
}

static const uint8_t *some(struct input *in, size_t want, size_t *n)
{
	const uint8_t *at = in->at;

	*n = (size_t)(in->end - at) < want ? (size_t)(in->end - at) : want;
	in->at += *n;
	return at;
}

static void step(struct input *in, struct vb_buf *to)
{
	uint8_t what = byte(in), spoilt, header[AM_HEADER];
	const uint8_t *body;
	struct am_header h;
	size_t n;

	if (what < 64) {
		body = some(in, what, &n);
		append(to, body, n);
		return;
	}
	spoilt = byte(in);
	body = some(in, byte(in), &n);
	h = (struct am_header){
		.kind = what % 8,
		.flags = spoilt >> 7,
		.session = w->session ^ (spoilt & 1),
		.host = spoilt >> 1 & 1,
		.epoch = host->from_epoch + (spoilt >> 2 & 1),
		.number = host->expected + (spoilt >> 3 & 3),
		.clock = spoilt & 32 ? 1 : UINT64_MAX,
		.verbs = what >> 3 & 7,
		.bytes = (uint32_t)n + (spoilt >> 6 & 1),
	};
	am_header_put(header, &h);
	append(to, header, sizeof(header));
	append(to, body, n);
}

/* As the other end seals it, in one record. */
static void seal(struct vb_seal *s, struct vb_buf *plain, struct vb_buf *to)
{
	size_t n = vb_buf_bytes(plain);

	if (n == 0)
		return;
	must(vb_buf_reserve(to, n + VB_SEAL_MORE), "no memory");
	to->end += vb_seal_put(s, to->at + to->end, plain->at + plain->begin, n);
	vb_buf_take(plain, n);
}

static void settle(void)
{
	host->newest_epoch = 0; /* a number that no other can exceed is its own loss */
	host->retry_at_ns = 0;
	for (unsigned i = 0; i < 8; i++) {
		(void)am_look(w);
		if (host->state == AM_DOWN)
			(void)am_greet(host);
	}
	must(host->state == AM_UP && !host->failed, "it cannot be talked to any more");
	must(host->held_n <= w->o.window, "more is held than the window allows");
	must(w->pooled <= AM_POOL_MAX, "more messages are kept than may be");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t ours[VB_SEAL_KEY] = "ours", theirs[VB_SEAL_KEY] = "theirs";
	struct input in = {data, data + size};
	bool sealed = byte(&in) & 1;
	struct tcp_conn c = {.t = &via, .host = NULL, .fd = -1, .state = TCP_OPEN};
	struct vb_seal *peer = NULL;
	struct vb_buf plain = {0};

	if (f == NULL)
		begin();
	c.host = host;
	host->via = &c;
	if (sealed) {
		c.seal = vb_seal_new(VB_SEAL_CHACHA, ours, theirs);
		peer = vb_seal_new(VB_SEAL_CHACHA, theirs, ours);
		must(c.seal != NULL && peer != NULL, "no memory");
	}
	pthread_mutex_lock(&f->engine);
	while (in.at < in.end && !host->failed) {
		step(&in, sealed ? &plain : &c.raw);
		if (sealed)
			seal(peer, &plain, &c.raw);
		tcp_conn_take(&c);
	}
	settle();
	pthread_mutex_unlock(&f->engine);
	host->via = NULL;
	vb_seal_free(c.seal);
	vb_seal_free(peer);
	vb_buf_free(&plain);
	vb_buf_free(&c.raw);
	vb_buf_free(&c.in);
	return 0;
}
