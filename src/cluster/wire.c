/* SPDX-License-Identifier: Apache-2.0 */
/* Frames; see wire.h. */
#include "cluster/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <verbena/cluster.h>

#include "base/compiler.h"
#include "cluster/cluster.h"
#include "seal/seal.h"

#define MAGIC 0x4256u /* 'V', 'B' */

static const char hello_magic[8] = "vbclust";

static const struct {
	const char *name;
	uint32_t least, most; /* payload */
} types[CL_TYPES] = {
	[CL_HELLO] = {"HELLO", 12, 12},
	[CL_MODE] = {"MODE", 4, 4},
	[CL_PROOF] = {"PROOF", 1, CL_PROOF_MAX},
	[CL_PROOF_ROOT] = {"PROOF_ROOT", 1, CL_PROOF_MAX},
	[CL_JOIN] = {"JOIN", 18, CL_JOIN_MAX - CL_HEADER},
	[CL_MEMBER] = {"MEMBER", 10, 10 + CL_HOSTNAME + CL_MACHINE},
	[CL_START] = {"START", 64, 64},
	[CL_REFUSE] = {"REFUSE", 1, 1 + CL_TEXT},
	[CL_PING] = {"PING", 8, 8},
	[CL_PONG] = {"PONG", 16, 16},
	[CL_PART] = {"PART", 27, 27 + CL_WHAT},
	[CL_DATA] = {"DATA", 1, CL_CHUNK},
	[CL_RESULT] = {"RESULT", 20, 20},
	[CL_END] = {"END", 9, 9 + CL_TEXT},
	[CL_GONE] = {"GONE", 5, 5},
	[CL_SUSPECT] = {"SUSPECT", 5, 5},
	[CL_GOODBYE] = {"GOODBYE", 0, 0},
	[CL_NOTICE] = {"NOTICE", CL_NOTICE_SIZE, CL_NOTICE_SIZE},
};

/* Errors by numbers of our own: those of errno are not the same everywhere. */
static const int errors[] = {
	0, -EACCES, -EPROTO, -ETIMEDOUT, -VB_EPEERGONE, -EBUSY, -ENOMEM, -E2BIG,
};

static uint8_t error_code(int err)
{
	for (unsigned i = 0; i < VB_ARRAY_SIZE(errors); i++)
		if (errors[i] == err)
			return (uint8_t)i;
	return 2; /* -EPROTO: what has no word of its own */
}

/* ---- reading ---- */

/* Once something was not there, everything reads as 0 and `bad` stays. */
struct reader {
	const uint8_t *at, *end;
	bool bad;
};

static struct reader read_from(const struct cl_frame *f)
{
	return (struct reader){f->payload, f->payload + f->bytes, false};
}

static const uint8_t *get(struct reader *r, size_t n)
{
	const uint8_t *at = r->at;

	if (r->bad || (size_t)(r->end - r->at) < n) {
		r->bad = true;
		return NULL;
	}
	r->at += n;
	return at;
}

static uint64_t get_number(struct reader *r, unsigned bytes)
{
	const uint8_t *at = get(r, bytes);
	uint64_t v = 0;

	for (unsigned i = bytes; at != NULL && i-- > 0;)
		v = v << 8 | at[i];
	return v;
}

static uint8_t get_u8(struct reader *r)
{
	return (uint8_t)get_number(r, 1);
}

static uint32_t get_u32(struct reader *r)
{
	return (uint32_t)get_number(r, 4);
}

static uint64_t get_u64(struct reader *r)
{
	return get_number(r, 8);
}

static bool get_bool(struct reader *r)
{
	uint8_t v = get_u8(r);

	if (v > 1)
		r->bad = true;
	return v == 1;
}

static int get_error(struct reader *r)
{
	uint8_t code = get_u8(r);

	if (code >= VB_ARRAY_SIZE(errors)) {
		r->bad = true;
		return 0;
	}
	return errors[code];
}

