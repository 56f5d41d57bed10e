/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transaction protocols that are wrong only in a world that is not the usual one:
 *
 *	planted:one-cache      no-wait that remembers where a record is by the numbers of its table and key,
 *	                       whatever the database: right as long as there is one
 *	planted:asks-for-ever  no-wait that asks a server again which is gone: right as long as there will
 *	                       be another
 */
#include "cc/two_phase.h"
#include "check/planted/planted.h"
#include "txn/db.h"

#define TABLES 4u
#define KEYS   64u

static __thread struct {
	uint64_t seed;
	vb_addr at[TABLES][KEYS];
} known;

static void lock_x(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	two_phase_lock_x(s, items, n, no_wait_judge);
}

static void lock_where_known(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	if (known.seed != s->db->fabric->seed)
		memset(&known, 0, sizeof(known));
	known.seed = s->db->fabric->seed;
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];
		vb_addr *at = &known.at[it->table->id % TABLES][it->key % KEYS];

		if (*at == 0)
			*at = it->at;
		it->at = *at;
	}
	lock_x(s, items, n);
}

static int ask_for_ever(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	int err;

	while ((err = vb_txn_stage(t, TWO_PHASE_LOCK, items, n)) != 0 &&
	       t->error == -VB_EPEERGONE) {
		t->cause = VB_TXN_COMMITTED;
		t->error = 0;
	}
	return err;
}

#define LOCKS(lock_fn)                                                                             \
	{                                                                                          \
		[TWO_PHASE_LOCK] = {.name = "lock",                                                \
				    .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,                    \
				    .run = lock_fn},                                               \
		[TWO_PHASE_COMMIT] = {.name = "commit",                                            \
				      .flags = VB_STAGE_WRITES,                                    \
				      .run = two_phase_commit},                                    \
		[TWO_PHASE_RELEASE] = {.name = "release", .run = two_phase_release},               \
	}

static const struct vb_stage_ops known_stages[] = LOCKS(lock_where_known);
static const struct vb_stage_ops asking_stages[] = LOCKS(lock_x);

const struct vb_cc_ops vb_planted_one_cache = {
	.name = "planted:one-cache",
	.summary = "no-wait that mixes up the records of two databases",
	.source = "on purpose",
	.planted = "contents",
	TWO_PHASE_OPS(known_stages),
};

const struct vb_cc_ops vb_planted_asks_for_ever = {
	.name = "planted:asks-for-ever",
	.summary = "no-wait that waits for ever for a server that is gone",
	.source = "on purpose",
	.planted = "stuck",
	.stages = asking_stages,
	.n_stages = TWO_PHASE_STAGES,
	.commit = TWO_PHASE_COMMIT,
	.release = TWO_PHASE_RELEASE,
	.read = ask_for_ever,
	.write = ask_for_ever,
	.prepare = two_phase_prepare,
	.unlocked = two_phase_unlocked,
	.locked = two_phase_locked,
	.whose = vb_ts_named,
};
