/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named regions, in the lent memory itself: the provider knows nothing of them, and no process is asked.
 *
 * At the beginning of each node lies a directory, which only grows:
 *
 *	 0     8      16     24         128              256                   16384
 *	+-----+------+------+----------+----------------+---------- ... ------+-------- ... --+
 *	|magic| next | head |          | entry 1        | entry 2       127   | regions       |
 *	+-----+------+------+----------+----------------+---------- ... ------+-------- ... --+
 *	         |      |
 *	         |      +-- the newest entry in force; 0: there is none
 *	         +--------- entries given out so far
 *
 *	entry:  name (80) | bytes | offset | the entry before it, 0: none | by | unused
 *
 * `by` is 0 for a region that is in force, who removes it, or OWN_GONE when it has been removed (hold.c).
 *
 * Who wants a region looks from `head` for its name.  If it is not there, it draws an entry that is its alone by
 * FAA on `next`, fills it in as the one before which `head` stands, and puts it in force by a CAS of `head`.  A CAS
 * that fails shows entries that are newer: it looks through those, and fills its own in again.  Of an entry that has
 * been in force nothing but `by` ever changes, so a reader needs no lock; who dies has at most lost an entry that
 * nobody sees.  If a CAS's answer is lost, its entry is not touched any more, for the CAS may still land.
 *
 * A region lies in the lowest gap between those that have not gone.  Nobody else can be given the same one: that
 * takes an entry that is newer than `head`, and the CAS of `head` fails.  A region that goes meanwhile leaves room that
 * is not used yet.  The entry itself is never another's: a node has 127 for its life.
 *
 * Cost: for each entry looked at a READ; for a region that is made 3 verbs more.  Opening a space is the
 * only time.
 */
#define VB_LOG_ROOM "own"
#include <inttypes.h>

#include "base/log.h"
#include "fabric/own/inner.h"

#define MAGIC      0x31306e776f6276ull /* "vbown01" */
#define AT_NEXT    8ull
#define AT_HEAD    16ull
#define ENTRY      OWN_ENTRY
#define ENTRIES    OWN_ENTRIES
#define START      (ENTRY * ENTRIES)
#define NAME_BYTES OWN_REGION_NAME

_Static_assert(START < OWN_NODE_LEAST, "a node has room for more than its directory");

int own_word(struct own_search *s, enum vb_provider_op op, uint64_t offset, uint64_t compare,
	     uint64_t value, uint64_t *old)
{
	struct vb_provider_verb v = {.op = op,
				     .node = s->node,
				     .offset = offset,
				     .bytes = 8,
				     .compare = compare,
				     .value = value};
	int err = own_raw_run(s->raw, &v);

	if (err == 0)
		memcpy(old, v.local, sizeof(*old));
	return err;
}

int own_entry_move(struct own_search *s, enum vb_provider_op op, uint64_t number,
		   struct own_entry *e)
{
	struct vb_provider_verb v = {
		.op = op, .node = s->node, .offset = number * ENTRY, .bytes = ENTRY};
	int err;

	if (op == VB_PROVIDER_WRITE)
		memcpy(s->raw->at.buffer, e, ENTRY);
	err = own_raw_run(s->raw, &v);
	if (err == 0 && op == VB_PROVIDER_READ)
		memcpy(e, v.local, ENTRY);
	return err;
}

static int not_ours(const struct own_search *s, const char *what, uint64_t number)
{
	return vb_fail(-EPROTO,
		       "the memory that '%s' lends of node %u has %s (%#" PRIx64
		       ") in its directory: it was not zero at first, or another writes it",
		       s->raw->p->name, s->node, what, number);
}

static bool is_sane(const struct own_search *s, const struct own_entry *e, uint64_t number)
{
	return e->before < ENTRIES && e->before != number &&
	       memchr(e->name, '\0', NAME_BYTES) != NULL && e->offset >= START &&
	       e->offset % VB_CACHELINE == 0 && e->offset <= s->node_bytes &&
	       e->bytes <= s->node_bytes - e->offset;
}

/* Looks at the entries from `head` back to `seen`: 0, and *found has its name; -ENOENT. */
static int walk(struct own_search *s, uint64_t head, uint64_t seen, struct own_entry *found)
{
	struct own_entry e;
	int err;

	if (head >= ENTRIES)
		return not_ours(s, "no entry", head);
	s->head = head;
	for (unsigned i = 0; head != seen; i++) {
		err = own_entry_move(s, VB_PROVIDER_READ, head, &e);
		if (err != 0)
			return err;
		if (i == ENTRIES || s->n == ENTRIES || !is_sane(s, &e, head))
			return not_ours(s, "what is no entry", head);
		if (e.by != OWN_GONE) {
			s->span[s->n] = (struct vb_span){.at = e.offset, .bytes = e.bytes};
			s->number[s->n++] = head;
		}
		if (s->all != NULL && e.by != OWN_GONE)
			s->all[s->n - 1] = e;
		if (e.by != OWN_GONE && strcmp(e.name, s->name) == 0) {
			*found = e;
			s->found = head;
			return 0;
		}
		head = e.before;
	}
	return -ENOENT;
}

static int begin(struct own_search *s)
{
	uint64_t old = 0;
	int err = own_word(s, VB_PROVIDER_CAS, 0, 0, MAGIC, &old);

	if (err == 0 && old != 0 && old != MAGIC)
		return not_ours(s, "another beginning", old);
	return err;
}

