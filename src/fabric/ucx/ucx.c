/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric ucx: its options and caps, opening, connecting all hosts, closing. */
#define VB_LOG_ROOM "ucx"
#include <poll.h>
#include <sys/random.h>
#include <xxhash.h>

#include "base/log.h"
#include "fabric/fabric.h"
#include "fabric/ucx/lib.h"

extern const struct vb_fabric_ops vb_fabric_ucx;

#if VB_HAVE_UCP

#include "fabric/ucx/inner.h"

#define S  1000000000ull
#define MS 1000000ull
#define US 1000ull

#define opt_field(f) offsetof(struct ucx_options, f)
static const struct vb_opt ucx_table[] = {
	VB_OPT_TIME(struct ucx_options, bound_ns, "bound", "4ms", 100 * US, 10 * S,
		    "a verb that its owner reads later after its posting does not happen; leases "
		    "must be twice as long"),
	VB_OPT_TIME(struct ucx_options, grace_ns, "grace", "20ms", 100 * US, 60 * S,
		    "how much longer than `bound` an answer is waited for"),
	VB_OPT_SIZE(struct ucx_options, window, "window", "16", 1, 1024,
		    "messages to one host without an answer; more verbs are collected meanwhile"),
	VB_OPT_SIZE(struct ucx_options, queue, "queue", "64", 1, 65536,
		    "full messages to one host that are collected before posts wait"),
	{.kind = VB_OPT_KIND_FLAG,
	 .name = "coalesce",
	 .init = "yes",
	 .help = "one message carries the verbs of several batches and tasks",
	 .offset = opt_field(coalesce)},
	{.kind = VB_OPT_KIND_CHOICE,
	 .name = "local",
	 .value = "HOW",
	 .init = "cpu",
	 .help = "how verbs reach this host's own memory",
	 .choices = "cpu|wire",
	 .offset = opt_field(local)},
	VB_OPT_TIME(struct ucx_options, helper_ns, "helper", "2ms", 0, 1 * S,
		    "a thread answers when the others have not looked for so long; 0: none"),
	VB_OPT_TIME(struct ucx_options, retry_ns, "retry", "200ms", 1 * MS, 60 * S,
		    "how often a lost connection is tried again"),
	VB_OPT_TIME(struct ucx_options, silence_ns, "silence", "1s", 10 * MS, 600 * S,
		    "a host that owes an answer for so long has lost its connection"),
	VB_OPT_SIZE(struct ucx_options, eager, "eager", "64ki", 0, 1 << 20,
		    "messages longer than this are fetched by the receiver (rendezvous)"),
	{.kind = VB_OPT_KIND_STRING,
	 .name = "tls",
	 .value = "LIST",
	 .init = "tcp,self",
	 .help = "UCX's transports, as in UCX_TLS",
	 .offset = opt_field(tls)},
	{.kind = VB_OPT_KIND_STRING,
	 .name = "net_devices",
	 .value = "LIST",
	 .help = "interfaces, as in UCX_NET_DEVICES; default: that of the cluster's address",
	 .offset = opt_field(net_devices)},
	VB_OPT_END};

/* ---- opening ---- */

static bool local_cpu(const struct net_fabric *f)
{
	return ucx_of(f)->o.local == UCX_LOCAL_CPU;
}

static int deliver(void *ctx, uint32_t client, const struct vb_msg *m)
{
	return net_deliver(ctx, client, m);
}

static uint64_t now(void)
{
	return vb_clock_ns();
}

/* Known to the members of the cluster, who know its secret. */
static uint64_t session_of(const struct net_fabric *f)
{
	uint64_t id = 0;

	if (f->cluster != NULL)
		return XXH3_64bits(vb_cluster_secret(f->cluster), 32);
	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		vb_debug("no random session number");
	return id;
}

static void init_host(struct ucx_wire *w, uint32_t rank)
{
	struct ucx_host *h = &w->host[rank];

	h->wire = w;
	h->rank = rank;
	vb_list_init(&h->queue);
	vb_list_init(&h->flight);
	vb_list_init(&h->held);
	vb_list_init(&h->in_dirty);
}

static void set_caps(struct net_fabric *f, const struct ucx_options *o)
{
	f->f.caps.verb_bound_ns = o->bound_ns;
	f->f.caps.relink_ns = o->retry_ns + o->bound_ns;
	f->coalesce = o->coalesce;
	f->wait_ns = o->bound_ns + o->grace_ns;
	f->verb_bytes_max = UCX_VERB_MAX;
}

static void wire_close(struct net_fabric *f);