void cl_copy_text(char *to, size_t size, const void *from, size_t bytes)
{
	const uint8_t *text = from;
	size_t n = bytes < size - 1 ? bytes : size - 1;

	for (size_t i = 0; i < n; i++)
		to[i] = text[i] < 0x20 || text[i] >= 0x7f ? '?' : (char)text[i];
	to[n] = '\0';
}

/* A length of one byte, then the text. */
static void get_text(struct reader *r, char *to, size_t size)
{
	size_t n = get_u8(r);
	const uint8_t *at = n < size ? get(r, n) : NULL;

	to[0] = '\0';
	if (at == NULL)
		r->bad = true;
	else
		cl_copy_text(to, size, at, n);
}

/* What is left of the payload. */
static void get_rest(struct reader *r, char *to, size_t size)
{
	if (!r->bad)
		cl_copy_text(to, size, r->at, (size_t)(r->end - r->at));
	r->at = r->end;
}

static int all_read(const struct reader *r)
{
	return r->bad || r->at != r->end ? -EPROTO : 0;
}

int cl_frame_get(const uint8_t *buf, size_t n, struct cl_frame *out, size_t *need, const char **why)
{
	struct reader r = {buf, buf + n, false};
	uint32_t bytes;
	uint8_t type, version;

	*need = CL_HEADER;
	if (n < CL_HEADER)
		return 0;
	bytes = get_u32(&r);
	type = get_u8(&r);
	version = get_u8(&r);
	*why = "does not speak Verbena's cluster protocol";
	if (get_number(&r, 2) != MAGIC || type == 0)
		return -EPROTO;
	if (version != CL_VERSION && type != CL_REFUSE) {
		*why = "speaks another version of the cluster protocol";
		return -EPROTONOSUPPORT;
	}
	if (type >= CL_TYPES || bytes < types[type].least || bytes > types[type].most) {
		*why = "sent a frame of an impossible kind or size";
		return -EPROTO;
	}
	*need = CL_HEADER + (size_t)bytes;
	if (n < *need)
		return 0;
	out->type = (enum cl_type)type;
	out->payload = buf + CL_HEADER;
	out->bytes = bytes;
	return (int)*need;
}

const char *cl_type_name(enum cl_type type)
{
	return type < CL_TYPES && types[type].name != NULL ? types[type].name : "?";
}

int cl_get_hello(const struct cl_frame *f, uint32_t *flags)
{
	struct reader r = read_from(f);
	const uint8_t *magic = get(&r, sizeof(hello_magic));

	*flags = get_u32(&r);
	if (all_read(&r) != 0 || memcmp(magic, hello_magic, sizeof(hello_magic)) != 0)
		return -EPROTO;
	return 0;
}

int cl_get_mode(const struct cl_frame *f, uint32_t *mode)
{
	struct reader r = read_from(f);

	*mode = get_u32(&r);
	return *mode < VB_SEAL_MODES ? all_read(&r) : -EPROTO;
}

static void get_identity(struct reader *r, struct cl_identity *who)
{
	who->pid = get_u32(r);
	get_text(r, who->host, sizeof(who->host));
	get_text(r, who->machine, sizeof(who->machine));
}

int cl_get_join(const struct cl_frame *f, struct cl_join *out)
{
	struct reader r = read_from(f);

	out->hosts = get_u32(&r);
	out->wanted = get_u32(&r);
	get_identity(&r, &out->who);
	out->config_bytes = get_u32(&r);
	out->config = (const char *)get(&r, out->config_bytes);
	if (out->hosts == 0 || out->hosts > VB_CLUSTER_HOSTS_MAX || out->config_bytes > CL_CONFIG)
		return -EPROTO;
	if (out->wanted != VB_CLUSTER_ANY_RANK && out->wanted >= VB_CLUSTER_HOSTS_MAX)
		return -EPROTO;
	return all_read(&r);
}

