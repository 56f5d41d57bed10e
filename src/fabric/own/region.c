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
 *	entry:  name (80) | bytes | offset | the entry before it, 0: none | unused
 *
 * Who wants a region looks from `head` for its name.  If it is not there, it draws an entry that is its alone by
 * FAA on `next`, fills it in as the one before which `head` stands, and puts it in force by a CAS of `head`.  A CAS
 * that fails shows entries that are newer: it looks through those, and fills its own in again.  Entries in force
 * never change, so a reader needs no lock; who dies has at most lost an entry that nobody sees.  If a CAS's answer
 * is lost, its entry is not touched any more, for the CAS may still land.
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
#define ENTRY      128u
#define ENTRIES    128u /* entry 0's place is the header's */
#define START      (ENTRY * ENTRIES)
#define NAME_BYTES 80u

struct entry {
	char name[NAME_BYTES];
	uint64_t bytes, offset, before;
	uint64_t unused[3];
};
_Static_assert(sizeof(struct entry) == ENTRY, "an entry fills its place");
_Static_assert(START < OWN_NODE_LEAST, "a node has room for more than its directory");

/* What is being looked for, and what has been found; the fabric's lock is held. */
struct search {
	struct own_raw *raw;
	uint16_t node;
	uint64_t node_bytes;
	const char *name;
	uint64_t head;     /* entries from here to `seen` have been looked at */
	uint64_t end;      /* the first byte that no entry in force has */
	struct entry *all; /* NULL, or where all that are looked at go, newest first */
	unsigned n_all;
};

