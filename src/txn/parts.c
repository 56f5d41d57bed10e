/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A database of servers that may begin again (doc/elastic.md).  Each node's region is a *part* of it, and a server that
 * comes back empty makes a new one: alike in all but that what was there is not.  Who went on with that would miss
 * records, and take locks whose holders' status words it had for left behind.
 *
 * So a part has a number that is drawn when it is made, and who opens the database once all parts are there writes a
 * hash of all numbers into each that has none yet (`whole`), by CAS:
 *
 *	server 1: part a, whole 0          server 2: part b, whole 0
 *	   all are there: whole := H(a, b)    whole := H(a, b)
 *	                                   ends, and begins again empty: part c, whole 0
 *	   H(a, c) is not what stands here: refused, by server 2 itself, and by who comes new
 *
 * Two who write it together, and see other parts, do not both succeed: each needs all of them.  Who had it open before
 * reaches nothing of c, since the fabric refuses a former server's addresses (vb_node_gone).  A server writes when it
 * opens, too, so that what it has loaded before the first client comes is not lost unseen.
 */
#define VB_LOG_ROOM "txn"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include <xxhash.h>

#include "base/log.h"
#include "txn/db.h"

#define AGAIN_NS 1000000ull
#define LIST     160

int vb_parts_draw(const struct vb_db *db, uint64_t *part)
{
	*part = 0;
	if (db->fabric->caps.servers == 0)
		return 0;
	if (getrandom(part, sizeof(*part), 0) != sizeof(*part))
		return vb_fail(-EIO, "no random number for a part of database '%s'", db->name);
	*part |= 1;
	return 0;
}

static int out_of_reach(const struct vb_db *db, uint16_t node)
{
	return vb_fail(-VB_EPEERGONE,
		       "server %u, which has node %u, is gone or cannot be reached: whether "
		       "database '%s' is whole cannot be seen",
		       node % db->fabric->caps.servers + 1, node, db->name);
}

/* Of a READ, or of a CAS that the one before may have won: what a lost answer leaves open is asked again. */
static bool again(struct vb_ep *ep, int err, uint64_t until)
{
	return err == -VB_EUNKNOWN && vb_clock_gettime_ns() < until &&
	       vb_ep_sleep(ep, AGAIN_NS) == 0;
}

static int read_header(const struct vb_db *db, struct vb_ep *ep, uint16_t node, vb_addr at,
		       struct vb_db_header *h)
{
	uint64_t until = vb_clock_gettime_ns() + VB_HEADER_PATIENCE_NS;
	int err;

	do {
		err = vb_read(ep, at, h, sizeof(*h));
	} while (again(ep, err, until));
	return err != 0 ? out_of_reach(db, node) : 0;
}

/* *was: what stood there; 0: now it is written. */
static int write_whole(const struct vb_db *db, struct vb_ep *ep, uint16_t node, uint64_t whole,
		       uint64_t *was)
{
	vb_addr at = db->region[node] + offsetof(struct vb_db_header, whole);
	uint64_t until = vb_clock_gettime_ns() + VB_HEADER_PATIENCE_NS;
	int err;

	do {
		err = vb_cas64(ep, at, 0, whole, was);
	} while (again(ep, err, until));
	return err != 0 ? out_of_reach(db, node) : 0;
}

/* "2 (node 1), 3 (node 2)": the servers of those nodes that have not this whole. */
static void list_others(const struct vb_db *db, const struct vb_db_header *h, uint64_t whole,
			char list[static LIST])
{
	size_t used = 0;

	list[0] = '\0';
	for (uint16_t n = 0; n < db->fabric->nodes && used < LIST; n++)
		if (h[n].whole != whole)
			used += (size_t)snprintf(list + used, LIST - used, "%s%u (node %u)",
						 used > 0 ? ", " : "",
						 n % db->fabric->caps.servers + 1, n);
}

/* What most of those that have one take for the whole. */
static uint64_t most_of(const struct vb_db *db, const struct vb_db_header *h)
{
	unsigned most = 0;
	uint64_t whole = 0;

	for (uint16_t n = 0; n < db->fabric->nodes; n++) {
		unsigned same = 0;

		for (uint16_t m = 0; m < db->fabric->nodes; m++)
			same += h[m].whole == h[n].whole;
		if (h[n].whole != 0 && same > most) {
			most = same;
			whole = h[n].whole;
		}
	}
	return whole;
}

static int refuse(const struct vb_db *db, const char *list)
{
	return vb_fail(
		-ESTALE,
		"database '%s' is not whole: server %s has come back empty, or with another "
		"state, and what it had of the database is lost.  End all its servers, remove "
		"their states (option state), start them, and load it anew",
		db->name, list);
}

