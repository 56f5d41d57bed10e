/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection.  Out of it go two lanes: frames (tx), and behind them parts and results in pieces
 * of CL_CHUNK bytes (bulk).  A piece is moved to tx only when tx has run low, so that a frame waits
 * for two pieces at most, however many megabytes are on their way.  On a sealed connection what is in tx
 * becomes records (out) when those before have left.
 */
#include "cluster/inner.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct cluster_blob *cluster_blob_new(const void *data, size_t bytes)
{
	struct cluster_blob *b = malloc(sizeof(*b) + bytes);

	if (b == NULL)
		return NULL;
	b->refs = 1;
	b->bytes = bytes;
	if (data != NULL && bytes > 0)
		memcpy(b->data, data, bytes);
	return b;
}

void cluster_blob_put(struct cluster_blob *b)
{
	if (b != NULL && --b->refs == 0)
		free(b);
}

void cluster_result_put(struct cluster_result *r)
{
	if (r == NULL || --r->refs != 0)
		return;
	for (uint32_t i = 0; i < r->n; i++)
		cluster_blob_put(r->parts[i]);
	free(r);
}

struct cluster_conn *conn_new(struct vb_cluster *c, int fd, const char *peer)
{
	struct cluster_conn *k = calloc(1, sizeof(*k));

	if (k == NULL)
		return NULL;
	k->fd = fd;
	k->rank = VB_CLUSTER_ANY_RANK;
	k->deadline_ns = VB_FOREVER;
	k->heard_ns = cluster_now();
	snprintf(k->peer, sizeof(k->peer), "%s", peer);
	vb_list_init(&k->bulk);
	vb_list_push(&c->conns, &k->link);
	return k;
}

static void bulk_free(struct cluster_bulk *b)
{
	vb_list_remove(&b->link);
	cluster_blob_put(b->blob);
	cluster_result_put(b->result);
	free(b);
}

void conn_free(struct vb_cluster *c, struct cluster_conn *k)
{
	for (uint32_t r = 0; r < c->hosts; r++)
		if (c->peers[r].conn == k)
			c->peers[r].conn = NULL;
	vb_list_for_each (it, &k->bulk)
		bulk_free(vb_container_of(it, struct cluster_bulk, link));
	vb_list_remove(&k->link);
	cluster_blob_put(k->in.blob);
	if (k->fd >= 0)
		close(k->fd);
	vb_shake_free(k->shake);
	vb_seal_free(k->seal);
	auth_forget(k->mask, sizeof(k->mask));
	vb_buf_free(&k->raw);
	vb_buf_free(&k->opened);
	vb_buf_free(&k->out);
	free(k->rx);
	free(k->tx);
	free(k);
}

void conn_break(struct cluster_conn *k, const char *why)
{
	if (k->broken)
		return;
	k->broken = true;
	k->why = why;
}

void conn_starve(struct cluster_conn *k, const char *why)
{
	k->starved |= !k->broken;
	conn_break(k, why);
}

void conn_end(struct cluster_conn *k, int error)
{
	k->eof = true;
	k->why = strerror(error);
}

/* ---- out ---- */

uint8_t *conn_room(struct cluster_conn *k, size_t n)
{
	size_t size = k->tx_size > 0 ? k->tx_size : 2048;
	uint8_t *tx;

	if (k->broken)
		return NULL;
	if (k->tx_at > 0) {
		memmove(k->tx, k->tx + k->tx_at, k->tx_len - k->tx_at);
		k->tx_len -= k->tx_at;
		k->tx_at = 0;
	}
	if (k->tx_len + n > CL_TX_MAX) {
		conn_break(k, "does not take what it is sent");
		return NULL;
	}
	while (size < k->tx_len + n)
		size *= 2;
	if (size > k->tx_size) {
		tx = realloc(k->tx, size);
		if (tx == NULL) {
			conn_starve(k, "there is no memory left for what it is sent");
			return NULL;
		}
		k->tx = tx;
		k->tx_size = size;
	}
	return k->tx + k->tx_len;
}

void conn_put(struct cluster_conn *k, size_t n)
{
	k->tx_len += n;
}

void conn_seal(struct cluster_conn *k, struct vb_seal *seal)
{
	k->seal = seal;
	if (k->tx_at < k->tx_len && !vb_buf_add(&k->out, k->tx + k->tx_at, k->tx_len - k->tx_at))
		conn_starve(k, "there is no memory left for what it is sent");
	k->tx_at = k->tx_len = 0;
}

void conn_refuse(struct cluster_conn *k, int err, const char *text)
{
	uint8_t *to = conn_room(k, CL_CONTROL_MAX);

	if (to != NULL)
		conn_put(k, cl_put_refuse(to, err, text));
	k->phase = CONN_LEAVING;
	k->deadline_ns = cluster_now() + CL_PARTING_NS;
}

void conn_ping(struct cluster_conn *k)
{
	uint8_t *to = conn_room(k, CL_CONTROL_MAX);

	if (to == NULL)
		return;
	k->pinging = true;
	k->pinged_ns = cluster_now();
	k->ping_time = vb_clock_ns();
	conn_put(k, cl_put_ping(to, k->ping_time));
}

void conn_pong(struct cluster_conn *k, uint64_t time)
{
	struct cl_pong p = {.yours = time, .mine = vb_clock_ns()};
	uint8_t *to = conn_room(k, CL_CONTROL_MAX);

	if (to != NULL)
		conn_put(k, cl_put_pong(to, &p));
}

int conn_bulk(struct cluster_conn *k, const struct cluster_bulk *b)
{
	struct cluster_bulk *copy = malloc(sizeof(*copy));

	if (copy == NULL)
		return -ENOMEM;
	*copy = *b;
	vb_list_init(&copy->link);
	vb_list_push(&k->bulk, &copy->link);
	return 0;
}

