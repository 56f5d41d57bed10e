/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An RDMA device that is made up here, under the fabric `verbs` as a whole: libibverbs' calls, one
 * port, reliable connections and datagrams within the process.  Requests are executed when they are
 * posted.  What it can do to its user is what cards do:
 *   holds     each connection takes a receive buffer out of the shared queue in advance;
 *   late      completions of messages are seen some polls later;
 *   always    a queue pair that is destroyed takes along its completions and the buffer it holds;
 *   events    a broken one says so when it takes no more buffers: after it has given back the one
 *             that it holds, and when all its completions are to be seen;
 *   swallows  requests are taken and nothing comes of them.
 * A request to a queue pair that is not there fails after `gives_up_ns`.
 */
#ifndef VB_TESTS_VERBS_FAKE_H
#define VB_TESTS_VERBS_FAKE_H

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fabric/verbs/inner.h"
#include "fabric/verbs/mlx5.h"

#define FAKE_QPS 512
#define FAKE_CQ  65536
#define FAKE_RQ  1024

struct fake_wqe {
	uint64_t wr_id, addr;
};

struct fake_fifo {
	struct fake_wqe wqe[FAKE_RQ];
	uint32_t head, tail, slots; /* slots: that the provider has not got back */
};

struct fake_srq {
	struct ibv_srq srq;
	struct fake_fifo fifo;
};

struct fake_qp {
	struct ibv_qp qp;
	struct fake_fifo own; /* datagrams */
	struct fake_srq *srq;
	struct fake_wqe held;
	bool used, has_held, wants_event, stuck;
	uint32_t dest;
	uint64_t stuck_id, stuck_until;
};

struct fake_cqe {
	struct ibv_wc wc;
	bool recv;
	uint64_t seen_at; /* polls */
};

static struct {
	bool holds, events, swallows;
	uint32_t late, vendor;
	uint64_t gives_up_ns;
	enum ibv_wc_status gives_up_as;
	int fork_err, reg_errno;

	const char *first; /* the first call of all */
	unsigned forks_inits, registered, destroyed;
	struct fake_qp qp[FAKE_QPS];
	uint32_t numbers;
	struct fake_cqe cqe[FAKE_CQ];
	uint32_t n_cqe;
	uint64_t polls;
	struct fake_srq *srq;
} fake;
static struct ibv_device fake_device;
static struct ibv_context fake_ctx;
static struct ibv_comp_channel fake_channel;

#define FIRST() ((void)(fake.first = fake.first != NULL ? fake.first : __func__))

/* ---- completions ---- */

/* The bell rings for as long as there is something that has not been polled. */
static void fake_ring(void)
{
	uint64_t one = 1;

	if (fake_channel.fd > 0)
		vb_assert(write(fake_channel.fd, &one, sizeof(one)) == sizeof(one));
}

static void fake_complete(struct fake_qp *q, uint64_t id, enum ibv_wc_status status, bool recv,
			  const struct ibv_send_wr *wr, uint32_t bytes, uint32_t from)
{
	struct fake_cqe *c = &fake.cqe[fake.n_cqe++];

	vb_assert(fake.n_cqe < FAKE_CQ);
	fake_ring();
	*c = (struct fake_cqe){.recv = recv, .seen_at = fake.polls + (recv ? fake.late : 0)};
	c->wc.wr_id = id;
	c->wc.status = status;
	c->wc.qp_num = q->qp.qp_num;
	c->wc.byte_len = bytes;
	c->wc.src_qp = from;
	if (wr != NULL) {
		c->wc.imm_data = wr->imm_data;
		c->wc.wc_flags = IBV_WC_WITH_IMM;
		c->wc.opcode = wr->opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_RECV
								  : IBV_WC_RECV_RDMA_WITH_IMM;
	}
}

static bool fake_has_unseen(const struct fake_qp *q)
{
	for (uint32_t i = 0; i < fake.n_cqe; i++) {
		if (fake.cqe[i].wc.qp_num == q->qp.qp_num && fake.cqe[i].seen_at > fake.polls)
			return true;
	}
	return false;
}

