/* SPDX-License-Identifier: Apache-2.0 */
/* What a seed holds in store for a transaction protocol: see explore.h. */
#define VB_LOG_ROOM "check"
#include <inttypes.h>

#include "check/draw.h"
#include "check/txn/world.h"

#define US 1000ull
#define MS 1000000ull

#define DRAW_STREAM   0x74786e
#define STALL_STREAM  0x7374616c
#define CALLS_STREAM  0x63616c6c
#define DEAF_STREAM   0x64656166
#define GO_STREAM     0x676f696e
#define WRAP_STREAM   0x77726170
#define TIMED_STREAM  0x74696d65
#define EARLY_STREAM  0x6561726c
#define SIZE_STREAM   0x73697a65
#define PLAIN_STREAM  0x706c6169
#define SHM_STREAM    0x73686d
#define EDGE_STREAM   0x65646765
#define WITH_STREAM   0x77697468
#define SWEEP_STREAM  0x73770045
#define SIDE_STREAM   0x73640005
#define PAST_STREAM   0x70610004
#define SNAP_STREAM   0x736e6170
#define SCAN_STREAM   0x73630001
#define REFUSE_STREAM 0x72656675
#define COPY_STREAM   0x636f7079
#define LOG_STREAM    0x6c6f6700
#define FAR_STREAM    0x66617200

/* Who has committed is recovered after two suspect times, and then rolled forward: who comes back
 * in the midst of that has stood still for longer than all of it takes. */
#define LONG_LEASES 14u

static void draw_cluster(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const unsigned bytes[] = {16, 24, 56, 120, 256};

	d->profile =
		&vb_sim_profiles[vb_rng_chance(r, 0.6) ? 0
						       : vb_rng_below(r, VB_SIM_PROFILES_DRAWN)];
	d->global = vb_rng_chance(r, 0.5);
	d->bound_ns = vb_draw_spread(r, 25 * US, 3);
	d->nodes = (unsigned)vb_draw_between(r, 1, 3);
	d->coordinators = (unsigned)vb_draw_between(r, 2, VB_TXN_EXPLORE_COORDINATORS_MAX);
	d->accounts = (unsigned)vb_draw_between(r, 2, 12);
	d->notes = (unsigned)vb_draw_between(r, 1, 6);
	d->record_bytes = bytes[vb_rng_below(r, VB_ARRAY_SIZE(bytes))];
	d->lease_ns = vb_draw_spread(r, 8 * d->bound_ns, 2);
}

static void draw_load(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const double chances[] = {0, 0.1, 0.3};

	d->attempts = (unsigned)vb_draw_between(r, 15, 60);
	d->commits = (unsigned)vb_draw_between(r, 3, 10);
	d->think_max_ns = vb_rng_chance(r, 0.5) ? 0 : vb_draw_spread(r, 1 * US, 4);
	d->p_audit = vb_draw_one_of(r, chances, 3);
	d->p_note = vb_draw_one_of(r, chances, 3);
	d->p_blind = vb_draw_one_of(r, chances, 3);
	d->p_wide = vb_draw_one_of(r, chances, 3);
	d->p_abort = vb_rng_chance(r, 0.5) ? 0.05 : 0;
	d->p_declare = vb_rng_chance(r, 0.5) ? 0.5 : 0;
	d->doorbell = vb_rng_chance(r, 0.8);
	d->outstanding = vb_rng_chance(r, 0.8);
	d->passive_ack = vb_rng_chance(r, 0.3);
	d->cache = vb_rng_chance(r, 0.7);
}