int cl_get_member(const struct cl_frame *f, struct cl_member *out)
{
	struct reader r = read_from(f);

	out->rank = get_u32(&r);
	get_identity(&r, &out->who);
	return out->rank < VB_CLUSTER_HOSTS_MAX ? all_read(&r) : -EPROTO;
}

int cl_get_start(const struct cl_frame *f, struct cl_start *out)
{
	struct reader r = read_from(f);
	const uint8_t *secret;

	out->rank = get_u32(&r);
	out->hosts = get_u32(&r);
	secret = get(&r, CL_SECRET);
	out->clock.tsc_base = get_u64(&r);
	out->clock.ns_base = get_u64(&r);
	out->clock.mult = get_u32(&r);
	out->clock.use_tsc = get_u32(&r);
	if (all_read(&r) != 0 || out->hosts > VB_CLUSTER_HOSTS_MAX || out->rank >= out->hosts)
		return -EPROTO;
	if (out->clock.use_tsc > 1 || (out->clock.use_tsc == 1 && out->clock.mult == 0))
		return -EPROTO;
	memcpy(out->secret, secret, CL_SECRET);
	return 0;
}

int cl_get_refuse(const struct cl_frame *f, struct cl_verdict *out)
{
	struct reader r = read_from(f);

	out->seq = 0;
	out->err = get_error(&r);
	get_rest(&r, out->text, sizeof(out->text));
	return out->err != 0 ? all_read(&r) : -EPROTO;
}

int cl_get_end(const struct cl_frame *f, struct cl_verdict *out)
{
	struct reader r = read_from(f);

	out->seq = get_u64(&r);
	out->err = get_error(&r);
	get_rest(&r, out->text, sizeof(out->text));
	return all_read(&r);
}

int cl_get_part(const struct cl_frame *f, struct cl_part *out)
{
	struct reader r = read_from(f);
	uint8_t flags;

	out->seq = get_u64(&r);
	out->bytes = get_u64(&r);
	out->timeout_ns = get_u64(&r);
	out->to = get_u8(&r);
	flags = get_u8(&r);
	out->partial = flags & 1;
	out->barrier = flags >> 1 & 1;
	out->err = get_error(&r);
	get_rest(&r, out->what, sizeof(out->what));
	if (out->bytes > VB_CLUSTER_PART_MAX || out->to > VB_CLUSTER_TO_ROOT || flags > 3)
		return -EPROTO;
	return out->err != 0 && out->bytes != 0 ? -EPROTO : all_read(&r);
}

int cl_get_result(const struct cl_frame *f, struct cl_result *out)
{
	struct reader r = read_from(f);

	out->seq = get_u64(&r);
	out->bytes = get_u64(&r);
	out->rank = get_u32(&r);
	if (out->bytes > VB_CLUSTER_PART_MAX || out->rank >= VB_CLUSTER_HOSTS_MAX)
		return -EPROTO;
	return all_read(&r);
}

int cl_get_ping(const struct cl_frame *f, uint64_t *time)
{
	struct reader r = read_from(f);

	*time = get_u64(&r);
	return all_read(&r);
}

int cl_get_pong(const struct cl_frame *f, struct cl_pong *out)
{
	struct reader r = read_from(f);

	out->yours = get_u64(&r);
	out->mine = get_u64(&r);
	return all_read(&r);
}

int cl_get_about(const struct cl_frame *f, struct cl_about *out)
{
	struct reader r = read_from(f);

	out->rank = get_u32(&r);
	out->flag = get_bool(&r);
	return out->rank < VB_CLUSTER_HOSTS_MAX ? all_read(&r) : -EPROTO;
}

/* ---- writing ---- */

static uint8_t *put_number(uint8_t *to, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++, v >>= 8)
		to[i] = (uint8_t)v;
	return to + bytes;
}

static uint8_t *put_bytes(uint8_t *to, const void *data, size_t bytes)
{
	if (bytes > 0)
		memcpy(to, data, bytes);
	return to + bytes;
}

