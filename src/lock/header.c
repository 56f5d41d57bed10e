/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a space's region: what the locks are, and who serves them.
 *
 * Whoever made the region fills the header, the magic last; the others wait for the magic and
 * compare.  Where nodes belong to other processes, or the card's atomics and the CPU's do not know
 * of each other, the header is reached with verbs through an endpoint; else the CPU does it.
 */
#define VB_LOG_ROOM "lock"
#include "lock/header.h"

#include <inttypes.h>
#include <time.h>

#include "base/log.h"

#define HEADER_MAGIC 0x3130304b434f4c56ull /* "VLOCK001" */
#define FILL_TRIES   2000                  /* of a millisecond: a maker fills it in a moment */
#define LINK_NS      5000000000ull         /* how long a node may be out of reach */

/* What every process must agree on: the header up to the era. */
struct header_fixed {
	uint64_t magic, ops_hash, locks, lease_ns;
};
_Static_assert(offsetof(struct vb_lock_header, era) == sizeof(struct header_fixed),
	       "the fixed part comes first");

static bool by_cpu(const struct vb_fabric *f)
{
	return !(f->caps.flags & VB_CAP_CLUSTER);
}

/* Any node of this process: a place to post from. */
static int open_endpoint(struct vb_fabric *f, struct vb_ep **out)
{
	for (uint16_t n = 0; n < f->nodes; n++) {
		if (vb_local(f, vb_addr_make(n, 0), 8) != NULL)
			return vb_ep_open(f, n, out);
	}
	return vb_fail(-EINVAL,
		       "no node of the '%s' fabric lives in this process: give it more nodes",
		       f->ops->name);
}

static struct vb_lock_header *mapped(const struct vb_lock_space *s, uint16_t node)
{
	return vb_local(s->fabric, s->header[node], sizeof(struct vb_lock_header));
}

/*
 * A READ or WRITE of a header, over a link that may be down for a moment: without an outcome it is
 * done again, which changes nothing, once the first one cannot take effect any more.
 */
static int surely(struct vb_ep *ep, uint8_t op, vb_addr at, void *buf, uint32_t len)
{
	struct vb_verb v = {.op = op, .addr = at, .buf = buf, .len = len};
	uint64_t until = vb_ep_now(ep) + LINK_NS, pause = ep->fabric->caps.verb_bound_ns + 1000000;
	int err = vb_verb_run(ep, &v);

	while ((err == -VB_EUNKNOWN || err == -VB_EPEERGONE || err == -EAGAIN) &&
	       vb_ep_now(ep) < until && vb_ep_sleep(ep, pause) == 0)
		err = vb_verb_run(ep, &v);
	return err;
}

int vb_lock_header_read(struct vb_ep *ep, vb_addr at, void *buf, uint32_t len)
{
	return surely(ep, VB_OP_READ, at, buf, len);
}

static int fill(struct vb_lock_space *s, uint16_t node, struct vb_ep *ep, uint64_t hash)
{
	struct header_fixed h = {.ops_hash = hash, .locks = s->locks, .lease_ns = s->lease_ns};
	uint64_t magic = HEADER_MAGIC;
	struct vb_lock_header *at;
	int err;

	if (ep != NULL) {
		err = surely(ep, VB_OP_WRITE, s->header[node], &h, sizeof(h));
		return err != 0 ? err
				: surely(ep, VB_OP_WRITE, s->header[node], &magic, sizeof(magic));
	}
	at = mapped(s, node);
	at->ops_hash = h.ops_hash;
	at->locks = h.locks;
	at->lease_ns = h.lease_ns;
	__atomic_store_n(&at->magic, magic, __ATOMIC_RELEASE);
	return 0;
}

static int look(struct vb_lock_space *s, uint16_t node, struct vb_ep *ep, struct header_fixed *h)
{
	struct vb_lock_header *at;

	if (ep != NULL) {
		int err = surely(ep, VB_OP_READ, s->header[node], &h->magic, sizeof(h->magic));

		if (err != 0 || h->magic != HEADER_MAGIC)
			return err;
		/* The magic was the last to be written: what is read after it is all there. */
		return surely(ep, VB_OP_READ, s->header[node], h, sizeof(*h));
	}
	at = mapped(s, node);
	h->magic = __atomic_load_n(&at->magic, __ATOMIC_ACQUIRE);
	h->ops_hash = at->ops_hash;
	h->locks = at->locks;
	h->lease_ns = at->lease_ns;
	return 0;
}

static int compare(struct vb_lock_space *s, uint16_t node, struct vb_ep *ep, uint64_t hash)
{
	struct header_fixed h;
	int err;

	for (unsigned i = 0; (err = look(s, node, ep, &h)) == 0 && h.magic != HEADER_MAGIC; i++) {
		if (i == FILL_TRIES)
			return vb_fail(-EAGAIN,
				       "lock space '%s' was never finished by its maker; "
				       "use another name",
				       s->name);
		if (ep != NULL)
			(void)vb_ep_sleep(ep, 1000000);
		else
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	if (err != 0)
		return vb_fail(err, "lock space '%s': node %u cannot be read: %s", s->name, node,
			       vb_strerror(err));
	if (h.ops_hash != hash || h.locks != s->locks || h.lease_ns != s->lease_ns)
		return vb_fail(
			-EINVAL,
			"lock space '%s' exists with another protocol, layout, lease (%" PRIu64
			" ns) or number of locks (%" PRIu64
			"); ask for the same or use another name",
			s->name, h.lease_ns, h.locks);
	return 0;
}

int vb_lock_header_open(struct vb_lock_space *s, uint16_t node, bool fresh, uint64_t hash)
{
	struct vb_ep *ep = NULL;
	int err = 0;

	if (!by_cpu(s->fabric))
		err = open_endpoint(s->fabric, &ep);
	else if (mapped(s, node) == NULL)
		err = vb_fail(-EOPNOTSUPP, "the '%s' fabric does not show node %u's memory here",
			      s->fabric->ops->name, node);
	if (err == 0)
		err = fresh ? fill(s, node, ep, hash) : compare(s, node, ep, hash);
	vb_ep_close(ep);
	return err;
}

int vb_lock_header_announce(struct vb_lock_server *server)
{
	const struct vb_lock_space *s = server->space;
	const uint16_t node = server->node;
	uint64_t self = server->ep->self, workers = server->workers;
	struct vb_lock_header *h;
	int err;

	if (by_cpu(s->fabric)) {
		h = mapped(s, node);
		__atomic_store_n(&h->server[server->worker], self, __ATOMIC_RELEASE);
		__atomic_store_n(&h->workers, workers, __ATOMIC_RELEASE);
		return 0;
	}
	err = surely(server->ep, VB_OP_WRITE,
		     vb_lock_header_field(s, node, server) + server->worker * 8, &self,
		     sizeof(self));
	if (err == 0)
		err = surely(server->ep, VB_OP_WRITE, vb_lock_header_field(s, node, workers),
			     &workers, sizeof(workers));
	return err;
}

void vb_lock_header_withdraw(struct vb_lock_server *server)
{
	const struct vb_lock_space *s = server->space;
	uint64_t self = server->ep->self, old;
	struct vb_lock_header *h;

	if (by_cpu(s->fabric)) {
		h = mapped(s, server->node);
		__atomic_compare_exchange_n(&h->server[server->worker], &self, VB_PEER_NONE, false,
					    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
		return;
	}
	/* If it does not get through, the name stays, and whoever asks under it is told. */
	(void)vb_cas64(server->ep,
		       vb_lock_header_field(s, server->node, server) + server->worker * 8, self,
		       VB_PEER_NONE, &old);
}