static void draw_faults(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const double rare[] = {0.0005, 0.002, 0.008};
	struct vb_sim_faults *f = &d->faults;

	vb_draw_delays(r, f, 4, d->bound_ns);
	f->drift_max_ppb = (int64_t)d->drift_ppm * 500;
	if (d->calm)
		return;
	if (vb_rng_chance(r, 0.7))
		f->die = vb_draw_one_of(r, rare, 3);
	if (vb_rng_chance(r, 0.5)) {
		f->pause = vb_draw_one_of(r, rare, 3) * 2;
		f->pause_max_ns = vb_draw_between(r, d->lease_ns / 2, 3 * d->lease_ns);
	}
	if (vb_rng_chance(r, 0.3))
		f->lose = vb_draw_one_of(r, rare, 3);
	if (vb_rng_chance(r, 0.2)) {
		f->nic_stall = vb_draw_one_of(r, rare, 3) / 4;
		f->nic_stall_max_ns = vb_draw_between(r, 10 * US, d->lease_ns);
	}
	if (vb_rng_chance(r, 0.2)) {
		f->partition = vb_draw_one_of(r, rare, 3) / 8;
		f->partition_max_ns = vb_draw_between(r, 10 * US, d->lease_ns);
	}
}

/* Links that refuse verbs while they are cut, which then are not executed for sure; some for so long that
 * who has committed half of it is through with waiting. */
static void draw_refusals(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const double some[] = {0.5, 1}, rare[] = {0.0001, 0.0005, 0.002};
	struct vb_sim_faults *f = &d->faults;

	if (d->calm || d->memory || !vb_rng_chance(r, 0.2))
		return;
	f->refuse = vb_draw_one_of(r, some, 2);
	if (f->partition == 0)
		f->partition = vb_draw_one_of(r, rare, 3);
	f->partition_max_ns = vb_draw_between(r, d->lease_ns / 2, 4 * d->lease_ns);
}

/* Who stands still for very long, and servers that stand still. */
static void draw_stalls(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const double rare[] = {0.01, 0.03, 0.1};
	struct vb_sim_faults *f = &d->faults;

	if (d->calm)
		return;
	if (f->pause > 0 && vb_rng_chance(r, 0.4))
		f->pause_max_ns = vb_draw_between(r, 3 * d->lease_ns, LONG_LEASES * d->lease_ns);
	if (vb_rng_chance(r, 0.5)) {
		f->stall = vb_draw_one_of(r, rare, 3);
		f->stall_max_ns = vb_draw_between(r, d->lease_ns / 2, LONG_LEASES * d->lease_ns);
	}
}

/* Coordinators that hear nothing for longer than they ask what has become of a commit. */
static void draw_deaf(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const double rare[] = {0.002, 0.008, 0.03};

	if (d->calm || !vb_rng_chance(r, 0.25))
		return;
	d->faults.deaf = vb_draw_one_of(r, rare, 3);
	d->faults.deaf_max_ns = vb_draw_between(r, 2 * d->lease_ns, LONG_LEASES * d->lease_ns);
}

/* Coordinators that come and go, are cancelled, or think for too long; servers that die. */
static void draw_goings(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const double some[] = {0.02, 0.1, 0.3}, rare[] = {0.01, 0.03, 0.1};

	/* Who is always disturbed never gets far into what he does. */
	if (vb_rng_chance(r, 0.5))
		return;
	if (vb_rng_chance(r, 0.3))
		d->p_leave = vb_draw_one_of(r, some, 3);
	if (d->calm)
		return;
	if (vb_rng_chance(r, 0.25)) {
		d->p_slow = vb_draw_one_of(r, some, 3) / 2;
		d->slow_ns = vb_draw_between(r, d->lease_ns / 2, 4 * d->lease_ns);
	}
	if (vb_rng_chance(r, 0.25))
		d->cancel_every_ns = vb_draw_spread(r, 50 * US, 5);
	if (vb_rng_chance(r, 0.6)) {
		d->faults.server_die = vb_draw_one_of(r, rare, 3);
		d->server_gone_ns = vb_draw_between(r, d->bound_ns, 6 * d->lease_ns);
	}
}

/*
 * Who comes back just when others recover what he holds: after one suspect time, when they have asked
 * for the first time, or a few; and often, for it takes a short time.
 */