static int fake_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	uint32_t kept = 0;
	int got = 0;

	(void)cq;
	fake.polls++;
	for (unsigned i = 0; i < FAKE_QPS; i++) {
		struct fake_qp *q = &fake.qp[i];

		if (q->used && q->stuck && vb_clock_ns() >= q->stuck_until) {
			q->stuck = false;
			q->qp.state = IBV_QPS_ERR;
			fake_complete(q, q->stuck_id, fake.gives_up_as, false, NULL, 0, 0);
		}
	}
	for (uint32_t i = 0; i < fake.n_cqe; i++) {
		if (got < n && fake.cqe[i].seen_at <= fake.polls) {
			if (fake.cqe[i].recv && fake.srq != NULL)
				fake.srq->fifo.slots--;
			wc[got++] = fake.cqe[i].wc;
		} else {
			fake.cqe[kept++] = fake.cqe[i];
		}
	}
	fake.n_cqe = kept;
	if (kept > 0)
		fake_ring();
	return got;
}

/* ---- receive queues ---- */

static bool fake_take(struct fake_fifo *f, struct fake_wqe *out)
{
	if (f->head == f->tail)
		return false;
	*out = f->wqe[f->head++ % FAKE_RQ];
	return true;
}

static int fake_put(struct fake_fifo *f, struct ibv_recv_wr *wr)
{
	for (; wr != NULL; wr = wr->next) {
		if (f->tail - f->head == FAKE_RQ)
			return ENOMEM;
		f->wqe[f->tail++ % FAKE_RQ] = (struct fake_wqe){wr->wr_id, wr->sg_list[0].addr};
		f->slots++;
	}
	return 0;
}

static int fake_post_srq(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)bad;
	return fake_put(&((struct fake_srq *)srq)->fifo, wr);
}

static int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)bad;
	return fake_put(&((struct fake_qp *)qp)->own, wr);
}

/* The connections' buffers that are where they can be used, or on their way back. */
static uint32_t fake_buffers(void)
{
	uint32_t n = fake.srq->fifo.tail - fake.srq->fifo.head;

	for (uint32_t i = 0; i < fake.n_cqe; i++)
		n += fake.cqe[i].recv && fake.cqe[i].wc.wr_id >> 60 == VERBS_ID_RECV;
	for (unsigned i = 0; i < FAKE_QPS; i++)
		n += fake.qp[i].used && fake.qp[i].has_held;
	return n;
}

/* ---- queue pairs ---- */

static struct fake_qp *fake_by_number(uint32_t number)
{
	for (unsigned i = 0; i < FAKE_QPS; i++) {
		if (fake.qp[i].used && fake.qp[i].qp.qp_num == number)
			return &fake.qp[i];
	}
	return NULL;
}

static struct ibv_qp *fake_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	unsigned i = 0;

	FIRST();
	while (i < FAKE_QPS && fake.qp[i].used)
		i++;
	vb_assert(i < FAKE_QPS);
	memset(&fake.qp[i], 0, sizeof(fake.qp[i]));
	fake.qp[i].qp = (struct ibv_qp){
		.context = pd->context, .qp_num = 100 + ++fake.numbers, .qp_type = a->qp_type};
	fake.qp[i].srq = (struct fake_srq *)a->srq;
	fake.qp[i].used = true;
	return &fake.qp[i].qp;
}

static int fake_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct fake_qp *q = (struct fake_qp *)qp;

	if (mask & IBV_QP_DEST_QPN)
		q->dest = a->dest_qp_num;
	q->qp.state = a->qp_state;
	if (a->qp_state == IBV_QPS_RTR && q->srq != NULL && fake.holds)
		q->has_held = fake_take(&q->srq->fifo, &q->held);
	q->wants_event = a->qp_state == IBV_QPS_ERR && q->srq != NULL && fake.events;
	return 0;
}

static int fake_destroy_qp(struct ibv_qp *qp)
{
	struct fake_qp *q = (struct fake_qp *)qp;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < fake.n_cqe; i++) {
		if (fake.cqe[i].wc.qp_num != q->qp.qp_num)
			fake.cqe[kept++] = fake.cqe[i];
		else if (fake.cqe[i].recv && q->srq != NULL)
			q->srq->fifo.slots--;
	}
	fake.n_cqe = kept;
	q->used = false;
	fake.destroyed++;
	return 0;
}