/* The next piece of a blob; true when the last one has left. */
static bool put_piece(struct cluster_conn *k, struct cluster_bulk *b, const struct cluster_blob *d)
{
	size_t n = d != NULL ? d->bytes - b->at : 0;
	uint8_t *to;

	if (n > CL_CHUNK)
		n = CL_CHUNK;
	if (n > 0) {
		to = conn_room(k, CL_HEADER + n);
		if (to == NULL)
			return false;
		conn_put(k, cl_put_bytes(to, CL_DATA, d->data + b->at, (uint32_t)n));
		b->at += n;
	}
	return d == NULL || b->at == d->bytes;
}

static bool put_result(struct cluster_conn *k, struct cluster_bulk *b)
{
	struct cluster_result *r = b->result;
	struct cl_result header;
	uint8_t *to;

	while (b->rank < r->n && r->parts[b->rank] == NULL)
		b->rank++;
	if (b->rank == r->n) {
		to = conn_room(k, CL_CONTROL_MAX);
		if (to != NULL)
			conn_put(k, cl_put_end(to, &r->verdict));
		return true;
	}
	if (!b->begun) {
		header = (struct cl_result){
			.seq = r->verdict.seq, .rank = b->rank, .bytes = r->parts[b->rank]->bytes};
		to = conn_room(k, CL_CONTROL_MAX);
		if (to == NULL)
			return false;
		conn_put(k, cl_put_result(to, &header));
		b->begun = true;
	}
	if (put_piece(k, b, r->parts[b->rank])) {
		b->rank++;
		b->at = 0;
		b->begun = false;
	}
	return false;
}

static bool put_part(struct cluster_conn *k, struct cluster_bulk *b)
{
	uint8_t *to;

	if (!b->begun) {
		to = conn_room(k, CL_CONTROL_MAX);
		if (to == NULL)
			return false;
		conn_put(k, cl_put_part(to, &b->part));
		b->begun = true;
	}
	return put_piece(k, b, b->blob);
}

static bool put_goodbye(struct cluster_conn *k)
{
	uint8_t *to = conn_room(k, CL_CONTROL_MAX);

	if (to != NULL)
		conn_put(k, cl_put_bytes(to, CL_GOODBYE, NULL, 0));
	k->said_goodbye = true;
	return true;
}

void conn_fill(struct cluster_conn *k)
{
	while (!k->broken && k->tx_len - k->tx_at < CL_CHUNK && !vb_list_empty(&k->bulk)) {
		struct cluster_bulk *b = vb_container_of(k->bulk.next, struct cluster_bulk, link);
		bool over = b->kind == BULK_PART     ? put_part(k, b)
			    : b->kind == BULK_RESULT ? put_result(k, b)
						     : put_goodbye(k);

		if (over)
			bulk_free(b);
	}
}

bool conn_wants_write(const struct cluster_conn *k)
{
	return k->tx_len > k->tx_at || vb_buf_bytes(&k->out) > 0 || !vb_list_empty(&k->bulk);
}

/* A record of what is in tx, unless one still waits. */
static void seal_frames(struct cluster_conn *k)
{
	size_t n = k->tx_len - k->tx_at;

	if (n == 0 || vb_buf_bytes(&k->out) > 0)
		return;
	n = n < VB_SEAL_MAX ? n : VB_SEAL_MAX;
	if (!vb_buf_reserve(&k->out, n + VB_SEAL_MORE)) {
		conn_starve(k, "there is no memory left for what it is sent");
		return;
	}
	k->out.end += vb_seal_put(k->seal, k->out.at + k->out.end, k->tx + k->tx_at, n);
	k->tx_at += n;
}

static ssize_t send_some(struct cluster_conn *k)
{
	struct vb_buf *b = &k->out;
	ssize_t n;

	if (k->seal != NULL) {
		n = send(k->fd, b->at + b->begin, vb_buf_bytes(b), MSG_NOSIGNAL);
		if (n > 0)
			vb_buf_take(b, (size_t)n);
	} else {
		n = send(k->fd, k->tx + k->tx_at, k->tx_len - k->tx_at, MSG_NOSIGNAL);
		if (n > 0)
			k->tx_at += (size_t)n;
	}
	return n;
}

void conn_write(struct cluster_conn *k)
{
	ssize_t n;

	for (;;) {
		conn_fill(k);
		if (!k->broken && k->seal != NULL)
			seal_frames(k);
		if (k->broken || k->eof ||
		    (k->seal != NULL ? vb_buf_bytes(&k->out) == 0 : k->tx_at == k->tx_len))
			return;
		n = send_some(k);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			if (errno != EAGAIN && errno != EWOULDBLOCK)
				conn_end(k, errno);
			return;
		}
		if (k->phase == CONN_LEAVING || k->said_goodbye)
			k->deadline_ns = cluster_now() + CL_PARTING_NS; /* it moves */
	}
}

void conn_notice(struct vb_cluster *c, struct cluster_conn *k)
{
	uint8_t *to;

	if (!k->notice_due || k->phase != CONN_GOING || conn_wants_write(k))
		return;
	to = conn_room(k, CL_CONTROL_MAX);
	if (to == NULL)
		return;
	conn_put(k, cl_put_bytes(to, CL_NOTICE, c->peers[c->rank].notice, CL_NOTICE_SIZE));
	k->notice_due = false;
}

void conn_take_notice(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	struct cluster_peer *p = &c->peers[c->is_root ? k->rank : 0];

	_Static_assert(CL_NOTICE_SIZE == VB_CLUSTER_NOTICE, "one size");
	memcpy(p->notice, f->payload, CL_NOTICE_SIZE);
	p->noticed = true;
}
