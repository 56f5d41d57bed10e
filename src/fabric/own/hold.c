/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions that come and go, in the lent memory.  On node 0 a region of words says who holds what:
 *
 *	 63    48 47       40 39                    0
 *	+--------+-----------+-----------------------+
 *	| 0      | entry     | the holder's endpoint |   0: nobody's
 *	+--------+-----------+-----------------------+
 *
 * The endpoint is the fabric's own one of that process, which is open as long as the fabric is: when it is not alive,
 * nothing is held by it.
 *
 *	who holds    CAS of a free word to its own; then READ of the entry's `by`: not 0, the word is given back
 *	who removes  CAS of `by` from 0 to itself; then READ of all words: one that lives is there, `by` is given back
 *
 * Of these two one sees the other, or both do and both are refused.  Who comes while somebody removes is told so; who
 * finds a remover that is dead puts itself in its place by the same CAS, and does all of it again.  Then the memory is
 * written over with zeros, and a CAS of `by` to OWN_GONE ends the entry.
 */
#define VB_LOG_ROOM "own"
#include <inttypes.h>

#include "base/log.h"
#include "fabric/own/inner.h"

#define WORDS      256u
#define AT_ONCE    (VB_PROVIDER_VERB_BYTES / (unsigned)sizeof(uint64_t))
#define LOOKS      8u   /* at a name that goes while it is looked at */
#define ZERO_TURNS 256u /* verbs under one hold of the fabric's lock */

static uint64_t record(const struct own_fabric *f, uint64_t number)
{
	return number << 40 | vb_peer_make(f->p.home, f->control.at.client);
}

static bool is_alive(const struct own_fabric *f, uint64_t word)
{
	vb_peer p = word & ((1ull << 40) - 1);

	return f->p.alive(f->p.ctx, vb_peer_node(p), vb_peer_client(p));
}

static uint64_t by_at(uint64_t number)
{
	return number * OWN_ENTRY + offsetof(struct own_entry, by);
}

/* Where the words lie. */
static int words_at(struct own_search *s, uint64_t *at)
{
	struct own_search words = {.raw = s->raw,
				   .node_bytes = s->node_bytes,
				   .name = OWN_HOLDS,
				   .bytes = WORDS * sizeof(uint64_t)};
	struct own_entry e;
	bool fresh;
	int err = own_find_or_make(&words, &e, &fresh);

	*at = e.offset;
	return err;
}

static int words_read(struct own_search *s, uint64_t at, uint64_t out[static AT_ONCE])
{
	struct vb_provider_verb v = {
		.op = VB_PROVIDER_READ, .offset = at, .bytes = VB_PROVIDER_VERB_BYTES};
	int err = own_raw_run(s->raw, &v);

	if (err == 0)
		memcpy(out, v.local, VB_PROVIDER_VERB_BYTES);
	return err;
}

/* Takes a word that is nobody's, or a dead one's: 0 and its number. */
static int take_word(struct own_fabric *f, struct own_search *s, uint64_t at, uint64_t mine,
		     uint64_t *index)
{
	uint64_t some[AT_ONCE], old;

	for (uint64_t i = 0; i < WORDS; i++) {
		int err = i % AT_ONCE == 0 ? words_read(s, at + i * sizeof(old), some) : 0;

		if (err != 0)
			return err;
		if (some[i % AT_ONCE] != 0 && is_alive(f, some[i % AT_ONCE]))
			continue;
		err = own_word(s, VB_PROVIDER_CAS, at + i * sizeof(old), some[i % AT_ONCE], mine,
			       &old);
		if (err != 0)
			return err;
		if (old == some[i % AT_ONCE]) {
			*index = i;
			return 0;
		}
	}
	return vb_fail(-ENOSPC, "more than %u lock spaces are open in what '%s' lends", WORDS,
		       f->p.name);
}

static void give_word(struct own_search *s, uint64_t at, uint64_t index, uint64_t mine)
{
	uint64_t old;

	(void)own_word(s, VB_PROVIDER_CAS, at + index * sizeof(old), mine, 0, &old);
}

/* 0; -EALREADY and *by; -EAGAIN: it has gone meanwhile. */
static int hold(struct own_fabric *f, struct own_search *s, struct vb_region_held *out, vb_peer *by)
{
	uint64_t at, index, mine, now = 0;
	struct own_entry e;
	int err = own_find_or_make(s, &e, &out->fresh);

	if (err == 0 && e.by != VB_PEER_NONE) {
		*by = e.by;
		return -EALREADY;
	}
	if (err == 0)
		err = words_at(s, &at);
	mine = record(f, s->found);
	if (err == 0)
		err = take_word(f, s, at, mine, &index);
	if (err != 0)
		return err;
	err = own_word(s, VB_PROVIDER_READ, by_at(s->found), 0, 0, &now);
	if (err != 0 || now != VB_PEER_NONE)
		give_word(s, at, index, mine);
	if (err != 0)
		return err;
	*by = now;
	if (now != VB_PEER_NONE)
		return now != OWN_GONE ? -EALREADY : -EAGAIN;
	out->at = vb_addr_make(s->node, e.offset);
	out->id = index << 8 | s->found;
	return e.bytes == s->bytes ? 0 : -EEXIST;
}

