/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes in over a connection: bytes, and frame after frame out of them for the root's or the
 * member's side.
 */
#include "cluster/inner.h"

#include <errno.h>
#include <string.h>

#define READ_ROUND (1u << 20) /* bytes of one connection before the others have their turn */

/* No more than a few bytes are kept for somebody who has proved nothing. */
static size_t rx_limit(const struct cluster_conn *k)
{
	return k->phase == CONN_HELLO || k->phase == CONN_PROOF || k->phase == CONN_CHALLENGE
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

/* Takes whole frames off the front of rx. */
static void parse(struct vb_cluster *c, struct cluster_conn *k)
{
	size_t at = 0, need;
	struct cl_frame f;
	const char *why;
	int n;

	while (!k->broken) {
		n = cl_frame_get(k->rx + at, k->rx_len - at, &f, &need, &why);
		if (n > 0) {
			frame_came(c, k, &f);
			at += (size_t)n;
			continue;
		}
		if (n == -EPROTONOSUPPORT && c->is_root) {
			root_refuse(c, k, -EPROTO,
				    "%s speaks another version of the protocol than "
				    "the root's, %d: use the same Verbena everywhere",
				    k->peer, CL_VERSION);
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

void conn_feed(struct vb_cluster *c, struct cluster_conn *k, const void *data, size_t bytes)
{
	const uint8_t *at = data;

	while (bytes > 0 && !k->broken && rx_grow(k, CL_CONTROL_MAX)) {
		size_t n = k->rx_size - k->rx_len < bytes ? k->rx_size - k->rx_len : bytes;

		memcpy(k->rx + k->rx_len, at, n);
		k->rx_len += n;
		at += n;
		bytes -= n;
		parse(c, k);
	}
}

void conn_read(struct vb_cluster *c, struct cluster_conn *k)
{
	ssize_t n;

	for (size_t round = 0; round < READ_ROUND && !k->broken && !k->eof; round += (size_t)n) {
		if (!rx_grow(k, CL_CONTROL_MAX))
			return;
		n = recv(k->fd, k->rx + k->rx_len, k->rx_size - k->rx_len, 0);
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
		k->rx_len += (size_t)n;
		parse(c, k);
	}
}