static int word(struct search *s, enum vb_provider_op op, uint64_t offset, uint64_t compare,
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

static int entry_move(struct search *s, enum vb_provider_op op, uint64_t number, struct entry *e)
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

static int not_ours(const struct search *s, const char *what, uint64_t number)
{
	return vb_fail(-EPROTO,
		       "the memory that '%s' lends of node %u has %s (%#" PRIx64
		       ") in its directory: it was not zero at first, or another writes it",
		       s->raw->p->name, s->node, what, number);
}

static bool is_sane(const struct search *s, const struct entry *e, uint64_t number)
{
	return e->before < ENTRIES && e->before != number &&
	       memchr(e->name, '\0', NAME_BYTES) != NULL && e->offset >= START &&
	       e->offset % VB_CACHELINE == 0 && e->offset <= s->node_bytes &&
	       e->bytes <= s->node_bytes - e->offset;
}

/* Looks at the entries from `head` back to `seen`: 0, and *found has its name; -ENOENT. */
static int walk(struct search *s, uint64_t head, uint64_t seen, struct entry *found)
{
	struct entry e;
	int err;

	if (head >= ENTRIES)
		return not_ours(s, "no entry", head);
	s->head = head;
	for (unsigned i = 0; head != seen; i++) {
		err = entry_move(s, VB_PROVIDER_READ, head, &e);
		if (err != 0)
			return err;
		if (i == ENTRIES || !is_sane(s, &e, head))
			return not_ours(s, "what is no entry", head);
		if (i == 0)
			s->end = (e.offset + e.bytes + VB_CACHELINE - 1) &
				 ~(uint64_t)(VB_CACHELINE - 1);
		if (s->all != NULL)
			s->all[s->n_all++] = e;
		if (strcmp(e.name, s->name) == 0) {
			*found = e;
			return 0;
		}
		head = e.before;
	}
	return -ENOENT;
}

static int begin(struct search *s)
{
	uint64_t old = 0;
	int err = word(s, VB_PROVIDER_CAS, 0, 0, MAGIC, &old);

	if (err == 0 && old != 0 && old != MAGIC)
		return not_ours(s, "another beginning", old);
	return err;
}

static int find(struct search *s, struct entry *found)
{
	uint64_t head = 0;
	int err = begin(s);

	s->end = START;
	if (err == 0)
		err = word(s, VB_PROVIDER_READ, AT_HEAD, 0, 0, &head);
	return err != 0 ? err : walk(s, head, 0, found);
}

static int full(const struct search *s, const char *why)
{
	return vb_fail(-ENOSPC, "region '%s' does not fit in what '%s' lends of node %u: %s",
		       s->name, s->raw->p->name, s->node, why);
}

/* Puts a new entry in force, or finds another's of that name: 0 and *fresh. */
static int make(struct search *s, uint64_t bytes, struct entry *e, bool *fresh)
{
	uint64_t mine, old, seen;
	int err = word(s, VB_PROVIDER_FAA, AT_NEXT, 0, 1, &mine);

	if (err != 0)
		return err;
	if (++mine >= ENTRIES)
		return full(s, "its directory is full");
	for (;;) {
		*e = (struct entry){.bytes = bytes, .offset = s->end, .before = s->head};
		snprintf(e->name, sizeof(e->name), "%s", s->name);
		if (s->end > s->node_bytes || bytes > s->node_bytes - s->end)
			return full(s, "lend more (node_bytes)");
		err = entry_move(s, VB_PROVIDER_WRITE, mine, e);
		if (err == 0)
			err = word(s, VB_PROVIDER_CAS, AT_HEAD, s->head, mine, &old);
		if (err != 0)
			return err;
		*fresh = old == s->head;
		if (*fresh)
			return 0;
		seen = s->head;
		err = walk(s, old, seen, e);
		if (err != -ENOENT)
			return err;
	}
}

static int search(struct own_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		  struct entry *e, bool *fresh)
{
	struct search s = {
		.raw = &f->control, .node = node, .node_bytes = f->f.node_bytes, .name = name};
	int err;

	*fresh = false;
	if (*name == '\0' || strlen(name) >= NAME_BYTES || bytes == 0)
		return vb_fail(-EINVAL,
			       "region '%.60s' of %" PRIu64
			       " bytes: a name of 1 to %u characters and a size are needed",
			       name, bytes, NAME_BYTES - 1);
	pthread_mutex_lock(&f->opening);
	err = find(&s, e);
	if (err == -ENOENT)
		err = make(&s, bytes, e, fresh);
	pthread_mutex_unlock(&f->opening);
	return err;
}

int own_region(struct vb_fabric *fabric, uint16_t node, const char *name, uint64_t bytes,
	       vb_addr *out, bool *fresh)
{
	struct entry e;
	int err = search(own_of(fabric), node, name, bytes, &e, fresh);

	if (err != 0)
		return err;
	*out = vb_addr_make(node, e.offset);
	return e.bytes == bytes ? 0 : -EEXIST;
}

int own_region_find(struct vb_fabric *fabric, uint16_t node, const char *name, uint64_t bytes,
		    vb_addr *out)
{
	struct own_fabric *f = own_of(fabric);
	struct search s = {
		.raw = &f->control, .node = node, .node_bytes = f->f.node_bytes, .name = name};
	struct entry e;
	int err;

	pthread_mutex_lock(&f->opening);
	err = find(&s, &e);
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
	struct search s = {
		.raw = &f->control, .node = node, .node_bytes = f->f.node_bytes, .name = ""};
	struct entry found;
	int err;

	s.all = calloc(ENTRIES, sizeof(*s.all));
	if (s.all == NULL)
		return vb_fail(-ENOMEM, "no memory for a list of regions");
	pthread_mutex_lock(&f->opening);
	err = find(&s, &found);
	pthread_mutex_unlock(&f->opening);
	for (unsigned i = 0; err == -ENOENT && i < s.n_all && i < room; i++) {
		const struct entry *e = &s.all[s.n_all - 1 - i];

		snprintf(out[i].name, sizeof(out[i].name), "%s", e->name);
		out[i].bytes = e->bytes;
	}
	free(s.all);
	return err == -ENOENT ? (int)s.n_all : err;
}