static bool fake_deliver(struct fake_qp *to, const struct ibv_send_wr *wr, uint32_t from)
{
	uint32_t bytes = wr->num_sge > 0 ? wr->sg_list[0].length : 0, grh = 0;
	struct fake_wqe w;

	if (to->has_held) {
		w = to->held;
		to->has_held = fake_take(&to->srq->fifo, &to->held);
	} else if (!fake_take(to->srq != NULL ? &to->srq->fifo : &to->own, &w)) {
		return false;
	}
	if (to->qp.qp_type == IBV_QPT_UD)
		grh = VERBS_GRH;
	if (wr->opcode == IBV_WR_SEND_WITH_IMM)
		memcpy((void *)(uintptr_t)(w.addr + grh), (void *)(uintptr_t)wr->sg_list[0].addr,
		       bytes);
	fake_complete(to, w.wr_id, IBV_WC_SUCCESS, true, wr, bytes + grh, from);
	return true;
}

static enum ibv_wc_status fake_execute(struct fake_qp *q, const struct ibv_send_wr *wr)
{
	struct fake_qp *to =
		fake_by_number(wr->opcode != IBV_WR_SEND_WITH_IMM || q->qp.qp_type == IBV_QPT_RC
				       ? q->dest
				       : wr->wr.ud.remote_qpn);
	void *local = wr->num_sge > 0 ? (void *)(uintptr_t)wr->sg_list[0].addr : NULL;
	uint32_t len = wr->num_sge > 0 ? wr->sg_list[0].length : 0;
	uint64_t *word = (uint64_t *)(uintptr_t)wr->wr.atomic.remote_addr, old;

	if (to == NULL || to->qp.state < IBV_QPS_RTR || to->qp.state > IBV_QPS_RTS)
		return q->qp.qp_type == IBV_QPT_UD ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR;
	switch (wr->opcode) {
	case IBV_WR_RDMA_READ:
		memcpy(local, (void *)(uintptr_t)wr->wr.rdma.remote_addr, len);
		break;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		if (len > 0)
			memcpy((void *)(uintptr_t)wr->wr.rdma.remote_addr, local, len);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		old = *word;
		if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
			*word += wr->wr.atomic.compare_add;
		else if (old == wr->wr.atomic.compare_add)
			*word = wr->wr.atomic.swap;
		memcpy(local, &old, sizeof(old));
		break;
	default:
		break;
	}
	if ((wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) &&
	    !fake_deliver(to, wr, q->qp.qp_num) && q->qp.qp_type == IBV_QPT_RC)
		return IBV_WC_RNR_RETRY_EXC_ERR;
	return IBV_WC_SUCCESS;
}

static int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *q = (struct fake_qp *)qp;

	(void)bad;
	for (; wr != NULL; wr = wr->next) {
		enum ibv_wc_status s = IBV_WC_WR_FLUSH_ERR;

		if (q->qp.state == IBV_QPS_RTS && fake.swallows && q->qp.qp_type == IBV_QPT_RC)
			continue;
		if (q->qp.state == IBV_QPS_RTS)
			s = fake_execute(q, wr);
		if (s == IBV_WC_RETRY_EXC_ERR) {
			q->stuck = true;
			q->stuck_id = wr->wr_id;
			q->stuck_until = vb_clock_ns() + fake.gives_up_ns;
		} else if (s != IBV_WC_SUCCESS || wr->send_flags & IBV_SEND_SIGNALED) {
			fake_complete(q, wr->wr_id, s, false, NULL, 0, 0);
			q->qp.state = s == IBV_WC_SUCCESS ? q->qp.state : IBV_QPS_ERR;
		}
	}
	return 0;
}

/* ---- the rest ---- */

static int fake_fork_init(void)
{
	FIRST();
	fake.forks_inits++;
	return fake.fork_err;
}

static struct ibv_device **fake_get_device_list(int *n)
{
	static struct ibv_device *list[2] = {&fake_device, NULL};

	FIRST();
	*n = 1;
	return list;
}

static void fake_free_device_list(struct ibv_device **list)
{
	(void)list;
}

static const char *fake_get_device_name(struct ibv_device *d)
{
	(void)d;
	return "fake0";
}