static void draw_timed(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const double some[] = {0.005, 0.01, 0.02}, many[] = {0.03, 0.1};
	uint64_t suspect = d->lease_ns + 2 * d->bound_ns + 1 * US;
	uint64_t from = vb_draw_between(r, 1, 3) * suspect;
	bool servers = vb_rng_chance(r, 0.5), wide = vb_rng_chance(r, 0.4);
	struct vb_sim_faults *f = &d->faults;
	uint64_t least = wide ? from : from - 2 * d->bound_ns;
	uint64_t most = wide ? from + suspect : from + 6 * d->bound_ns;

	if (d->calm || !vb_rng_chance(r, 0.25))
		return;
	if (servers) {
		f->stall = vb_draw_one_of(r, many, 2);
		f->stall_min_ns = least;
		f->stall_max_ns = most;
	} else {
		f->pause = vb_draw_one_of(r, some, 3);
		f->pause_min_ns = least;
		f->pause_max_ns = most;
	}
}

/* Answers that are given up before the verb has taken effect. */
static void draw_early(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const double rare[] = {0.0005, 0.002, 0.008};

	/* Doorbells of their own are lost one by one. */
	if (!d->calm && vb_rng_chance(r, d->doorbell ? 0.25 : 0.6))
		d->faults.early = vb_draw_one_of(r, rare, 3) * (d->doorbell ? 1 : 2);
}

static void draw_edge(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const double some[] = {0.02, 0.05, 0.1};

	if (!d->calm && vb_rng_chance(r, 0.2))
		d->p_edge = vb_draw_one_of(r, some, 3);
}

/* Memory in which nothing wider than a word is whole. */
static void draw_plain(struct vb_rng *r, const struct vb_cc_ops *cc, struct vb_txn_draw *d)
{
	static const double some[] = {0.1, 0.3, 0.6};
	unsigned n = 0;

	if (!vb_rng_chance(r, cc->caps & VB_CC_LOGICAL ? 0.3 : 0.15))
		return;
	for (unsigned i = 0; i < VB_SIM_PROFILES_DRAWN; i++)
		if (!vb_sim_profiles[i].masked128 && vb_rng_below(r, ++n) == 0)
			d->profile = &vb_sim_profiles[i];
	d->faults.tear = vb_draw_one_of(r, some, 3);
}

/* Nothing is lost there, and there is one clock. */
static void draw_memory(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const double some[] = {0.1, 0.3, 0.6};
	struct vb_sim_faults *f = &d->faults;

	d->memory = vb_rng_chance(r, 0.2);
	if (!d->memory)
		return;
	if (vb_rng_chance(r, 0.6)) {
		f->tear = vb_draw_one_of(r, some, 3);
		f->delay = vb_draw_one_of(r, some, 3);
	}
	f->lose = f->early = f->deaf = f->nic_stall = f->partition = 0;
	f->drift_max_ppb = 0;
}

/* How transactions are begun. */
static void draw_params(struct vb_rng *r, const struct vb_cc_ops *cc, struct vb_txn_draw *d)
{
	static const double some[] = {0.1, 0.5, 1};

	d->p_weak = vb_rng_chance(r, 0.3) ? vb_draw_one_of(r, some, 3) : 0;
	if (!(cc->caps & VB_CC_SHORT_READS))
		d->p_weak = 0;
	d->p_hurry = vb_rng_chance(r, 0.2) ? 0.3 : 0;
	if (cc->caps & VB_CC_BOUNDED)
		d->wait_ns = d->lease_ns >> vb_draw_between(r, 2, 6);
	if (cc->caps & VB_CC_HEATS)
		d->hot_from = (uint32_t)vb_draw_between(r, 1, 6);
}

/*
 * Of clocks that are ahead of time nothing is seen at a snapshot for as long as they are.  Otherwise it is
 * for others that it ends: who writes has to have its locks within the lag.
 */
