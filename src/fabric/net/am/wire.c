/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of wire.h.  Everything that arrives is looked at in two places only: the cursor
 * below, which never reads beyond what came, and locate(), which never lets an address out of this
 * host's memory.
 */
#include "fabric/net/am/wire.h"

#include <endian.h>

#include "fabric/cpu.h"

#define VERB_HEAD 16u
#define MSG_HEAD  32u

/* ---- numbers ---- */

static uint8_t *put16(uint8_t *to, uint16_t v)
{
	v = htole16(v);
	memcpy(to, &v, sizeof(v));
	return to + sizeof(v);
}

static uint8_t *put32(uint8_t *to, uint32_t v)
{
	v = htole32(v);
	memcpy(to, &v, sizeof(v));
	return to + sizeof(v);
}

static uint8_t *put64(uint8_t *to, uint64_t v)
{
	v = htole64(v);
	memcpy(to, &v, sizeof(v));
	return to + sizeof(v);
}

static uint8_t *put128(uint8_t *to, struct vb_u128 v)
{
	return put64(put64(to, v.lo), v.hi);
}

static uint16_t get16(const uint8_t *from)
{
	uint16_t v;

	memcpy(&v, from, sizeof(v));
	return le16toh(v);
}

static uint32_t get32(const uint8_t *from)
{
	uint32_t v;

	memcpy(&v, from, sizeof(v));
	return le32toh(v);
}

static uint64_t get64(const uint8_t *from)
{
	uint64_t v;

	memcpy(&v, from, sizeof(v));
	return le64toh(v);
}

static struct vb_u128 get128(const uint8_t *from)
{
	return (struct vb_u128){.lo = get64(from), .hi = get64(from + 8)};
}

/* The next n bytes, or NULL if there are fewer. */
static const uint8_t *take(struct am_cursor *c, uint64_t n)
{
	const uint8_t *at = c->at;

	if (n > (uint64_t)(c->end - c->at))
		return NULL;
	c->at += n;
	return at;
}

/* ---- headers ---- */

void am_header_put(uint8_t to[AM_HEADER], const struct am_header *h)
{
	uint8_t *p = put16(put32(to, AM_MAGIC), AM_VERSION);

	*p++ = h->kind;
	*p++ = h->flags;
	p = put32(put32(put64(p, h->session), h->host), h->epoch);
	p = put32(put32(put64(put64(p, h->number), h->clock), h->verbs), h->bytes);
	vb_assert(p == to + AM_HEADER);
}

int am_header_get(const void *from, size_t bytes, struct am_header *out, const char **why)
{
	const uint8_t *p = from;
	struct am_header h;

	if (bytes != AM_HEADER || get32(p) != AM_MAGIC) {
		*why = "not a message of ours";
		return -EBADMSG;
	}
	if (get16(p + 4) != AM_VERSION) {
		*why = "another version of the format";
		return -EBADMSG;
	}
	h = (struct am_header){
		.kind = p[6],
		.flags = p[7],
		.session = get64(p + 8),
		.host = get32(p + 16),
		.epoch = get32(p + 20),
		.number = get64(p + 24),
		.clock = get64(p + 32),
		.verbs = get32(p + 40),
		.bytes = get32(p + 44),
	};
	if (h.kind == 0 || h.kind >= AM_KINDS || (h.flags & ~AM_REFUSED) != 0) {
		*why = "an unknown kind or flag";
		return -EBADMSG;
	}
	if (h.verbs > AM_VERBS_MAX || h.bytes > AM_BODY_MAX) {
		*why = "longer than a message may be";
		return -EBADMSG;
	}
	*out = h;
	return 0;
}

/* ---- verbs ---- */

/* Numbers behind the head of an atomic. */
static uint32_t operand_bytes(uint8_t op)
{
	switch (op) {
	case VB_OP_FAA64:
		return 8;
	case VB_OP_CAS64:
	case VB_OP_MFAA64:
		return 16;
	case VB_OP_MCAS64:
	case VB_OP_MFAA128:
		return 32;
	case VB_OP_MCAS128:
		return 64;
	default:
		return 0;
	}
}

static uint32_t result_bytes(const struct vb_verb *v)
{
	return v->op == VB_OP_READ ? v->len : cpu_atomic_bytes(v->op);
}

static bool has_message(uint8_t op)
{
	return op == VB_OP_SEND || op == VB_OP_WRITE_NOTIFY;
}

static bool has_data(uint8_t op)
{
	return op == VB_OP_WRITE || op == VB_OP_WRITE_NOTIFY;
}

static uint32_t message_data(const struct vb_msg *m)
{
	return m->len < VB_MSG_DATA ? m->len : VB_MSG_DATA;
}

uint32_t am_verb_bytes(const struct vb_verb *v)
{
	uint32_t n = VERB_HEAD + operand_bytes(v->op);

	if (has_data(v->op))
		n += v->len;
	if (has_message(v->op))
		n += MSG_HEAD + message_data(v->msg);
	return n;
}

