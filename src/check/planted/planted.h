/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks with a bug in each, for the checker to catch by name: a check that cannot fail is a defect.
 * They are called "planted:NAME" and say in ->planted which rule of the auditor must fire.  Nobody
 * may use them for anything else; the library does not contain them.
 */
#ifndef VB_CHECK_PLANTED_H
#define VB_CHECK_PLANTED_H

#include <verbena/async.h>

#include "lock/lock.h"
#include "txn/protocol.h"

/* NULL at the end; for vb_lock_register. */
extern const struct vb_lock_ops *const vb_planted_locks[];

/*
 * A small lease lock without bugs, and what can be wrong with it.  The entry:
 *
 *	lo   63           24 23             0      hi  63                  0
 *	    +---------------+----------------+        +---------------------+
 *	    | holder        | random         |        | last token          |
 *	    +---------------+----------------+        +---------------------+
 *	     0 = free         names this grant
 *
 * Taken with a CAS from 0, given back with a CAS to 0; who has seen one and the same word for a
 * lease takes it over with a CAS from that word.  A renewal puts a new word there.
 */
enum planted_bug {
	PLANTED_CHECK_THEN_ACT,    /* takes the free lock with a READ and a WRITE */
	PLANTED_BLIND_RELEASE,     /* gives back with a WRITE, whoever holds the lock by now */
	PLANTED_SAME_WORD,         /* the word names the holder but not the grant: it recurs */
	PLANTED_EARLY_TOKEN,       /* draws the token before it has the lock */
	PLANTED_LEASE_FROM_NOTICE, /* counts the lease from when it learned of the grant */
	PLANTED_BLIND_RENEWAL,     /* renews with a WRITE, whoever holds the lock by now */
	PLANTED_KEEPER,            /* right, but who keeps it is not */
	PLANTED_IN_TIME, /* knows no answer to a release that lands later than a verb may */
};

struct planted_lease {
	struct vb_lock_ops ops;
	enum planted_bug bug;
	vb_ring_fn keep; /* instead of vb_lock_keep_start's; of a struct vb_planted_kept */
};

struct vb_planted_kept {
	struct vb_lock_client *me;
	struct vb_grant *grant;
};

/* Who keeps holds of such a lock.  NULL: the library. */
vb_ring_fn vb_planted_keeper(const struct vb_lock_ops *ops);
/* ... wrong in one way each: check/planted/keep.c. */
int vb_planted_keeps_hoping(void *kept);
int vb_planted_keeps_past_its_end(void *kept);
int vb_planted_keeps_alone(void *kept);

extern const struct planted_lease vb_planted_double_grant, vb_planted_foreign_release,
	vb_planted_aba_recovery, vb_planted_stale_token, vb_planted_late_lease,
	vb_planted_late_renewal, vb_planted_never_too_late, vb_planted_keep_hopes,
	vb_planted_keep_goes_on, vb_planted_keep_by_itself;
extern const struct vb_lock_ops vb_planted_lost_wakeup, vb_planted_reader_starves_writer,
	vb_planted_blind_clock, vb_planted_hasty_writer, vb_planted_readers_jump,
	vb_planted_clean_slate, vb_planted_reset_clears_bar;
/* The lock table with one rule wrong: check/planted/table.c. */
extern const struct vb_lock_ops vb_planted_six_beside_shared, vb_planted_wait_die_holders,
	vb_planted_wait_die_inverted, vb_planted_lost_waiter, vb_planted_grant_left_behind,
	vb_planted_undone_twice;

/* Wrong about lost answers, or about what comes from the past: check/planted/lost.c. */
extern const struct vb_lock_ops vb_planted_asks_at_once, vb_planted_numberless,
	vb_planted_mute_mode, vb_planted_past_handover, vb_planted_dropped_husk,
	vb_planted_refused_is_denied;

/* Wrong where there are two spaces: check/planted/beside.c. */
extern const struct vb_lock_ops vb_planted_one_register, vb_planted_borrowed_name;

/* Wrong about time, and about what it answers: check/planted/late.c. */
extern const struct vb_lock_ops vb_planted_blind_to_time, vb_planted_sullen_release;

/* dslr and dslr-update with one rule wrong: check/planted/slots.c, upgrade.c. */
extern const struct vb_lock_ops vb_planted_one_slot_patience, vb_planted_eager_upgrade;

/* Transaction protocols with a planted bug: check/planted/cc.c, cc_cascade.c, cc_in_place.c,
 * cc_late.c, cc_words.c, cc_worlds.c, cc_copies.c, cc_numbers.c, cc_waits.c, cc_levels.c, cc_ranges.c, broken.c. */
extern const struct vb_cc_ops vb_planted_unfetched, vb_planted_unplaced, vb_planted_unlocked,
	vb_planted_early_release, vb_planted_unread_bytes, vb_planted_stale_bytes,
	vb_planted_other_version;
extern const struct vb_cc_ops *const vb_planted_ccs[];
extern const struct vb_cc_ops vb_planted_adopts, vb_planted_same_release, vb_planted_same_recovery,
	vb_planted_blind_server, vb_planted_late_server, vb_planted_late_commit;
extern const struct vb_cc_ops vb_planted_lost_undo, vb_planted_lost_try, vb_planted_small_numbers,
	vb_planted_endless_time;
extern const struct vb_cc_ops vb_planted_patient, vb_planted_upside_down, vb_planted_deadlocked,
	vb_planted_disordered, vb_planted_sullen;
extern const struct vb_cc_ops vb_planted_hasty_reader;
extern const struct vb_cc_ops vb_planted_range_unread, vb_planted_range_unwritten;
extern const struct vb_cc_ops vb_planted_one_cache, vb_planted_asks_for_ever;
extern const struct vb_cc_ops vb_planted_no_fence, vb_planted_no_copies;
extern const struct vb_cc_ops vb_planted_no_cascade, vb_planted_late_undo;
extern const struct vb_cc_ops vb_planted_half_asked;

#endif
