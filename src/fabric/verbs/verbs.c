/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabric `verbs`: options, opening, the exchange of addresses, closing.  (The bound is in
 * bound.c.)
 *
 * The atomics of most cards are atomic only among themselves (the CPU's own, in the same word, lose
 * updates), so a host's own words are reached through the card too; only where a device claims more
 * (IBV_ATOMIC_GLOB) do CPU and card share words.  Memory is registered without relaxed ordering.
 */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/inner.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/log.h"

#define ADDRESS_MAGIC   0x76627276u
#define ADDRESS_VERSION 1u

const struct vb_opt verbs_options[] = {
	VB_OPT_STRING(
		struct verbs_options, device, "device", "NAME", NULL,
		"RDMA device, as `verbena doctor` lists them, or several, A+B, of which process "
		"r has the (r modulo n)th; default: the first with an active port"),
	VB_OPT_SIZE(struct verbs_options, port, "port", "0", 0, 255,
		    "its port; 0: the first active one"),
	VB_OPT_STRING(struct verbs_options, addr, "addr", "IP", NULL,
		      "choose the device and GID that own this address; A+B as with device"),
	VB_OPT_STRING(struct verbs_options, gid, "gid", "N", "auto",
		      "index of the GID, A+B as with device; auto: RoCE v2, IPv4 before IPv6"),
	VB_OPT_CHOICE(struct verbs_options, mtu, "mtu", "auto|256|512|1024|2048|4096", "auto",
		      "path MTU; auto: the smaller of both ports' active ones"),
	VB_OPT_SIZE(struct verbs_options, lanes, "lanes", "1", 1, VERBS_LANES_MAX,
		    "connections to each peer"),
	VB_OPT_SIZE(struct verbs_options, depth, "depth", "128", 64, 8192,
		    "requests under way on a connection, rounded up to a power of two"),
	VB_OPT_SIZE(struct verbs_options, inline_max, "inline", "128", 0, 1024,
		    "longest payload that is copied into a request, as far as the device can"),
	VB_OPT_CHOICE(struct verbs_options, doorbell, "doorbell", "batch|each", "batch",
		      "ring once for all that is ready, or for every verb"),
	VB_OPT_CHOICE(struct verbs_options, signal, "signal", "last|all", "last",
		      "ask for completions of what is waited for, or of everything"),
	VB_OPT_SIZE(
		struct verbs_options, signal_every, "signal_every", "16", 1, 1024,
		"requests nobody waits for between two completions, a quarter of depth at most"),
	VB_OPT_SIZE(struct verbs_options, credits, "credits", "32", 16, VERBS_CREDITS_MAX,
		    "messages on the way from one host to another"),
	VB_OPT_SIZE(struct verbs_options, bounce, "bounce", "1mi", 131072, 1ull << 30,
		    "registered memory for READs and WRITEs of more than 160 bytes"),
	VB_OPT_SIZE(struct verbs_options, timeout, "timeout", "12", 1, 20,
		    "acknowledgement timer, 4.096 us * 2^N"),
	VB_OPT_SIZE(struct verbs_options, retries, "retries", "4", 0, 6,
		    "how often a request is sent again before the connection is broken"),
	VB_OPT_TIME(struct verbs_options, measured_ns, "measured", "0", 0, 60000000000ull,
		    "how long the card repeats a request to a peer that is gone, as `verbena "
		    "doctor` measured it with these timeout and retries; 0: not measured, and no "
		    "lease below one second on a card"),
	VB_OPT_TIME(struct verbs_options, lifetime_ns, "lifetime", "0", 0, 10000000000ull,
		    "how long a packet may stand in the network (pauses, full switches) and "
		    "still arrive; counts into the bound"),
	VB_OPT_CHOICE(struct verbs_options, rpc, "rpc", "rc|ud", "rc",
		      "requests and answers of lock servers over connections, or as datagrams"),
	VB_OPT_SIZE(struct verbs_options, datagrams, "datagrams", "512", 32, 8192,
		    "datagrams that wait to be received; more are lost"),
	VB_OPT_REAL(struct verbs_options, drop, "drop", "0", 0, 1,
		    "lose this part of the datagrams on purpose, for tests"),
	VB_OPT_END,
};

