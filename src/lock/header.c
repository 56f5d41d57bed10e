/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a space's region: what the locks are, and who serves them.
 *
 * The maker of the region fills the header, the magic last; the others wait for the magic and
 * compare.  Where all reach the header with the CPU, a maker may not come to the end (it was
 * killed): then a process that has waited finishes it.  Each field is written once, from 0, so a
 * maker that was only stopped finds it done when it goes on, and compares as all others.  Where
 * nodes belong to other processes, or the card's atomics and the CPU's do not know of each other,
 * the header is reached with verbs through an endpoint; else with the CPU.
 */
#define VB_LOG_ROOM "lock"
#include "lock/header.h"

#include <inttypes.h>
#include <stdarg.h>
#include <time.h>
#include <xxhash.h>

#include "base/log.h"
#include "lock/protocols.h"

#define HEADER_MAGIC 0x3330304b434f4c56ull /* "VLOCK003" */
/* How many milliseconds a maker may take, which needs far less. */
#define FILL_TRIES 2000
/* How long a node may be out of reach. */
#define LINK_NS 5000000000ull

/* What every process must agree on: the header up to the era. */
struct header_fixed {
	uint64_t magic, ops_hash, locks, lease_ns;
};
_Static_assert(offsetof(struct vb_lock_header, era) == sizeof(struct header_fixed),
	       "the fixed part comes first");

/*
 * Whether two spaces understand each other, the fixed part says.  If they do not, this says why:
 *
 *	asked     63            32 31     17  16    15     0
 *	          +---------------+---------+-------+--------+
 *	          | protocol      | 0       | fence | servers|
 *	          +---------------+---------+-------+--------+
 *	            of its name, a hash
 */
#define ASKED_FENCE (1ull << 16)

static uint64_t protocol_of(const char *name)
{
	return XXH64(name, strlen(name), 0) >> 32 << 32;
}

static uint64_t asked(const struct vb_lock_space *s)
{
	return protocol_of(s->ops->name) | (s->fencing ? ASKED_FENCE : 0) | s->servers;
}

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
 * A READ or WRITE of a header, over a link that may be down for a moment.  If its answer is lost it
 * is done again, which changes nothing, once the first one cannot take effect any more.
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