static int wire_new(struct net_fabric *f, const struct ucx_options *o)
{
	struct ucx_wire *w = calloc(1, sizeof(*w));

	if (w != NULL)
		w->host = calloc(f->hosts, sizeof(*w->host));
	if (w == NULL || w->host == NULL) {
		free(w);
		return vb_fail(-ENOMEM, "no memory for %u hosts", f->hosts);
	}
	f->wire = w;
	f->fd = -1;
	w->f = f;
	w->lib = ucx_lib();
	w->o = *o;
	w->timer_fd = w->worker_fd = -1;
	w->due_ns = VB_FOREVER;
	w->session = session_of(f);
	vb_list_init(&w->dirty);
	vb_list_init(&w->later);
	vb_list_init(&w->pool);
	vb_list_init(&w->messages);
	vb_list_init(&w->ins);
	for (uint32_t i = 0; i < f->hosts; i++)
		init_host(w, i);
	w->owner = (struct ucx_owner){.memory = f->memory,
				      .node_bytes = f->f.node_bytes,
				      .nodes = f->f.nodes,
				      .hosts = f->hosts,
				      .host = f->host,
				      .deliver = deliver,
				      .ctx = f,
				      .now = now};
	return 0;
}

static int wire_open(struct net_fabric *f, const void *options, void *address, size_t *bytes)
{
	struct ucx_wire *w;
	int err = wire_new(f, options);

	if (err != 0)
		return err;
	w = ucx_of(f);
	set_caps(f, &w->o);
	err = ucx_setup(w);
	if (err == 0 && w->address_bytes > *bytes)
		err = vb_fail(-E2BIG, "UCX's address has %zu bytes, %zu are possible",
			      w->address_bytes, *bytes);
	if (err != 0) {
		wire_close(f);
		return err;
	}
	memcpy(address, w->address, w->address_bytes);
	*bytes = w->address_bytes;
	return 0;
}

/* ---- connecting ---- */

static int keep_address(struct ucx_host *h, const void *data, size_t bytes)
{
	char buf[64];

	if (data == NULL || bytes == 0 || bytes > NET_ADDRESS_MAX)
		return vb_fail(-EPROTO, "%s has sent no address", ucx_host_name(h, buf));
	h->address = malloc(bytes);
	if (h->address == NULL)
		return vb_fail(-ENOMEM, "no memory for an address of %zu bytes", bytes);
	memcpy(h->address, data, bytes);
	h->address_bytes = bytes;
	return 0;
}

static bool wanted(const struct ucx_wire *w, uint32_t rank)
{
	return rank != w->f->host || w->o.local == UCX_LOCAL_WIRE;
}

/* The first host with which not both directions work; NULL: all do, and our part is sent. */
static struct ucx_host *missing(struct ucx_wire *w)
{
	for (uint32_t i = 0; i < w->f->hosts; i++) {
		struct ucx_host *h = &w->host[i];

		if (wanted(w, i) && (h->state != UCX_UP || !h->welcomed))
			return h;
	}
	return NULL;
}

static int meet(struct ucx_wire *w)
{
	uint64_t until = vb_clock_ns() + UCX_CONNECT_NS;
	struct pollfd p = {.fd = w->f->fd, .events = POLLIN};
	struct ucx_host *h;
	char buf[64];

	while ((h = missing(w)) != NULL || w->sends > 0) {
		for (uint32_t i = 0; i < w->f->hosts; i++) {
			struct ucx_host *g = &w->host[i];

			if (wanted(w, i) && g->state == UCX_DOWN &&
			    vb_clock_ns() >= g->retry_at_ns && ucx_greet(g) == -ENOMEM)
				return -ENOMEM;
		}
		if (vb_clock_ns() > until)
			return vb_fail(-ETIMEDOUT, "no connection with %s within %llu s",
				       h != NULL ? ucx_host_name(h, buf) : "some host",
				       UCX_CONNECT_NS / S);
		if (h != NULL && w->f->cluster != NULL && !vb_cluster_alive(w->f->cluster, h->rank))
			return vb_fail(-VB_EPEERGONE, "%s has gone while the fabric was opened",
				       ucx_host_name(h, buf));
		if (!ucx_look(w) && ucx_arm(w->f) == 0)
			(void)poll(&p, 1, 10);
	}
	return 0;
}

static int wire_connect(struct net_fabric *f, const struct vb_cluster_parts *addresses)
{
	struct ucx_wire *w = ucx_of(f);
	int err = 0;

	if (addresses->n != f->hosts)
		return vb_fail(-EPROTO, "%u addresses of %u hosts", addresses->n, f->hosts);
	for (uint32_t i = 0; i < f->hosts && err == 0; i++)
		err = keep_address(&w->host[i], addresses->data[i], addresses->bytes[i]);
	if (err != 0)
		return err;
	pthread_mutex_lock(&f->engine);
	err = meet(w);
	pthread_mutex_unlock(&f->engine);
	return err == 0 ? ucx_helper_start(w) : err;
}

