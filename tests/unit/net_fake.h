/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A wire that the test holds in its hand, and a cluster of which only this process is real.
 *
 * The transport keeps what is posted until the test says how it ends (fake_end); other hosts'
 * memory is an array.  The cluster's functions are replaced when linking (--wrap): the other
 * processes send what this one does, unless the test bends it.  So are ppoll, which can be told
 * that no nap ends by itself, so that a lost wake-up cannot pass for a late one, and sched_yield,
 * to be counted.
 */
#ifndef VB_TESTS_NET_FAKE_H
#define VB_TESTS_NET_FAKE_H

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "fabric/cpu.h"
#include "fabric/net/core.h"
#include "fabric/opened.h"

#define FAKE_HOSTS      3u
#define FAKE_NODES      7u /* of host 0: 0, 3, 6; of host 1: 1, 4; of host 2: 2, 5 */
#define FAKE_NODE_BYTES 8192u
#define FAKE_FLIGHT     512u
#define FAKE_CONTROLS   128u
#define FAKE_VERB_BYTES 4096u
#define FAKE_LONG_NS    60000000000ull /* longer than anything here takes */

/* ---- the transport ---- */

struct fake_verb {
	struct net_ep *ep;
	struct net_thread *owner;
	struct vb_batch *batch; /* NULL: not signalled, `v` is a copy */
	struct vb_verb *v, copy;
	uint8_t data[VB_INLINE_MAX];
	struct vb_msg msg;
	uint32_t host;
	bool rung;
};

struct fake_control {
	uint32_t host;
	size_t bytes;
	uint8_t data[NET_CONTROL_MAX];
};

static struct fake {
	/* set by the test before opening */
	bool alone, local_cpu, coalesce, no_fd;
	uint32_t rank, local_hosts;
	uint32_t caps_without;
	uint64_t bound_ns;
	const char *options;
	int open_err, connect_err, gather_err, barrier_err;
	void (*bend)(uint32_t rank, void **data, size_t *bytes);
	uint32_t dead_before; /* bits: dead when the fabric is opened */
	/* at any time, with the engine */
	int post_err;
	unsigned controls_full; /* so many control messages find no room */
	int control_err;
	bool busy; /* arm finds something to see */
	bool (*on_progress)(void);
	void (*on_control)(const struct fake_control *c);

	struct net_fabric *f;
	struct vb_fabric *fabric;
	struct fake_verb *flight[FAKE_FLIGHT];
	unsigned flying;
	struct fake_control controls[FAKE_CONTROLS];
	unsigned n_controls;
	unsigned posts, flushes, passes, arms, opened, closed, connected;
	uint32_t told_gone; /* bits: hosts of which host_gone was called */
	char addresses[256];
	/* the cluster */
	void (*on_gone)(void *ctx, uint32_t rank, bool died);
	void *on_gone_ctx;
	unsigned barriers;
	/* waiting */
	bool endless;
	void (*on_nap)(void);
	uint64_t naps, naps_over, yields; /* atomic */
} fake;

static _Alignas(64) uint8_t fake_memory[FAKE_HOSTS][FAKE_NODES * FAKE_NODE_BYTES];

static inline uint8_t *fake_at(vb_addr a)
{
	const struct net_fabric *f = fake.f;
	uint32_t host = net_host_of_node(f, vb_addr_node(a));

	return (host == f->host ? f->memory : fake_memory[host]) + net_host_offset(f, a);
}

static inline uint64_t fake_word(vb_addr a)
{
	return __atomic_load_n((uint64_t *)fake_at(a), __ATOMIC_SEQ_CST);
}

static bool fake_local_cpu(const struct net_fabric *f)
{
	(void)f;
	return fake.local_cpu;
}

static int fake_wire_open(struct net_fabric *f, const void *options, void *address, size_t *bytes)
{
	(void)options;
	assert_true(*bytes >= NET_ADDRESS_MAX);
	if (fake.open_err != 0)
		return fake.open_err;
	fake.opened++;
	fake.f = f;
	f->wire = &fake;
	f->coalesce = fake.coalesce;
	f->verb_bytes_max = FAKE_VERB_BYTES;
	f->wait_ns = 1000000000;
	f->f.caps.flags &= ~fake.caps_without;
	if (fake.bound_ns != 0)
		f->f.caps.verb_bound_ns = fake.bound_ns;
	f->fd = fake.no_fd ? -1 : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	*bytes = (size_t)snprintf(address, *bytes, "host%u", f->host);
	return 0;
}

