/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the program of own_fabric_rdma.c has already: memory that is registered, and connections to it.  Nothing here
 * is Verbena's or made for it; it is libibverbs, as any program with RDMA connections has it in some form.
 *
 * Each process registers a piece of memory.  A *caller* has a queue pair to each process, its own too, and a TCP
 * connection beside it, over which the two ends have told each other their addresses.  It stays open as long as the
 * caller is: so who is here, and who is gone, each process knows of all.  Callers send each other messages, which
 * a thread of the receiving process takes from its queue.
 */
#ifndef OWN_FABRIC_RDMA_H
#define OWN_FABRIC_RDMA_H

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define NODES         2                  /* one of each process */
#define MEMORY_BYTES  ((1 << 20) + 4096) /* of each */
#define MESSAGE_BYTES 64
#define LETTERS       256 /* messages that have come and are not looked at yet */
#define PEERS         64

#define PORT_NUM   1
#define RD_ATOMIC  16u /* READs and atomics of a connection under way, if both devices can */
#define TIMEOUT    14  /* 4.096 us * 2^14; a device may take four times that */
#define RETRIES    6
#define RNR_TIMER  12 /* 0.64 ms */
#define PATIENCE_S 10

/* When a request is repeated for the last time; on a card, measure it (doc/verbs.md, "The bound, and leases"). */
#define REQUEST_NS (4 * (4096ull << TIMEOUT) * (1 + RETRIES) + RETRIES * 640000ull)

/* One end of a connection, as the other has to know it. */
struct address {
	uint32_t qpn, rkey, rd_atomic;
	uint16_t lid;
	enum ibv_mtu mtu;
	union ibv_gid gid;
	uint64_t memory;
	bool tears; /* READs and WRITEs of eight bytes there may be torn */
};

/* What a caller says when it comes. */
struct hello {
	uint16_t node;
	uint32_t client;
	struct address from;
};

struct message {
	struct message *next;
	uint8_t bytes[MESSAGE_BYTES];
};

struct caller {
	struct caller *next;
	uint16_t node; /* that of its process */
	uint32_t client;
	struct ibv_cq *cq;
	struct ibv_qp *qp[NODES];
	int fd[NODES];
	struct address to[NODES];
	uint8_t *memory;
	struct ibv_mr *mr;
	struct message *first, **last; /* under the program's lock */
};

/* The other end of a caller's connection to this process. */
struct peer {
	int fd;
	uint16_t node;
	uint32_t client;
	struct ibv_qp *qp;
};

struct program {
	uint16_t rank;
	uint16_t port[NODES]; /* TCP, on this machine */
	int listener, stop[2];
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_mr *mr, *letters_mr;
	struct ibv_srq *srq;
	struct ibv_comp_channel *channel;
	struct ibv_cq *came;
	struct address here; /* but for its qpn */
	uint8_t gid_index;
	bool ethernet;
	uint8_t *memory;
	uint8_t letters[LETTERS][MESSAGE_BYTES];
	pthread_t service;
	pthread_mutex_t lock; /* for all below */
	uint32_t next_client;
	struct caller *callers;
	struct peer peer[PEERS];
	unsigned peers;
};

static void must(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* ---- the device, and the memory ---- */

/* The first of RoCE version 2, one that stands for an IPv4 address before others; on InfiniBand the first. */
static void find_gid(struct program *p, const struct ibv_port_attr *port)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct ibv_gid_entry e;
	int best = 0;

	for (int i = 0; i < port->gid_tbl_len; i++) {
		int merit;

		if (ibv_query_gid_ex(p->device, PORT_NUM, (uint32_t)i, &e, 0) != 0 ||
		    (p->ethernet && e.gid_type != IBV_GID_TYPE_ROCE_V2))
			continue;
		merit = memcmp(e.gid.raw, mapped, sizeof(mapped)) == 0 ? 2 : 1;
		if (merit <= best)
			continue;
		best = merit;
		p->here.gid = e.gid;
		p->gid_index = (uint8_t)i;
	}
	errno = EADDRNOTAVAIL;
	must(best > 0 || !p->ethernet, "no GID of RoCE v2: has the network interface an address?");
}

static struct ibv_context *open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *device = NULL;

	for (int i = 0; list != NULL && list[i] != NULL && device == NULL; i++) {
		if (name == NULL || strcmp(name, ibv_get_device_name(list[i])) == 0)
			device = ibv_open_device(list[i]);
	}
	if (list != NULL)
		ibv_free_device_list(list);
	return device;
}

