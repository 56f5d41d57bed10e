/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of a network run in step: see phases.h. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/engine/phases.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "lab/bench/engine/progress.h"
#include "lab/reap.h"
#include "lab/run.h"
#include "task/task.h"

#define SLICE_NS  5000000ull
#define NOTICE_NS 50000000ull
#define START_NS  20000000ull /* from the root's word to the first cycle */

int vb_bench_phases_start(struct vb_bench_phases *p)
{
	uint64_t mine = vb_sched_now_slow(p->sched) + START_NS, error_ns;
	struct vb_cluster_parts parts;
	int64_t offset_ns;
	int err = vb_cluster_gather(p->crew->cluster, "start", &mine, sizeof(mine),
				    VB_CLUSTER_TO_ALL, false, 0, &parts);

	if (err)
		return err;
	if (parts.bytes[0] != sizeof(mine)) {
		vb_cluster_parts_free(&parts);
		return vb_fail(-EPROTO, "the root has not said when to start");
	}
	memcpy(&mine, parts.data[0], sizeof(mine));
	vb_cluster_parts_free(&parts);
	vb_cluster_clock(p->crew->cluster, &offset_ns, &error_ns);
	p->control->t0_ns = mine - (uint64_t)offset_ns;
	p->pulse.since_ns = p->control->t0_ns;
	return 0;
}

/* ---- word between the processes ---- */

/* A history that is full, or a client that has seen what cannot be, ends the run as the user
 * would. */
static bool wants_end(const struct vb_bench_phases *p)
{
	return vb_interrupted || p->control->full || p->control->early;
}

static void post(struct vb_bench_phases *p, uint64_t now)
{
	struct vb_bench_notice n = {.run = p->crew->run, .flags = p->flags};

	p->count(p->run, &n);
	if (wants_end(p))
		n.flags |= VB_NOTICE_INTERRUPTED;
	vb_cluster_post(p->crew->cluster, &n);
	p->posted_ns = now;
}

/* A process that has been silent for so long that its cluster suspects it: stopped, cut off, or on a
 * machine that stands still.  While one is, nothing is said of what stands still; after VB_REAP_STOPPED_NS the run
 * ends without it.  True if somebody is suspect. */
static bool look_for_silent(struct vb_bench_phases *p, uint64_t now)
{
	bool suspects = false;

	for (uint32_t r = 0; r < p->crew->hosts; r++) {
		if (!vb_cluster_alive(p->crew->cluster, r) ||
		    !vb_cluster_suspect(p->crew->cluster, r))
			continue;
		suspects = true;
		if (p->silent_since_ns == 0)
			p->silent_since_ns = now;
		if (p->dead < 0 && now - p->silent_since_ns > VB_REAP_STOPPED_NS) {
			p->dead = (int)r;
			p->silent = true;
			p->flags |= VB_NOTICE_GIVE_UP;
		}
	}
	if (!suspects)
		p->silent_since_ns = 0;
	return suspects;
}

/* The root looks at everybody: does anything move, does anybody want an end, have all finished? */
static void look_at_all(struct vb_bench_phases *p, uint64_t now)
{
	struct vb_bench_notice n;
	uint64_t cycles = 0;
	bool waiting = false, all = true, suspects = look_for_silent(p, now);

	for (uint32_t r = 0; r < p->crew->hosts; r++) {
		bool there = vb_cluster_read(p->crew->cluster, r, &n) && n.run == p->crew->run;

		if (!vb_cluster_alive(p->crew->cluster, r) || (int)r == p->dead)
			continue;
		all &= there && (n.flags & VB_NOTICE_DRAINED) != 0;
		if (!there)
			continue;
		cycles += n.cycles;
		waiting |= (n.flags & VB_NOTICE_WAITING) != 0;
		p->flags |= n.flags & VB_NOTICE_INTERRUPTED;
	}
	p->all_drained = all;
	if (cycles != p->pulse.cycles || !waiting || suspects) {
		p->pulse.cycles = cycles;
		/* Not before the moment to start, when nobody could move yet. */
		if (now > p->pulse.since_ns)
			p->pulse.since_ns = now;
	} else if (now > p->pulse.since_ns && now - p->pulse.since_ns > p->stall_ns) {
		p->stalled = true;
		p->flags |= VB_NOTICE_GIVE_UP;
	}
}

