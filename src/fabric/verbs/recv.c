/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receive buffers, and queue pairs that are no longer wanted.
 *
 * All connections share one receive queue with n_recvs buffers in it.  A buffer that is not put back
 * makes the queue shorter for good, until senders of all connections stand still.  Two things take
 * buffers along when a queue pair is destroyed:
 *   - drivers remove its completions that nobody has polled (mlx5), and a buffer is put back when
 *     its completion is polled;
 *   - the device may have taken a buffer out of the queue for it, and not used it.
 * So a broken queue pair is not destroyed at once.  It goes to the *dying* ones, and the connection
 * gets a new one.  When the device has said that it takes no more buffers for it
 * (IBV_EVENT_QP_LAST_WQE_REACHED; InfiniBand specification, 10.3.1), all its completions are in the
 * completion queue: that is polled until it is empty, and the queue pair is destroyed.
 *
 * Not every device says so (Soft-RoCE of Linux 6.1 does not).  After LAST_NS the queue pair is
 * destroyed without, and a buffer may be gone with it.  Which one, the order tells: devices take
 * buffers in the order in which they were put in.  One that has not come back while all others have
 * come twice is taken for lost, and a spare one takes its place.  Should it come back all the same,
 * it is a spare.  So no buffer is in the queue twice, and the queue stays as long as it was for as
 * long as there are spares.
 */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/inner.h"

#include "base/log.h"

#define LAST_NS 1000000000ull
#define LOST    UINT64_MAX
#define LAPS    2

/* ---- buffers ---- */

int verbs_recv_post(struct verbs *w, bool ud, const uint32_t *at, uint32_t n)
{
	struct ibv_recv_wr wr[VERBS_POLL], *bad;
	struct ibv_sge sge[VERBS_POLL];
	int err;

	if (n == 0)
		return 0;
	for (uint32_t i = 0; i < n; i++) {
		uint8_t *buf = (ud ? w->ud_recvs : w->recvs) + (size_t)at[i] * VERBS_RECV_BYTES;

		sge[i] = (struct ibv_sge){.addr = (uintptr_t)buf,
					  .length = VERBS_RECV_BYTES,
					  .lkey = w->pool_mr->lkey};
		wr[i] = (struct ibv_recv_wr){
			.wr_id = verbs_id(ud ? VERBS_ID_UD_RECV : VERBS_ID_RECV, 0, 0, at[i]),
			.next = i + 1 < n ? &wr[i + 1] : NULL,
			.sg_list = &sge[i],
			.num_sge = 1};
		if (!ud)
			w->recv_turn[at[i]] = ++w->recv_turns;
	}
	err = ud ? ibv_post_recv(w->ud->qp, wr, &bad) : ibv_post_srq_recv(w->srq, wr, &bad);
	if (err != 0)
		return vb_fail(-EIO, "%s takes no receive buffers: %s", w->choice.device.name,
			       strerror(err));
	return 0;
}

bool verbs_recv_is_back(struct verbs *w, uint32_t at)
{
	if (vb_likely(w->recv_turn[at] != LOST))
		return true;
	w->recv_turn[at] = 0;
	w->recvs_lost--;
	return false;
}

/* A buffer that is in no queue: never used yet, or back after it was taken for lost. */
static bool spare(const struct verbs *w, uint32_t *at)
{
	for (*at = 0; *at < w->n_recvs + w->n_spares; (*at)++) {
		if (w->recv_turn[*at] == 0)
			return true;
	}
	return false;
}

static void replace(struct verbs *w, uint32_t at)
{
	uint32_t other;

	w->recv_turn[at] = LOST;
	w->recvs_lost++;
	if (spare(w, &other))
		(void)verbs_recv_post(w, false, &other, 1);
	else
		vb_error("%s has lost %u receive buffers with broken connections, and no spare "
			 "one is left: senders will stand still; open the fabric anew",
			 w->choice.device.name, w->recvs_lost);
}

void verbs_look_for_lost(struct verbs *w)
{
	uint64_t laps = (uint64_t)LAPS * w->n_recvs;

	for (uint32_t at = 0; at < w->n_recvs + w->n_spares; at++) {
		uint64_t turn = w->recv_turn[at];

		if (turn != LOST && turn != 0 && turn <= w->doubt_turn &&
		    w->recv_turns - turn > laps)
			replace(w, at);
	}
	/* What was in the queue at the last doubt has come back, or has been replaced. */
	w->doubt = w->recv_turns - w->doubt_turn <= laps;
}

/* ---- queue pairs ---- */

static void destroy(struct verbs *w, struct ibv_qp *qp, bool last)
{
	int err = w->lib->destroy_qp(qp);

	if (err != 0)
		vb_error("%s: a queue pair cannot be destroyed: %s", w->choice.device.name,
			 strerror(err));
	if (last)
		return;
	w->doubt = true;
	w->doubt_turn = w->recv_turns;
}

bool verbs_may_bury(const struct verbs *w)
{
	return w->n_dying + w->lanes <= VERBS_DYING_MAX;
}

void verbs_bury(struct verbs *w, struct ibv_qp *qp, bool last, bool soon)
{
	if (w->n_dying == VERBS_DYING_MAX) {
		destroy(w, qp, false);
		return;
	}
	w->dying[w->n_dying++] = (struct verbs_dying){
		.qp = qp, .last = last, .until_ns = soon ? 0 : vb_clock_ns() + LAST_NS};
}

void verbs_last_wqe(struct verbs *w, const struct ibv_qp *qp)
{
	for (uint32_t i = 0; i < w->n_dying; i++)
		w->dying[i].last |= w->dying[i].qp == qp;
	for (uint32_t i = 0; i < w->n_qps; i++)
		w->qps[i].last |= w->qps[i].qp == qp;
}

/* The older half goes before its time rather than that no connection could be made anew. */
static bool is_over(const struct verbs *w, uint32_t i, uint64_t now)
{
	const struct verbs_dying *d = &w->dying[i];

	return d->last || now >= d->until_ns || i + VERBS_DYING_MAX / 2 < w->n_dying;
}

/* Marks them, before what they have left in the completion queue is looked at. */
bool verbs_dying_over(struct verbs *w, uint64_t now)
{
	bool any = false;

	for (uint32_t i = 0; i < w->n_dying; i++)
		any |= w->dying[i].over = is_over(w, i, now);
	return any;
}

void verbs_reap(struct verbs *w)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < w->n_dying; i++) {
		if (w->dying[i].over)
			destroy(w, w->dying[i].qp, w->dying[i].last);
		else
			w->dying[kept++] = w->dying[i];
	}
	w->n_dying = kept;
}