static void open_device(struct program *p, const char *name)
{
	struct ibv_device_attr a;
	struct ibv_port_attr port;

	p->device = open_named(name);
	must(p->device != NULL, name != NULL ? name : "the first device");
	must(ibv_query_device(p->device, &a) == 0 &&
		     ibv_query_port(p->device, PORT_NUM, &port) == 0,
	     "a device cannot be asked");
	if (a.atomic_cap == IBV_ATOMIC_NONE) {
		fprintf(stderr, "%s has no atomics\n", ibv_get_device_name(p->device->device));
		exit(1);
	}
	p->ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	p->here.lid = port.lid;
	p->here.mtu = port.active_mtu;
	p->here.rd_atomic = RD_ATOMIC;
	if ((unsigned)a.max_qp_rd_atom < p->here.rd_atomic)
		p->here.rd_atomic = (unsigned)a.max_qp_rd_atom;
	if ((unsigned)a.max_qp_init_rd_atom < p->here.rd_atomic)
		p->here.rd_atomic = (unsigned)a.max_qp_init_rd_atom;
	/* Soft-RoCE, which has had both numbers for its vendor: it copies byte by byte.  Cards do not. */
	p->here.tears = a.vendor_id == 0xffffff || a.vendor_id == 0;
	find_gid(p, &port);
}

static void offer_letter(struct program *p, uint64_t i)
{
	struct ibv_sge sge = {(uintptr_t)p->letters[i], MESSAGE_BYTES, p->letters_mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};

	must(ibv_post_srq_recv(p->srq, &wr, &bad) == 0, "no RECV");
}

static void register_all(struct program *p)
{
	p->memory = aligned_alloc(4096, MEMORY_BYTES);
	must(p->memory != NULL, "no memory");
	memset(p->memory, 0, MEMORY_BYTES);
	p->pd = ibv_alloc_pd(p->device);
	must(p->pd != NULL, "no protection domain");
	p->mr = ibv_reg_mr(p->pd, p->memory, MEMORY_BYTES,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	p->letters_mr = ibv_reg_mr(p->pd, p->letters, sizeof(p->letters), IBV_ACCESS_LOCAL_WRITE);
	must(p->mr != NULL && p->letters_mr != NULL, "memory is not registered (ulimit -l?)");
	p->here.memory = (uintptr_t)p->memory;
	p->here.rkey = p->mr->rkey;
	p->channel = ibv_create_comp_channel(p->device);
	must(p->channel != NULL, "no completion channel");
	p->came = ibv_create_cq(p->device, LETTERS, NULL, p->channel, 0);
	must(p->came != NULL && ibv_req_notify_cq(p->came, 0) == 0, "no completion queue");
	p->srq = ibv_create_srq(
		p->pd, &(struct ibv_srq_init_attr){.attr = {.max_wr = LETTERS, .max_sge = 1}});
	must(p->srq != NULL, "no shared receive queue");
	for (uint64_t i = 0; i < LETTERS; i++)
		offer_letter(p, i);
}

static struct ibv_qp *new_qp(struct program *p, struct ibv_cq *send, struct ibv_cq *recv,
			     struct ibv_srq *srq, unsigned depth)
{
	return ibv_create_qp(p->pd, &(struct ibv_qp_init_attr){
					    .send_cq = send,
					    .recv_cq = recv,
					    .srq = srq,
					    .qp_type = IBV_QPT_RC,
					    .cap = {.max_send_wr = depth,
						    .max_send_sge = 1,
						    .max_recv_wr = srq == NULL,
						    .max_recv_sge = 1},
				    });
}

/* Where the neighbour's address has to be asked for the kernel gives up early, for a busy machine. */
static int make_ready(struct ibv_qp *qp, struct ibv_qp_attr *ready)
{
	int err = ETIMEDOUT;

	for (int i = 0; i < PATIENCE_S && err == ETIMEDOUT; i++)
		err = ibv_modify_qp(qp, ready,
				    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					    IBV_QP_MIN_RNR_TIMER);
	return err;
}

/* 0 or a negative errno. */
static int connect_qp(struct program *p, struct ibv_qp *qp, const struct address *to)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT_NUM,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};
	struct ibv_qp_attr ready = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = to->mtu < p->here.mtu ? to->mtu : p->here.mtu,
		.dest_qp_num = to->qpn,
		.max_dest_rd_atomic = (uint8_t)p->here.rd_atomic,
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = {.port_num = PORT_NUM, .dlid = to->lid, .is_global = p->ethernet},
	};
	struct ibv_qp_attr sends = {
		.qp_state = IBV_QPS_RTS,
		.timeout = TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = RETRIES,
		.max_rd_atomic = (uint8_t)(to->rd_atomic < p->here.rd_atomic ? to->rd_atomic
									     : p->here.rd_atomic),
	};
	int err;

	ready.ah_attr.grh.dgid = to->gid;
	ready.ah_attr.grh.sgid_index = p->gid_index;
	ready.ah_attr.grh.hop_limit = 64;
	err = ibv_modify_qp(qp, &init,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (err == 0)
		err = make_ready(qp, &ready);
	if (err == 0)
		err = ibv_modify_qp(qp, &sends,
				    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					    IBV_QP_MAX_QP_RD_ATOMIC);
	return -err;
}