/* Hangs out how far we are, and looks what the others say. */
static void exchange(struct vb_bench_phases *p)
{
	uint64_t now = vb_sched_now_slow(p->sched);
	struct vb_bench_notice n;
	uint32_t before = p->flags;
	int dead = vb_cluster_first_dead(p->crew->cluster);

	if (dead >= 0 && p->dead < 0) {
		p->dead = dead;
		p->flags |= VB_NOTICE_GIVE_UP;
	}
	if (!vb_cluster_alive(p->crew->cluster, 0))
		p->flags |= VB_NOTICE_GIVE_UP;
	if (p->crew->rank == 0 && p->look != NULL && vb_look_wanted) {
		vb_look_wanted = false;
		p->look(p->run);
	}
	if (p->crew->rank == 0)
		look_at_all(p, now);
	else if (vb_cluster_read(p->crew->cluster, 0, &n) && n.run == p->crew->run)
		p->flags |= n.flags & (VB_NOTICE_INTERRUPTED | VB_NOTICE_GIVE_UP);
	if (p->flags != before || now >= p->posted_ns + NOTICE_NS)
		post(p, now);
}

/* ---- phases ---- */

static bool has_finished(const struct vb_bench_phases *p)
{
	return !p->is_worker || *p->life.all_finished;
}

/* A slice of the clients' work, or of serving others. */
static void slice(struct vb_bench_phases *p, uint64_t until_ns)
{
	if (has_finished(p)) {
		vb_task_sleep_until(until_ns);
		return;
	}
	vb_sched_run(p->sched, p->life.all_finished, until_ns);
	p->life.flush(p->life.worker);
}

bool vb_bench_phases_pass(struct vb_bench_phases *p, uint64_t at_ns, const char *phase)
{
	uint64_t from = vb_sched_now_slow(p->sched), now = from;

	while (now < at_ns) {
		slice(p, at_ns - now < SLICE_NS ? at_ns : now + SLICE_NS);
		exchange(p);
		if ((p->flags & (VB_NOTICE_INTERRUPTED | VB_NOTICE_GIVE_UP)) != 0 ||
		    p->control->full || p->control->early)
			return false;
		now = vb_sched_now_slow(p->sched);
		if (p->crew->rank == 0)
			vb_bench_progress_show((double)(now - from) / (double)(at_ns - from),
					       p->pulse.cycles, phase);
	}
	return true;
}

void vb_bench_phases_drain(struct vb_bench_phases *p)
{
	uint64_t give_up = VB_FOREVER;

	if (p->is_worker)
		*p->life.drain = true;
	while (p->crew->rank == 0 ? !p->all_drained : !has_finished(p)) {
		uint64_t now = vb_sched_now_slow(p->sched);

		if ((p->flags & VB_NOTICE_GIVE_UP) != 0 && give_up == VB_FOREVER) {
			give_up = now + p->stall_ns;
			p->give_up(p->run);
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

int vb_bench_phases_meet(struct vb_bench_phases *p, const char *what, uint64_t patience_ns)
{
	struct vb_cluster_parts parts;
	int err = vb_cluster_gather(p->crew->cluster, what, NULL, 0, VB_CLUSTER_TO_ROOT, true,
				    2 * p->stall_ns + patience_ns, &parts);

	if (err == 0)
		vb_cluster_parts_free(&parts);
	return err;
}

char *vb_bench_phases_died(struct vb_bench_phases *p)
{
	if (p->dead < 0) /* between our last look and now */
		p->dead = vb_cluster_first_dead(p->crew->cluster);
	return p->dead < 0 ? NULL : strdup(vb_cluster_name(p->crew->cluster, (uint32_t)p->dead));
}

int vb_bench_phases_end(const struct vb_bench_phases *p)
{
	if (p->dead < 0)
		return 0;
	if (p->crew->rank == 0)
		vb_error("%s %s: the run ends, its results are of the others until then",
			 vb_cluster_name(p->crew->cluster, (uint32_t)p->dead),
			 p->silent ? "is stopped or cut off, and has said nothing for long"
				   : "died");
	return -VB_EPEERGONE;
}
