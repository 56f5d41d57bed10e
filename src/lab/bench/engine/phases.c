/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run on a network, in each of its processes, and how they keep in step.
 *
 * The root names a moment to start; then the phases pass by each one's own clock, and nobody waits
 * for anybody: each hangs out a notice of how far it is, and the root one that says whether to end
 * early, because its user wants that, because nothing moves, or because somebody is dead.  In the
 * end clients finish what they are in, and who waits in vain is told to give up.
 *
 * A client that waits is served by others, so nobody stops to serve before all have finished.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/engine/run.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "lab/bench/engine/process.h"
#include "lab/bench/engine/progress.h"
#include "lab/reap.h"
#include "lab/run.h"

#define SLICE_NS  5000000ull
#define NOTICE_NS 50000000ull
#define START_NS  20000000ull /* from the root's word to the first cycle */

struct phases {
	struct vb_bench_run *run;
	struct vb_bench_group *group;
	struct vb_sched *sched;
	uint32_t flags; /* enum vb_bench_notice_flags, as hung out */
	uint64_t posted_ns;
	uint64_t posted_cycles, quiet; /* as hung out */
	/* root */
	uint64_t silent_since_ns; /* somebody has been suspect since then; 0: nobody is */
	bool silent;              /* run->dead has not ended, but fell silent */
	bool all_drained, stalled;
};

/* Collective: fills control->t0_ns, the moment to start in this process's time base. */
static int start(struct phases *p)
{
	uint64_t mine = vb_sched_now_slow(p->sched) + START_NS, error_ns;
	struct vb_cluster_parts parts;
	int64_t offset_ns;
	int err = vb_cluster_gather(p->group->cluster, "start", &mine, sizeof(mine),
				    VB_CLUSTER_TO_ALL, false, 0, &parts);

	if (err)
		return err;
	if (parts.bytes[0] != sizeof(mine)) {
		vb_cluster_parts_free(&parts);
		return vb_fail(-EPROTO, "the root has not said when to start");
	}
	memcpy(&mine, parts.data[0], sizeof(mine));
	vb_cluster_parts_free(&parts);
	vb_cluster_clock(p->group->cluster, &offset_ns, &error_ns);
	p->run->control->t0_ns = mine - (uint64_t)offset_ns;
	p->run->pulse.since_ns = p->run->control->t0_ns;
	return 0;
}

/* ---- word between the processes ---- */

/* A history that is full, or a client that has seen what cannot be, ends the run as the user
 * would. */
static bool wants_end(const struct phases *p)
{
	return vb_interrupted || p->run->control->full || p->run->control->early;
}

static void post(struct phases *p, uint64_t now)
{
	struct vb_bench_notice n = {.run = p->group->run, .flags = p->flags};
	bool waiting;

	n.cycles = vb_bench_run_cycles(p->run, &waiting);
	p->quiet = now > p->run->control->t0_ns && n.cycles == p->posted_cycles ? p->quiet + 1 : 0;
	p->posted_cycles = n.cycles;
	n.quiet = p->quiet;
	if (waiting)
		n.flags |= VB_NOTICE_WAITING;
	if (wants_end(p))
		n.flags |= VB_NOTICE_INTERRUPTED;
	vb_cluster_post(p->group->cluster, &n);
	p->posted_ns = now;
}

/* A process that has been silent for so long that its cluster suspects it: stopped, cut off, or on a
 * machine that stands still.  While one is, nothing is said of what stands still; after
 * VB_REAP_STOPPED_NS the run ends without it.  True if somebody is suspect. */
static bool look_for_silent(struct phases *p, uint64_t now)
{
	bool suspects = false;

	for (uint32_t r = 0; r < p->group->hosts; r++) {
		if (!vb_cluster_alive(p->group->cluster, r) ||
		    !vb_cluster_suspect(p->group->cluster, r))
			continue;
		suspects = true;
		if (p->silent_since_ns == 0)
			p->silent_since_ns = now;
		if (p->run->dead < 0 && now - p->silent_since_ns > VB_REAP_STOPPED_NS) {
			p->run->dead = (int)r;
			p->silent = true;
			p->flags |= VB_NOTICE_GIVE_UP;
		}
	}
	if (!suspects)
		p->silent_since_ns = 0;
	return suspects;
}