static struct ibv_context *fake_open_device(struct ibv_device *d)
{
	FIRST();
	fake_ctx = (struct ibv_context){.device = d, .async_fd = eventfd(0, EFD_CLOEXEC)};
	fake_ctx.ops.poll_cq = fake_poll_cq;
	fake_ctx.ops.post_send = fake_post_send;
	fake_ctx.ops.post_recv = fake_post_recv;
	fake_ctx.ops.post_srq_recv = fake_post_srq;
	return &fake_ctx;
}

static int fake_close_device(struct ibv_context *ctx)
{
	return close(ctx->async_fd);
}

static int fake_query_device(struct ibv_context *ctx, struct ibv_device_attr *a)
{
	(void)ctx;
	*a = (struct ibv_device_attr){.vendor_id = fake.vendor,
				      .atomic_cap = IBV_ATOMIC_HCA,
				      .max_qp_rd_atom = 16,
				      .max_qp_init_rd_atom = 16,
				      .max_qp = FAKE_QPS,
				      .max_qp_wr = 1024,
				      .max_cqe = FAKE_CQ,
				      .max_srq_wr = FAKE_RQ,
				      .phys_port_cnt = 1};
	return 0;
}

static int fake_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *out)
{
	struct ibv_port_attr *a = (struct ibv_port_attr *)out;

	(void)ctx;
	(void)port;
	*a = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
				    .max_mtu = IBV_MTU_4096,
				    .active_mtu = IBV_MTU_1024,
				    .link_layer = IBV_LINK_LAYER_ETHERNET};
	return 0;
}

static ssize_t fake_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *e, size_t n,
				    uint32_t flags, size_t size)
{
	(void)ctx;
	(void)n;
	(void)flags;
	memset(e, 0, size);
	e->port_num = 1;
	e->gid_type = IBV_GID_TYPE_ROCE_V2;
	memcpy(e->gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\2\1", 16);
	return 1;
}

static struct ibv_pd *fake_alloc_pd(struct ibv_context *ctx)
{
	static struct ibv_pd pd;

	pd.context = ctx;
	return &pd;
}

static int fake_dealloc_pd(struct ibv_pd *pd)
{
	(void)pd;
	return 0;
}

static struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access)
{
	struct ibv_mr *mr;

	FIRST();
	(void)access;
	if (fake.reg_errno != 0) {
		errno = fake.reg_errno;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	vb_assert(mr != NULL);
	*mr = (struct ibv_mr){.context = pd->context, .addr = at, .length = bytes};
	mr->lkey = mr->rkey = ++fake.registered;
	return mr;
}

static int fake_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

static struct ibv_comp_channel *fake_create_channel(struct ibv_context *ctx)
{
	fake_channel = (struct ibv_comp_channel){.context = ctx, .fd = eventfd(0, EFD_CLOEXEC)};
	return &fake_channel;
}

static int fake_destroy_channel(struct ibv_comp_channel *c)
{
	int fd = c->fd;

	c->fd = -1;
	return close(fd);
}

static int fake_req_notify(struct ibv_cq *cq, int solicited)
{
	(void)cq;
	(void)solicited;
	return 0;
}

static struct ibv_cq *fake_create_cq(struct ibv_context *ctx, int cqe, void *cq_ctx,
				     struct ibv_comp_channel *c, int vector)
{
	struct ibv_cq *cq = calloc(1, sizeof(*cq));

	(void)cq_ctx;
	(void)vector;
	vb_assert(cq != NULL);
	ctx->ops.req_notify_cq = fake_req_notify;
	*cq = (struct ibv_cq){.context = ctx, .channel = c, .cqe = cqe};
	return cq;
}

static int fake_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	return 0;
}

static int fake_get_cq_event(struct ibv_comp_channel *c, struct ibv_cq **cq, void **ctx)
{
	uint64_t rings;

	(void)cq;
	(void)ctx;
	return read(c->fd, &rings, sizeof(rings)) > 0 ? 0 : -1;
}

static void fake_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	(void)cq;
	(void)n;
}

static struct ibv_srq *fake_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	(void)a;
	fake.srq = calloc(1, sizeof(*fake.srq));
	vb_assert(fake.srq != NULL);
	fake.srq->srq.context = pd->context;
	return &fake.srq->srq;
}