static void draw_snapshots(struct vb_rng *r, const struct vb_cc_ops *cc, struct vb_txn_draw *d)
{
	static const double some[] = {0.3, 0.7, 1};
	const uint64_t least = 2 * d->think_max_ns + 4 * d->bound_ns;

	if (!(cc->caps & VB_CC_SNAPSHOTS) || !vb_rng_chance(r, 0.6))
		return;
	if (vb_rng_chance(r, 0.8))
		d->lag_ns = d->lease_ns >> vb_draw_between(r, 0, 4);
	if (d->lag_ns != 0 && d->lag_ns < least)
		d->lag_ns = least < d->lease_ns ? least : d->lease_ns;
	if (!d->memory && vb_rng_chance(r, 0.5))
		d->faults.common_error_max_ns = vb_draw_spread(r, 100, 8);
	if (d->ahead)
		return;
	d->p_snapshot = vb_draw_one_of(r, some, 3);
	d->p_skew = vb_rng_chance(r, 0.4) ? vb_draw_one_of(r, some, 3) : 0;
	if (d->p_audit == 0)
		d->p_audit = 0.2;
}

/* Ranges whose maps are of one word, of several, and of so many keys that a map has no room for all of them. */
static void draw_scans(struct vb_rng *r, const struct vb_cc_ops *cc, struct vb_txn_draw *d)
{
	static const double scans[] = {0.1, 0.3, 0.6};

	d->p_scan = vb_rng_chance(r, 0.25) ? vb_draw_one_of(r, scans, 3) : 0;
	/* What a scan finds cannot be declared. */
	if (vb_cc_sequenced(cc))
		d->p_scan = 0;
	d->line_shift = vb_rng_chance(r, 0.7) ? 2 : vb_rng_chance(r, 0.5) ? 7 : 11;
	/* Under versions of logical time a key keeps its place. */
	d->scarce = vb_rng_chance(r, 0.4) && d->recovery && !(cc->caps & VB_CC_LOGICAL) &&
		    !vb_txn_draw_is_beyond(d);
}

static void draw_wraps(struct vb_rng *r, const struct vb_cc_ops *cc, struct vb_txn_draw *d)
{
	d->wraps = vb_rng_chance(r, 0.33);
	d->ahead = d->wraps && vb_rng_chance(r, 0.5);
	if (d->wraps && cc->caps & VB_CC_TIME_ENDS && vb_rng_chance(r, 0.5))
		d->time_left = vb_draw_spread(r, 1, 12);
}

static void draw_sweeps(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const double some[] = {0.02, 0.06, 0.2};

	if (d->recovery && vb_rng_chance(r, 0.2))
		d->p_sweep = vb_draw_one_of(r, some, 3);
}

/* More than can be survived, of one kind. */
static void draw_beyond(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const double rare[] = {0.01, 0.03, 0.1}, some[] = {0.003, 0.01, 0.03};

	if (d->calm || !vb_rng_chance(r, 0.1))
		return;
	switch (vb_rng_below(r, d->memory || d->ahead ? 1 : 3)) {
	case 0:
		d->never_back = true;
		d->faults.server_die = vb_draw_one_of(r, rare, 3);
		break;
	case 1:
		d->forgotten = true;
		d->faults.die = vb_draw_one_of(r, rare, 2) / 10;
		break;
	default:
		d->too_late = (unsigned)vb_draw_between(r, 16, 100);
		d->faults.delay = vb_draw_one_of(r, some, 3);
		d->faults.delay_max_ns = d->too_late * d->bound_ns * 3 / 4;
		break;
	}
}

