/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a network fabric: its memory, its transport, the exchange of addresses with the other
 * processes of the cluster, and the news of their deaths.
 *
 * What arrives from the others is checked before it is used: that they want the same fabric is
 * compared as text, so that a difference can be shown; addresses are the transport's to check.
 */
#define VB_LOG_ROOM "net"
#include <inttypes.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/net/core.h"
#include "fabric/net/elastic.h"
#include "fabric/net/state.h"
#include "vb_config.h"

#define TEXT_MAX  1024
#define GONE_SLOT 0

/* A process's part of the exchange: this, the text, the transport's address. */
struct net_hello {
	uint32_t text_bytes, address_bytes;
	uint32_t cap_flags;
	uint32_t pad;
	uint64_t verb_bound_ns;
};

/* ---- hosts that go ---- */

static void host_is_gone(void *ctx, uint32_t rank, bool died)
{
	struct net_fabric *f = ctx;

	(void)died;
	if (rank >= f->hosts)
		return;
	__atomic_store_n(&f->core->host[rank].gone, true, __ATOMIC_RELEASE);
	__atomic_store_n(&f->core->news, true, __ATOMIC_SEQ_CST);
	net_wake_all(f);
}

/* ---- memory ---- */

static int get_memory(struct net_fabric *f)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (!net_is_client(f) && f->host < f->f.nodes)
		f->local_nodes = (f->f.nodes - 1u - f->host) / f->hosts + 1;
	f->memory_bytes = f->local_nodes * f->f.node_bytes;
	f->memory_bytes = (f->memory_bytes + page - 1) / page * page;
	if (f->memory_bytes == 0)
		f->memory_bytes = page; /* a process without nodes still has an address */
	if (f->elastic != NULL && f->elastic->p.state != NULL)
		return net_state_open(f);
	f->memory = mmap(NULL, f->memory_bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (f->memory == MAP_FAILED) {
		f->memory = NULL;
		return vb_fail(-ENOMEM, "no %zu bytes of memory for %u nodes", f->memory_bytes,
			       f->local_nodes);
	}
	/* Fewer translations for the card and the CPU; not having them costs speed only. */
	(void)madvise(f->memory, f->memory_bytes, MADV_HUGEPAGE);
	(void)madvise(f->memory, f->memory_bytes, MADV_DONTFORK);
	return 0;
}

/* ---- the exchange ---- */

static int hello_make(const struct net_fabric *f, const char *text, const void *address,
		      size_t address_bytes, void **out, size_t *bytes)
{
	struct net_hello h = {
		.text_bytes = (uint32_t)strlen(text),
		.address_bytes = (uint32_t)address_bytes,
		.cap_flags = f->f.caps.flags,
		.verb_bound_ns = f->f.caps.verb_bound_ns,
	};
	uint8_t *p;

	*bytes = sizeof(h) + h.text_bytes + h.address_bytes;
	p = malloc(*bytes);
	if (p == NULL)
		return vb_fail(-ENOMEM, "no memory for the exchange of addresses");
	memcpy(p, &h, sizeof(h));
	memcpy(p + sizeof(h), text, h.text_bytes);
	memcpy(p + sizeof(h) + h.text_bytes, address, h.address_bytes);
	*out = p;
	return 0;
}

static int hello_read(const struct net_fabric *f, uint32_t rank, const char *text, const void *part,
		      size_t bytes, struct net_hello *h)
{
	char theirs[TEXT_MAX];

	if (part == NULL || bytes < sizeof(*h))
		return vb_fail(-EPROTO, "process %u of the cluster sent no address for '%s'", rank,
			       f->t->name);
	memcpy(h, part, sizeof(*h));
	if (h->text_bytes >= sizeof(theirs) || h->address_bytes > NET_ADDRESS_MAX ||
	    bytes != sizeof(*h) + h->text_bytes + h->address_bytes)
		return vb_fail(-EPROTO, "process %u of the cluster sent an address of odd sizes",
			       rank);
	memcpy(theirs, (const uint8_t *)part + sizeof(*h), h->text_bytes);
	theirs[h->text_bytes] = '\0';
	if (h->verb_bound_ns > NET_BOUND_MAX)
		return vb_fail(-EPROTO,
			       "process %u of the cluster gives its verbs %" PRIu64
			       " ns: at most %llu are possible",
			       rank, h->verb_bound_ns, NET_BOUND_MAX);
	if (strcmp(theirs, text) != 0)
		return vb_fail(-EPROTO,
			       "process %u of the cluster opens another fabric: it has \"%s\", "
			       "this one \"%s\"",
			       rank, theirs, text);
	return 0;
}

/* Takes all hosts' parts apart; addresses point into them. */
static int hello_all(struct net_fabric *f, const char *text, const struct vb_cluster_parts *parts,
		     struct vb_cluster_parts *addresses)
{
	struct vb_fabric_caps *caps = &f->f.caps;