struct verbs_address {
	uint32_t magic, version, hosts, lanes;
	uint64_t base, bytes;
	uint32_t rkey, ud_qpn, credits;
	uint16_t lid;
	uint8_t link, mtu, rd_atomic, pad[3];
	uint8_t gid[16];
	struct verbs_remote_qp qp[]; /* [hosts * lanes] */
};

/* ---- opening ---- */

static uint32_t pow2_above(uint64_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

/* The part of "a+b+c" that is this process's: rank r has the (r modulo n)th. */
static const char *mine_of(const char *list, uint32_t rank, char *buf, size_t size)
{
	uint32_t n = 1;

	if (list == NULL)
		return NULL;
	for (const char *p = list; *p != '\0'; p++)
		n += *p == '+';
	for (rank %= n; rank > 0; rank--)
		list = strchr(list, '+') + 1;
	snprintf(buf, size, "%.*s", (int)strcspn(list, "+"), list);
	return buf;
}

static int choose(struct verbs *w)
{
	char device[VERBS_NAME_MAX], addr[64], index[16];
	struct verbs_want want = {
		.device = mine_of(w->o.device, w->f->host, device, sizeof(device)),
		.addr = mine_of(w->o.addr, w->f->host, addr, sizeof(addr)),
		.port = (uint8_t)w->o.port,
		.gid = -1,
	};
	const char *wanted_gid = mine_of(w->o.gid, w->f->host, index, sizeof(index));
	const char *bind = w->f->cluster != NULL ? vb_cluster_bind(w->f->cluster) : NULL;
	uint64_t gid;
	int err;

	if (strcmp(wanted_gid, "auto") != 0) {
		if (vb_parse_size(wanted_gid, &gid) != 0 || gid > 65535)
			return vb_fail(-EINVAL, "option gid=%s: auto, or a number up to 65535",
				       wanted_gid);
		want.gid = (int)gid;
	}
	/* A cluster that was bound to an address means that network, unless told otherwise. */
	if (want.device == NULL && want.addr == NULL && bind != NULL &&
	    strncmp(bind, "127.", 4) != 0 && strcmp(bind, "::1") != 0 &&
	    strcmp(bind, "0.0.0.0") != 0 && strcmp(bind, "::") != 0)
		want.addr = bind;
	err = verbs_choose(&want, &w->choice);
	if (err != 0)
		return err;
	if (w->choice.device.atomics == VERBS_ATOMIC_NONE)
		return vb_fail(
			-ENODEV,
			"%s has no atomic operations (its atomic_cap is none), and locks are "
			"made of them: use another device, or the fabric ucx",
			w->choice.device.name);
	return 0;
}

int verbs_device_open(struct verbs *w)
{
	struct ibv_device **list;
	int n = 0, err = choose(w);

	if (err != 0)
		return err;
	list = w->lib->get_device_list(&n);
	for (int i = 0; list != NULL && i < n && w->ctx == NULL; i++) {
		if (strcmp(w->lib->get_device_name(list[i]), w->choice.device.name) == 0)
			w->ctx = w->lib->open_device(list[i]);
	}
	if (list != NULL)
		w->lib->free_device_list(list);
	if (w->ctx == NULL)
		return vb_fail(-ENODEV, "%s cannot be opened: %s", w->choice.device.name,
			       strerror(errno));
	w->ext = verbs_ext_of(w->ctx);
	w->pd = w->lib->alloc_pd(w->ctx);
	w->channel = w->lib->create_comp_channel(w->ctx);
	if (w->pd == NULL || w->channel == NULL)
		return vb_fail(-ENODEV, "%s gives no protection domain or no event channel: %s",
			       w->choice.device.name, strerror(errno));
	if (verbs_lib_fork_error() != 0)
		vb_warn("a fork of this process, system() too, can tear the memory that %s works "
			"on: ibv_fork_init: %s (open the fabric before other users of "
			"libibverbs, or take Linux 5.12 or newer)",
			w->choice.device.name, strerror(verbs_lib_fork_error()));
	return 0;
}

void verbs_device_close(struct verbs *w)
{
	if (w->channel != NULL)
		w->lib->destroy_comp_channel(w->channel);
	if (w->pd != NULL)
		w->lib->dealloc_pd(w->pd);
	if (w->ctx != NULL)
		w->lib->close_device(w->ctx);
}

/* How many of everything, from the options and what the device can. */
static int size_up(struct verbs *w)
{
	const struct verbs_device *d = &w->choice.device;
	uint64_t hosts = w->f->hosts, cqe;

	w->depth = pow2_above(w->o.depth);
	w->lanes = (uint32_t)w->o.lanes;
	if (w->o.signal_every > w->depth / 4)
		w->o.signal_every = w->depth / 4;
	w->n_qps = (uint32_t)(hosts * w->lanes + 1);
	w->n_recvs = (uint32_t)(hosts * 2 * w->o.credits);
	w->n_spares = w->n_recvs < d->max_srq_wr ? d->max_srq_wr - w->n_recvs : 0;
	if (w->n_spares > VERBS_SPARE_RECVS)
		w->n_spares = VERBS_SPARE_RECVS;
	w->n_ud_recvs = (uint32_t)w->o.datagrams;
	w->n_pieces = (uint32_t)(w->o.bounce / VERBS_PIECE);
	cqe = (uint64_t)w->n_qps * w->depth + w->n_recvs + w->n_spares + w->n_ud_recvs;
	if (sizeof(struct verbs_address) + hosts * w->lanes * sizeof(struct verbs_remote_qp) >
	    NET_ADDRESS_MAX)
		return vb_fail(-EINVAL, "%u lanes to each of %u hosts are too many; take fewer",
			       w->lanes, w->f->hosts);
	if (w->depth > d->max_wr || w->n_ud_recvs > d->max_wr)
		return vb_fail(-EINVAL,
			       "%s has queues of at most %u requests: lower options depth (%u) and "
			       "datagrams (%u)",
			       d->name, d->max_wr, w->depth, w->n_ud_recvs);
	if (w->n_recvs > d->max_srq_wr)
		return vb_fail(-EINVAL,
			       "%s has shared receive queues of at most %u, %u are needed: lower "
			       "option credits (%u)",
			       d->name, d->max_srq_wr, w->n_recvs, (unsigned)w->o.credits);
	if (cqe > d->max_cqe)
		return vb_fail(-EINVAL,
			       "%s has completion queues of at most %u, %llu are needed: lower "
			       "options depth (%u) and lanes (%u)",
			       d->name, d->max_cqe, (unsigned long long)cqe, w->depth, w->lanes);
	return 0;
}

static struct ibv_mr *reg(struct verbs *w, void *at, size_t bytes, int access, const char *what)
{
	struct ibv_mr *mr = w->lib->reg_mr(w->pd, at, bytes, access);

	if (mr == NULL)
		vb_error("%s cannot register the %zu bytes of %s: %s%s", w->choice.device.name,
			 bytes, what, strerror(errno), verbs_pin_hint(errno));
	return mr;
}

static int make_pool(struct verbs *w)
{
	size_t slots = (size_t)w->n_qps * w->depth * VERBS_SLOT, pieces, at;

	slots = (slots + VERBS_PIECE - 1) / VERBS_PIECE * VERBS_PIECE;
	pieces = (size_t)w->n_pieces * VERBS_PIECE;
	w->pool_bytes = slots + pieces +
			((size_t)w->n_recvs + w->n_spares + w->n_ud_recvs) * VERBS_RECV_BYTES;
	w->pool = mmap(NULL, w->pool_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	if (w->pool == MAP_FAILED) {
		w->pool = NULL;
		return vb_fail(-ENOMEM, "no memory for %zu bytes of buffers", w->pool_bytes);
	}
	/* A child must not make the parent's pages copies of what the device writes to. */
	(void)madvise(w->pool, w->pool_bytes, MADV_DONTFORK);
	at = slots;
	w->pieces = w->pool + at;
	w->recvs = w->pieces + pieces;
	w->ud_recvs = w->recvs + (size_t)(w->n_recvs + w->n_spares) * VERBS_RECV_BYTES;
	w->pool_mr = reg(w, w->pool, w->pool_bytes, IBV_ACCESS_LOCAL_WRITE, "buffers");
	w->f->pinned = true;
	w->memory_mr = reg(w, w->f->memory, w->f->memory_bytes,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
			   "the nodes");
	return w->pool_mr != NULL && w->memory_mr != NULL ? 0 : -ENOMEM;
}

static int make_arrays(struct verbs *w)
{
	uint32_t hosts = w->f->hosts;

	w->by_qpn_mask = pow2_above(2ull * w->n_qps) - 1;
	w->hosts = calloc(hosts, sizeof(*w->hosts));
	w->qps = calloc(w->n_qps, sizeof(*w->qps));
	w->by_qpn = calloc((size_t)w->by_qpn_mask + 1, sizeof(*w->by_qpn));
	w->dirty = calloc(w->n_qps, sizeof(*w->dirty));
	w->due = calloc(2ull * hosts, sizeof(*w->due));
	w->piece_stack = calloc(w->n_pieces, sizeof(*w->piece_stack));
	w->recv_turn = calloc(w->n_recvs + w->n_spares, sizeof(*w->recv_turn));
	if (w->hosts == NULL || w->qps == NULL || w->by_qpn == NULL || w->dirty == NULL ||
	    w->due == NULL || w->piece_stack == NULL || w->recv_turn == NULL)
		return vb_fail(-ENOMEM, "no memory for %u connections", w->n_qps);
	for (uint32_t i = 0; i < w->n_pieces; i++)
		w->piece_stack[w->free_pieces++] = i;
	for (uint32_t i = 0; i < w->n_qps; i++) {
		struct verbs_qp *q = &w->qps[i];

		q->number = i;
		q->host = i / w->lanes;
		q->mask = w->depth - 1;
		q->slots = w->pool + (size_t)i * w->depth * VERBS_SLOT;
		q->rec = calloc(w->depth, sizeof(*q->rec));
		q->wr = calloc(w->depth, sizeof(*q->wr));
		q->sge = calloc(w->depth, sizeof(*q->sge));
		q->ext = w->ext != NULL ? calloc(w->depth, sizeof(*q->ext)) : NULL;
		if (q->rec == NULL || q->wr == NULL || q->sge == NULL ||
		    (w->ext != NULL && q->ext == NULL))
			return vb_fail(-ENOMEM, "no memory for a connection");
	}
	w->ud = &w->qps[w->n_qps - 1];
	for (uint32_t h = 0; h < hosts; h++) {
		w->hosts[h].lane = &w->qps[h * w->lanes];
		w->hosts[h].credits_max = (uint32_t)w->o.credits;
		verbs_credits_reset(&w->hosts[h]);
	}
	return 0;
}

static int make_queues(struct verbs *w)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = w->n_recvs + w->n_spares, .max_sge = 1}};
	uint32_t cqe = w->n_qps * w->depth + w->n_recvs + w->n_spares + w->n_ud_recvs;
	int err = 0;

	w->cq = w->lib->create_cq(w->ctx, (int)cqe, NULL, w->channel, 0);
	w->srq = w->lib->create_srq(w->pd, &srq);
	if (w->cq == NULL || w->srq == NULL)
		return vb_fail(-ENODEV,
			       "%s makes no completion queue of %u or no shared receive queue of "
			       "%u: %s%s",
			       w->choice.device.name, cqe, w->n_recvs, strerror(errno),
			       verbs_pin_hint(errno));
	for (uint32_t i = 0; i + 1 < w->n_qps && err == 0; i++)
		err = verbs_qp_make(w, &w->qps[i], IBV_QPT_RC);
	if (err == 0)
		err = verbs_qp_make(w, w->ud, IBV_QPT_UD);
	for (uint32_t i = 0; i < w->n_recvs && err == 0; i++)
		err = verbs_recv_post(w, false, &i, 1);
	for (uint32_t i = 0; i < w->n_ud_recvs && err == 0; i++)
		err = verbs_recv_post(w, true, &i, 1);
	return err != 0 ? err : verbs_ud_start(w);
}