/* Nothing has moved for so long, and everybody who could have moved has run for so long: who was
 * stopped, or on a machine that had no time for it, could not; who is drained has nothing to move, and
 * hangs out nothing more. */
static bool stands_still(const struct phases *p, uint64_t now, uint64_t quiet)
{
	return now > p->run->pulse.since_ns && now - p->run->pulse.since_ns > p->run->stall_ns &&
	       quiet * NOTICE_NS > p->run->stall_ns;
}

/* The root looks at everybody: does anything move, does anybody want an end, have all finished? */
static void look_at_all(struct phases *p, uint64_t now)
{
	struct vb_bench_notice n;
	uint64_t cycles = 0, quiet = UINT64_MAX / NOTICE_NS;
	bool waiting = false, all = true, suspects = look_for_silent(p, now);

	for (uint32_t r = 0; r < p->group->hosts; r++) {
		bool there = vb_cluster_read(p->group->cluster, r, &n) && n.run == p->group->run;

		if (!vb_cluster_alive(p->group->cluster, r) || (int)r == p->run->dead)
			continue;
		all &= there && (n.flags & VB_NOTICE_DRAINED) != 0;
		if (!there || ((n.flags & VB_NOTICE_DRAINED) == 0 && n.quiet < quiet))
			quiet = there ? n.quiet : 0;
		if (!there)
			continue;
		cycles += n.cycles;
		waiting |= (n.flags & VB_NOTICE_WAITING) != 0;
		p->flags |= n.flags & VB_NOTICE_INTERRUPTED;
	}
	p->all_drained = all;
	if (cycles != p->run->pulse.cycles || !waiting || suspects) {
		p->run->pulse.cycles = cycles;
		/* Not before the moment to start, when nobody could move yet. */
		if (now > p->run->pulse.since_ns)
			p->run->pulse.since_ns = now;
	} else if (stands_still(p, now, quiet)) {
		p->stalled = true;
		p->flags |= VB_NOTICE_GIVE_UP;
	}
}

/* Hangs out how far we are, and looks what the others say. */
static void exchange(struct phases *p)
{
	uint64_t now = vb_sched_now_slow(p->sched);
	struct vb_bench_notice n;
	uint32_t before = p->flags;
	int dead = vb_cluster_first_dead(p->group->cluster);

	if (dead >= 0 && p->run->dead < 0) {
		p->run->dead = dead;
		p->flags |= VB_NOTICE_GIVE_UP;
	}
	if (!vb_cluster_alive(p->group->cluster, 0))
		p->flags |= VB_NOTICE_GIVE_UP;
	if (p->group->rank == 0 && p->run->ops->look != NULL && vb_look_wanted) {
		vb_look_wanted = false;
		p->run->ops->look(p->run);
	}
	if (p->group->rank == 0)
		look_at_all(p, now);
	else if (vb_cluster_read(p->group->cluster, 0, &n) && n.run == p->group->run)
		p->flags |= n.flags & (VB_NOTICE_INTERRUPTED | VB_NOTICE_GIVE_UP);
	if (p->flags != before || now >= p->posted_ns + NOTICE_NS)
		post(p, now);
}

/* ---- phases ---- */

static bool has_finished(const struct phases *p)
{
	return p->run->server_only || p->run->thread.all_finished;
}

/* A slice of the clients' work, or of serving others. */
static void slice(struct phases *p, uint64_t until_ns)
{
	if (has_finished(p)) {
		vb_task_sleep_until(until_ns);
		return;
	}
	vb_sched_run(p->sched, &p->run->thread.all_finished, until_ns);
	p->run->ops->client->flush(p->run);
}

/* Works, or serves, until at_ns; false: word came to end early. */
static bool pass(struct phases *p, uint64_t at_ns, const char *phase)
{
	uint64_t from = vb_sched_now_slow(p->sched), now = from;

	while (now < at_ns) {
		slice(p, at_ns - now < SLICE_NS ? at_ns : now + SLICE_NS);
		exchange(p);
		if ((p->flags & (VB_NOTICE_INTERRUPTED | VB_NOTICE_GIVE_UP)) != 0 ||
		    p->run->control->full || p->run->control->early)
			return false;
		now = vb_sched_now_slow(p->sched);
		if (p->group->rank == 0)
			vb_bench_progress_show((double)(now - from) / (double)(at_ns - from),
					       p->run->pulse.cycles, phase);
	}
	return true;
}