/* No more nodes go than a log has copies. */
static void draw_copies(const struct vb_cc_ops *cc, struct vb_txn_draw *d, bool always)
{
	static const double rare[] = {0.002, 0.008}, some[] = {0.3, 1}, often[] = {0.1, 0.4};
	struct vb_rng stream, *r = &stream;
	bool drawn;

	vb_rng_seed(r, d->seed, COPY_STREAM);
	drawn = vb_rng_chance(r, 0.25);
	if (vb_cc_at_home(cc) || !d->recovery || d->memory || vb_txn_draw_is_beyond(d) ||
	    !(drawn || always))
		return;
	d->copies = (unsigned)vb_draw_between(r, 1, 3);
	d->homes = (unsigned)vb_draw_between(r, d->copies, TXN_HOMES_MAX);
	d->beside = false;
	if (d->calm)
		return;
	if (d->faults.die == 0)
		d->faults.die = vb_draw_one_of(r, rare, 2);
	d->p_lose = vb_draw_one_of(r, some, 2);
	if (vb_rng_chance(r, 0.5))
		d->cut_every_ns = vb_draw_spread(r, 100 * US, 5);
	else
		d->p_waylay = vb_draw_one_of(r, often, 2);
}

void vb_txn_draw_far(const struct vb_cc_ops *cc, struct vb_txn_draw *d)
{
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, FAR_STREAM);
	d->far = !vb_cc_at_home(cc) && !d->memory;
	/* Of one node alone they would be at home. */
	if (d->far && d->nodes > 1 && !d->calm && !vb_txn_draw_is_beyond(d) &&
	    vb_rng_chance(&r, 0.6))
		d->disown_every_ns = vb_draw_spread(&r, 100 * US, 5);
	d->tight = d->far && vb_rng_chance(&r, 0.7);
}

/* The last digit of the hybrid code.  hybrid: what was asked for, or NULL. */
static void draw_log(const struct vb_cc_ops *cc, struct vb_txn_draw *d, const char *hybrid)
{
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, LOG_STREAM);
	if (d->copies == 0)
		d->hybrid[cc->n_stages] = '\0';
	else if ((hybrid == NULL || cc->code != NULL) && strlen(d->hybrid) == cc->n_stages &&
		 vb_rng_chance(&r, 0.4))
		memcpy(d->hybrid + cc->n_stages, "1", 2);
}

void vb_txn_draw_copies(const struct vb_cc_ops *cc, const char *hybrid, struct vb_txn_draw *d)
{
	draw_copies(cc, d, true);
	if (hybrid != NULL)
		snprintf(d->hybrid, sizeof(d->hybrid), "%s", hybrid);
	draw_log(cc, d, hybrid);
}

void vb_txn_draw_bounds(struct vb_txn_draw *d)
{
	d->safety_ns = 50 * MS + 40 * d->lease_ns + d->attempts * d->coordinators * 100 * US;
	d->liveness_ns =
		500 * MS + 40 * d->lease_ns +
		4 * (d->faults.pause_max_ns + d->faults.stall_max_ns + d->faults.nic_stall_max_ns +
		     d->faults.partition_max_ns + d->faults.deaf_max_ns + d->slow_ns);
	/* A record is written once in each lag. */
	if (d->p_skew > 0)
		d->liveness_ns += (uint64_t)d->commits * d->coordinators * 4 * d->lease_ns;
	/* Some of them wait until places come free. */
	if (d->scarce)
		d->liveness_ns += 200 * d->lease_ns;
	if (vb_txn_draw_is_beyond(d))
		d->liveness_ns += (uint64_t)d->commits * VB_TXN_TRY_MOST * 2 * d->lease_ns;
	/* Who is stuck waits busily; nobody needs so long. */
	if (!d->recovery) {
		d->safety_ns = 20 * MS;
		d->liveness_ns = 20 * MS;
	}
}

void vb_txn_draw(const struct vb_cc_ops *cc, uint64_t seed, const char *hybrid,
		 struct vb_txn_draw *d)
{
	struct vb_rng r, stalls, calls, deaf, go, wraps, late;