	if (parts->n != f->hosts)
		return vb_fail(-EPROTO, "%u addresses of %u processes", parts->n, f->hosts);
	for (uint32_t r = 0; r < f->hosts; r++) {
		struct net_hello h;
		int err = hello_read(f, r, text, parts->data[r], parts->bytes[r], &h);

		if (err != 0)
			return err;
		addresses->data[r] = (uint8_t *)parts->data[r] + sizeof(h) + h.text_bytes;
		addresses->bytes[r] = h.address_bytes;
		/* What one of them lacks, all lack: layouts depend on it. */
		caps->flags &= h.cap_flags;
		if (h.verb_bound_ns > caps->verb_bound_ns)
			caps->verb_bound_ns = h.verb_bound_ns;
	}
	return 0;
}

static int connect_hosts(struct net_fabric *f, const char *text, const void *address,
			 size_t address_bytes)
{
	struct vb_cluster_parts parts = {0}, addresses = {.n = f->hosts};
	void *mine, *one_data[1];
	size_t bytes, one_bytes[1];
	int err = hello_make(f, text, address, address_bytes, &mine, &bytes);

	if (err != 0)
		return err;
	if (f->cluster != NULL) {
		err = vb_cluster_gather(f->cluster, "fabric addresses", mine, bytes,
					VB_CLUSTER_TO_ALL, false, 0, &parts);
	} else {
		one_data[0] = mine;
		one_bytes[0] = bytes;
		parts = (struct vb_cluster_parts){.n = 1, .data = one_data, .bytes = one_bytes};
	}
	addresses.data = calloc(f->hosts, sizeof(*addresses.data));
	addresses.bytes = calloc(f->hosts, sizeof(*addresses.bytes));
	if (err == 0 && (addresses.data == NULL || addresses.bytes == NULL))
		err = vb_fail(-ENOMEM, "no memory for the exchange of addresses");
	if (err == 0)
		err = hello_all(f, text, &parts, &addresses);
	if (err == 0)
		err = f->t->connect(f, &addresses);
	if (f->cluster != NULL)
		vb_cluster_parts_free(&parts);
	free(addresses.data);
	free(addresses.bytes);
	free(mine);
	return err;
}

/* ---- open and close ---- */

static int core_new(struct net_fabric *f)
{
	struct net_core *c = f->core;
	cpu_set_t set;

	vb_list_init(&c->threads);
	vb_list_init(&c->asks);
	c->host = calloc(f->hosts, sizeof(*c->host));
	if (c->node == NULL)
		c->node = calloc(f->local_nodes + 1, sizeof(*c->node));
	if (c->host == NULL || c->node == NULL)
		return vb_fail(-ENOMEM, "no memory for a fabric");
	c->answer_ns = NET_ANSWER_NS;
	c->cores = 1;
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		c->cores = (unsigned)CPU_COUNT(&set);
	c->pollers = f->cluster != NULL ? vb_cluster_local_hosts(f->cluster) - 1 : 0;
	return 0;
}

static void destroy(struct net_fabric *f)
{
	net_state_close(f);
	net_elastic_free(f);
	if (f->core != NULL) {
		free(f->core->host);
		free(f->core->node);
		free(f->core->hold);
	}
	free(f->core);
	if (f->memory != NULL)
		munmap(f->memory, f->memory_bytes);
	pthread_mutex_destroy(&f->engine);
	free(f);
}

static struct net_fabric *fabric_new(const struct vb_fabric_params *p,
				     const struct vb_fabric_ops *ops, const struct net_transport *t)
{
	struct net_fabric *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	f->core = calloc(1, sizeof(*f->core));
	if (f->core == NULL) {
		free(f);
		return NULL;
	}
	f->f.ops = ops;
	f->f.caps = ops->caps;
	f->f.nodes = p->nodes;
	f->f.node_bytes = p->node_bytes;
	f->f.seed = p->seed;
	f->t = t;
	f->fd = -1;
	f->cluster = p->cluster;
	f->host = p->cluster != NULL ? vb_cluster_rank(p->cluster) : 0;
	f->hosts = p->cluster != NULL ? vb_cluster_hosts(p->cluster) : 1;
	pthread_mutex_init(&f->engine, NULL);
	return f;
}

/* All of it is compared: what were cut off could differ. */
static int describe(const struct net_fabric *f, const struct vb_fabric_params *p,
		    char text[TEXT_MAX])
{
	if ((size_t)snprintf(text, TEXT_MAX, "%s %s, %u nodes of %" PRIu64 " bytes, options '%s'",
			     f->t->name, VB_VERSION, p->nodes, p->node_bytes,
			     p->options != NULL ? p->options : "") < TEXT_MAX)
		return 0;
	return vb_fail(-EINVAL, "%zu bytes of options for '%s': too many to compare with others",
		       strlen(p->options), f->t->name);
}

