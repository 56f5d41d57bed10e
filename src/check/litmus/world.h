/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What small worlds of locks and of transactions have in common: parties at nodes of their own, which
 * start together, of whom the first is the one that is struck, and a run from setup to judgement.
 *
 * A world is a struct that begins with a litmus_world.  Of its kind is what differs.
 */
#ifndef VB_CHECK_LITMUS_WORLD_H
#define VB_CHECK_LITMUS_WORLD_H

#include "check/litmus/engine.h"

#define LITMUS_PARTIES_MAX 4u

#define LITMUS_DIES   (1u << VB_SIM_DIES_BEFORE | 1u << VB_SIM_DIES_AFTER)
#define LITMUS_PAUSES (1u << VB_SIM_PAUSES_BEFORE | 1u << VB_SIM_PAUSES_AFTER)
#define LITMUS_LOSES  (1u << VB_SIM_LOSES_ANSWER | 1u << VB_SIM_LOSES_VERB)

struct litmus_world;

struct litmus_party {
	struct litmus_world *x;
	unsigned index;
	struct vb_ep *ep; /* NULL: it is not open */
	bool ended, dead;
};

struct litmus_kind {
	unsigned nodes_more; /* nodes without a party */
	size_t node_bytes;
	unsigned endpoints;
	uint64_t patience_ns; /* for all to come through */
	/* Forgets the run before, but not what x was made with, and says where the parties are. */
	void (*begin)(struct litmus_world *x);
	/* Everything but the fabric and the parties.  -error, said. */
	int (*open)(struct litmus_world *x);
	int (*open_party)(struct litmus_party *p, struct vb_ep **ep);
	void (*close_party)(struct litmus_party *p);
	void (*live)(struct litmus_party *p); /* what it does, on its task */
	void (*died)(struct litmus_party *p);
	/* All are through, or err says why not, or the run was given up (x->l->stop). */
	void (*judge)(struct litmus_world *x, int err);
	/* Of everything, the fabric too, as far as it was opened. */
	void (*tear_down)(struct litmus_world *x);
	/* What a verb is about, behind its address; what an atomic does is told after it. */
	int (*tell_verb)(const struct litmus_world *x, const struct vb_sim_verb *v, char *buf,
			 size_t size);
};

struct litmus_world {
	/* What it is made with. */
	const struct litmus_kind *kind;
	const char *protocol, *name;
	unsigned parties;
	uint32_t strikes;  /* what may befall the first party, once */
	unsigned leases;   /* for which it then stands still */
	bool short_leases; /* they end while it runs */
	uint64_t lease_ns; /* if not */
	/* Of the run under way. */
	struct litmus *l;
	struct vb_fabric *fabric;
	struct vb_sched *sched;
	struct vb_task *waiter;
	unsigned n_ended;
	int err; /* this machine's own */
	struct litmus_party *party[LITMUS_PARTIES_MAX];
};

/* Goes through all runs.  -error, said. */
int litmus_world_explore(struct litmus_world *x, const struct vb_litmus_params *p,
			 struct vb_litmus_result *out);
/* A call's answer that is no protocol's fault: there was no memory.  Then the run is given up. */
bool litmus_world_starves(struct litmus_world *x, int answer);
/* Parties that live leave, and nothing strikes them any more. */
void litmus_world_leave(struct litmus_world *x);

static inline bool litmus_is_plain(const struct vb_sim_verb *v)
{
	return v->op == VB_OP_READ || v->op == VB_OP_WRITE || v->op == VB_OP_WRITE_NOTIFY;
}

#endif