static int fake_destroy_srq(struct ibv_srq *srq)
{
	free(srq);
	fake.srq = NULL;
	return 0;
}

static struct ibv_ah *fake_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a)
{
	struct ibv_ah *ah = calloc(1, sizeof(*ah));

	(void)pd;
	(void)a;
	return ah;
}

static int fake_destroy_ah(struct ibv_ah *ah)
{
	free(ah);
	return 0;
}

static int fake_get_async_event(struct ibv_context *ctx, struct ibv_async_event *e)
{
	(void)ctx;
	for (unsigned i = 0; i < FAKE_QPS; i++) {
		struct fake_qp *q = &fake.qp[i];

		if (!q->used || !q->wants_event || fake_has_unseen(q))
			continue;
		if (q->has_held)
			fake_complete(q, q->held.wr_id, IBV_WC_WR_FLUSH_ERR, true, NULL, 0, 0);
		q->has_held = false;
		if (fake_has_unseen(q))
			continue;
		q->wants_event = false;
		*e = (struct ibv_async_event){.event_type = IBV_EVENT_QP_LAST_WQE_REACHED,
					      .element.qp = &q->qp};
		return 0;
	}
	return -1;
}

static void fake_ack_async_event(struct ibv_async_event *e)
{
	(void)e;
}

static const char *fake_wc_status_str(enum ibv_wc_status s)
{
	return s == IBV_WC_RNR_RETRY_EXC_ERR ? "RNR retry counter exceeded" : "an error";
}

static const char *fake_event_type_str(enum ibv_event_type t)
{
	return t == IBV_EVENT_QP_LAST_WQE_REACHED ? "last WQE reached" : "an event";
}

static const struct verbs_lib fake_lib = {
	.fork_init = fake_fork_init,
	.get_device_list = fake_get_device_list,
	.free_device_list = fake_free_device_list,
	.get_device_name = fake_get_device_name,
	.open_device = fake_open_device,
	.close_device = fake_close_device,
	.query_device = fake_query_device,
	.query_port = fake_query_port,
	.query_gid_table = fake_query_gid_table,
	.alloc_pd = fake_alloc_pd,
	.dealloc_pd = fake_dealloc_pd,
	.reg_mr = fake_reg_mr,
	.dereg_mr = fake_dereg_mr,
	.create_comp_channel = fake_create_channel,
	.destroy_comp_channel = fake_destroy_channel,
	.create_cq = fake_create_cq,
	.destroy_cq = fake_destroy_cq,
	.get_cq_event = fake_get_cq_event,
	.ack_cq_events = fake_ack_cq_events,
	.create_srq = fake_create_srq,
	.destroy_srq = fake_destroy_srq,
	.create_qp = fake_create_qp,
	.destroy_qp = fake_destroy_qp,
	.modify_qp = fake_modify_qp,
	.create_ah = fake_create_ah,
	.destroy_ah = fake_destroy_ah,
	.get_async_event = fake_get_async_event,
	.ack_async_event = fake_ack_async_event,
	.wc_status_str = fake_wc_status_str,
	.event_type_str = fake_event_type_str,
};

#if VB_HAVE_MLX5DV
static bool fake_is_mlx5(struct ibv_device *d)
{
	(void)d;
	return false;
}

static const struct verbs_mlx5_lib fake_no_mlx5 = {.is_supported = fake_is_mlx5};
#endif

/* A card of a maker of cards. */
#define FAKE_CARD 0x02c9u
#define FAKE_RXE  0xffffffu

static int fake_begin(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	fake.vendor = FAKE_CARD;
	fake.events = fake.holds = true;
	fake.gives_up_as = IBV_WC_RETRY_EXC_ERR;
	verbs_lib_use(&fake_lib);
#if VB_HAVE_MLX5DV
	verbs_mlx5_use(&fake_no_mlx5);
#endif
	return 0;
}

static int fake_end(void **state)
{
	(void)state;
	verbs_lib_use(NULL);
#if VB_HAVE_MLX5DV
	verbs_mlx5_use(NULL);
#endif
	return 0;
}

#endif