static uint8_t *put_text(uint8_t *to, const char *text, size_t most)
{
	size_t n = strnlen(text, most);

	*to = (uint8_t)n;
	return put_bytes(to + 1, text, n);
}

size_t cl_put_header(uint8_t *to, enum cl_type type, uint32_t bytes)
{
	vb_assert(bytes >= types[type].least && bytes <= types[type].most);
	to = put_number(to, bytes, 4);
	*to++ = (uint8_t)type;
	*to++ = CL_VERSION;
	put_number(to, MAGIC, 2);
	return CL_HEADER;
}

/* The payload ends at `end`: the header in front of it is the last to be known. */
static size_t finish(uint8_t *to, const uint8_t *end, enum cl_type type)
{
	cl_put_header(to, type, (uint32_t)(end - to - CL_HEADER));
	return (size_t)(end - to);
}

size_t cl_put_hello(uint8_t *to, uint32_t flags)
{
	uint8_t *at = put_bytes(to + CL_HEADER, hello_magic, sizeof(hello_magic));

	return finish(to, put_number(at, flags, 4), CL_HELLO);
}

size_t cl_put_mode(uint8_t *to, uint32_t mode)
{
	return finish(to, put_number(to + CL_HEADER, mode, 4), CL_MODE);
}

size_t cl_put_bytes(uint8_t *to, enum cl_type type, const void *data, uint32_t bytes)
{
	return finish(to, put_bytes(to + CL_HEADER, data, bytes), type);
}

static uint8_t *put_identity(uint8_t *at, const struct cl_identity *who)
{
	at = put_number(at, who->pid, 4);
	at = put_text(at, who->host, CL_HOSTNAME);
	return put_text(at, who->machine, CL_MACHINE);
}

size_t cl_put_join(uint8_t *to, const struct cl_join *j)
{
	uint8_t *at = put_number(to + CL_HEADER, j->hosts, 4);

	at = put_number(at, j->wanted, 4);
	at = put_identity(at, &j->who);
	at = put_number(at, j->config_bytes, 4);
	return finish(to, put_bytes(at, j->config, j->config_bytes), CL_JOIN);
}

size_t cl_put_member(uint8_t *to, const struct cl_member *m)
{
	uint8_t *at = put_number(to + CL_HEADER, m->rank, 4);

	return finish(to, put_identity(at, &m->who), CL_MEMBER);
}

size_t cl_put_start(uint8_t *to, const struct cl_start *s)
{
	uint8_t *at = put_number(to + CL_HEADER, s->rank, 4);

	at = put_number(at, s->hosts, 4);
	at = put_bytes(at, s->secret, CL_SECRET);
	at = put_number(at, s->clock.tsc_base, 8);
	at = put_number(at, s->clock.ns_base, 8);
	at = put_number(at, s->clock.mult, 4);
	return finish(to, put_number(at, s->clock.use_tsc, 4), CL_START);
}

size_t cl_put_refuse(uint8_t *to, int err, const char *text)
{
	uint8_t *at = to + CL_HEADER;

	*at++ = error_code(err);
	return finish(to, put_bytes(at, text, strnlen(text, CL_TEXT)), CL_REFUSE);
}

size_t cl_put_end(uint8_t *to, const struct cl_verdict *v)
{
	uint8_t *at = put_number(to + CL_HEADER, v->seq, 8);

	*at++ = error_code(v->err);
	return finish(to, put_bytes(at, v->text, strnlen(v->text, CL_TEXT)), CL_END);
}

size_t cl_put_part(uint8_t *to, const struct cl_part *p)
{
	uint8_t *at = put_number(to + CL_HEADER, p->seq, 8);

	at = put_number(at, p->bytes, 8);
	at = put_number(at, p->timeout_ns, 8);
	*at++ = p->to;
	*at++ = (uint8_t)(p->partial | p->barrier << 1);
	*at++ = error_code(p->err);
	return finish(to, put_bytes(at, p->what, strnlen(p->what, CL_WHAT)), CL_PART);
}

