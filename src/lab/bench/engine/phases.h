/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the processes of a network run keep in step, whatever their clients do.
 *
 * The root names a moment to start; then the phases pass by each one's own clock, and nobody waits
 * for anybody: each hangs out a notice of how far it is, and the root one that says whether to end
 * early, because its user wants that, because nothing moves, or because somebody is dead.  In the
 * end clients finish what they are in, and who waits for what nobody gives any more is told to give
 * up.
 */
#ifndef VB_LAB_BENCH_ENGINE_PHASES_H
#define VB_LAB_BENCH_ENGINE_PHASES_H

#include "lab/bench/engine/clients.h"
#include "lab/bench/engine/group.h"

struct vb_bench_phases {
	struct vb_bench_crew *crew;
	struct vb_sched *sched;
	struct vb_bench_control *control;
	uint64_t stall_ns; /* without any cycle for so long the run ends as stalled */
	bool is_worker;    /* this process has clients, which are: */
	struct vb_bench_life life;
	void *run; /* for the two calls below */
	/* Adds this process's cycles to the notice, and whether a client waits. */
	void (*count)(void *run, struct vb_bench_notice *n);
	/* Clients that wait are to wait no longer. */
	void (*give_up)(void *run);
	/* Optional, at the root: its user wants to know what goes on. */
	void (*look)(void *run);

	uint32_t flags; /* enum vb_bench_notice_flags, as hung out */
	uint64_t posted_ns;
	int dead; /* the first rank that died or fell silent, or -1 */
	/* root */
	uint64_t silent_since_ns; /* somebody has been suspect since then; 0: nobody is */
	bool silent;              /* `dead` has not ended, but fell silent */
	struct vb_bench_pulse pulse;
	bool all_drained, stalled;
};

/* Collective: fills control->t0_ns, the moment to start in this process's time base.  -error,
 * said. */
int vb_bench_phases_start(struct vb_bench_phases *p);
/* Works, or serves, until at_ns; false: word came to end early. */
bool vb_bench_phases_pass(struct vb_bench_phases *p, uint64_t at_ns, const char *phase);
/* Until the clients have finished, at the root until everybody's have. */
void vb_bench_phases_drain(struct vb_bench_phases *p);
/* Collective: waits for all who live, for as long as they may take to drain, and for patience_ns.
 * -error, said. */
int vb_bench_phases_meet(struct vb_bench_phases *p, const char *what, uint64_t patience_ns);
/* At the end: the name of who has died, malloc'ed; NULL: nobody has. */
char *vb_bench_phases_died(struct vb_bench_phases *p);
/* The result of a run that went well so far: -VB_EPEERGONE (the root says it) if somebody died. */
int vb_bench_phases_end(const struct vb_bench_phases *p);

#endif