static int watch(int epoll_fd, int fd)
{
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
	    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e) != 0)
		return -errno;
	return 0;
}

/* One descriptor to sleep on: completions, the device's troubles, and a clock for what times
 * out. */
static int make_fd(struct verbs *w)
{
	int err;

	w->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	w->f->fd = epoll_create1(EPOLL_CLOEXEC);
	if (w->timer_fd < 0 || w->f->fd < 0)
		return vb_fail(-errno, "no descriptor to wait on: %s", strerror(errno));
	err = watch(w->f->fd, w->channel->fd);
	if (err == 0)
		err = watch(w->f->fd, w->timer_fd);
	if (err == 0)
		err = watch(w->f->fd, w->ctx->async_fd);
	return err == 0 ? 0 : vb_fail(err, "no descriptor to wait on: %s", vb_strerror(err));
}

/* The queue key: what members have and strangers lack.  Its top bit has a meaning of its own. */
static int draw_secrets(struct verbs *w)
{
	uint64_t seed[2];

	if (getrandom(seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
		return vb_fail(-EIO, "no random numbers: %s", strerror(errno));
	vb_rng_seed(&w->rng, seed[0], seed[1]);
	w->qkey = (uint32_t)(w->f->cluster != NULL ? vb_cluster_number(w->f->cluster, "vb_verbs")
						   : seed[0]) &
		  0x7fffffff;
	return 0;
}

uint8_t verbs_mtu(const struct verbs *w)
{
	uint32_t mtu = w->o.mtu != 0 ? (uint32_t)w->o.mtu : 1;

	if (w->o.mtu == 0) {
		while (mtu < IBV_MTU_4096 && 128u << (mtu + 1) <= w->choice.port->mtu)
			mtu++;
	}
	return (uint8_t)mtu;
}

static void address_write(const struct verbs *w, struct verbs_address *a, size_t *bytes)
{
	const struct verbs_port *p = w->choice.port;

	*a = (struct verbs_address){
		.magic = ADDRESS_MAGIC,
		.version = ADDRESS_VERSION,
		.hosts = w->f->hosts,
		.lanes = w->lanes,
		.base = (uintptr_t)w->f->memory,
		.bytes = w->f->memory_bytes,
		.rkey = w->memory_mr->rkey,
		.ud_qpn = w->ud->qp->qp_num,
		.credits = (uint32_t)w->o.credits,
		.lid = p->lid,
		.link = (uint8_t)p->link,
		.mtu = verbs_mtu(w),
		.rd_atomic = (uint8_t)(w->choice.device.max_rd_atomic < 128
					       ? w->choice.device.max_rd_atomic
					       : 128),
	};
	if (w->choice.gid != NULL)
		memcpy(a->gid, w->choice.gid->raw, sizeof(a->gid));
	for (uint32_t i = 0; i + 1 < w->n_qps; i++)
		a->qp[i] = (struct verbs_remote_qp){w->qps[i].qp->qp_num, w->qps[i].psn};
	*bytes = sizeof(*a) + (w->n_qps - 1) * sizeof(a->qp[0]);
}

static void set_caps(struct verbs *w)
{
	struct vb_fabric_caps *c = &w->f->f.caps;

	c->verb_bound_ns = w->bound_ns;
	c->bound_note = w->bound_note;
	c->flags |= w->choice.device.extended;
	if (w->o.rpc == VERBS_RPC_UD)
		c->flags |= VB_CAP_DATAGRAM;
	if (w->choice.device.atomics == VERBS_ATOMIC_GLOB)
		c->flags |= VB_CAP_CPU_ATOMICS;
	if (w->ext != NULL)
		c->atomics = w->ext->name;
	w->f->coalesce = w->o.doorbell == VERBS_DOORBELL_BATCH;
	w->f->wait_ns = w->bound_ns;
	w->f->verb_bytes_max = VB_LEN_MAX;
}

static void verbs_close(struct net_fabric *f);

static int verbs_open(struct net_fabric *f, const void *options, void *address, size_t *bytes)
{
	struct verbs *w = calloc(1, sizeof(*w));
	const char *why;
	int err;

	if (w == NULL)
		return vb_fail(-ENOMEM, "no memory for a fabric");
	f->wire = w;
	f->fd = -1;
	w->f = f;
	w->timer_fd = -1;
	memcpy(&w->o, options, sizeof(w->o));
	w->lib = verbs_lib(&why);
	if (w->lib == NULL)
		err = vb_fail(-ENODEV, "%s", why);
	else
		err = verbs_device_open(w);
	if (err == 0)
		err = size_up(w);
	if (err == 0)
		err = draw_secrets(w);
	if (err == 0)
		err = make_pool(w);
	if (err == 0)
		err = make_arrays(w);
	if (err == 0)
		err = make_queues(w);
	if (err == 0)
		err = make_fd(w);
	if (err != 0) {
		verbs_close(f);
		return err;
	}
	verbs_set_bound(w);
	set_caps(w);
	address_write(w, address, bytes);
	vb_info("%s port %u, %u connections, bound %llu ms", w->choice.device.name,
		w->choice.port->number, w->n_qps - 1, (unsigned long long)(w->bound_ns / 1000000));
	return 0;
}

/* ---- the others ---- */

static int fail_address(uint32_t host, const char *what)
{
	return vb_fail(-EPROTO, "host %u: its address is not one of this version's or options': %s",
		       host, what);
}

static int check_address(const struct verbs *w, uint32_t host, const struct verbs_address *a,
			 size_t bytes)
{
	if (bytes < sizeof(*a) || a->magic != ADDRESS_MAGIC || a->version != ADDRESS_VERSION)
		return fail_address(host, "version");
	if (a->hosts != w->f->hosts || a->lanes != w->lanes ||
	    bytes != sizeof(*a) + (w->n_qps - 1) * sizeof(a->qp[0]))
		return fail_address(host, "hosts or option lanes");
	if (a->credits != w->o.credits)
		return fail_address(host, "option credits");
	if (a->link != (uint8_t)w->choice.port->link)
		return vb_fail(-EPROTO, "host %u is on %s, this one on %s", host,
			       a->link <= VERBS_LINK_OTHER ? verbs_link_names[a->link] : "nothing",
			       verbs_link_names[w->choice.port->link]);
	if (a->mtu < IBV_MTU_256 || a->mtu > IBV_MTU_4096 || a->ud_qpn > 0xffffff)
		return fail_address(host, "MTU or queue pair");
	if (a->bytes < net_host_bytes(w->f, host) || a->base + a->bytes < a->base)
		return fail_address(host, "memory");
	for (uint32_t i = 0; i + 1 < w->n_qps; i++) {
		if (a->qp[i].qpn > 0xffffff || a->qp[i].psn > 0xffffff)
			return fail_address(host, "queue pair");
	}
	return 0;
}

static int connect_host(struct verbs *w, uint32_t host, const struct verbs_address *a, uint8_t mtu)
{
	struct verbs_host *h = &w->hosts[host];
	int err;

	h->base = a->base;
	h->bytes = a->bytes;
	h->rkey = a->rkey;
	h->ud_qpn = a->ud_qpn;
	h->lid = a->lid;
	h->mtu = a->mtu < mtu ? a->mtu : mtu;
	h->rd_atomic = a->rd_atomic;
	memcpy(h->gid, a->gid, sizeof(h->gid));
	err = verbs_ah_make(w, h);
	for (uint32_t l = 0; l < w->lanes && err == 0; l++) {
		/* Its queue pairs for us stand at our rank. */
		h->remote[l] = a->qp[w->f->host * w->lanes + l];
		err = verbs_qp_connect(w, &h->lane[l], &h->remote[l]);
	}
	return err;
}

/* What came lies at any address; the copy is aligned. */
static int read_address(const struct verbs *w, uint32_t host,
			const struct vb_cluster_parts *addresses, struct verbs_address *copy)
{
	size_t bytes = addresses->bytes[host];

	if (addresses->data[host] == NULL)
		return vb_fail(-VB_EPEERGONE, "host %u is gone", host);
	if (bytes > NET_ADDRESS_MAX)
		return fail_address(host, "size");
	memcpy(copy, addresses->data[host], bytes);
	return check_address(w, host, copy, bytes);
}

static int verbs_connect(struct net_fabric *f, const struct vb_cluster_parts *addresses)
{
	struct verbs *w = verbs_of(f);
	struct verbs_address *a;
	uint8_t mtu;
	int err;

	if (addresses->n != f->hosts)
		return vb_fail(-EPROTO, "%u addresses of %u hosts", addresses->n, f->hosts);
	a = malloc(NET_ADDRESS_MAX);
	if (a == NULL)
		return vb_fail(-ENOMEM, "no memory for addresses");
	err = read_address(w, f->host, addresses, a);
	mtu = err == 0 ? a->mtu : 0;
	for (uint32_t host = 0; host < f->hosts && err == 0; host++) {
		err = read_address(w, host, addresses, a);
		if (err == 0)
			err = connect_host(w, host, a, mtu);
	}
	free(a);
	return err;
}

/* ---- closing ---- */

static void close_fds(struct verbs *w)
{
	if (w->timer_fd >= 0)
		close(w->timer_fd);
	if (w->f->fd >= 0)
		close(w->f->fd);
	w->f->fd = -1;
}

static void close_queues(struct verbs *w)
{
	for (uint32_t i = 0; w->qps != NULL && i < w->n_qps; i++) {
		struct verbs_qp *q = &w->qps[i];

		if (q->qp != NULL)
			w->lib->destroy_qp(q->qp);
		free(q->rec);
		free(q->wr);
		free(q->sge);
		free(q->ext);
	}
	for (uint32_t h = 0; w->hosts != NULL && h < w->f->hosts; h++) {
		if (w->hosts[h].ah != NULL)
			w->lib->destroy_ah(w->hosts[h].ah);
	}
	for (uint32_t i = 0; i < w->n_dying; i++)
		w->lib->destroy_qp(w->dying[i].qp);
	if (w->srq != NULL)
		w->lib->destroy_srq(w->srq);
	if (w->cq != NULL) {
		w->lib->ack_cq_events(w->cq, w->events);
		w->lib->destroy_cq(w->cq);
	}
	free(w->qps);
	free(w->hosts);
	free(w->by_qpn);
	free(w->dirty);
	free(w->due);
	free(w->piece_stack);
	free(w->recv_turn);
}

static void verbs_close(struct net_fabric *f)
{
	struct verbs *w = verbs_of(f);

	if (w == NULL)
		return;
	close_fds(w);
	if (w->ctx != NULL)
		close_queues(w);
	if (w->memory_mr != NULL)
		w->lib->dereg_mr(w->memory_mr);
	if (w->pool_mr != NULL)
		w->lib->dereg_mr(w->pool_mr);
	if (w->pool != NULL)
		munmap(w->pool, w->pool_bytes);
	verbs_device_close(w);
	free(w);
	f->wire = NULL;
}

/* ---- the fabric ---- */

static bool verbs_local_cpu(const struct net_fabric *f)
{
	return (f->f.caps.flags & VB_CAP_CPU_ATOMICS) != 0;
}

static void verbs_flush(struct net_fabric *f)
{
	verbs_ring_all(verbs_of(f));
	verbs_done_flush(verbs_of(f));
}

static const struct net_transport verbs_transport = {
	.name = "verbs",
	.local_cpu = verbs_local_cpu,
	.open = verbs_open,
	.connect = verbs_connect,
	.close = verbs_close,
	.post = verbs_post,
	.flush = verbs_flush,
	.progress = verbs_progress,
	.arm = verbs_arm,
	.control = verbs_control,
	.host_gone = verbs_host_gone,
};

extern const struct vb_fabric_ops vb_fabric_verbs;

static int verbs_fabric_open(const struct vb_fabric_params *p, const void *options,
			     struct vb_fabric **out)
{
	return net_open(p, options, &vb_fabric_verbs, &verbs_transport, out);
}

const struct vb_fabric_ops vb_fabric_verbs = {
	.name = "verbs",
	.summary = "RDMA devices: InfiniBand, RoCE, Soft-RoCE (rdma-core)",
	.options = verbs_options,
	.options_size = sizeof(struct verbs_options),
	.absent = verbs_absent,
	.caps =
		{
			.flags = VB_CAP_SEND | VB_CAP_NOTIFY | VB_CAP_CLUSTER,
			.rtt_ns = 2000,
			.verb_bound_ns = VERBS_FORMULA_NS(12, 4) + VERBS_RNR_NS + VERBS_NAP_NS,
			.atomics = "those of the device; masked ones where it has them (mlx5)",
			.order = "the order of one reliable connection, nothing stronger",
		},
	.open = verbs_fabric_open,
	NET_FABRIC_OPS,
};
