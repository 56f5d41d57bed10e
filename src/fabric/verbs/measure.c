/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a card repeats a request to somebody who is not there: a request is sent to queue pairs that
 * nobody has, and the device waited for.  What for, is in bound.c.
 */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/inner.h"

#include <sched.h>

#include "base/log.h"

#define TRIES    4
#define WAIT_NS  60000000000ull
#define NO_GHOST 0u

struct measure {
	struct verbs w;
	struct net_fabric f;
	struct verbs_host host;
	struct verbs_qp qp[TRIES];
};

static struct ibv_qp *plain_qp(struct verbs *w)
{
	struct ibv_qp_init_attr a = {
		.send_cq = w->cq,
		.recv_cq = w->cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = w->lib->create_qp(w->pd, &a);

	if (qp == NULL)
		vb_error("%s makes no queue pair: %s%s", w->choice.device.name, strerror(errno),
			 verbs_pin_hint(errno));
	return qp;
}

/* A number that the device has just given away and taken back. */
static uint32_t ghost(struct verbs *w)
{
	struct ibv_qp *qp = plain_qp(w);
	uint32_t number = qp != NULL ? qp->qp_num : NO_GHOST;

	if (qp != NULL)
		w->lib->destroy_qp(qp);
	return number;
}

static int connect_to(struct measure *m, const struct verbs_remote_qp *nobody)
{
	struct verbs *w = &m->w;
	int err = 0;

	for (unsigned i = 0; i < TRIES && err == 0; i++) {
		m->qp[i].qp = plain_qp(w);
		err = m->qp[i].qp != NULL ? verbs_qp_init(w, m->qp[i].qp, IBV_QPT_RC) : -ENODEV;
		if (err == 0)
			err = verbs_qp_connect(w, &m->qp[i], nobody);
	}
	return err;
}

static int prepare(struct measure *m)
{
	struct verbs *w = &m->w;
	const struct verbs_port *p = w->choice.port;
	struct verbs_remote_qp nobody = {.psn = 1};

	w->hosts = &m->host;
	m->host.lid = p->lid;
	m->host.mtu = verbs_mtu(w);
	m->host.rd_atomic = 1;
	if (w->choice.gid != NULL)
		memcpy(m->host.gid, w->choice.gid->raw, sizeof(m->host.gid));
	w->cq = w->lib->create_cq(w->ctx, 2 * TRIES, NULL, NULL, 0);
	if (w->cq == NULL)
		return vb_fail(-ENODEV, "%s makes no completion queue: %s%s", w->choice.device.name,
			       strerror(errno), verbs_pin_hint(errno));
	nobody.qpn = ghost(w);
	return nobody.qpn != NO_GHOST ? connect_to(m, &nobody) : -ENODEV;
}

static int fire(struct measure *m)
{
	for (unsigned i = 0; i < TRIES; i++) {
		struct ibv_send_wr wr = {.wr_id = i,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_SIGNALED},
				   *bad;
		int err = ibv_post_send(m->qp[i].qp, &wr, &bad);

		if (err != 0)
			return vb_fail(-EIO, "%s refuses a work request: %s",
				       m->w.choice.device.name, strerror(err));
	}
	return 0;
}

/* The time from before they were posted to the last of the completions, of which each must say that the peer did not
 * answer. */
static int await(struct measure *m, uint64_t begin, uint64_t *took_ns)
{
	const char *name = m->w.choice.device.name;
	unsigned ended = 0;

	do {
		struct ibv_wc wc;
		int n = ibv_poll_cq(m->w.cq, 1, &wc);

		*took_ns = vb_clock_ns() - begin;
		if (n < 0)
			return vb_fail(-EIO, "%s: the completion queue cannot be read", name);
		if (n == 1 && wc.status != IBV_WC_RETRY_EXC_ERR)
			return vb_fail(-EIO, "%s: a request to nobody ended with: %s", name,
				       m->w.lib->wc_status_str(wc.status));
		ended += (unsigned)n;
		if (n == 0)
			sched_yield();
	} while (ended < TRIES && *took_ns < WAIT_NS);
	return ended == TRIES
		       ? 0
		       : vb_fail(-ETIMEDOUT,
				 "%s has not given up a request to nobody within a minute", name);
}

static void put_away(struct measure *m)
{
	struct verbs *w = &m->w;

	for (unsigned i = 0; i < TRIES; i++) {
		if (m->qp[i].qp != NULL)
			w->lib->destroy_qp(m->qp[i].qp);
	}
	if (w->cq != NULL)
		w->lib->destroy_cq(w->cq);
	verbs_device_close(w);
}

int verbs_measure(const char *options, struct verbs_give_up *out)
{
	struct measure *m = calloc(1, sizeof(*m));
	const char *why;
	uint64_t begin;
	int err;

	*out = (struct verbs_give_up){0};
	if (m == NULL)
		return vb_fail(-ENOMEM, "no memory to measure with");
	m->f.hosts = 1;
	m->w.f = &m->f;
	vb_opt_defaults(verbs_options, &m->w.o);
	err = vb_opt_parse_list(verbs_options, &m->w.o, options);
	m->w.lib = verbs_lib(&why);
	if (err == 0 && m->w.lib == NULL)
		err = vb_fail(-ENODEV, "%s", why);
	if (err == 0)
		err = verbs_device_open(&m->w);
	if (err == 0) {
		verbs_set_bound(&m->w);
		*out = (struct verbs_give_up){
			.card = m->w.choice.device.card,
			.timeout = (unsigned)m->w.o.timeout,
			.retries = (unsigned)m->w.o.retries,
			.least_ns = VERBS_FORMULA_NS(m->w.o.timeout, m->w.o.retries) / 4,
			.formula_ns = VERBS_FORMULA_NS(m->w.o.timeout, m->w.o.retries),
			.bound_ns = m->w.bound_ns,
		};
		err = prepare(m);
	}
	begin = vb_clock_ns();
	if (err == 0)
		err = fire(m);
	if (err == 0)
		err = await(m, begin, &out->took_ns);
	put_away(m);
	free(m);
	return err;
}
