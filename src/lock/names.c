/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of locks: which lock has which name.
 *
 * On each node that has locks the directory is one named region, with a place for each of the node's
 * locks that have names: lock i has place i / N on node i % N, as its entry (space.c).
 *
 *	region "name:SPACE":
 *	+--------------------------------+---------+---------+-----
 *	| what was asked for, 1 word of  | place 0 | place 1 | ...
 *	| a line                         |         |         |
 *	+--------------------------------+---------+---------+-----
 *
 *	a place, a word for the name's length and hash, and one for each 7 of its bytes:
 *	 63    56 55                                                    0
 *	+--------+-------------------------------------------------------+
 *	| length | hash of the name, 56 bits                             |   0: nobody's
 *	+--------+-------------------------------------------------------+
 *	| 0x80   | 7 bytes of the name, the first one lowest; then zeros |   0: not written yet
 *	+--------+-------------------------------------------------------+
 *	...
 *
 * Every word goes from 0 to its value once, by a CAS, and never changes again.  Nothing else is ever
 * written here.  So of a place and a name there are three things to see:
 *
 *	same    all words are the name's.  It is so for ever
 *	other   a word is neither the name's nor 0.  It is so for ever
 *	open    neither: the words that are there are the name's, and others are 0
 *
 * A name's places are tried in one order, the same for all, that begins where the hash says.  A client
 * passes a place that is another's; takes one that is the same; and in the first one that is open puts
 * in the name's words, from the first to the last, each only when those before it are found to be the
 * name's.  If a word turns out to be neither, the place has become another's, and the client goes on
 * behind it.
 *
 * One name, one place: a client that has its name in place p has found every place before p another's,
 * for ever, so nobody has the name in one of those.  One place, one name: all its words are the name's.
 * Only names that are asked for are ever put in: who adds a word has found the words before it to be its
 * name's.  (Two names of one hash and length whose first bytes are the same may begin one place
 * together; the first word in which they differ decides.)  A look-up that comes to an open place ends
 * there: nobody who has the name can have passed it.
 *
 * So there is no claim and no owner.  A client that dies leaves a place that is open to its name, and
 * whoever comes with that name finishes it; if nobody does, the place is lost to the others.  A CAS that is
 * late by any time, or is done twice, finds its word taken or does what is right.  A READ that is torn
 * between words shows words that are right and words that are not there yet.
 *
 * Costs: a READ of a few places (READ_BYTES) for a name that has its lock; and once for each name a CAS
 * for each of its words.  No client's name is another's business: a full directory is told by reading
 * all of it.
 */
#define VB_LOG_ROOM "lock"
#include <verbena/names.h>

#include <inttypes.h>
#include <xxhash.h>

#include "base/log.h"
#include "lock/header.h"
#include "task/host.h"

#define MAGIC        0x4e31ull /* "N1" */
#define BYTES_USUAL  49u
#define KNOWN_USUAL  4096u
#define KNOWN_MOST   (1u << 24)
#define KNOWN_TRIES  8u
#define BYTES_A_WORD 7u
#define WORDS_MAX    (1u + (VB_NAME_MAX + BYTES_A_WORD - 1) / BYTES_A_WORD)
#define HASH_MASK    ((1ull << 56) - 1)
#define MARK         (0x80ull << 56)
#define READ_BYTES   1024u
#define READ_WORDS   (READ_BYTES / sizeof(uint64_t))

_Static_assert(WORDS_MAX <= READ_WORDS, "a READ has a place at least");

/* What this process has been told. */
struct known {
	uint64_t lock;
	uint32_t bytes;
	char name[];
};

struct vb_names {
	struct vb_lock_space *space;
	uint64_t names;
	/* The longest name, and the words of a place for it. */
	uint32_t bytes, words;
	/* [space->servers]: the first place. */
	vb_addr *base;
	/* [n_known]: NULL, or a name, for as long as the directory is open. */
	struct known **known;
	uint32_t n_known;
	struct vb_opened opened;
};