static struct address address_of(const struct program *p, const struct ibv_qp *qp)
{
	struct address a = p->here;

	a.qpn = qp->qp_num;
	return a;
}

/* All of it, or not. */
static bool say(int fd, const void *what, size_t bytes)
{
	return send(fd, what, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static bool hear(int fd, void *what, size_t bytes)
{
	return recv(fd, what, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* ---- who comes, and what comes: a thread of each process ---- */

/* A caller, of this process or the other, gets its queue pair here. */
static void let_in(struct program *p, int fd)
{
	struct peer new = {.fd = fd};
	struct address mine;
	struct hello hello;
	int err;

	if (!hear(fd, &hello, sizeof(hello)))
		goto no_peer;
	new.node = hello.node;
	new.client = hello.client;
	new.qp = p->peers < PEERS ? new_qp(p, p->came, p->came, p->srq, 1) : NULL;
	err = new.qp != NULL ? connect_qp(p, new.qp, &hello.from) : -ENOSPC;
	if (err != 0) {
		fprintf(stderr, "a caller of node %u is turned away: %s\n", new.node,
			strerror(-err));
		goto no_peer;
	}
	/* It is known to be alive before it can be heard of. */
	pthread_mutex_lock(&p->lock);
	p->peer[p->peers++] = new;
	pthread_mutex_unlock(&p->lock);
	mine = address_of(p, new.qp);
	(void)say(fd, &mine, sizeof(mine));
	return;
no_peer:
	if (new.qp != NULL)
		ibv_destroy_qp(new.qp);
	close(fd);
}

/* It was closed, or its process is dead. */
static void let_go(struct program *p, unsigned i)
{
	struct peer gone = p->peer[i];

	pthread_mutex_lock(&p->lock);
	p->peer[i] = p->peer[--p->peers];
	pthread_mutex_unlock(&p->lock);
	ibv_destroy_qp(gone.qp);
	close(gone.fd);
}

static struct caller **find(struct program *p, uint32_t client)
{
	struct caller **at = &p->callers;

	while (*at != NULL && (*at)->client != client)
		at = &(*at)->next;
	return at;
}

static void deliver(struct program *p, uint32_t client, const uint8_t *bytes)
{
	struct message *m = calloc(1, sizeof(*m));
	struct caller *to;

	must(m != NULL, "no memory for a message");
	memcpy(m->bytes, bytes, sizeof(m->bytes));
	pthread_mutex_lock(&p->lock);
	to = *find(p, client);
	if (to != NULL) {
		*to->last = m;
		to->last = &m->next;
	}
	pthread_mutex_unlock(&p->lock);
	if (to == NULL)
		free(m);
}

static void take_letters(struct program *p)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *ctx;

	must(ibv_get_cq_event(p->channel, &cq, &ctx) == 0, "no completion event");
	ibv_ack_cq_events(cq, 1);
	must(ibv_req_notify_cq(cq, 0) == 0, "no notification");
	while (ibv_poll_cq(cq, 1, &wc) > 0) {
		if (wc.status == IBV_WC_SUCCESS)
			deliver(p, ntohl(wc.imm_data), p->letters[wc.wr_id]);
		offer_letter(p, wc.wr_id);
	}
}

static void *serve(void *arg)
{
	struct program *p = arg;
	struct pollfd at[3 + PEERS] = {
		{.fd = p->stop[0], .events = POLLIN},
		{.fd = p->channel->fd, .events = POLLIN},
		{.fd = p->listener, .events = POLLIN},
	};

	for (;;) {
		for (unsigned i = 0; i < p->peers; i++)
			at[3 + i] = (struct pollfd){.fd = p->peer[i].fd, .events = POLLIN};
		if (poll(at, 3 + p->peers, -1) < 0)
			continue;
		if (at[0].revents != 0)
			return NULL;
		if (at[1].revents != 0)
			take_letters(p);
		/* From the last on, since the last takes the place of one that goes. */
		for (unsigned i = p->peers; i-- > 0;) {
			if (at[3 + i].revents != 0)
				let_go(p, i);
		}
		if (at[2].revents != 0)
			let_in(p, accept(p->listener, NULL, NULL));
	}
}

/* ---- callers ---- */

/* With a queue pair for it, and what the other end says of itself. */
static int call_node(struct program *p, struct caller *c, uint16_t node, unsigned depth)
{
	const struct sockaddr_in at = {.sin_family = AF_INET,
				       .sin_port = htons(p->port[node]),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct timeval patience = {.tv_sec = PATIENCE_S};
	struct hello hello = {.node = c->node, .client = c->client};

	c->qp[node] = new_qp(p, c->cq, c->cq, NULL, depth);
	c->fd[node] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->qp[node] == NULL || c->fd[node] < 0)
		return -ENOMEM;
	hello.from = address_of(p, c->qp[node]);
	setsockopt(c->fd[node], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	errno = ECONNRESET;
	if (connect(c->fd[node], (const struct sockaddr *)&at, sizeof(at)) != 0 ||
	    !say(c->fd[node], &hello, sizeof(hello)) ||
	    !hear(c->fd[node], &c->to[node], sizeof(c->to[node])))
		return -errno;
	return connect_qp(p, c->qp[node], &c->to[node]);
}

static void caller_free(struct caller *c)
{
	for (unsigned i = 0; i < NODES; i++) {
		if (c->qp[i] != NULL)
			ibv_destroy_qp(c->qp[i]);
		if (c->fd[i] >= 0)
			close(c->fd[i]);
	}
	if (c->cq != NULL)
		ibv_destroy_cq(c->cq);
	if (c->mr != NULL)
		ibv_dereg_mr(c->mr);
	while (c->first != NULL) {
		struct message *m = c->first;

		c->first = m->next;
		free(m);
	}
	free(c->memory);
}

static void caller_close(struct program *p, struct caller *c)
{
	struct caller **at;

	pthread_mutex_lock(&p->lock);
	at = find(p, c->client);
	if (*at != NULL)
		*at = c->next;
	pthread_mutex_unlock(&p->lock);
	caller_free(c);
}

/* *c is zero; with `bytes` of registered memory, a multiple of 64, and room for `depth` work requests. */
static int caller_open(struct program *p, struct caller *c, size_t bytes, unsigned depth)
{
	int err = 0;

	c->node = p->rank;
	c->last = &c->first;
	for (unsigned i = 0; i < NODES; i++)
		c->fd[i] = -1;
	c->memory = aligned_alloc(64, bytes);
	if (c->memory != NULL)
		c->mr = ibv_reg_mr(p->pd, c->memory, bytes, IBV_ACCESS_LOCAL_WRITE);
	c->cq = ibv_create_cq(p->device, (int)depth, NULL, NULL, 0);
	if (c->mr == NULL || c->cq == NULL) {
		caller_free(c);
		return -ENOMEM;
	}
	pthread_mutex_lock(&p->lock);
	/* Numbers come again after 16 million. */
	c->client = p->next_client = p->next_client % 0xffffff + 1;
	c->next = p->callers;
	p->callers = c;
	pthread_mutex_unlock(&p->lock);
	for (uint16_t n = 0; n < NODES && err == 0; n++)
		err = call_node(p, c, n, depth);
	if (err != 0)
		caller_close(p, c);
	return err;
}

static bool is_here(struct program *p, uint16_t node, uint32_t client)
{
	bool found = false;

	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; i < p->peers && !found; i++)
		found = p->peer[i].node == node && p->peer[i].client == client;
	pthread_mutex_unlock(&p->lock);
	return found;
}

static bool take_message(struct program *p, struct caller *c, void *bytes)
{
	struct message *m;

	pthread_mutex_lock(&p->lock);
	m = c->first;
	if (m != NULL) {
		c->first = m->next;
		if (c->first == NULL)
			c->last = &c->first;
	}
	pthread_mutex_unlock(&p->lock);
	if (m == NULL)
		return false;
	memcpy(bytes, m->bytes, sizeof(m->bytes));
	free(m);
	return true;
}

/* ---- all of it ---- */

/* `rank`, `port` and `listener` are set. */
static void program_open(struct program *p, const char *device)
{
	pthread_mutex_init(&p->lock, NULL);
	open_device(p, device);
	register_all(p);
	must(pipe(p->stop) == 0, "no pipe");
	must(pthread_create(&p->service, NULL, serve, p) == 0, "no thread");
}

static void program_close(struct program *p)
{
	(void)!write(p->stop[1], "", 1);
	pthread_join(p->service, NULL);
	while (p->peers > 0)
		let_go(p, 0);
	ibv_destroy_srq(p->srq);
	ibv_destroy_cq(p->came);
	ibv_destroy_comp_channel(p->channel);
	ibv_dereg_mr(p->letters_mr);
	ibv_dereg_mr(p->mr);
	ibv_dealloc_pd(p->pd);
	ibv_close_device(p->device);
	free(p->memory);
}

#endif