static int open_wire(struct net_fabric *f, const struct vb_fabric_params *p, const void *options)
{
	uint8_t *address = calloc(1, NET_ADDRESS_MAX);
	size_t bytes = NET_ADDRESS_MAX;
	char text[TEXT_MAX];
	int err;

	if (address == NULL)
		return vb_fail(-ENOMEM, "no memory for the exchange of addresses");
	err = f->elastic != NULL ? 0 : describe(f, p, text);
	if (err == 0)
		err = f->t->open(f, options, address, &bytes);
	if (err == 0) {
		err = f->elastic != NULL ? net_elastic_resume(f) : 0;
		if (err == 0)
			err = f->elastic != NULL ? f->t->connect(f, f->elastic->p.addresses)
						 : connect_hosts(f, text, address, bytes);
		if (err != 0)
			f->t->close(f);
	}
	if (err == 0 && f->t->local_cpu(f))
		f->f.caps.flags |= VB_CAP_NEAR_INLINE;
	free(address);
	return err;
}

static void close_wire(struct net_fabric *f)
{
	net_end_wait_awake(f);
	if (f->cluster != NULL)
		vb_cluster_on_gone(f->cluster, GONE_SLOT, NULL, NULL);
	f->t->close(f);
}

static int open_as(struct net_fabric *f, const struct vb_fabric_params *p, const void *options,
		   struct vb_fabric **out)
{
	int err;

	err = get_memory(f);
	if (err == 0 && f->elastic != NULL)
		err = net_later_begin(f);
	if (err == 0)
		err = core_new(f);
	if (err == 0)
		err = open_wire(f, p, options);
	if (err != 0) {
		destroy(f);
		return err;
	}
	/* The opener looks at the engine whenever it awaits something, also without an endpoint:
	 * others ask it for regions. */
	err = net_thread_get(f, &f->core->opener);
	if (err == 0 && f->cluster != NULL) {
		vb_cluster_on_gone(f->cluster, GONE_SLOT, host_is_gone, f);
		for (uint32_t r = 0; r < f->hosts; r++) {
			if (!vb_cluster_alive(f->cluster, r))
				host_is_gone(f, r, true);
		}
		err = vb_cluster_barrier(f->cluster);
	}
	if (err != 0) {
		if (f->core->opener != NULL)
			net_thread_put(f->core->opener);
		close_wire(f);
		destroy(f);
		return err;
	}
	*out = &f->f;
	return 0;
}

int net_open(const struct vb_fabric_params *p, const void *options, const struct vb_fabric_ops *ops,
	     const struct net_transport *t, struct vb_fabric **out)
{
	struct net_fabric *f = fabric_new(p, ops, t);

	if (f == NULL)
		return vb_fail(-ENOMEM, "no memory for a fabric");
	return open_as(f, p, options, out);
}

int net_open_elastic(const struct vb_fabric_params *p, const void *options,
		     const struct vb_fabric_ops *ops, const struct net_transport *t,
		     const struct net_elastic_params *e, struct vb_fabric **out)
{
	struct net_fabric *f = fabric_new(p, ops, t);
	int err;

	if (f == NULL)
		return vb_fail(-ENOMEM, "no memory for a fabric");
	/* A client has no memory that others could write to. */
	f->f.caps.flags &= ~(uint32_t)VB_CAP_NOTIFY;
	err = net_elastic_new(f, e);
	if (err != 0) {
		destroy(f);
		return err;
	}
	return open_as(f, p, options, out);
}

void net_close(struct vb_fabric *fabric)
{
	struct net_fabric *f = net_of(fabric);

	vb_assert(f->core->open_clients == 0);
	net_thread_put(f->core->opener);
	close_wire(f);
	destroy(f);
}

void net_after_fork(struct vb_fabric *f)
{
	vb_error(
		"a '%s' fabric does not survive a fork: its connections belong to the parent; open "
		"it in the child",
		f->ops->name);
	abort();
}

void *net_local(struct vb_fabric *fabric, vb_addr addr, uint64_t bytes)
{
	struct net_fabric *f = net_of(fabric);
	uint16_t node = vb_addr_node(addr);
	uint64_t offset = vb_addr_offset(addr);

	if (node >= fabric->nodes || net_host_of_node(f, node) != f->host ||
	    bytes > fabric->node_bytes || offset > fabric->node_bytes - bytes)
		return NULL;
	return f->memory + net_host_offset(f, addr);
}

void net_stats(struct vb_fabric *fabric, struct vb_fabric_stats *out)
{
	struct net_fabric *f = net_of(fabric);

	pthread_mutex_lock(&f->engine);
	*out = f->stats;
	out->sleeps = __atomic_load_n(&f->core->sleeps, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&f->engine);
}