/* A name as it stands in a place. */
struct wanted {
	const void *name;
	size_t bytes;
	uint64_t hash;
	unsigned words;
	uint64_t word[WORDS_MAX];
};

enum found { FOUND_OPEN, FOUND_SAME, FOUND_OTHER };

static unsigned words_of(size_t bytes)
{
	return 1 + (unsigned)((bytes + BYTES_A_WORD - 1) / BYTES_A_WORD);
}

/* ---- opening ---- */

static int check_params(const struct vb_lock_space *s, const struct vb_names_params *p)
{
	if (p->names > s->locks)
		return vb_fail(-EINVAL,
			       "%" PRIu64 " names in lock space '%s', which has %" PRIu64 " locks",
			       p->names, s->name, s->locks);
	if (p->bytes > VB_NAME_MAX)
		return vb_fail(-EINVAL, "names of up to %u bytes: 1 to %u are allowed", p->bytes,
			       VB_NAME_MAX);
	if (p->known > KNOWN_MOST)
		return vb_fail(-EINVAL, "%u names to remember: at most %u are allowed", p->known,
			       KNOWN_MOST);
	return 0;
}

/* How many places a node has. */
static uint64_t places_of(const struct vb_names *d, uint16_t node)
{
	return (d->names + d->space->servers - 1 - node) / d->space->servers;
}

/*
 * The first word of a region, which says that it is there, and for what:
 *
 *	 63     48 47    40 39                    0
 *	+---------+--------+-----------------------+
 *	| MAGIC   | bytes  | names - 1             |
 *	+---------+--------+-----------------------+
 */
static uint64_t asked(const struct vb_names *d)
{
	return MAGIC << 48 | (uint64_t)d->bytes << 40 | (d->names - 1);
}

static int differs(const struct vb_names *d, uint64_t word)
{
	const uint64_t names = (word & ((1ull << 40) - 1)) + 1;
	char theirs[80] = "other numbers";

	if (word >> 48 == MAGIC)
		snprintf(theirs, sizeof(theirs), "names %" PRIu64 ", bytes %u", names,
			 (unsigned)(word >> 40 & 0xff));
	return vb_fail(-EINVAL,
		       "the names of lock space '%s' are there with %s (asked for: names %" PRIu64
		       ", bytes %u); ask for what they have",
		       d->space->name, theirs, d->names, d->bytes);
}