uint32_t am_verb_answer(const struct vb_verb *v)
{
	return v->flags & VB_SIGNALLED ? 2 + result_bytes(v) : 0;
}

static uint8_t *put_operands(uint8_t *p, const struct vb_verb *v)
{
	switch (v->op) {
	case VB_OP_FAA64:
		return put64(p, v->compare.lo);
	case VB_OP_CAS64:
		return put64(put64(p, v->compare.lo), v->swap.lo);
	case VB_OP_MFAA64:
		return put64(put64(p, v->compare.lo), v->compare_mask.lo);
	case VB_OP_MCAS64:
		p = put64(put64(p, v->compare.lo), v->compare_mask.lo);
		return put64(put64(p, v->swap.lo), v->swap_mask.lo);
	case VB_OP_MFAA128:
		return put128(put128(p, v->compare), v->compare_mask);
	case VB_OP_MCAS128:
		p = put128(put128(p, v->compare), v->compare_mask);
		return put128(put128(p, v->swap), v->swap_mask);
	default:
		return p;
	}
}

static void get_operands(const uint8_t *p, struct vb_verb *v)
{
	switch (v->op) {
	case VB_OP_FAA64:
		v->compare.lo = get64(p);
		break;
	case VB_OP_CAS64:
		v->compare.lo = get64(p);
		v->swap.lo = get64(p + 8);
		break;
	case VB_OP_MFAA64:
		v->compare.lo = get64(p);
		v->compare_mask.lo = get64(p + 8);
		break;
	case VB_OP_MCAS64:
		v->compare.lo = get64(p);
		v->compare_mask.lo = get64(p + 8);
		v->swap.lo = get64(p + 16);
		v->swap_mask.lo = get64(p + 24);
		break;
	case VB_OP_MFAA128:
		v->compare = get128(p);
		v->compare_mask = get128(p + 16);
		break;
	case VB_OP_MCAS128:
		v->compare = get128(p);
		v->compare_mask = get128(p + 16);
		v->swap = get128(p + 32);
		v->swap_mask = get128(p + 48);
		break;
	default:
		break;
	}
}

void am_verb_put(uint8_t *to, const struct vb_verb *v, vb_peer from)
{
	bool moves = v->op == VB_OP_READ || has_data(v->op);
	uint8_t *p = to;

	*p++ = v->op;
	*p++ = v->flags & VB_SIGNALLED;
	p = put32(put16(p, 0), moves ? v->len : 0);
	p = put64(p, v->op == VB_OP_SEND ? 0 : v->addr);
	p = put_operands(p, v);
	if (has_data(v->op)) {
		if (v->len > 0)
			memcpy(p, v->buf, v->len);
		p += v->len;
	}
	if (has_message(v->op)) {
		const struct vb_msg *m = v->msg;
		uint32_t n = message_data(m);

		p = put64(put64(put64(p, v->peer), from), m->subject);
		p = put32(put16(put16(p, m->tag), (uint16_t)n), m->imm);
		memcpy(p, m->data, n);
		p += n;
	}
	vb_assert(p == to + am_verb_bytes(v));
}

void am_verb_drop(uint8_t *at, uint32_t n)
{
	*at++ = AM_OP_NONE;
	*at++ = 0;
	put64(put32(put16(at, 0), n - VERB_HEAD), 0);
}

/* The next verb: its buf points into the body, its msg to *m.  False: malformed. */
static bool verb_get(struct am_cursor *c, struct vb_verb *v, struct vb_msg *m)
{
	const uint8_t *p = take(c, VERB_HEAD);

	if (p == NULL)
		return false;
	*v = (struct vb_verb){.op = p[0], .flags = p[1], .len = get32(p + 4), .addr = get64(p + 8)};
	if (v->op == AM_OP_NONE)
		return v->flags == 0 && take(c, v->len) != NULL;
	if (v->op >= VB_OP_COUNT || (v->flags & ~VB_SIGNALLED) != 0 || v->len > AM_VERB_MAX)
		return false;
	p = take(c, operand_bytes(v->op));
	if (p == NULL)
		return false;
	get_operands(p, v);
	if (has_data(v->op)) {
		v->buf = (void *)take(c, v->len);
		if (v->buf == NULL)
			return false;
	}
	if (!has_message(v->op))
		return true;
	p = take(c, MSG_HEAD);
	if (p == NULL)
		return false;
	v->peer = get64(p);
	v->msg = m;
	*m = (struct vb_msg){.from = get64(p + 8),
			     .subject = get64(p + 16),
			     .tag = get16(p + 24),
			     .len = get16(p + 26),
			     .imm = get32(p + 28)};
	p = m->len <= VB_MSG_DATA ? take(c, m->len) : NULL;
	if (p == NULL)
		return false;
	memcpy(m->data, p, m->len);
	return true;
}