static int fake_connect(struct net_fabric *f, const struct vb_cluster_parts *a)
{
	(void)f;
	fake.connected++;
	fake.addresses[0] = '\0';
	for (uint32_t r = 0; r < a->n; r++)
		strncat(fake.addresses, a->data[r], a->bytes[r]);
	return fake.connect_err;
}

static uint32_t fake_host_of(const struct vb_verb *v)
{
	return net_host_of_node(fake.f, v->op == VB_OP_SEND ? vb_peer_node(v->peer)
							    : vb_addr_node(v->addr));
}

/* Of an unsignalled verb nothing of the caller's may be looked at later. */
static void fake_copy(struct fake_verb *p)
{
	p->batch = NULL;
	p->copy = *p->v;
	p->v = &p->copy;
	if (p->copy.op == VB_OP_WRITE || p->copy.op == VB_OP_WRITE_NOTIFY) {
		assert_true(p->copy.len <= sizeof(p->data));
		memcpy(p->data, p->copy.buf, p->copy.len);
		p->copy.buf = p->data;
	}
	if (p->copy.msg != NULL) {
		p->msg = *p->copy.msg;
		p->copy.msg = &p->msg;
	}
}

static int fake_post(struct net_fabric *f, struct net_ep *e, struct vb_batch *b)
{
	(void)f;
	fake.posts++;
	if (fake.post_err != 0)
		return fake.post_err;
	for (unsigned i = 0; i < b->n; i++) {
		struct vb_verb *v = &b->verbs[i];
		struct fake_verb *p;

		if (v->status != 0)
			continue;
		p = calloc(1, sizeof(*p));
		assert_non_null(p);
		*p = (struct fake_verb){
			.ep = e, .owner = e->thread, .batch = b, .v = v, .host = fake_host_of(v)};
		if (!(v->flags & VB_SIGNALLED))
			fake_copy(p);
		assert_true(fake.flying < FAKE_FLIGHT);
		fake.flight[fake.flying++] = p;
	}
	return 0;
}

static bool fake_progress(struct net_fabric *f)
{
	uint64_t n;

	fake.passes++;
	if (f->fd >= 0 && read(f->fd, &n, sizeof(n)) < 0)
		assert_int_equal(errno, EAGAIN);
	return fake.on_progress != NULL && fake.on_progress();
}

static int fake_arm(struct net_fabric *f)
{
	(void)f;
	fake.arms++;
	return fake.busy ? -EBUSY : 0;
}

static int fake_send_control(struct net_fabric *f, uint32_t host, const void *data, size_t bytes)
{
	struct fake_control *c = &fake.controls[fake.n_controls];

	(void)f;
	assert_true(bytes <= NET_CONTROL_MAX);
	if (fake.controls_full > 0) {
		fake.controls_full--;
		return -EAGAIN;
	}
	if (fake.control_err != 0)
		return fake.control_err;
	assert_true(fake.n_controls++ < FAKE_CONTROLS);
	*c = (struct fake_control){.host = host, .bytes = bytes};
	memcpy(c->data, data, bytes);
	if (fake.on_control != NULL)
		fake.on_control(c);
	return 0;
}

/* Executes a verb on fake_memory, a message for this host included. */
static inline int fake_execute(struct fake_verb *p)
{
	struct vb_verb *v = p->v;
	struct vb_msg m;

	if (v->op == VB_OP_READ) {
		cpu_copy_out(v->buf, fake_at(v->addr), v->len);
		return 0;
	}
	if (v->op == VB_OP_WRITE || v->op == VB_OP_WRITE_NOTIFY)
		cpu_copy_in(fake_at(v->addr), v->buf, v->len);
	else if (v->op != VB_OP_SEND)
		cpu_atomic(v, fake_at(v->addr));
	if ((v->op != VB_OP_SEND && v->op != VB_OP_WRITE_NOTIFY) || p->host != fake.f->host)
		return 0;
	m = *v->msg;
	m.from = p->ep->ep.self;
	return net_deliver(fake.f, vb_peer_client(v->peer), &m);
}

/* With the engine: ends verb number i of those in flight.  `happened`: it has its effect, whatever
 * the caller is told. */
static inline void fake_end_held(unsigned i, int status, bool happened)
{
	struct fake_verb *p = fake.flight[i];

	assert_true(i < fake.flying);
	fake.flying--;
	memmove(&fake.flight[i], &fake.flight[i + 1], (fake.flying - i) * sizeof(p));
	if (happened) {
		int err = fake_execute(p);

		status = status != 0 ? status : err;
	}
	if (p->batch != NULL) {
		p->v->status = status;
		fake.f->stats.completions++;
		net_done(fake.f, p->owner, p->batch, 1);
	}
	free(p);
}

