/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places of keys that have no record, given to other keys.
 *
 * When a node has as many tuples as its table was opened for (vb_table_params.records), its server begins to look
 * for tuples whose keys have no record, be it deleted or never there.  Each of those it
 *
 *	hides   From afar the index does not show the key any more (store/index.c).  Who wants it asks the server,
 *	        which then shows it again, and nothing has happened.
 *	frees   A *grace* later, if nobody wanted the key and the tuple is as it was.  The key leaves the index, the
 *	        map of its range and the order (store/ranges.c).
 *	gives   The next key without a tuple gets this one.  Of several versions those behind the newest go, the key
 *	        word is overwritten, and nothing else: lock word, newest version and timestamps of the place go on.
 *
 * The grace is longer than any address is kept (the location cache forgets what is two epochs old, txn/stage.c)
 * and any transaction that may still commit lives: a lease.  So, of a place that is given away:
 *
 *	T, which may still commit     Has never known the place as the old key's.  It finds that the new key has no
 *	                              record, by a version and with readers that were there when the place was
 *	                              hidden.  Timestamps of that time are older than T, so it comes behind them
 *	                              as it would behind those of the key's last place.
 *	T, which wants the old key    Finds it in another place, or in a new one where none is free, as it would find a
 *	                              key that nobody has ever wanted.  Whoever has read or deleted it is older.
 *	T, which scans                Does not find the old key in its range's map.  It had no record since before T
 *	                              began; who gives it one writes the range (txn/scan.c).
 *	L, which is late              Has stood still, and knows the place.  It reads another key than its own, or
 *	                              the key of a free place, and looks again or is too late to commit.  What it
 *	                              locks it lets go, or it is recovered: the words are those of one place still,
 *	                              and none comes back.  At a time at which the old key had a record it finds
 *	                              no version of the new one, and ends.
 *	who mends a dead one          Works on a lock word that has a name.  Where one has, nothing is freed.
 *
 * For this it takes a lease, that is recovery, and versions that are timestamps (VB_CC_LOGICAL has others); and an
 * index that was never made larger, since readers who do not know that would find what was hidden.  Otherwise
 * places are kept for good.
 */
#ifndef VB_STORE_PLACES_H
#define VB_STORE_PLACES_H

#include "store/store.h"

/* By the node's server alone.  Forgets what it knows; a server begins with that. */
void vb_places_forget(struct vb_table_node *n);

/* Hides and frees some, where the table is so far. */
void vb_places_step(struct vb_table *t, uint16_t node, const struct vb_store_now *now);

/* A place for another key: its tuple's offset, or 0.  Back: it was not given after all. */
uint64_t vb_places_take(struct vb_table *t, uint16_t node);
void vb_places_back(struct vb_table *t, uint16_t node, uint64_t offset);

/* Somebody wants the key, whose tuple lies there as he believes.  False: it does not. */
bool vb_places_confirm(struct vb_table *t, uint16_t node, uint64_t key, uint64_t offset);

#endif