	vb_rng_seed(&r, seed, DRAW_STREAM);
	*d = (struct vb_txn_draw){.seed = seed, .drift_ppm = 100};
	draw_cluster(&r, d);
	draw_load(&r, d);
	/* Who waits for ever is not saved by those who recover him. */
	d->recovery = !(cc->caps & VB_CC_BLIND_WAIT);
	d->calm = vb_rng_chance(&r, 0.25) || !d->recovery;
	draw_faults(&r, d);
	vb_rng_seed(&stalls, seed, STALL_STREAM);
	draw_stalls(&stalls, d);
	vb_rng_seed(&deaf, seed, DEAF_STREAM);
	draw_deaf(&deaf, d);
	vb_rng_seed(&go, seed, GO_STREAM);
	draw_goings(&go, d);
	vb_rng_seed(&wraps, seed, WRAP_STREAM);
	draw_wraps(&wraps, cc, d);
	vb_rng_seed(&late, seed, TIMED_STREAM);
	draw_timed(&late, d);
	vb_rng_seed(&late, seed, EARLY_STREAM);
	draw_early(&late, d);
	vb_rng_seed(&late, seed, EDGE_STREAM);
	draw_edge(&late, d);
	vb_rng_seed(&late, seed, WITH_STREAM);
	draw_params(&late, cc, d);
	d->faults.tear_words = true;
	vb_rng_seed(&late, seed, PLAIN_STREAM);
	draw_plain(&late, cc, d);
	vb_rng_seed(&late, seed, SIZE_STREAM);
	if (vb_rng_chance(&late, 0.3))
		d->record_bytes -= (unsigned)vb_draw_between(&late, 1, 7);
	vb_rng_seed(&late, seed, SHM_STREAM);
	draw_memory(&late, d);
	vb_rng_seed(&late, seed, REFUSE_STREAM);
	draw_refusals(&late, d);
	vb_rng_seed(&late, seed, SWEEP_STREAM);
	draw_sweeps(&late, d);
	vb_rng_seed(&late, seed, SIDE_STREAM);
	d->beside = vb_rng_chance(&late, 0.15);
	vb_rng_seed(&late, seed, PAST_STREAM);
	draw_beyond(&late, d);
	draw_copies(cc, d, false);
	vb_rng_seed(&late, seed, SNAP_STREAM);
	draw_snapshots(&late, cc, d);
	vb_rng_seed(&late, seed, SCAN_STREAM);
	draw_scans(&late, cc, d);
	vb_rng_seed(&calls, seed, CALLS_STREAM);
	d->p_calls = vb_rng_chance(&calls, 0.6) ? 0.05 + 0.3 * vb_rng_unit(&calls) : 0;
	for (unsigned i = 0; i < cc->n_stages; i++)
		d->hybrid[i] = vb_rng_chance(&r, 0.5) ? '1' : '0';
	/* All of one kind is what most people run. */
	if (vb_rng_chance(&r, 0.4))
		memset(d->hybrid, vb_rng_chance(&r, 0.7) ? '0' : '1', cc->n_stages);
	if (cc->code != NULL)
		hybrid = cc->code;
	if (hybrid != NULL)
		snprintf(d->hybrid, sizeof(d->hybrid), "%s", hybrid);
	draw_log(cc, d, hybrid);
	vb_txn_draw_bounds(d);
}