int own_find(struct own_search *s, struct own_entry *found)
{
	uint64_t head = 0;
	int err = begin(s);

	s->n = 0;
	if (err == 0)
		err = own_word(s, VB_PROVIDER_READ, AT_HEAD, 0, 0, &head);
	return err != 0 ? err : walk(s, head, 0, found);
}

static int full(const struct own_search *s, const char *why)
{
	return vb_fail(-ENOSPC, "region '%s' does not fit in what '%s' lends of node %u: %s",
		       s->name, s->raw->p->name, s->node, why);
}

/* Fills in an entry that is ours alone, and puts it in force; -EEXIST: there are newer ones, from *head on. */
static int put(struct own_search *s, uint64_t mine, struct own_entry *e, uint64_t *head)
{
	uint64_t at = vb_span_fit(s->span, s->n, START, s->bytes);
	int err;

	*e = (struct own_entry){.bytes = s->bytes, .offset = at, .before = s->head};
	snprintf(e->name, sizeof(e->name), "%s", s->name);
	if (at > s->node_bytes || s->bytes > s->node_bytes - at)
		return full(s, "lend more (node_bytes)");
	err = own_entry_move(s, VB_PROVIDER_WRITE, mine, e);
	if (err == 0)
		err = own_word(s, VB_PROVIDER_CAS, AT_HEAD, s->head, mine, head);
	return err != 0 || *head == s->head ? err : -EEXIST;
}

/* Puts a new entry in force, or finds another's of that name: 0 and *fresh. */
static int make(struct own_search *s, struct own_entry *e, bool *fresh)
{
	uint64_t mine, head = 0, seen;
	int err = own_word(s, VB_PROVIDER_FAA, AT_NEXT, 0, 1, &mine);

	if (err != 0)
		return err;
	if (++mine >= ENTRIES)
		return full(s, "its directory is full");
	while ((err = put(s, mine, e, &head)) == -EEXIST) {
		seen = s->head;
		err = walk(s, head, seen, e);
		if (err != -ENOENT)
			return err;
	}
	*fresh = err == 0;
	s->found = mine;
	return err;
}

int own_region_check(const char *name, uint64_t bytes)
{
	if (*name != '\0' && strlen(name) < NAME_BYTES && bytes != 0)
		return 0;
	return vb_fail(-EINVAL,
		       "region '%.60s' of %" PRIu64
		       " bytes: a name of 1 to %u characters and a size are needed",
		       name, bytes, NAME_BYTES - 1);
}

int own_find_or_make(struct own_search *s, struct own_entry *e, bool *fresh)
{
	int err = own_find(s, e);

	*fresh = false;
	return err == -ENOENT ? make(s, e, fresh) : err;
}

int own_region(struct vb_fabric *fabric, uint16_t node, const char *name, uint64_t bytes,
	       vb_addr *out, bool *fresh)
{
	struct own_fabric *f = own_of(fabric);
	struct own_search s = own_search(f, node, name, bytes);
	struct own_entry e;
	bool made;
	int err = own_region_check(name, bytes);

	if (err != 0)
		return err;
	pthread_mutex_lock(&f->opening);
	err = own_find_or_make(&s, &e, &made);
	pthread_mutex_unlock(&f->opening);
	if (err != 0)
		return err;
	*fresh = made;
	*out = vb_addr_make(node, e.offset);
	return e.bytes == bytes ? 0 : -EEXIST;
}

int own_region_find(struct vb_fabric *fabric, uint16_t node, const char *name, uint64_t bytes,
		    vb_addr *out)
{
	struct own_fabric *f = own_of(fabric);
	struct own_search s = own_search(f, node, name, bytes);
	struct own_entry e;
	int err;

	pthread_mutex_lock(&f->opening);
	err = own_find(&s, &e);
	pthread_mutex_unlock(&f->opening);
	if (err != 0)
		return err;
	if (e.bytes != bytes)
		return vb_fail(-EPROTO,
			       "region '%s' has %" PRIu64 " bytes, not %" PRIu64
			       ": another version has made it",
			       name, e.bytes, bytes);
	*out = vb_addr_make(node, e.offset);
	return 0;
}

int own_regions(struct vb_fabric *fabric, uint16_t node, struct vb_region_info *out, unsigned room)
{
	struct own_fabric *f = own_of(fabric);
	/* No entry has the name. */
	struct own_search s = own_search(f, node, "", 0);
	struct own_entry found;
	unsigned n = 0;
	int err;

	s.all = calloc(ENTRIES, sizeof(*s.all));
	if (s.all == NULL)
		return vb_fail(-ENOMEM, "no memory for a list of regions");
	pthread_mutex_lock(&f->opening);
	err = own_find(&s, &found);
	pthread_mutex_unlock(&f->opening);
	while (err == -ENOENT && s.n > 0) {
		const struct own_entry *e = &s.all[--s.n];

		if (strcmp(e->name, OWN_HOLDS) == 0)
			continue;
		if (n < room) {
			snprintf(out[n].name, sizeof(out[n].name), "%s", e->name);
			out[n].bytes = e->bytes;
			out[n].id = s.number[s.n];
		}
		n++;
	}
	free(s.all);
	return err == -ENOENT ? (int)n : err;
}