int own_region_hold(struct vb_fabric *fabric, uint16_t node, const char *name, uint64_t bytes,
		    struct vb_region_held *out, vb_peer *by)
{
	struct own_fabric *f = own_of(fabric);
	int err = own_region_check(name, bytes);

	if (err != 0)
		return err;
	pthread_mutex_lock(&f->opening);
	err = -EAGAIN;
	for (unsigned i = 0; i < LOOKS && err == -EAGAIN; i++) {
		struct own_search s = own_search(f, node, name, bytes);

		err = hold(f, &s, out, by);
	}
	pthread_mutex_unlock(&f->opening);
	if (err == -EAGAIN)
		return vb_fail(err, "region '%s' is made and removed again and again", name);
	return err;
}

void own_region_let_go(struct vb_fabric *fabric, const struct vb_region_held *held)
{
	struct own_fabric *f = own_of(fabric);
	struct own_search s = own_search(f, 0, "", 0);
	uint64_t at;

	pthread_mutex_lock(&f->opening);
	if (words_at(&s, &at) == 0)
		give_word(&s, at, held->id >> 8, record(f, held->id & 0xff));
	pthread_mutex_unlock(&f->opening);
}

/* 0; -EBUSY, said. */
static int check_free(struct own_fabric *f, struct own_search *s)
{
	uint64_t some[AT_ONCE], at;
	int err = words_at(s, &at);

	for (uint64_t i = 0; i < WORDS && err == 0; i++) {
		uint64_t word;

		if (i % AT_ONCE == 0)
			err = words_read(s, at + i * sizeof(word), some);
		word = some[i % AT_ONCE];
		if (err == 0 && word >> 40 == s->found && is_alive(f, word))
			err = vb_fail(-EBUSY,
				      "'%s' is in use: the process that has endpoint %u at node %u "
				      "has it open",
				      s->name, (unsigned)(word & 0xffffff),
				      (unsigned)(word >> 24 & 0xffff));
	}
	return err;
}

int own_region_take(struct vb_fabric *fabric, const char *name, vb_peer me, vb_peer *by)
{
	struct own_fabric *f = own_of(fabric);
	struct own_search s = own_search(f, 0, name, 0);
	uint64_t was = *by, old = 0, back;
	struct own_entry e;
	int err;

	pthread_mutex_lock(&f->opening);
	err = own_find(&s, &e);
	if (err == 0 && e.by == VB_PEER_NONE)
		was = VB_PEER_NONE;
	if (err == 0)
		err = own_word(&s, VB_PROVIDER_CAS, by_at(s.found), was, me, &old);
	if (err == 0 && old == OWN_GONE) {
		err = -ENOENT;
	} else if (err == 0 && old != was) {
		*by = old;
		err = -EALREADY;
	} else if (err == 0) {
		err = check_free(f, &s);
		if (err != 0)
			(void)own_word(&s, VB_PROVIDER_CAS, by_at(s.found), me, was, &back);
	}
	pthread_mutex_unlock(&f->opening);
	return err;
}

/* Some of it under the fabric's lock: others want that, too. */
static int zero_some(struct own_fabric *f, struct own_search *s, uint64_t at, uint64_t bytes,
		     uint64_t *done)
{
	int err = 0;

	pthread_mutex_lock(&f->opening);
	for (unsigned i = 0; i < ZERO_TURNS && err == 0 && *done < bytes; i++) {
		uint64_t n = bytes - *done < VB_PROVIDER_VERB_BYTES ? bytes - *done
								    : VB_PROVIDER_VERB_BYTES;
		struct vb_provider_verb v = {.op = VB_PROVIDER_WRITE,
					     .node = s->node,
					     .offset = at + *done,
					     .bytes = (uint32_t)n};

		memset(s->raw->at.buffer, 0, n);
		err = own_raw_run(s->raw, &v);
		*done += n;
	}
	pthread_mutex_unlock(&f->opening);
	return err;
}

int own_region_remove(struct vb_fabric *fabric, uint16_t node, uint64_t id)
{
	struct own_fabric *f = own_of(fabric);
	struct own_search s = own_search(f, node, "", 0);
	uint64_t done = 0, old;
	struct own_entry e;
	int err;

	pthread_mutex_lock(&f->opening);
	err = own_entry_move(&s, VB_PROVIDER_READ, id, &e);
	pthread_mutex_unlock(&f->opening);
	if (err != 0 || e.by == OWN_GONE)
		return err;
	while (err == 0 && done < e.bytes)
		err = zero_some(f, &s, e.offset, e.bytes, &done);
	if (err != 0)
		return err;
	pthread_mutex_lock(&f->opening);
	err = own_word(&s, VB_PROVIDER_CAS, by_at(id), e.by, OWN_GONE, &old);
	pthread_mutex_unlock(&f->opening);
	return err;
}