size_t cl_put_result(uint8_t *to, const struct cl_result *r)
{
	uint8_t *at = put_number(to + CL_HEADER, r->seq, 8);

	at = put_number(at, r->bytes, 8);
	return finish(to, put_number(at, r->rank, 4), CL_RESULT);
}

size_t cl_put_ping(uint8_t *to, uint64_t time)
{
	return finish(to, put_number(to + CL_HEADER, time, 8), CL_PING);
}

size_t cl_put_pong(uint8_t *to, const struct cl_pong *p)
{
	uint8_t *at = put_number(to + CL_HEADER, p->yours, 8);

	return finish(to, put_number(at, p->mine, 8), CL_PONG);
}

size_t cl_put_about(uint8_t *to, enum cl_type type, const struct cl_about *a)
{
	uint8_t *at = put_number(to + CL_HEADER, a->rank, 4);

	*at++ = a->flag;
	return finish(to, at, type);
}

/* ---- configurations ---- */

struct line {
	const char *key, *value;
	size_t key_bytes, value_bytes;
};

/* The next line that is not empty; what has no '=' is a key whose value is empty. */
static bool next_line(const char **at, const char *end, struct line *out)
{
	const char *eol, *equals;

	while (*at < end && **at == '\n')
		(*at)++;
	if (*at == end)
		return false;
	eol = memchr(*at, '\n', (size_t)(end - *at));
	eol = eol != NULL ? eol : end;
	equals = memchr(*at, '=', (size_t)(eol - *at));
	out->key = *at;
	out->key_bytes = (size_t)((equals != NULL ? equals : eol) - *at);
	out->value = equals != NULL ? equals + 1 : eol;
	out->value_bytes = (size_t)(eol - out->value);
	*at = eol;
	return true;
}

static bool find_key(const char *text, size_t bytes, const struct line *key, struct line *out)
{
	const char *at = text;

	while (next_line(&at, text + bytes, out))
		if (out->key_bytes == key->key_bytes &&
		    memcmp(out->key, key->key, key->key_bytes) == 0)
			return true;
	return false;
}

static void say_value(char *to, size_t size, const struct line *l)
{
	if (l == NULL)
		cl_copy_text(to, size, "none", 4);
	else
		cl_copy_text(to, size, l->value, l->value_bytes);
}

/* The first line of `a` that `b` has not, or has otherwise. */
static bool first_difference(const char *a, size_t a_bytes, const char *b, size_t b_bytes,
			     struct line *in_a, struct line *in_b, bool *b_has)
{
	const char *at = a;

	while (next_line(&at, a + a_bytes, in_a)) {
		*b_has = find_key(b, b_bytes, in_a, in_b);
		if (!*b_has || in_a->value_bytes != in_b->value_bytes ||
		    memcmp(in_a->value, in_b->value, in_a->value_bytes) != 0)
			return true;
	}
	return false;
}

bool cl_config_differs(const char *ours, size_t our_bytes, const char *theirs, size_t their_bytes,
		       const char *who, char *text, size_t size)
{
	struct line mine, other;
	char key[64], left[96], right[96];
	bool has;

	if (our_bytes == their_bytes && (our_bytes == 0 || memcmp(ours, theirs, our_bytes) == 0))
		return false;
	if (first_difference(ours, our_bytes, theirs, their_bytes, &mine, &other, &has)) {
		cl_copy_text(key, sizeof(key), mine.key, mine.key_bytes);
		say_value(left, sizeof(left), has ? &other : NULL);
		say_value(right, sizeof(right), &mine);
	} else if (first_difference(theirs, their_bytes, ours, our_bytes, &other, &mine, &has)) {
		cl_copy_text(key, sizeof(key), other.key, other.key_bytes);
		say_value(left, sizeof(left), &other);
		say_value(right, sizeof(right), has ? &mine : NULL);
	} else {
		return false; /* the same lines in another order */
	}
	snprintf(text, size, "%s: %s has %s, the root has %s", key, who, left, right);
	return true;
}