static void fake_flush(struct net_fabric *f)
{
	fake.flushes++;
	f->stats.doorbells++;
	for (unsigned i = 0; i < fake.flying;) {
		struct fake_verb *p = fake.flight[i];

		if (!p->rung && p->v->not_after_ns != 0 &&
		    vb_ep_now(&p->ep->ep) > p->v->not_after_ns) {
			fake_end_held(i, -VB_ETOOLATE, false);
			continue;
		}
		p->rung = true;
		i++;
	}
}

static inline void fake_end(unsigned i, int status, bool happened)
{
	pthread_mutex_lock(&fake.f->engine);
	fake_end_held(i, status, happened);
	pthread_mutex_unlock(&fake.f->engine);
}

/* What has left may have been executed; what has not cannot have been. */
static void fake_host_gone(struct net_fabric *f, uint32_t host)
{
	(void)f;
	fake.told_gone |= 1u << host;
	for (unsigned i = 0; i < fake.flying;) {
		if (fake.flight[i]->host != host)
			i++;
		else
			fake_end_held(i, fake.flight[i]->rung ? -VB_EUNKNOWN : -VB_EPEERGONE,
				      false);
	}
}

static void fake_wire_close(struct net_fabric *f)
{
	fake.closed++;
	while (fake.flying > 0)
		fake_end_held(0, -VB_EUNKNOWN, false);
	if (f->fd >= 0)
		close(f->fd);
}

static const struct net_transport fake_transport = {
	.name = "fake",
	.local_cpu = fake_local_cpu,
	.open = fake_wire_open,
	.connect = fake_connect,
	.close = fake_wire_close,
	.post = fake_post,
	.flush = fake_flush,
	.progress = fake_progress,
	.arm = fake_arm,
	.control = fake_send_control,
	.host_gone = fake_host_gone,
};

static const struct vb_fabric_ops fake_ops = {
	.name = "fake",
	.summary = "a wire in the test's hand",
	.caps = {.flags = VB_CAP_MASKED64 | VB_CAP_MASKED128 | VB_CAP_SEND | VB_CAP_NOTIFY |
			  VB_CAP_CLUSTER,
		 .verb_bound_ns = 1000000},
	NET_FABRIC_OPS,
};

/* ---- the cluster ---- */

#define FAKE_CLUSTER ((struct vb_cluster *)&fake)

uint32_t __wrap_vb_cluster_rank(const struct vb_cluster *c);
uint32_t __wrap_vb_cluster_hosts(const struct vb_cluster *c);
uint32_t __wrap_vb_cluster_local_hosts(const struct vb_cluster *c);
bool __wrap_vb_cluster_alive(const struct vb_cluster *c, uint32_t rank);
int __wrap_vb_cluster_barrier(struct vb_cluster *c);
int __wrap_vb_cluster_gather(struct vb_cluster *c, const char *what, const void *mine, size_t bytes,
			     enum vb_cluster_to to, bool partial, uint64_t timeout_ns,
			     struct vb_cluster_parts *out);
void __wrap_vb_cluster_parts_free(struct vb_cluster_parts *p);
void __wrap_vb_cluster_on_gone(struct vb_cluster *c, unsigned slot,
			       void (*fn)(void *ctx, uint32_t rank, bool died), void *ctx);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask);
int __real_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask);
int __wrap_sched_yield(void);
int __real_sched_yield(void);

uint32_t __wrap_vb_cluster_rank(const struct vb_cluster *c)
{
	(void)c;
	return fake.rank;
}

uint32_t __wrap_vb_cluster_hosts(const struct vb_cluster *c)
{
	(void)c;
	return FAKE_HOSTS;
}

uint32_t __wrap_vb_cluster_local_hosts(const struct vb_cluster *c)
{
	(void)c;
	return fake.local_hosts != 0 ? fake.local_hosts : 1;
}

bool __wrap_vb_cluster_alive(const struct vb_cluster *c, uint32_t rank)
{
	(void)c;
	return !(fake.dead_before >> rank & 1);
}

int __wrap_vb_cluster_barrier(struct vb_cluster *c)
{
	(void)c;
	fake.barriers++;
	return fake.barrier_err;
}