static void put(uint64_t *field, uint64_t value)
{
	uint64_t none = 0;

	__atomic_compare_exchange_n(field, &none, value, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static int fill(struct vb_lock_space *s, uint16_t node, struct vb_ep *ep, uint64_t hash)
{
	struct header_fixed h = {.ops_hash = hash, .locks = s->locks, .lease_ns = s->lease_ns};
	uint64_t magic = HEADER_MAGIC, as = asked(s);
	struct vb_lock_header *at;
	int err;

	if (ep != NULL) {
		err = surely(ep, VB_OP_WRITE, vb_lock_header_field(s, node, asked), &as,
			     sizeof(as));
		if (err == 0)
			err = surely(ep, VB_OP_WRITE, s->header[node], &h, sizeof(h));
		return err != 0 ? err
				: surely(ep, VB_OP_WRITE, s->header[node], &magic, sizeof(magic));
	}
	at = mapped(s, node);
	put(&at->asked, as);
	put(&at->ops_hash, h.ops_hash);
	put(&at->locks, h.locks);
	put(&at->lease_ns, h.lease_ns);
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
		/* The magic was written last: what is read after it is complete. */
		return surely(ep, VB_OP_READ, s->header[node], h, sizeof(*h));
	}
	at = mapped(s, node);
	h->magic = __atomic_load_n(&at->magic, __ATOMIC_ACQUIRE);
	h->ops_hash = at->ops_hash;
	h->locks = at->locks;
	h->lease_ns = at->lease_ns;
	return 0;
}

/* Waits until the maker has come to the end; fits: this process may finish the header instead. */
static int await(struct vb_lock_space *s, uint16_t node, struct vb_ep *ep, uint64_t hash, bool fits,
		 struct header_fixed *h)
{
	int err;

	for (unsigned i = 0; (err = look(s, node, ep, h)) == 0 && h->magic != HEADER_MAGIC; i++) {
		if (i == FILL_TRIES && ep == NULL && fits) {
			vb_warn("lock space '%s' was never finished by its maker: it is now",
				s->name);
			(void)fill(s, node, NULL, hash);
			continue;
		}
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
	return 0;
}

/* ---- an open that asks for something else ---- */

static const char *protocol_name(const struct vb_lock_ops *const *list, uint64_t protocol)
{
	for (; *list != NULL; list++)
		if (protocol_of((*list)->name) == protocol)
			return (*list)->name;
	return NULL;
}

__attribute__((format(printf, 2, 3))) static void also(char text[static 320], const char *fmt, ...)
{
	size_t used = strlen(text);
	va_list ap;

	if (used > 0 && used < 318)
		used += (size_t)snprintf(text + used, 320 - used, ", ");
	va_start(ap, fmt);
	vsnprintf(text + used, 320 - used, fmt, ap);
	va_end(ap);
}

/* Names each parameter that differs, what the space has and what was asked for. */
static int differs(struct vb_lock_space *s, uint16_t node, struct vb_ep *ep,
		   const struct header_fixed *h, const char *options)
{
	uint64_t theirs = 0, mine = asked(s);
	const char *lock;
	char text[320] = "";

	if (ep != NULL)
		(void)surely(ep, VB_OP_READ, vb_lock_header_field(s, node, asked), &theirs,
			     sizeof(theirs));
	else
		theirs = mapped(s, node)->asked;
	lock = protocol_name(vb_locks, theirs >> 32 << 32);
	if (lock == NULL)
		lock = protocol_name(vb_locks_published, theirs >> 32 << 32);
	if (theirs >> 32 != mine >> 32)
		also(text, "lock '%s' (asked for: '%s')", lock != NULL ? lock : "unknown here",
		     s->ops->name);
	if (h->locks != s->locks)
		also(text, "locks %" PRIu64 " (asked for: %" PRIu64 ")", h->locks, s->locks);
	if ((uint16_t)theirs != s->servers)
		also(text, "servers %u (asked for: %u)", (uint16_t)theirs, s->servers);
	if (h->lease_ns != s->lease_ns)
		also(text, "lease_ns %" PRIu64 " (asked for: %" PRIu64 ")", h->lease_ns,
		     s->lease_ns);
	if ((theirs ^ mine) & ASKED_FENCE)
		also(text, "fencing %s (asked for: %s)", theirs & ASKED_FENCE ? "true" : "false",
		     s->fencing ? "true" : "false");
	if (text[0] == '\0')
		also(text, "options that lay the locks out otherwise (asked for: '%s')",
		     options != NULL ? options : "");
	return vb_fail(-EINVAL,
		       "lock space '%s' exists with %s; ask for what it has, or for another name "
		       "(vb_lock_space_params.name)",
		       s->name, text);
}

int vb_lock_header_open(struct vb_lock_space *s, uint16_t node, enum vb_lock_found found,
			uint64_t hash, const char *options)
{
	struct header_fixed h;
	struct vb_ep *ep = NULL;
	int err = 0;

	if (!by_cpu(s->fabric))
		err = open_endpoint(s->fabric, &ep);
	else if (mapped(s, node) == NULL)
		err = vb_fail(-EOPNOTSUPP, "the '%s' fabric does not show node %u's memory here",
			      s->fabric->ops->name, node);
	if (err == 0 && found == VB_LOCK_FRESH)
		err = fill(s, node, ep, hash);
	if (err == 0)
		err = await(s, node, ep, hash, found != VB_LOCK_OTHER_SIZE, &h);
	if (err == 0 && (found == VB_LOCK_OTHER_SIZE || h.ops_hash != hash || h.locks != s->locks ||
			 h.lease_ns != s->lease_ns))
		err = differs(s, node, ep, &h, options);
	vb_ep_close(ep);
	return err;
}

/* ---- who serves ----
 *
 *	workers   63        32 31     16 15      0
 *	          +-----------+---------+--------+
 *	          | changes   | planned | answer |
 *	          +-----------+---------+--------+
 *
 * A worker takes its place by a CAS of its name from nobody's or from a dead one's.  All of a node
 * must agree on how many they are, since that decides which worker serves a lock: the number is
 * planned first, then the name is written, and a CAS of the word confirms that the plan is still
 * the same.  A worker that plans another number has read the names between its own look at the
 * word and its CAS of it: it has seen every worker that had confirmed, and one that had not yet
 * fails to.  The number that clients go by is written when all are there.
 */

static uint64_t word_of(uint64_t before, unsigned planned, unsigned answer)
{
	return ((before >> 32) + 1) << 32 | (uint64_t)planned << 16 | answer;
}

static unsigned planned(uint64_t word)
{
	return word >> 16 & 0xffff;
}

static vb_addr word_at(const struct vb_lock_server *s)
{
	return vb_lock_header_field(s->space, s->node, workers);
}

static vb_addr name_at(const struct vb_lock_server *s, unsigned worker)
{
	return vb_lock_header_field(s->space, s->node, server) + worker * sizeof(uint64_t);
}

static int get(const struct vb_lock_server *s, vb_addr at, uint64_t *out, unsigned n)
{
	const uint64_t *p = vb_local(s->space->fabric, at, n * sizeof(*out));

	if (!by_cpu(s->space->fabric))
		return surely(s->ep, VB_OP_READ, at, out, (uint32_t)(n * sizeof(*out)));
	for (unsigned i = 0; i < n; i++)
		out[i] = __atomic_load_n(&p[i], __ATOMIC_ACQUIRE);
	return 0;
}

static int set(const struct vb_lock_server *s, vb_addr at, uint64_t value)
{
	if (!by_cpu(s->space->fabric))
		return surely(s->ep, VB_OP_WRITE, at, &value, sizeof(value));
	__atomic_store_n((uint64_t *)vb_local(s->space->fabric, at, sizeof(value)), value,
			 __ATOMIC_RELEASE);
	return 0;
}

/* 0: changed; -EAGAIN: it was not `from`.  A lost answer is looked into: nobody else writes the
 * same. */
static int change(const struct vb_lock_server *s, vb_addr at, uint64_t from, uint64_t to)
{
	uint64_t until, old = from, pause = s->space->fabric->caps.verb_bound_ns + 1000000;
	int err;

	if (by_cpu(s->space->fabric)) {
		uint64_t *p = vb_local(s->space->fabric, at, sizeof(*p));

		return __atomic_compare_exchange_n(p, &from, to, false, __ATOMIC_SEQ_CST,
						   __ATOMIC_SEQ_CST)
			       ? 0
			       : -EAGAIN;
	}
	until = vb_ep_now(s->ep) + LINK_NS;
	err = vb_cas64(s->ep, at, from, to, &old);
	while ((err == -VB_EUNKNOWN || err == -VB_EPEERGONE) && vb_ep_now(s->ep) < until &&
	       vb_ep_sleep(s->ep, pause) == 0) {
		err = vb_cas64(s->ep, at, from, to, &old);
		if (err == 0 && old == to)
			return 0;
	}
	if (err != 0)
		return err;
	return old == from ? 0 : -EAGAIN;
}

static int busy(const struct vb_lock_server *s, unsigned worker, unsigned workers)
{
	return vb_fail(-EBUSY,
		       "'%s' locks of space '%s' on node %u have a server already, worker %u of "
		       "%u, which lives: stop it before worker %u of %u begins",
		       s->space->ops->name, s->space->name, s->node, worker, workers, s->worker,
		       s->workers);
}

/* Plans another number of workers, when all the former are gone. */
static int plan(const struct vb_lock_server *s, uint64_t word, const uint64_t *name)
{
	vb_addr at = vb_lock_header_field(s->space, s->node, changed_ns);
	uint64_t error_ns;
	int err = 0;

	for (unsigned i = 0; i < VB_LOCK_WORKERS_MAX; i++)
		if (name[i] != VB_PEER_NONE && vb_peer_alive(s->space->fabric, name[i]))
			return busy(s, i, planned(word));
	/* Any new worker may serve locks that the old ones have granted: all must know. */
	if (planned(word) != 0)
		err = set(s, at, vb_ep_common_now(s->ep, &error_ns));
	if (err == 0)
		err = change(s, word_at(s), word, word_of(word, s->workers, 0));
	for (unsigned i = 0; i < VB_LOCK_WORKERS_MAX && err == 0; i++) {
		if (name[i] != VB_PEER_NONE)
			err = change(s, name_at(s, i), name[i], VB_PEER_NONE);
		if (err == -EAGAIN)
			err = 0; /* a new worker has the place */
	}
	return err;
}

/* Our name is there: is the number still as planned?  -EAGAIN: no. */
static int confirm(const struct vb_lock_server *s, uint64_t word)
{
	int err = change(s, word_at(s), word, word_of(word, s->workers, vb_lock_workers(word)));

	while (err == -EAGAIN) {
		err = get(s, word_at(s), &word, 1);
		if (err == 0 && planned(word) != s->workers)
			return -EAGAIN;
		if (err == 0)
			err = change(s, word_at(s), word,
				     word_of(word, s->workers, vb_lock_workers(word)));
	}
	return err;
}

static int claim_once(struct vb_lock_server *s)
{
	uint64_t word, name[VB_LOCK_WORKERS_MAX];
	int err = get(s, word_at(s), &word, 1);

	if (err == 0)
		err = get(s, name_at(s, 0), name, VB_LOCK_WORKERS_MAX);
	if (err)
		return err;
	if (planned(word) != s->workers) {
		err = plan(s, word, name);
		return err != 0 ? err : -EAGAIN;
	}
	if (name[s->worker] != VB_PEER_NONE && vb_peer_alive(s->space->fabric, name[s->worker]))
		return busy(s, s->worker, s->workers);
	err = change(s, name_at(s, s->worker), name[s->worker], s->ep->self);
	if (err)
		return err;
	err = confirm(s, word);
	if (err)
		vb_lock_header_withdraw(s);
	return err;
}

int vb_lock_header_claim(struct vb_lock_server *s)
{
	int err;

	/* Each time round another worker has come further. */
	do
		err = claim_once(s);
	while (err == -EAGAIN);
	return err;
}

int vb_lock_header_publish(struct vb_lock_server *s)
{
	uint64_t word, name[VB_LOCK_WORKERS_MAX];
	int err;

	do {
		err = get(s, word_at(s), &word, 1);
		if (err == 0)
			err = get(s, name_at(s, 0), name, s->workers);
		if (err || vb_lock_workers(word) == s->workers)
			return err;
		for (unsigned i = 0; i < s->workers; i++)
			if (name[i] == VB_PEER_NONE)
				return 0; /* the last worker does it */
		err = change(s, word_at(s), word, word_of(word, s->workers, s->workers));
	} while (err == -EAGAIN);
	return err;
}

/* If it does not get through, the name stays, and clients that ask it learn that it is gone. */
void vb_lock_header_withdraw(struct vb_lock_server *s)
{
	(void)change(s, name_at(s, s->worker), s->ep->self, VB_PEER_NONE);
}

bool vb_lock_header_changed(const struct vb_lock_server *s, uint64_t ns)
{
	uint64_t at, now, error_ns;

	if (get(s, vb_lock_header_field(s->space, s->node, changed_ns), &at, 1) != 0)
		return true;
	now = vb_ep_common_now(s->ep, &error_ns);
	return at != 0 && now < at + ns + 2 * error_ns;
}
