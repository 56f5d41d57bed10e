/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes in over a connection: bytes, perhaps sealed records out of them, and frame after frame for the
 * root's or the member's side.
 */
#include "cluster/inner.h"

#include <errno.h>
#include <string.h>

#define READ_ROUND (1u << 20) /* bytes of one connection before the others have their turn */
#define READ       32768u

/* No more than a few bytes are kept for somebody who has proved nothing. */
static size_t rx_limit(const struct cluster_conn *k)
{
	return k->phase == CONN_HELLO || k->phase == CONN_PROOF || k->phase == CONN_MODE
		       ? CL_CONTROL_MAX
		       : CL_HEADER + CL_CHUNK;
}

static bool rx_grow(struct cluster_conn *k, size_t need)
{
	uint8_t *rx;

	if (need <= k->rx_size)
		return true;
	need = need <= CL_CONTROL_MAX ? CL_CONTROL_MAX : CL_HEADER + CL_CHUNK;
	rx = realloc(k->rx, need);
	if (rx == NULL) {
		conn_starve(k, "there is no memory left for what it sends");
		return false;
	}
	k->rx = rx;
	k->rx_size = need;
	return true;
}

static void frame_came(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	if (k->phase == CONN_LEAVING)
		return;
	if (c->is_root)
		root_frame(c, k, f);
	else
		member_frame(c, k, f);
}

/* Takes whole frames off the front of rx; what is behind the one with which records begin is none. */
static void parse(struct vb_cluster *c, struct cluster_conn *k)
{
	bool sealed = k->seal != NULL;
	size_t at = 0, need;
	struct cl_frame f;
	const char *why;
	int n;

	while (!k->broken && sealed == (k->seal != NULL)) {
		n = cl_frame_get(k->rx + at, k->rx_len - at, &f, &need, &why);
		if (n > 0) {
			frame_came(c, k, &f);
			at += (size_t)n;
			continue;
		}
		if (n == -EPROTONOSUPPORT && c->is_root) {
			root_refuse(c, k, -EPROTO,
				    "%s speaks version %u of the cluster protocol, the root "
				    "version %d: use the same Verbena everywhere",
				    k->peer, k->rx[at + CL_VERSION_AT], CL_VERSION);
			at = k->rx_len;
		} else if (n < 0) {
			conn_break(k, why);
		} else if (need > rx_limit(k)) {
			conn_break(k, "sent a frame that nobody may send before its proof");
		} else {
			rx_grow(k, need);
		}
		break;
	}
	k->rx_len -= at;
	if (at > 0 && k->rx_len > 0)
		memmove(k->rx, k->rx + at, k->rx_len);
}

/* Frames as they are; how many bytes of them were left when records began. */
static size_t feed_frames(struct vb_cluster *c, struct cluster_conn *k, const uint8_t *at,
			  size_t bytes)
{
	bool sealed = k->seal != NULL;

	while (bytes > 0 && !k->broken && sealed == (k->seal != NULL) &&
	       rx_grow(k, CL_CONTROL_MAX)) {
		size_t n = k->rx_size - k->rx_len < bytes ? k->rx_size - k->rx_len : bytes;

		memcpy(k->rx + k->rx_len, at, n);
		k->rx_len += n;
		at += n;
		bytes -= n;
		parse(c, k);
	}
	return bytes;
}

static void open_records(struct vb_cluster *c, struct cluster_conn *k)
{
	struct vb_buf *b = &k->opened;
	int rc = 1;

	while (!k->broken && (rc = vb_seal_get(k->seal, &k->raw, b)) == 1) {
		(void)feed_frames(c, k, b->at + b->begin, vb_buf_bytes(b));
		vb_buf_take(b, vb_buf_bytes(b));
	}
	if (rc == -EBADMSG)
		conn_break(k, "brought a frame that the other end has not sealed so");
	else if (rc < 0)
		conn_starve(k, "there is no memory left for what it sends");
}

void conn_feed(struct vb_cluster *c, struct cluster_conn *k, const void *data, size_t bytes)
{
	const uint8_t *end = (const uint8_t *)data + bytes;
	bool sealed = k->seal != NULL, kept = true;

	if (!sealed)
		bytes = feed_frames(c, k, data, bytes);
	if (k->broken || k->seal == NULL)
		return;
	if (!sealed) {
		kept = vb_buf_add(&k->raw, k->rx, k->rx_len);
		k->rx_len = 0;
	}
	if (!kept || !vb_buf_add(&k->raw, end - bytes, bytes))
		conn_starve(k, "there is no memory left for what it sends");
	open_records(c, k);
}

void conn_read(struct vb_cluster *c, struct cluster_conn *k)
{
	uint8_t bytes[READ];
	ssize_t n;

	for (size_t round = 0; round < READ_ROUND && !k->broken && !k->eof; round += (size_t)n) {
		n = recv(k->fd, bytes, sizeof(bytes), 0);
		if (n < 0 && errno == EINTR) {
			n = 0;
			continue;
		}
		if (n < 0) {
			if (errno != EAGAIN && errno != EWOULDBLOCK)
				conn_end(k, errno);
			return;
		}
		if (n == 0) {
			k->eof = true;
			return;
		}
		k->heard_ns = cluster_now();
		conn_feed(c, k, bytes, (size_t)n);
	}
}