/* ---- closing ---- */

static bool quiet(struct ucx_wire *w)
{
	for (uint32_t i = 0; i < w->f->hosts; i++) {
		struct ucx_host *h = &w->host[i];

		if (h->flying > 0 || h->queued > 0 || h->open != NULL)
			return false;
	}
	return w->sends == 0;
}

static void look_until_quiet(struct ucx_wire *w, uint64_t ns)
{
	uint64_t until = vb_clock_ns() + ns;
	struct pollfd p = {.fd = w->f->fd, .events = POLLIN};

	while (!quiet(w) && vb_clock_ns() < until) {
		ucx_flush(w->f);
		if (!ucx_look(w) && ucx_arm(w->f) == 0)
			(void)poll(&p, 1, 1);
	}
}

static void wire_close(struct net_fabric *f)
{
	struct ucx_wire *w = ucx_of(f);

	if (w == NULL)
		return;
	ucx_helper_stop(w);
	pthread_mutex_lock(&f->engine);
	if (w->worker != NULL) {
		/* What is on its way arrives or is over by then. */
		look_until_quiet(w, f->wait_ns);
		w->closing = true;
		for (uint32_t i = 0; i < f->hosts; i++)
			ucx_break(&w->host[i], "the fabric is closed");
		look_until_quiet(w, 1 * S);
	}
	ucx_teardown(w);
	pthread_mutex_unlock(&f->engine);
	ucx_msg_free_all(w);
	ucx_in_free_all(w);
	for (uint32_t i = 0; i < f->hosts && w->host != NULL; i++)
		free(w->host[i].address);
	free(w->host);
	free(w);
	f->wire = NULL;
}

/* ---- the rest ---- */

static int wire_control(struct net_fabric *f, uint32_t host, const void *data, size_t bytes)
{
	struct ucx_wire *w = ucx_of(f);
	struct ucx_host *h = &w->host[host];
	struct ucx_header head = {
		.kind = UCX_CONTROL,
		.session = w->session,
		.host = f->host,
		.clock = vb_clock_ns(),
		.bytes = (uint32_t)bytes,
	};
	struct ucx_msg *m;

	if (h->ep == NULL || h->failed)
		return ucx_usable(h);
	if (h->controls >= UCX_CONTROLS)
		return -EAGAIN;
	m = ucx_msg_get(h, UCX_CONTROL);
	if (m == NULL || !ucx_msg_reserve(m, (uint32_t)bytes))
		return vb_fail(-ENOMEM, "no memory for a message");
	memcpy(m->buffer + UCX_HEADER, data, bytes);
	m->bytes = (uint32_t)bytes;
	m->over = true;
	h->controls++;
	return ucx_msg_send(m, &head) == 0 ? 0 : -VB_EPEERGONE;
}

static void wire_host_gone(struct net_fabric *f, uint32_t host)
{
	struct ucx_host *h = &ucx_of(f)->host[host];

	h->state = UCX_GONE;
	ucx_break(h, "the cluster says that it is gone");
}

static const struct net_transport ucx_transport = {
	.name = "ucx",
	.local_cpu = local_cpu,
	.open = wire_open,
	.connect = wire_connect,
	.close = wire_close,
	.post = ucx_post,
	.flush = ucx_flush,
	.progress = ucx_progress,
	.arm = ucx_arm,
	.control = wire_control,
	.host_gone = wire_host_gone,
};

static int fabric_open(const struct vb_fabric_params *p, const void *options,
		       struct vb_fabric **out)
{
	return net_open(p, options, &vb_fabric_ucx, &ucx_transport, out);
}

#endif

const struct vb_fabric_ops vb_fabric_ucx = {
	.name = "ucx",
	.summary = "processes of any machines through UCX: TCP, and what else it drives",
#if VB_HAVE_UCP
	.options = ucx_table,
	.options_size = sizeof(struct ucx_options),
	.open = fabric_open,
	NET_FABRIC_OPS,
#endif
	.absent = ucx_absent,
	.caps =
		{
			.flags = VB_CAP_MASKED64 | VB_CAP_MASKED128 | VB_CAP_SEND | VB_CAP_NOTIFY |
				 VB_CAP_CPU_ATOMICS | VB_CAP_TARGET_CPU | VB_CAP_PROCESSES |
				 VB_CAP_CLUSTER,
			.verb_bound_ns = 4000000,
			.relink_ns = 204000000,
			.rtt_ns = 20000,
			.atomics = "the owner's CPU executes messages of verbs: xadd, cmpxchg, "
				   "cmpxchg16b",
			.order = "all verbs of one host to another take effect in the order of "
				 "their posting; a fence costs nothing",
		},
};