/* Whoever comes first puts it in; the others find the same word, or another. */
static int agree(const struct vb_names *d, struct vb_ep *ep, vb_addr at, uint64_t *seen)
{
	struct vb_verb v = {.op = VB_OP_CAS64, .addr = at, .swap.lo = asked(d)};
	int err;

	*seen = 0;
	if (ep == NULL) {
		__atomic_compare_exchange_n((uint64_t *)vb_local(d->space->fabric, at, 8), seen,
					    asked(d), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
		return 0;
	}
	err = vb_lock_header_run(ep, &v);
	*seen = v.old.lo;
	if (err)
		return vb_fail(err, "the names of lock space '%s': node %u cannot be reached: %s",
			       d->space->name, vb_addr_node(at), vb_strerror(err));
	return 0;
}

static int open_region(struct vb_names *d, struct vb_ep *ep, uint16_t node)
{
	uint64_t bytes = VB_CACHELINE + places_of(d, node) * d->words * sizeof(uint64_t);
	uint64_t seen = 0;
	char name[VB_LOCK_REGION];
	bool fresh;
	vb_addr at;
	int err;

	vb_lock_part_region(VB_LOCK_NAMES, d->space->name, 0, name);
	err = vb_region_or_other(d->space->fabric, node, name, bytes, &at, &fresh);
	if (err != 0 && err != -EEXIST)
		return err;
	/* A region of another size is another's to fill in. */
	if (err == -EEXIST && ep == NULL)
		seen = __atomic_load_n((uint64_t *)vb_local(d->space->fabric, at, 8),
				       __ATOMIC_ACQUIRE);
	else if (err == -EEXIST)
		(void)vb_lock_header_verb(ep, VB_OP_READ, at, &seen, sizeof(seen));
	if (err == -EEXIST)
		return differs(d, seen);
	err = agree(d, ep, at, &seen);
	if (err == 0 && seen != 0 && seen != asked(d))
		err = differs(d, seen);
	d->base[node] = at + VB_CACHELINE;
	return err;
}

static int open_regions(struct vb_names *d)
{
	struct vb_fabric *f = d->space->fabric;
	struct vb_ep *ep = NULL;
	int err = vb_lock_header_by_cpu(f) ? 0 : vb_lock_header_ep(f, &ep);

	for (uint16_t n = 0; err == 0 && n < d->space->servers && places_of(d, n) > 0; n++)
		err = open_region(d, ep, n);
	vb_ep_close(ep);
	return err;
}

static void free_names(struct vb_names *d)
{
	for (uint32_t i = 0; d->known != NULL && i < d->n_known; i++)
		free(d->known[i]);
	free(d->known);
	free(d->base);
	free(d);
}

int vb_names_open(struct vb_lock_space *space, const struct vb_names_params *params,
		  struct vb_names **out)
{
	static const struct vb_names_params usual;
	const struct vb_names_params *p = params != NULL ? params : &usual;
	VB_SCHED_INSIDE(vb_sched_here());
	struct vb_names *d;
	int err;

	if (vb_any_null(space, out))
		return -EINVAL;
	err = vb_fabric_check(space->fabric);
	if (err == 0)
		err = vb_lock_space_hold(space);
	if (err == 0)
		err = check_params(space, p);
	if (err)
		return err;
	d = calloc(1, sizeof(*d));
	if (d == NULL)
		return vb_fail(-ENOMEM, "no memory for names");
	d->space = space;
	d->names = p->names != 0 ? p->names : space->locks;
	d->bytes = p->bytes != 0 ? p->bytes : BYTES_USUAL;
	d->words = words_of(d->bytes);
	d->n_known = p->known != 0 ? p->known : KNOWN_USUAL;
	d->base = calloc(space->servers, sizeof(*d->base));
	d->known = calloc(d->n_known, sizeof(*d->known));
	if (d->base == NULL || d->known == NULL)
		err = vb_fail(-ENOMEM, "no memory for names");
	if (err == 0)
		err = open_regions(d);
	if (err) {
		free_names(d);
		return err;
	}
	d->opened =
		(struct vb_opened){.kind = "directory of names", .of = space, .name = space->name};
	vb_opened_note(space->fabric, &d->opened);
	*out = d;
	return 0;
}

void vb_names_close(struct vb_names *names)
{
	if (names == NULL)
		return;
	vb_opened_drop(&names->opened);
	free_names(names);
}

/* ---- what this process has been told ---- */

/* Names are put in once and stay, by threads that know nothing of each other: a name that meets too many
 * others is not remembered. */
static const struct known *recall(const struct vb_names *d, const struct wanted *w)
{
	for (uint32_t i = 0; i < KNOWN_TRIES && i < d->n_known; i++) {
		const struct known *k =
			__atomic_load_n(&d->known[(w->hash + i) % d->n_known], __ATOMIC_ACQUIRE);

		if (k == NULL)
			return NULL;
		if (k->bytes == w->bytes && memcmp(k->name, w->name, w->bytes) == 0)
			return k;
	}
	return NULL;
}

static void remember(struct vb_names *d, const struct wanted *w, uint64_t lock)
{
	struct known *k = malloc(sizeof(*k) + w->bytes), *there = NULL;

	if (k == NULL)
		return;
	k->lock = lock;
	k->bytes = (uint32_t)w->bytes;
	memcpy(k->name, w->name, w->bytes);
	for (uint32_t i = 0; i < KNOWN_TRIES && i < d->n_known; i++, there = NULL)
		if (__atomic_compare_exchange_n(&d->known[(w->hash + i) % d->n_known], &there, k,
						false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return;
	free(k);
}

/* ---- verbs ---- */

static int out_of_reach(const struct vb_names *d, vb_addr at, int err)
{
	return vb_fail(err, "the names of lock space '%s': node %u is out of reach: %s",
		       d->space->name, vb_addr_node(at), vb_strerror(err));
}

/* What was lost is asked again: a READ changes nothing, and a second CAS of a word finds the first one's
 * value, or another's. */
static int read_words(struct vb_names *d, struct vb_lock_client *me, vb_addr at, uint64_t *out,
		      unsigned n)
{
	int err = vb_read(me->ep, at, out, (uint32_t)(n * sizeof(*out)));

	for (unsigned i = 1; err == -VB_EUNKNOWN && i < vb_lock_asks(d->space); i++) {
		vb_lock_let_land(me);
		err = vb_read(me->ep, at, out, (uint32_t)(n * sizeof(*out)));
	}
	return err == 0 ? 0 : out_of_reach(d, at, err);
}

/* *seen: what the word is from now on. */
static int put_word(struct vb_names *d, struct vb_lock_client *me, vb_addr at, uint64_t value,
		    uint64_t *seen)
{
	int err = vb_cas64(me->ep, at, 0, value, seen);

	for (unsigned i = 1; err == -VB_EUNKNOWN && i < vb_lock_asks(d->space); i++) {
		vb_lock_let_land(me);
		err = vb_cas64(me->ep, at, 0, value, seen);
	}
	if (err)
		return out_of_reach(d, at, err);
	if (*seen == 0)
		*seen = value;
	return 0;
}

/* ---- looking for a name ---- */

/* As it stands in a place; name, bytes and hash are there. */
static void spell(struct wanted *w)
{
	const unsigned char *from = w->name;

	w->words = words_of(w->bytes);
	w->word[0] = (uint64_t)w->bytes << 56 | (w->hash & HASH_MASK);
	for (unsigned i = 1; i < w->words; i++)
		w->word[i] = MARK;
	for (size_t i = 0; i < w->bytes; i++)
		w->word[1 + i / BYTES_A_WORD] |= (uint64_t)from[i] << (8 * (i % BYTES_A_WORD));
}

static enum found compare(const struct wanted *w, const uint64_t *place)
{
	enum found f = FOUND_SAME;

	for (unsigned i = 0; i < w->words; i++) {
		if (place[i] == 0)
			f = FOUND_OPEN;
		else if (place[i] != w->word[i])
			return FOUND_OTHER;
	}
	return f;
}

/* Puts the name into a place that was open: the same, or another's by now. */
static int put_name(struct vb_names *d, struct vb_lock_client *me, const struct wanted *w,
		    vb_addr at, enum found *out)
{
	*out = FOUND_SAME;
	for (unsigned i = 0; i < w->words && *out == FOUND_SAME; i++) {
		uint64_t seen;
		int err = put_word(d, me, at + i * sizeof(seen), w->word[i], &seen);

		if (err)
			return err;
		if (seen != w->word[i])
			*out = FOUND_OTHER;
	}
	return 0;
}

/* Looks through n places of a node from place `first` on.  0, and *out and *place where it has ended:
 * the same, or open (only without `gives`); another's: all were. */
static int look_at(struct vb_names *d, struct vb_lock_client *me, const struct wanted *w,
		   uint16_t node, uint64_t first, uint64_t n, bool gives, enum found *out,
		   uint64_t *place)
{
	const unsigned at_once = READ_WORDS / d->words;
	uint64_t words[READ_WORDS];

	*out = FOUND_OTHER;
	for (uint64_t done = 0, some; done < n; done += some) {
		vb_addr at = d->base[node] + (first + done) * d->words * sizeof(uint64_t);
		int err;

		some = n - done < at_once ? n - done : at_once;
		err = read_words(d, me, at, words, (unsigned)some * d->words);
		for (unsigned i = 0; err == 0 && i < some; i++) {
			*out = compare(w, &words[i * d->words]);
			if (*out == FOUND_OPEN && gives)
				err = put_name(d, me, w,
					       at + (uint64_t)i * d->words * sizeof(uint64_t), out);
			*place = first + done + i;
			if (err == 0 && *out != FOUND_OTHER)
				return 0;
		}
		if (err)
			return err;
	}
	return 0;
}

/*
 * The order of a name's places: on the node that the hash says, from the place that it says to the last
 * one, then from the first one; then in the same way on the nodes that follow.
 */
static int look(struct vb_names *d, struct vb_lock_client *me, const struct wanted *w, bool gives,
		uint64_t *lock)
{
	const uint16_t servers = d->space->servers;
	uint64_t start = (uint64_t)((unsigned __int128)w->hash * d->names >> 64), place = 0;
	enum found f = FOUND_OTHER;

	for (uint16_t i = 0; i < servers; i++) {
		uint16_t node = (uint16_t)((start + i) % servers);
		uint64_t n = places_of(d, node), first = n == 0 ? 0 : start / servers % n;
		int err = look_at(d, me, w, node, first, n - first, gives, &f, &place);

		if (err == 0 && f == FOUND_OTHER)
			err = look_at(d, me, w, node, 0, first, gives, &f, &place);
		if (err)
			return err;
		if (f == FOUND_OPEN)
			return -ENOENT;
		if (f == FOUND_SAME) {
			*lock = place * servers + node;
			return 0;
		}
	}
	return gives ? vb_fail(-ENOSPC,
			       "lock space '%s': each of its %" PRIu64
			       " locks that are given to names has one; make a space with more",
			       d->space->name, d->names)
		     : -ENOENT;
}

/* ---- the calls ---- */

static int check_client(const struct vb_names *d, const struct vb_lock_client *me)
{
	if (me->space == d->space)
		return 0;
	return vb_fail(-EINVAL,
		       "the names of lock space '%s', by a client that was opened on another "
		       "space or opening of it",
		       d->space->name);
}

/* By another thread, of a client on a host: the call is made there (lock/visit.h). */
struct asked {
	struct vb_names *names;
	struct vb_lock_client *me;
	const void *name;
	void *out;
	size_t bytes, *filled;
	uint64_t lock, *found;
	vb_names_fn fn;
	void *user;
	bool gives;
};

static int go_and_ask(int (*run)(void *arg), struct asked *a)
{
	return vb_host_run(a->me->ep->host, &a->me->ep->caller, run, a);
}

static int lock_of(struct vb_names *d, struct vb_lock_client *me, const void *name, size_t bytes,
		   bool gives, uint64_t *lock);

static int run_lock_of(void *arg)
{
	const struct asked *a = arg;

	return lock_of(a->names, a->me, a->name, a->bytes, a->gives, a->found);
}

static int lock_of(struct vb_names *d, struct vb_lock_client *me, const void *name, size_t bytes,
		   bool gives, uint64_t *lock)
{
	const struct known *k;
	struct wanted w;
	int err;

	if (vb_ep_is_away(me->ep))
		return go_and_ask(run_lock_of, &(struct asked){.names = d,
							       .me = me,
							       .name = name,
							       .bytes = bytes,
							       .gives = gives,
							       .found = lock});
	VB_EP_CALL(call, me->ep);
	err = call.err != 0 ? call.err : check_client(d, me);
	if (err)
		return err;
	if (bytes == 0 || bytes > d->bytes)
		return vb_fail(-EINVAL,
			       "a name of %zu bytes: those of lock space '%s' have 1 to %u", bytes,
			       d->space->name, d->bytes);
	w.name = name;
	w.bytes = bytes;
	w.hash = XXH64(name, bytes, 0);
	k = recall(d, &w);
	if (k != NULL) {
		*lock = k->lock;
		return 0;
	}
	spell(&w);
	err = look(d, me, &w, gives, lock);
	if (err == 0)
		remember(d, &w, *lock);
	return err;
}

int vb_names_lock(struct vb_names *names, struct vb_lock_client *client, const void *name,
		  size_t bytes, uint64_t *lock)
{
	if (vb_any_null(names, client, name, lock))
		return -EINVAL;
	return lock_of(names, client, name, bytes, true, lock);
}

int vb_names_find(struct vb_names *names, struct vb_lock_client *client, const void *name,
		  size_t bytes, uint64_t *lock)
{
	if (vb_any_null(names, client, name, lock))
		return -EINVAL;
	return lock_of(names, client, name, bytes, false, lock);
}

/* The name that stands in a place, or 0 bytes: none, or not all of it yet. */
static size_t name_in(const struct vb_names *d, const uint64_t *place, unsigned char *out)
{
	size_t bytes = place[0] >> 56;

	if (bytes == 0 || bytes > d->bytes)
		return 0;
	for (size_t i = 0; i < bytes; i++) {
		uint64_t word = place[1 + i / BYTES_A_WORD];

		if (word == 0)
			return 0;
		out[i] = (unsigned char)(word >> (8 * (i % BYTES_A_WORD)));
	}
	return bytes;
}

static int run_of(void *arg)
{
	const struct asked *a = arg;

	return vb_names_of(a->names, a->me, a->lock, a->out, a->bytes, a->filled);
}

int vb_names_of(struct vb_names *d, struct vb_lock_client *me, uint64_t lock, void *name,
		size_t room, size_t *bytes)
{
	unsigned char text[VB_NAME_MAX];
	uint64_t words[WORDS_MAX];
	uint16_t node;
	size_t n;
	int err;

	if (vb_any_null(d, me, name, bytes))
		return -EINVAL;
	if (vb_ep_is_away(me->ep))
		return go_and_ask(run_of, &(struct asked){.names = d,
							  .me = me,
							  .lock = lock,
							  .out = name,
							  .bytes = room,
							  .filled = bytes});
	VB_EP_CALL(call, me->ep);
	err = call.err != 0 ? call.err : check_client(d, me);
	if (err)
		return err;
	if (lock >= d->names)
		return vb_fail(-EINVAL,
			       "lock %" PRIu64 " of lock space '%s': locks 0 to %" PRIu64
			       " are given to names",
			       lock, d->space->name, d->names - 1);
	node = (uint16_t)(lock % d->space->servers);
	err = read_words(d, me,
			 d->base[node] + lock / d->space->servers * d->words * sizeof(uint64_t),
			 words, d->words);
	if (err)
		return err;
	n = name_in(d, words, text);
	if (n == 0)
		return -ENOENT;
	if (n > room)
		return vb_fail(-ENOSPC,
			       "the name of lock %" PRIu64 " has %zu bytes: %zu are no "
			       "room for it",
			       lock, n, room);
	memcpy(name, text, n);
	*bytes = n;
	return 0;
}

/* Those of one node. */
static int each_of(struct vb_names *d, struct vb_lock_client *me, uint16_t node, vb_names_fn fn,
		   void *user)
{
	const unsigned at_once = READ_WORDS / d->words;
	uint64_t words[READ_WORDS], n = places_of(d, node);
	unsigned char text[VB_NAME_MAX];

	for (uint64_t done = 0, some; done < n; done += some) {
		int err;

		some = n - done < at_once ? n - done : at_once;
		err = read_words(d, me, d->base[node] + done * d->words * sizeof(uint64_t), words,
				 (unsigned)some * d->words);
		for (unsigned i = 0; err == 0 && i < some; i++) {
			size_t bytes = name_in(d, &words[i * d->words], text);

			if (bytes > 0)
				err = fn(user, (done + i) * d->space->servers + node, text, bytes);
		}
		if (err)
			return err;
	}
	return 0;
}

static int run_each(void *arg)
{
	const struct asked *a = arg;

	return vb_names_each(a->names, a->me, a->fn, a->user);
}

int vb_names_each(struct vb_names *names, struct vb_lock_client *client, vb_names_fn fn, void *user)
{
	int err;

	if (vb_any_null(names, client, fn))
		return -EINVAL;
	if (vb_ep_is_away(client->ep))
		return go_and_ask(
			run_each,
			&(struct asked){.names = names, .me = client, .fn = fn, .user = user});
	VB_EP_CALL(call, client->ep);
	err = call.err != 0 ? call.err : check_client(names, client);
	if (err)
		return err;
	for (uint16_t node = 0; node < names->space->servers && err == 0; node++)
		err = each_of(names, client, node, fn, user);
	return err;
}