int am_body_check(const uint8_t *body, uint32_t bytes, uint32_t verbs, uint32_t *answer)
{
	struct am_cursor c = {body, body + bytes};
	uint64_t sum = 0;

	if (verbs > AM_VERBS_MAX || bytes > AM_BODY_MAX)
		return -EBADMSG;
	for (uint32_t i = 0; i < verbs; i++) {
		struct vb_verb v;
		struct vb_msg m;

		if (!verb_get(&c, &v, &m))
			return -EBADMSG;
		sum += am_verb_answer(&v);
	}
	if (c.at != c.end || sum > AM_BODY_MAX)
		return -EBADMSG;
	*answer = (uint32_t)sum;
	return 0;
}

/* ---- at the owner ---- */

/* Where it lies, or NULL and *err. */
static void *locate(const struct am_owner *o, vb_addr a, uint64_t bytes, uint64_t align, int *err)
{
	uint64_t offset = vb_addr_offset(a);
	uint32_t node = vb_addr_node(a);

	*err = -VB_EACCESS;
	if (node >= o->nodes || node % o->hosts != o->host || bytes > o->node_bytes ||
	    offset > o->node_bytes - bytes)
		return NULL;
	*err = -EINVAL;
	if ((offset & (align - 1)) != 0)
		return NULL;
	*err = 0;
	return o->memory + (uint64_t)(node / o->hosts) * o->node_bytes + offset;
}

/* The data of a WRITE_NOTIFY is there before it is told, and also if it cannot be told. */
static int tell(const struct am_owner *o, uint32_t from_host, const struct vb_verb *v)
{
	uint32_t to = vb_peer_node(v->peer), from = vb_peer_node(v->msg->from);
	uint32_t client = vb_peer_client(v->peer);
	uint8_t *at = NULL;
	int err;

	/* Names beyond 40 bits would be cut off by the functions above. */
	if (((v->peer | v->msg->from) >> 40) != 0 || from >= o->nodes ||
	    (from_host < o->hosts && from % o->hosts != from_host))
		return -EINVAL;
	if (to >= o->nodes || to % o->hosts != o->host)
		return -VB_EPEERGONE;
	if (v->op == VB_OP_WRITE_NOTIFY) {
		at = locate(o, v->addr, v->len, 1, &err);
		if (at == NULL)
			return err;
		if (to != vb_addr_node(v->addr))
			return -EINVAL;
		cpu_copy_in(at, v->buf, v->len);
	}
	return o->deliver(o->ctx, client, v->msg);
}

/* READ leaves its data at `result`, atomics their old value in v->old. */
static int run(const struct am_owner *o, uint32_t from_host, struct vb_verb *v, uint8_t *result)
{
	uint32_t atomic = cpu_atomic_bytes(v->op);
	void *at;
	int err;

	if (has_message(v->op))
		return tell(o, from_host, v);
	at = locate(o, v->addr, atomic != 0 ? atomic : v->len, atomic != 0 ? atomic : 1, &err);
	if (at == NULL)
		return err;
	if (v->op == VB_OP_WRITE)
		cpu_copy_in(at, v->buf, v->len);
	else if (v->op != VB_OP_READ)
		cpu_atomic(v, at);
	else if (v->flags & VB_SIGNALLED)
		cpu_copy_out(result, at, v->len);
	return 0;
}

uint32_t am_body_execute(const struct am_owner *o, const struct am_header *h, const uint8_t *body,
			 uint8_t *answer, uint32_t *late)
{
	struct am_cursor c = {body, body + h->bytes};
	uint8_t *p = answer;

	*late = 0;
	for (uint32_t i = 0; i < h->verbs; i++) {
		struct vb_verb v;
		struct vb_msg m;
		int err;

		vb_assert(verb_get(&c, &v, &m)); /* am_body_check has been here */
		if (v.op == AM_OP_NONE)
			continue;
		/* Each by itself: this thread may have been stopped after the last one. */
		if (o->now() > h->clock) {
			err = -VB_ETOOLATE;
			(*late)++;
		} else {
			err = run(o, h->host, &v, p + 2);
		}
		if (!(v.flags & VB_SIGNALLED))
			continue;
		p = put16(p, (uint16_t)-err);
		if (err != 0)
			continue;
		if (v.op == VB_OP_READ)
			p += v.len;
		else if (cpu_atomic_bytes(v.op) == 16)
			p = put128(p, v.old);
		else if (cpu_atomic_bytes(v.op) == 8)
			p = put64(p, v.old.lo);
	}
	return (uint32_t)(p - answer);
}

/* ---- back at the sender ---- */

int am_answer_get(struct am_cursor *c, struct vb_verb *v)
{
	struct am_cursor start = *c;
	const uint8_t *p = take(c, 2);
	int err = p != NULL ? -(int)get16(p) : 0;

	if (p != NULL && err == 0)
		p = take(c, result_bytes(v));
	if (p == NULL) {
		*c = start;
		return -EBADMSG;
	}
	v->status = err;
	if (err != 0)
		return 0;
	if (v->op == VB_OP_READ) {
		if (v->len > 0)
			memcpy(v->buf, p, v->len);
	} else if (cpu_atomic_bytes(v->op) == 16) {
		v->old = get128(p);
	} else if (cpu_atomic_bytes(v->op) == 8) {
		v->old.lo = get64(p);
	}
	return 0;
}
