/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has mail: for threads with many endpoints, which would look at all their rings for each message.
 *
 * The segment has a bit for each endpoint.  A thread that has opened MAIL_FROM of them asks their senders
 * to set it; then it looks at the words of its bits, and at the rings of those that are set.
 *
 *	sender                            receiver, where a bit is set
 *	  slot := FULL                      the ring is empty: clears the bit,
 *	  sets the bit                      and looks again: it is not, sets it
 *	  bell += 2, and so on (wait.c)
 *
 * Setting and clearing are in one total order, that of the word, and who clears sees what was before each set
 * that he clears.  If the bit is set after it was cleared, it stays; if
 * before, the second look finds the message.  It stays set for as long as there is something, whether
 * somebody waits for it or not, or somebody is half-way in: what comes behind him is noted with it.
 *
 * Two messages are not noted: that of a sender who is killed behind it, and that of one who has looked
 * whether notes are wanted just before they were.  They are found by looking at all rings, once in
 * shm_look_all_ns.
 *
 * With few endpoints the note, one more atomic on a line that others write to, would cost more than the
 * looks that it spares.
 */
#define VB_LOG_ROOM "shm"
#include "base/log.h"
#include "fabric/shm/inner.h"

#define MAIL_FROM 64u

struct shm_mail {
	struct shm_ep **ep;  /* by its slot */
	uint64_t *mine;      /* those of this thread's endpoints */
	uint32_t first, end; /* words that had any */
};

/* ---- whose they are ---- */

/* What it has already was not noted. */
static void take_in(struct shm_link *l, struct shm_ep *e)
{
	struct shm_mail *m = l->mail;
	uint32_t word = e->slot / 64;

	m->ep[e->slot] = e;
	m->mine[word] |= 1ull << e->slot % 64;
	if (word < m->first)
		m->first = word;
	if (word >= m->end)
		m->end = word + 1;
	__atomic_store_n(&e->shared->mail, 1, __ATOMIC_SEQ_CST);
	shm_mail_note(l->fabric, e->slot);
}

void shm_mail_end(struct shm_link *l)
{
	struct shm_mail *m = l->mail;

	if (m == NULL)
		return;
	l->mail = NULL;
	free(m->ep);
	free(m->mine);
	free(m);
}

/* Without memory for it all rings are looked at, as before. */
static void begin(struct shm_link *l)
{
	const struct shm_header *h = l->fabric->h;
	struct shm_mail *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return;
	m->ep = calloc(h->endpoints, sizeof(struct shm_ep *));
	m->mine = calloc((h->endpoints + 63u) / 64, sizeof(*m->mine));
	m->first = UINT32_MAX;
	l->mail = m;
	if (m->ep == NULL || m->mine == NULL) {
		shm_mail_end(l);
		return;
	}
	vb_list_for_each (it, &l->eps)
		take_in(l, vb_container_of(it, struct shm_ep, in_link));
}

void shm_mail_add(struct shm_link *l, struct shm_ep *e)
{
	l->n_eps++;
	if (l->mail != NULL)
		take_in(l, e);
	else if (l->n_eps == MAIL_FROM)
		begin(l);
}

void shm_mail_drop(struct shm_link *l, struct shm_ep *e)
{
	l->n_eps--;
	if (l->mail == NULL)
		return;
	l->mail->ep[e->slot] = NULL;
	l->mail->mine[e->slot / 64] &= ~(1ull << e->slot % 64);
}

/* ---- looking ---- */

static bool has_some(struct shm_ep *e)
{
	bool stuck = false;

	return shm_ring_ready(e, &stuck) || stuck;
}

/* False: it is empty, and noted to be so. */
static bool still(struct shm_fabric *f, struct shm_ep *e)
{
	if (has_some(e))
		return true;
	__atomic_fetch_and(&f->mail[e->slot / 64], ~(1ull << e->slot % 64), __ATOMIC_SEQ_CST);
	if (!has_some(e))
		return false;
	shm_mail_note(f, e->slot);
	return true;
}

bool shm_mail_look(struct shm_link *l, bool (*look)(struct shm_ep *e, bool *stuck), bool *stuck)
{
	const struct shm_mail *m = l->mail;
	struct shm_fabric *f = l->fabric;
	bool found = false;

	for (uint32_t w = m->first; w < m->end; w++) {
		uint64_t set = __atomic_load_n(&f->mail[w], __ATOMIC_ACQUIRE) & m->mine[w];

		for (; set != 0; set &= set - 1) {
			struct shm_ep *e = m->ep[64 * w + (unsigned)__builtin_ctzll(set)];

			if (still(f, e))
				found |= look(e, stuck);
		}
	}
	return found;
}
