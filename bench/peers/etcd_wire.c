/* SPDX-License-Identifier: Apache-2.0 */
/* See etcd_wire.h. */
#include "etcd_wire.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Names are our own and short; a reply's key is checked when it is decoded. */
#define NAME_MAX_LEN 64

const char *etcd_path(enum peer_wire wire, enum etcd_call call)
{
	static const char *const paths[2][ETCD_CALLS] = {
		[PEER_JSON] = {[ETCD_LOCK] = "/v3/lock/lock",
			       [ETCD_UNLOCK] = "/v3/lock/unlock",
			       [ETCD_PUT] = "/v3/kv/put"},
		[PEER_GRPC] = {[ETCD_LOCK] = "/v3lockpb.Lock/Lock",
			       [ETCD_UNLOCK] = "/v3lockpb.Lock/Unlock",
			       [ETCD_PUT] = "/etcdserverpb.KV/Put"},
	};

	return paths[wire][call];
}

/* ---- JSON ---- */

static void base64(const char *in, size_t len, char *out)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				     "0123456789+/";

	for (size_t i = 0; i < len; i += 3) {
		uint32_t left = len - i >= 3 ? 3 : (uint32_t)(len - i), v = 0;

		for (uint32_t k = 0; k < 3; k++)
			v = v << 8 | (k < left ? (uint8_t)in[i + k] : 0);
		for (uint32_t k = 0; k < 4; k++)
			*out++ = k <= left ? digits[v >> (18 - 6 * k) & 63] : '=';
	}
	*out = '\0';
}

static size_t encode_json(enum etcd_call call, const char *name, int64_t lease,
			  const struct etcd_key *key, uint8_t *out)
{
	char text[NAME_MAX_LEN * 2], *to = (char *)out;
	int n;

	if (name != NULL)
		base64(name, strnlen(name, NAME_MAX_LEN), text);
	if (call == ETCD_LOCK)
		n = snprintf(to, ETCD_REQUEST, "{\"name\":\"%s\",\"lease\":\"%" PRId64 "\"}", text,
			     lease);
	else if (call == ETCD_UNLOCK)
		n = snprintf(to, ETCD_REQUEST, "{\"key\":\"%.*s\"}", (int)key->len, key->data);
	else
		n = snprintf(to, ETCD_REQUEST, "{\"key\":\"%s\",\"value\":\"%s\"}", text, text);
	return (size_t)n;
}

static int decode_json(const uint8_t *body, size_t len, struct etcd_key *key)
{
	json_t *root = json_loadb((const char *)body, len, 0, NULL);
	const char *text = json_string_value(json_object_get(root, "key"));
	size_t n = text != NULL ? strlen(text) : 0;
	/* It is sent back as it is, between quotes. */
	int err = n == 0 || n > sizeof(key->data) || strpbrk(text, "\"\\") != NULL ? -EPROTO : 0;

	if (err == 0) {
		memcpy(key->data, text, n);
		key->len = n;
	}
	json_decref(root);
	return err;
}

/* ---- gRPC ---- */

static uint8_t *put_varint(uint8_t *to, uint64_t v)
{
	while (v >= 128) {
		*to++ = (uint8_t)(v | 128);
		v >>= 7;
	}
	*to++ = (uint8_t)v;
	return to;
}

static uint8_t *put_bytes(uint8_t *to, unsigned field, const void *data, size_t len)
{
	to = put_varint(to, field << 3 | 2);
	to = put_varint(to, len);
	memcpy(to, data, len);
	return to + len;
}

static size_t encode_grpc(enum etcd_call call, const char *name, int64_t lease,
			  const struct etcd_key *key, uint8_t *out)
{
	size_t len = name != NULL ? strnlen(name, NAME_MAX_LEN) : 0;
	uint8_t *to = out + 5;

	if (call == ETCD_UNLOCK)
		to = put_bytes(to, 1, key->data, key->len);
	else
		to = put_bytes(to, 1, name, len);
	if (call == ETCD_PUT)
		to = put_bytes(to, 2, name, len);
	if (call == ETCD_LOCK) {
		to = put_varint(to, 2 << 3);
		to = put_varint(to, (uint64_t)lease);
	}
	len = (size_t)(to - out) - 5;
	out[0] = 0; /* not compressed; then the length, the highest byte first */
	for (unsigned i = 0; i < 4; i++)
		out[1 + i] = (uint8_t)(len >> (24 - 8 * i));
	return len + 5;
}

static bool get_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
	*out = 0;
	for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
		uint8_t b = *(*at)++;

		*out |= (uint64_t)(b & 127) << shift;
		if (b < 128)
			return true;
	}
	return false;
}

/* Field 2 of a message whose other fields are integers or bytes. */
static int decode_grpc(const uint8_t *body, size_t len, struct etcd_key *key)
{
	const uint8_t *at = body + 5, *end = body + len;
	uint64_t tag, n;

	if (len < 5 || body[0] != 0)
		return -EPROTO;
	while (at < end) {
		if (!get_varint(&at, end, &tag) || !get_varint(&at, end, &n))
			return -EPROTO;
		if ((tag & 7) == 0)
			continue;
		if ((tag & 7) != 2 || n > (uint64_t)(end - at))
			return -EPROTO;
		if (tag >> 3 == 2) {
			if (n == 0 || n > sizeof(key->data))
				return -EPROTO;
			memcpy(key->data, at, n);
			key->len = n;
			return 0;
		}
		at += n;
	}
	return -EPROTO;
}

size_t etcd_encode(enum peer_wire wire, enum etcd_call call, const char *name, int64_t lease,
		   const struct etcd_key *key, uint8_t out[ETCD_REQUEST])
{
	return wire == PEER_GRPC ? encode_grpc(call, name, lease, key, out)
				 : encode_json(call, name, lease, key, out);
}

int etcd_decode_lock(enum peer_wire wire, const uint8_t *body, size_t len, struct etcd_key *key)
{
	return wire == PEER_GRPC ? decode_grpc(body, len, key) : decode_json(body, len, key);
}
