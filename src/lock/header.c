/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a space's region: what the locks are.  Who serves them: workers.c.
 *
 * The maker of the region fills the header, the magic last; the others wait for the magic and
 * compare.  A maker may not come to the end (it was killed): then a process that has waited finishes
 * it.  Each field is written once, from 0, so a maker that was only stopped finds it done when it
 * goes on, and compares as all others.  Where nodes belong to other processes, or the card's atomics
 * and the CPU's do not know of each other, the header is reached with verbs through an endpoint; else
 * with the CPU.
 */
#define VB_LOG_ROOM "lock"
#include "lock/header.h"

#include <inttypes.h>
#include <stdarg.h>
#include <time.h>
#include <xxhash.h>

#include "base/log.h"
#include "fabric/born.h"
#include "lock/protocols.h"

#define HEADER_MAGIC 0x3330304b434f4c56ull /* "VLOCK003" */
/* How many milliseconds a maker may take, which needs far less. */
#define FILL_TRIES 2000

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

int vb_lock_header_ep(struct vb_fabric *f, struct vb_ep **out)
{
	int home = vb_home(f);

	return home < 0 ? home : vb_ep_open(f, (uint16_t)home, out);
}

static struct vb_lock_header *mapped(const struct vb_lock_space *s, uint16_t node)
{
	return vb_local(s->fabric, s->header[node], sizeof(struct vb_lock_header));
}

static void put(uint64_t *field, uint64_t value)
{
	uint64_t none = 0;

	__atomic_compare_exchange_n(field, &none, value, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* In their order, the magic last. */
static int fill(struct vb_lock_space *s, uint16_t node, struct vb_ep *ep, uint64_t hash)
{
	const struct {
		size_t offset;
		uint64_t value;
	} field[] = {
		{offsetof(struct vb_lock_header, asked), asked(s)},
		{offsetof(struct vb_lock_header, ops_hash), hash},
		{offsetof(struct vb_lock_header, locks), s->locks},
		{offsetof(struct vb_lock_header, lease_ns), s->lease_ns},
		{offsetof(struct vb_lock_header, magic), HEADER_MAGIC},
	};
	int err = 0;

	for (size_t i = 0; i < VB_ARRAY_SIZE(field) && err == 0; i++) {
		struct vb_verb v = {.op = VB_OP_CAS64,
				    .addr = s->header[node] + field[i].offset,
				    .swap.lo = field[i].value};

		if (ep != NULL)
			err = vb_lock_header_run(ep, &v);
		else
			put((uint64_t *)((char *)mapped(s, node) + field[i].offset),
			    field[i].value);
	}
	return err;
}

static int look(struct vb_lock_space *s, uint16_t node, struct vb_ep *ep, struct header_fixed *h)
{
	struct vb_lock_header *at;

	if (ep != NULL) {
		int err = vb_lock_header_verb(ep, VB_OP_READ, s->header[node], &h->magic,
					      sizeof(h->magic));

		if (err != 0 || h->magic != HEADER_MAGIC)
			return err;
		/* The magic was written last: what is read after it is complete. */
		return vb_lock_header_verb(ep, VB_OP_READ, s->header[node], h, sizeof(*h));
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
		if (i == FILL_TRIES && fits && fill(s, node, ep, hash) == 0) {
			vb_warn("lock space '%s' was never finished by its maker: it is now",
				s->name);
			continue;
		}
		if (i >= FILL_TRIES)
			return vb_fail(-EAGAIN,
				       "lock space '%s' was never finished by its maker; "
				       "use another name",
				       s->name);
		if (ep != NULL)
			vb_ep_wait_out(ep, 1000000);
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
		(void)vb_lock_header_verb(ep, VB_OP_READ, vb_lock_header_field(s, node, asked),
					  &theirs, sizeof(theirs));
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

/* Of a server that comes back empty the tokens go on behind all that the one before may have given: nobody gives one
 * a nanosecond. */
static int read_token_from(struct vb_lock_space *s, uint16_t node, struct vb_ep *ep)
{
	if (s->fabric->caps.servers == 0)
		return 0;
	if (s->token_from == NULL)
		s->token_from = calloc(s->servers, sizeof(*s->token_from));
	if (s->token_from == NULL)
		return vb_fail(-ENOMEM, "no memory for a lock space");
	return vb_lock_header_read(ep, vb_addr_make(node, VB_BORN_AT), &s->token_from[node],
				   sizeof(*s->token_from));
}

int vb_lock_header_open(struct vb_lock_space *s, uint16_t node, enum vb_lock_found found,
			uint64_t hash, const char *options)
{
	struct header_fixed h;
	struct vb_ep *ep = NULL;
	int err = 0;

	if (!vb_lock_header_by_cpu(s->fabric))
		err = vb_lock_header_ep(s->fabric, &ep);
	else if (mapped(s, node) == NULL)
		err = vb_fail(-EOPNOTSUPP, "the '%s' fabric does not show node %u's memory here",
			      s->fabric->ops->name, node);
	if (err == 0 && found == VB_LOCK_FRESH && (err = fill(s, node, ep, hash)) != 0)
		(void)vb_fail(err, "lock space '%s': node %u cannot be written: %s", s->name, node,
			      vb_strerror(err));
	if (err == 0)
		err = await(s, node, ep, hash, found != VB_LOCK_OTHER_SIZE, &h);
	if (err == 0 && (found == VB_LOCK_OTHER_SIZE || h.ops_hash != hash || h.locks != s->locks ||
			 h.lease_ns != s->lease_ns))
		err = differs(s, node, ep, &h, options);
	if (err == 0)
		err = read_token_from(s, node, ep);
	vb_ep_close(ep);
	return err;
}