/* What every client is doing is remembered first. */
static void give_up_waiting(struct vb_bench_run *run)
{
	if (run->kept == NULL)
		run->kept = vb_bench_share(run->clients * run->ops->client->state_bytes);
	if (run->kept != NULL)
		memcpy(run->kept, run->states, run->clients * run->ops->client->state_bytes);
	vb_bench_thread_give_up(run);
}

/* Until the clients have finished, at the root until everybody's have. */
static void drain(struct phases *p)
{
	uint64_t give_up = VB_FOREVER;

	p->run->thread.drain = true;
	while (p->group->rank == 0 ? !p->all_drained : !has_finished(p)) {
		uint64_t now = vb_sched_now_slow(p->sched);

		if ((p->flags & VB_NOTICE_GIVE_UP) != 0 && give_up == VB_FOREVER) {
			give_up = now + p->run->stall_ns;
			give_up_waiting(p->run);
		}
		if (now >= give_up)
			break;
		slice(p, now + SLICE_NS);
		if (has_finished(p))
			p->flags |= VB_NOTICE_DRAINED;
		exchange(p);
	}
	p->flags |= VB_NOTICE_DRAINED;
	post(p, vb_sched_now_slow(p->sched));
}

/* ---- the end ---- */

/* Collective: waits for all who live, for as long as they may take to drain. */
static int meet(struct phases *p, const char *what)
{
	struct vb_cluster_parts parts;
	int err = vb_cluster_gather(p->group->cluster, what, NULL, 0, VB_CLUSTER_TO_ROOT, true,
				    2 * p->run->stall_ns + p->run->o->cluster.patience_ns, &parts);

	if (err == 0)
		vb_cluster_parts_free(&parts);
	return err;
}

/* The result of a run that went well so far: the root says who died. */
static int say_dead(const struct phases *p)
{
	if (p->run->dead < 0)
		return 0;
	if (p->group->rank == 0)
		vb_error("%s %s: the run ends, its results are of the others until then",
			 vb_cluster_name(p->group->cluster, (uint32_t)p->run->dead),
			 p->silent ? "is stopped or cut off, and has said nothing for long"
				   : "died");
	return -VB_EPEERGONE;
}

static void measure(struct phases *p)
{
	struct vb_bench_run *run = p->run;
	uint64_t begin = run->control->t0_ns + run->o->warmup_ns;

	if (pass(p, begin, "warming up")) {
		if (p->group->rank == 0)
			vb_info(VB_BENCH_MEASURING);
		vb_bench_run_measure(run, true);
		pass(p, begin + run->o->duration_ns, "measuring");
		vb_bench_run_measure(run, false);
	}
	run->ops->measured(run, vb_sched_now_slow(p->sched));
	run->pulse.since_ns = vb_sched_now_slow(p->sched);
	drain(p);
}

static int open_all(struct vb_bench_run *run)
{
	int err = vb_bench_run_open(run, 1);

	if (err)
		return err;
	if (!run->server_only)
		err = vb_bench_thread_open(run, run->group->rank - run->first_worker);
	return vb_bench_group_agree(run->group, "clients opened", err);
}

static int pass_all(struct phases *p)
{
	struct vb_bench_run *run = p->run;
	int err = start(p);

	if (err == 0)
		err = vb_bench_thread_start(run);
	err = vb_bench_group_agree(p->group, "clients started", err);
	if (err)
		return err;
	run->end->ran = true;
	measure(p);
	err = meet(p, "drained");
	/* What a client has posted last is in place when it has gone. */
	vb_bench_thread_close(run);
	if (err == 0)
		err = meet(p, "closed");
	run->end->interrupted = vb_interrupted;
	run->cut_short = (p->flags & VB_NOTICE_INTERRUPTED) != 0;
	return err != 0 ? err : vb_bench_run_gather(run, p->stalled);
}

int vb_bench_run_group(struct vb_bench_run *run)
{
	struct phases p = {.run = run, .group = run->group, .sched = vb_sched_self()};
	int err;

	run->sched = p.sched;
	run->group->run++;
	err = open_all(run);
	if (err == 0)
		err = pass_all(&p);
	return err != 0 ? err : say_dead(&p);
}