static uint64_t hash_of(const struct vb_db *db, const struct vb_db_header *h)
{
	uint64_t hash = db->fabric->nodes;

	for (uint16_t n = 0; n < db->fabric->nodes; n++)
		hash = XXH64(&h[n].part, sizeof(h[n].part), hash);
	return hash | 1;
}

static int join(struct vb_db *db, struct vb_ep *ep, struct vb_db_header *h)
{
	const uint16_t nodes = db->fabric->nodes;
	uint64_t whole, was;
	char list[LIST];
	int err = 0;

	for (uint16_t n = 0; n < nodes && err == 0; n++) {
		err = read_header(db, ep, n, db->region[n], &h[n]);
		/* Another server, which has not made it yet, does this when it has. */
		if (err == 0 && h[n].magic != VB_DB_MAGIC)
			return 0;
	}
	if (err != 0)
		return err;
	whole = hash_of(db, h);
	for (uint16_t n = 0; n < nodes; n++) {
		if (h[n].whole == 0 || h[n].whole == whole)
			continue;
		list_others(db, h, most_of(db, h), list);
		return refuse(db, list);
	}
	for (uint16_t n = 0; n < nodes && err == 0; n++) {
		if (h[n].whole == whole)
			continue;
		err = write_whole(db, ep, n, whole, &was);
		if (err == 0 && was != 0 && was != whole)
			return -EAGAIN;
	}
	return err;
}

int vb_parts_join(struct vb_db *db)
{
	struct vb_fabric *f = db->fabric;
	struct vb_db_header *h;
	struct vb_ep *ep;
	int home, err;

	if (f->caps.servers == 0)
		return 0;
	home = vb_home(f);
	if (home < 0)
		return home;
	err = vb_ep_open(f, (uint16_t)home, &ep);
	if (err != 0)
		return err;
	h = calloc(f->nodes, sizeof(*h));
	err = h != NULL ? -EAGAIN : vb_fail(-ENOMEM, "no memory for a database");
	/* Others have written meanwhile: what, is seen at the next look. */
	while (err == -EAGAIN)
		err = join(db, ep, h);
	free(h);
	vb_ep_close(ep);
	return err;
}

/* Is there one on the node that has been whole?  Whatever cannot be found out is no. */
static bool was_whole(struct vb_db *db, uint16_t node, const char *region, uint64_t bytes,
		      struct vb_ep *ep)
{
	struct vb_db_header h;
	vb_addr at;

	return vb_region_made(db->fabric, node, region, bytes, 0, &at) == 0 &&
	       vb_read(ep, at, &h, sizeof(h)) == 0 && h.magic == VB_DB_MAGIC && h.whole != 0;
}

int vb_parts_missing(struct vb_db *db, uint16_t node, const char *region, uint64_t bytes)
{
	struct vb_fabric *f = db->fabric;
	bool whole = false;
	struct vb_ep *ep;
	char list[LIST];
	int home;

	if (f->caps.servers == 0)
		return 0;
	home = vb_home(f);
	if (home < 0 || vb_ep_open(f, (uint16_t)home, &ep) != 0)
		return 0;
	for (uint16_t n = 0; n < f->nodes && !whole; n++)
		whole = n != node && was_whole(db, n, region, bytes, ep);
	vb_ep_close(ep);
	if (!whole)
		return 0;
	snprintf(list, sizeof(list), "%u (node %u)", node % f->caps.servers + 1, node);
	return refuse(db, list);
}

/* ---- with it open ---- */

#define GONE                                                                                       \
	"database '%s': server %u, which has node %u, has begun again empty, or there was no "     \
	"connection with it for its option linger: what is there is out of this process's reach "  \
	"for good.  Open the fabric and the database anew (a server that keeps its memory ends "   \
	"and begins again); if that is refused, the server has come back empty, and the database " \
	"has to be made anew"

int vb_parts_gone(const struct vb_db *db)
{
	const struct vb_fabric *f = db->fabric;

	for (uint16_t n = 0; f->caps.servers != 0 && n < f->nodes; n++)
		if (vb_node_gone(db->fabric, n))
			return vb_fail(-VB_EPEERGONE, GONE, db->name, n % f->caps.servers + 1, n);
	return 0;
}

void vb_parts_tell_gone(struct vb_db *db)
{
	const struct vb_fabric *f = db->fabric;

	for (uint16_t n = 0; f->caps.servers != 0 && n < f->nodes; n++)
		if (vb_node_gone(db->fabric, n) &&
		    !__atomic_exchange_n(&db->told[n], true, __ATOMIC_RELAXED))
			vb_error(GONE, db->name, n % f->caps.servers + 1, n);
}