void vb_txn_draw_describe(const struct vb_txn_draw *d, FILE *to)
{
	char t1[16], t2[16], t3[16];

	fprintf(to,
		"seed %" PRIu64 ": hybrid %s, profile %s%s, verb bound %s, %u coordinators on %u "
		"nodes, %u accounts and %u notes of %u bytes, attempts %u, think %s, lease "
		"%s%s%s%s%s",
		d->seed, d->hybrid, d->profile->name, d->global ? ", global atomics" : "",
		vb_format_ns(t1, sizeof(t1), (double)d->bound_ns), d->coordinators, d->nodes,
		d->accounts, d->notes, d->record_bytes, d->attempts,
		vb_format_ns(t2, sizeof(t2), (double)d->think_max_ns),
		vb_format_ns(t3, sizeof(t3), (double)d->lease_ns),
		d->doorbell ? "" : ", no doorbell batching",
		d->outstanding ? "" : ", no outstanding requests",
		d->passive_ack ? ", passive acknowledgement" : "", d->cache ? "" : ", no cache");
	fprintf(to, "%s", d->memory ? ", as shared memory" : "");
	vb_draw_tell_chance(to, "audits", d->p_audit, 0);
	vb_draw_tell_chance(to, "notes", d->p_note, 0);
	vb_draw_tell_chance(to, "blind writes", d->p_blind, 0);
	vb_draw_tell_chance(to, "wide", d->p_wide, 0);
	vb_draw_tell_chance(to, "random calls", d->p_calls, 0);
	vb_draw_tell_chance(to, "scans", d->p_scan, 0);
	if (d->p_scan > 0)
		fprintf(to, " of ranges of %u keys%s", 1u << d->line_shift,
			d->scarce ? ", places are scarce" : "");
	vb_draw_tell_chance(to, "user aborts", d->p_abort, 0);
	vb_draw_tell_chance(to, "declared", d->p_declare, 0);
	vb_draw_tell_chance(to, "below serializable", d->p_weak, 0);
	vb_draw_tell_chance(to, "with a deadline", d->p_hurry, 0);
	vb_draw_tell_chance(to, "audits at a snapshot", d->p_snapshot, 0);
	vb_draw_tell_chance(to, "snapshot isolation", d->p_skew, 0);
	if (d->lag_ns != 0)
		fprintf(to, ", snapshots %s old", vb_format_ns(t1, sizeof(t1), (double)d->lag_ns));
	if (d->wait_ns != 0)
		fprintf(to, ", waits of up to %s",
			vb_format_ns(t1, sizeof(t1), (double)d->wait_ns));
	if (d->hot_from != 0)
		fprintf(to, ", hot from %u on", d->hot_from);
	fprintf(to, "%s%s", d->wraps ? ", counters near their ends" : "",
		d->ahead ? ", clocks ahead" : "");
	if (d->time_left != 0)
		fprintf(to, ", logical time ends after %" PRIu64, d->time_left);
	vb_draw_tell_chance(to, "leave", d->p_leave, 0);
	vb_draw_tell_chance(to, "slow", d->p_slow, d->slow_ns);
	vb_draw_tell_chance(to, "to the lease's end", d->p_edge, 0);
	vb_draw_tell_chance(to, "sweeps", d->p_sweep, 0);
	if (d->far)
		fprintf(to, ", far places%s", d->tight ? ", no more than are needed" : "");
	if (d->disown_every_ns != 0)
		fprintf(to, ", whose owners are given up every %s",
			vb_format_ns(t1, sizeof(t1), (double)d->disown_every_ns));
	if (d->copies != 0)
		fprintf(to, ", %u copies of each log, %u nodes without records", d->copies,
			d->homes);
	vb_draw_tell_chance(to, "that go", d->p_lose, 0);
	if (d->cut_every_ns != 0)
		fprintf(to, ", or are taken for gone, every %s",
			vb_format_ns(t1, sizeof(t1), (double)d->cut_every_ns));
	vb_draw_tell_chance(to, "go as they are given up", d->p_waylay, 0);
	fprintf(to, "%s%s%s", d->beside ? ", another database beside" : "",
		d->never_back ? ", beyond: servers never return" : "",
		d->forgotten ? ", beyond: the memory of the dead is gone" : "");
	if (d->too_late != 0)
		fprintf(to, ", beyond: verbs up to %u times later than promised", d->too_late);
	if (d->cancel_every_ns != 0)
		fprintf(to, ", cancel every %s",
			vb_format_ns(t1, sizeof(t1), (double)d->cancel_every_ns));
	if (d->server_gone_ns != 0)
		fprintf(to, ", servers gone for up to %s",
			vb_format_ns(t1, sizeof(t1), (double)d->server_gone_ns));
	vb_draw_tell_faults(to, &d->faults);
}