int __wrap_vb_cluster_gather(struct vb_cluster *c, const char *what, const void *mine, size_t bytes,
			     enum vb_cluster_to to, bool partial, uint64_t timeout_ns,
			     struct vb_cluster_parts *out)
{
	(void)c, (void)what, (void)timeout_ns;
	assert_true(to == VB_CLUSTER_TO_ALL && !partial);
	if (fake.gather_err != 0)
		return fake.gather_err;
	out->n = FAKE_HOSTS;
	out->data = calloc(FAKE_HOSTS, sizeof(*out->data));
	out->bytes = calloc(FAKE_HOSTS, sizeof(*out->bytes));
	for (uint32_t r = 0; r < FAKE_HOSTS; r++) {
		out->data[r] = malloc(bytes);
		out->bytes[r] = bytes;
		memcpy(out->data[r], mine, bytes);
		/* The address is the last: "host" and the rank. */
		((char *)out->data[r])[bytes - 1] = (char)('0' + r);
		if (fake.bend != NULL)
			fake.bend(r, &out->data[r], &out->bytes[r]);
	}
	return 0;
}

void __wrap_vb_cluster_parts_free(struct vb_cluster_parts *p)
{
	for (uint32_t r = 0; r < p->n; r++)
		free(p->data[r]);
	free(p->data);
	free(p->bytes);
	*p = (struct vb_cluster_parts){0};
}

void __wrap_vb_cluster_on_gone(struct vb_cluster *c, unsigned slot,
			       void (*fn)(void *ctx, uint32_t rank, bool died), void *ctx)
{
	(void)c, (void)slot;
	fake.on_gone = fn;
	fake.on_gone_ctx = ctx;
}

static inline void fake_dies(uint32_t host)
{
	fake.on_gone(fake.on_gone_ctx, host, true);
}

/* ---- waiting ---- */

int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
	static const struct timespec no_end = {.tv_sec = 20};
	int got;

	__atomic_fetch_add(&fake.naps, 1, __ATOMIC_SEQ_CST);
	if (fake.on_nap != NULL)
		fake.on_nap();
	got = __real_ppoll(fds, n, __atomic_load_n(&fake.endless, __ATOMIC_SEQ_CST) ? &no_end : t,
			   mask);
	if (got == 0)
		__atomic_fetch_add(&fake.naps_over, 1, __ATOMIC_SEQ_CST);
	return got;
}

int __wrap_sched_yield(void)
{
	__atomic_fetch_add(&fake.yields, 1, __ATOMIC_SEQ_CST);
	return __real_sched_yield();
}

static inline uint64_t fake_count(uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_SEQ_CST);
}

/* Something comes on the wire: whoever sleeps on the descriptor wakes. */
static inline void fake_signal(void)
{
	const uint64_t one = 1;

	assert_int_equal(write(fake.f->fd, &one, sizeof(one)), sizeof(one));
}

/* ---- opening ---- */

static inline int fake_try_open(struct vb_fabric **out)
{
	struct vb_fabric_params p = {
		.fabric = "fake",
		.nodes = FAKE_NODES,
		.node_bytes = FAKE_NODE_BYTES,
		.options = fake.options,
		.cluster = fake.alone ? NULL : FAKE_CLUSTER,
	};

	int err;

	vb_clock_init();
	err = net_open(&p, NULL, &fake_ops, &fake_transport, out);
	if (err == 0)
		vb_opened_init(*out);
	return err;
}

/* A test's setup: defaults, not open yet. */
static inline int fake_reset(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	memset(fake_memory, 0, sizeof(fake_memory));
	fake.local_cpu = true;
	return 0;
}

static inline struct vb_fabric *fake_open(void)
{
	assert_int_equal(fake_try_open(&fake.fabric), 0);
	return fake.fabric;
}

static inline int fake_teardown(void **state)
{
	(void)state;
	if (fake.fabric != NULL) {
		assert_int_equal(vb_fabric_close(fake.fabric), 0);
		fake.fabric = NULL;
		assert_int_equal(fake.closed, fake.opened);
	}
	return 0;
}

static inline struct vb_ep *fake_ep(uint16_t node)
{
	struct vb_ep *e;

	assert_int_equal(vb_ep_open(fake.fabric, node, &e), 0);
	return e;
}

static inline struct vb_fabric_stats fake_stats(void)
{
	struct vb_fabric_stats s;

	vb_fabric_stats_get(fake.fabric, &s);
	return s;
}

/* The line that an expected error logs, kept off the screen. */
static __attribute__((unused)) char fake_log[512];
#define FAKE_SAYS(call, err, words)                                                                \
	do {                                                                                       \
		fake_log[0] = '\0';                                                                \
		vb_log_capture_begin(fake_log, sizeof(fake_log));                                  \
		int fake_rc = (call);                                                              \
		vb_log_capture_end();                                                              \
		assert_int_equal(fake_rc, err);                                                    \
		if (strstr(fake_log, words) == NULL)                                               \
			fail_msg("\"%s\" does not say \"%s\"", fake_log, words);                   \
	} while (0)

#define FAKE(test) cmocka_unit_test_setup_teardown(test, fake_reset, fake_teardown)

#endif
