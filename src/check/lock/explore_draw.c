/* SPDX-License-Identifier: Apache-2.0 */
/* What a seed holds in store for a lock: see explore.h. */
#define VB_LOG_ROOM "check"
#include "check/lock/explore_inner.h"

#include <inttypes.h>

#include "check/draw.h"
#include "lock/protocols.h"

#define US 1000ull
#define MS 1000000ull

/* The stream of the draws; the clients' and the simulator's are others. */
#define DRAW_STREAM 0x647261
/* What came later has a stream of its own, so that the seeds of other locks stay what they were. */
#define MODES_STREAM  0x6d6f6465
#define LEASES_STREAM 0x6c656173
#define WRAP_STREAM   0x72616c6c
#define PAUSE_STREAM  0x70617573
#define CLOSE_STREAM  0x636c6f73
#define TELL_STREAM   0x74656c6c
#define SERVE_STREAM  0x73657276
#define TIME_STREAM   0x74696d65
#define ROUND_STREAM  0x726f756e
#define COPY_STREAM   0x636f7079
#define EDGE_STREAM   0x65646765
#define PATH_STREAM   0x70617468
#define FILE_STREAM   0x66696c65
#define QUIT_STREAM   0x71756974
#define SPACE_STREAM  0x73706163
#define GROW_STREAM   0x67726f77
#define RENEW_STREAM  0x72656e65
#define HOLDER_STREAM 0x686f6c64
#define RELAY_STREAM  0x72656c61

/* ... of a release that looks into some CASes, and into each VB_LOCK_ASKS times at most. */
#define ALONE_VERBS (3 * VB_LOCK_ASKS)
/* When a message is sent again, above the bound. */
#define COPY_AFTER_NS (200 * US)

/* Nothing here makes a lease run out or an answer go missing. */
static void draw_mild_faults(struct vb_rng *r, struct vb_explore_draw *d)
{
	static const double pauses[] = {0, 0.01};

	vb_draw_delays(r, &d->faults, 5, d->bound_ns);
	d->faults.nic_stall = vb_rng_chance(r, 0.3) ? 0.002 : 0;
	d->faults.nic_stall_max_ns = d->bound_ns / 8;
	d->faults.pause = vb_draw_one_of(r, pauses, 2);
	d->faults.pause_max_ns = 20 * US;
}

/* What a lock that survives its clients must survive. */
static void draw_hard_faults(struct vb_rng *r, struct vb_explore_draw *d)
{
	static const double rare[] = {0.0005, 0.002, 0.01};
	struct vb_sim_faults *f = &d->faults;

	if (vb_rng_chance(r, 0.5))
		f->die = vb_draw_one_of(r, rare, 3);
	if (vb_rng_chance(r, 0.6)) {
		f->pause = vb_draw_one_of(r, rare, 3) * 2;
		f->pause_max_ns = vb_draw_between(r, d->lease_ns / 2, 4 * d->lease_ns);
	}
	if (vb_rng_chance(r, 0.4))
		f->lose = vb_draw_one_of(r, rare, 3);
	if (vb_rng_chance(r, 0.3)) {
		f->nic_stall = vb_draw_one_of(r, rare, 3) / 4;
		f->nic_stall_max_ns = vb_draw_between(r, 10 * US, 2 * d->lease_ns);
	}
	if (vb_rng_chance(r, 0.3)) {
		f->partition = vb_draw_one_of(r, rare, 3) / 8;
		f->partition_max_ns = vb_draw_between(r, 10 * US, 2 * d->lease_ns);
	}
	if (vb_rng_chance(r, 0.5))
		d->p_long = vb_draw_one_of(r, rare, 3) * 4;
}

static uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static bool can_run(const struct vb_lock_ops *ops, const struct vb_sim_profile *p)
{
	return (p->masked64 || !(ops->needs & VB_CAP_MASKED64)) &&
	       (p->masked128 || !(ops->needs & VB_CAP_MASKED128));
}

static void draw_cluster(const struct vb_lock_ops *ops, struct vb_rng *r, struct vb_explore_draw *d)
{
	/* Mostly the first one, which models hardware; the others stretch what may happen. */
	do
		d->profile = &vb_sim_profiles[vb_rng_chance(r, 0.6)
						      ? 0
						      : vb_rng_below(r, VB_SIM_PROFILES_DRAWN)];
	while (!can_run(ops, d->profile));
	/* Short, so that a lease may be short too and a run has many of them. */
	d->bound_ns = vb_draw_spread(r, 25 * US, 4);
	d->clients = (unsigned)vb_draw_between(r, VB_EXPLORE_CLIENTS_MIN, VB_EXPLORE_CLIENTS_MAX);
	d->locks = (unsigned)vb_draw_between(r, 1, VB_EXPLORE_LOCKS_MAX);
	d->servers = d->locks > 1 && vb_rng_chance(r, 0.3) ? 2 : 1;
	d->client_nodes = (unsigned)vb_draw_between(r, 1, 4);
	d->workers = (unsigned)vb_draw_between(r, 1, 2);
	d->colocated = vb_rng_chance(r, 0.2);
}

static void draw_load(struct vb_rng *r, struct vb_explore_draw *d)
{
	static const double ratios[] = {0, 0.2, 0.5, 0.5, 0.8, 0.95};

	d->read_ratio = vb_draw_one_of(r, ratios, 6);
	d->attempts = (unsigned)vb_draw_between(r, 20, 120);
	d->cycles = (unsigned)vb_draw_between(r, 4, 16);
	d->think_max_ns = vb_rng_chance(r, 0.4) ? 0 : vb_draw_spread(r, 1 * US, 5);
	d->hold_max_ns = vb_rng_chance(r, 0.4) ? 0 : vb_draw_spread(r, 1 * US, 4);
	d->p_try = vb_rng_chance(r, 0.5) ? 0.15 : 0;
	d->p_timeout = vb_rng_chance(r, 0.6) ? 0.25 : 0;
	d->p_two = vb_rng_chance(r, 0.5) ? 0.15 : 0;
	d->cancel_every_ns = vb_rng_chance(r, 0.4) ? vb_draw_spread(r, 50 * US, 4) : 0;
}

/* A protocol whose counters are reset at a maximum does that in a short run if the maximum is low.
 */
static void draw_options(const struct vb_lock_ops *ops, struct vb_rng *r, struct vb_explore_draw *d)
{
	for (const struct vb_opt *o = ops->options; o != NULL && o->kind != VB_OPT_KIND_END; o++) {
		if (strcmp(o->name, "count_max") != 0 || !vb_rng_chance(r, 0.3))
			continue;
		snprintf(d->options, sizeof(d->options), "count_max=%" PRIu64, o->min);
		d->locks = 1;
		d->servers = 1;
		d->attempts = (unsigned)(3 * o->min / d->clients + 1);
	}
}

/* Readers' leases that nobody has chosen: they grow where they are lost, to at most the space's. */
static void draw_growth(struct vb_explore_draw *d, uint64_t clock_bound_ns)
{
	const uint64_t first = 8 * clock_bound_ns > 400 * US ? 8 * clock_bound_ns : 400 * US;
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, GROW_STREAM);
	if (!vb_rng_chance(&r, 0.3))
		return;
	snprintf(d->options, sizeof(d->options), "clock_bound=%" PRIu64 "ns,read_lease=auto",
		 clock_bound_ns);
	d->lease_ns = vb_draw_spread(&r, 2 * first, 6);
}

/*
 * Readers whose lease the others compare with clocks of their own: clocks that are as wrong as the
 * protocol is told they may be, leases short enough for a run to have many, readers that hold past
 * their lease, stand still in the middle of it.
 */
static void draw_clocks(struct vb_rng *r, struct vb_explore_draw *d)
{
	static const double rare[] = {0.002, 0.01, 0.05};
	uint64_t bound = vb_draw_spread(r, 1 * US, 7);

	d->faults.common_error_max_ns = bound;
	snprintf(d->options, sizeof(d->options), "clock_bound=%" PRIu64 "ns,read_lease=0", bound);
	d->lease_ns = vb_draw_spread(r, 4 * bound > 20 * US ? 4 * bound : 20 * US, 4);
	draw_growth(d, bound);
	d->p_long = vb_draw_one_of(r, rare, 3) * 4;
	if (vb_rng_chance(r, 0.5)) {
		d->faults.pause = vb_draw_one_of(r, rare, 3);
		d->faults.pause_max_ns = vb_draw_between(r, d->lease_ns / 2, 2 * d->lease_ns);
	}
}

/* What hides an interleaving for a thousand operations is drawn so small that a run has many. */
static const struct {
	const char *name, *value[3];
} small_options[] = {
	{"ask_again", {"10us", "20us", "80us"}},
	{"readers_pass", {"0", "1", "3"}},
	{"group", {"1", "2", "3"}},
	{"t_dc", {"1", "2", "3"}},
	{"t_l", {"0", "1", "3"}},
	{"t_r", {"1", "2", "5"}},
	{"t_w", {"1", "2", "5"}},
	{"max_writers", {"1", "2", "5"}},
	{"omega", {"0ns", "100ns", "1us"}},
	{"backoff_base", {"100ns", "1us", "20us"}},
	{"backoff_cap", {"1us", "50us", "500us"}},
};

static void draw_small_options(const struct vb_lock_ops *ops, struct vb_rng *r,
			       struct vb_explore_draw *d)
{
	for (const struct vb_opt *o = ops->options; o != NULL && o->kind != VB_OPT_KIND_END; o++) {
		for (unsigned i = 0; i < VB_ARRAY_SIZE(small_options); i++) {
			size_t n = strlen(d->options);

			if (strcmp(o->name, small_options[i].name) != 0 || !vb_rng_chance(r, 0.7))
				continue;
			snprintf(d->options + n, sizeof(d->options) - n, "%s%s=%s", n ? "," : "",
				 o->name, small_options[i].value[vb_rng_below(r, 3)]);
		}
	}
}

/* One of an option's choices. */
static void draw_choice(struct vb_rng *r, struct vb_explore_draw *d, const struct vb_opt *o)
{
	unsigned n = 1;
	const char *at = o->choices;

	for (const char *c = o->choices; *c != '\0'; c++)
		n += *c == '|';
	for (uint64_t i = vb_rng_below(r, n); i > 0; i--)
		at = strchr(at, '|') + 1;
	explore_add_option(d, "%s=%.*s", o->name, (int)strcspn(at, "|"), at);
}

/* Modes, conversions and policies, of locks that have them. */
static void draw_modes(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double chances[] = {0, 0.1, 0.4};
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, MODES_STREAM);
	if (ops->caps & VB_LOCK_INTENT) {
		d->all_modes = vb_rng_chance(&r, 0.8);
		d->p_convert = vb_draw_one_of(&r, chances, 3);
		d->p_end = vb_draw_one_of(&r, chances, 3);
	}
	if (!(ops->caps & VB_LOCK_DENIES))
		return;
	d->any_order = vb_rng_chance(&r, 0.7);
	d->keeps_age = vb_rng_chance(&r, 0.5);
	if (explore_option(ops, "policy") != NULL)
		draw_choice(&r, d, explore_option(ops, "policy"));
	if (explore_option(ops, "wait") != NULL)
		explore_add_option(d, "wait=%" PRIu64 "ns", vb_draw_spread(&r, 20 * US, 6));
	/* Without a slot in the mailbox, and with hardly room for all requests. */
	if (explore_option(ops, "slots") != NULL && vb_rng_chance(&r, 0.3))
		explore_add_option(d, "slots=%" PRIu64, vb_rng_below(&r, 4));
	if (explore_option(ops, "requests") != NULL && vb_rng_chance(&r, 0.2))
		explore_add_option(d, "requests=16");
}

/* A queue's lock that can be handed over without an atomic mostly is: the other way has less in it. */
static void draw_handover(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, RELAY_STREAM);
	if (explore_option(ops, "handover") != NULL)
		explore_add_option(d, "handover=%s",
				   vb_rng_chance(&r, 0.75) ? "relayed" : "guarded");
}

/* Hierarchies, of locks that have the modes for it. */
static void draw_paths(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double chances[] = {0.1, 0.4, 0.9};
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, PATH_STREAM);
	if (!(ops->caps & VB_LOCK_INTENT) || !vb_rng_chance(&r, 0.4))
		return;
	d->p_path = vb_draw_one_of(&r, chances, 3);
	d->locks = (unsigned)vb_draw_between(&r, d->servers, VB_EXPLORE_LOCKS_MAX);
}

/* Grants of more leases than one.  Where the counters were to be exhausted they still are: more
 * slots need higher counters, and use them up sooner. */
static void draw_leases(const struct vb_lock_ops *ops, struct vb_rng *r, struct vb_explore_draw *d)
{
	static const unsigned most[] = {2, 3, 4, 8};
	const struct vb_opt *count_max = explore_option(ops, "count_max");
	unsigned n = most[vb_rng_below(r, 4)];

	d->leases = n;
	d->p_leases = vb_rng_chance(r, 0.5) ? 0.05 : 0.4;
	/* Who waits for a second lock meanwhile would outlive the lease of its first. */
	d->p_hold_on = d->orderly ? 0 : 0.5;
	if (d->options[0] != '\0' && count_max != NULL) {
		d->options[0] = '\0';
		explore_add_option(d, "count_max=%" PRIu64, n * count_max->min);
		d->attempts = 2 * d->attempts * n / (n + 2);
		d->p_leases = 0.6;
		d->p_hold_on = d->orderly ? 0 : 0.01;
	}
	explore_add_option(d, "slots=%u", n);
}

/* Leases of several slots and update locks, of protocols that have them. */
static void draw_extras(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double chances[] = {0.2, 0.5, 1};
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, LEASES_STREAM);
	d->leases = 1;
	if (ops->leases_max != NULL && vb_rng_chance(&r, 0.4))
		draw_leases(ops, &r, d);
	if ((ops->caps & VB_LOCK_UPDATE) && !(ops->caps & VB_LOCK_INTENT)) {
		d->p_update = vb_draw_one_of(&r, chances, 3);
		d->p_upgrade = vb_draw_one_of(&r, chances, 3);
	}
}

/* Counters and numbers that come round in the middle of the run. */
static void draw_wraps(struct vb_explore_draw *d)
{
	static const uint64_t wraps[] = {1ull << 7, 1ull << 23, 1ull << 24, 1ull << 32};
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, WRAP_STREAM);
	if (!vb_rng_chance(&r, 1.0 / 3))
		return;
	d->near_wrap = (uint32_t)vb_draw_spread(&r, 4, 6);
	d->claims_from = wraps[vb_rng_below(&r, 4)] - 1 - vb_rng_below(&r, 40);
}

/* Longer than any recovery takes: who comes back finds others in his place, served and gone. */
static void draw_long_pauses(struct vb_explore_draw *d)
{
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, PAUSE_STREAM);
	if (d->orderly || d->faults.pause == 0 || !vb_rng_chance(&r, 0.3))
		return;
	d->faults.pause_max_ns = vb_draw_between(&r, 4 * d->lease_ns, 14 * d->lease_ns * d->leases);
}

/* Who has done something and not yet told of it, when all that it did has been recovered. */
static void draw_late_words(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double chances[] = {0.01, 0.05, 0.2};
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, TELL_STREAM);
	if (d->orderly || !(ops->caps & VB_LOCK_MESSAGES) || !vb_rng_chance(&r, 0.25))
		return;
	d->faults.pause_told = vb_draw_one_of(&r, chances, 3);
	d->faults.pause_max_ns = vb_draw_between(&r, 4 * d->lease_ns, 14 * d->lease_ns * d->leases);
}

/* Clients that come and go. */
static void draw_closes(struct vb_explore_draw *d)
{
	static const double chances[] = {0.02, 0.1};
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, CLOSE_STREAM);
	if (vb_rng_chance(&r, 0.3))
		d->p_close = vb_draw_one_of(&r, chances, 2);
}

/* Deadlines that come late, and clocks that have gone for long. */
static void draw_times(struct vb_explore_draw *d)
{
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, TIME_STREAM);
	d->timeout_octaves = d->orderly && vb_rng_chance(&r, 0.3) ? 12 : 8;
	if (d->orderly && vb_rng_chance(&r, 0.2))
		d->begins_ns = vb_draw_between(&r, 1000 * MS, 4000 * MS);
}

/* Servers that stand still, and such that are not there for a while. */
static void draw_servers(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double rare[] = {0.0005, 0.002, 0.01};
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, SERVE_STREAM);
	if (d->orderly || ops->serve == NULL)
		return;
	if (vb_rng_chance(&r, 0.3)) {
		d->faults.stall = vb_draw_one_of(&r, rare, 3);
		d->faults.stall_max_ns = vb_draw_between(&r, d->lease_ns / 2, 14 * d->lease_ns);
	}
	if (!vb_rng_chance(&r, 0.3))
		return;
	d->serve_max_ns = vb_draw_spread(&r, 2 * d->lease_ns, 5);
	d->away_max_ns = vb_draw_spread(&r, d->lease_ns / 4, 5);
	/* What one server has noted of the time another of its machine goes by. */
	d->faults.node_clocks = true;
	d->servers_die = d->faults.stall > 0 || vb_rng_chance(&r, 0.5);
}

/*
 * Requests that come twice, and once behind newer ones.  A client asks again after a quarter of a
 * lease; what is taken for lost may be under way for three quarters of a verb's time.  So the lease
 * is hardly longer than two of those.
 */
static void draw_copies(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double chances[] = {0.01, 0.05}, ratios[] = {0.2, 0.5, 0.8, 0.95};
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, COPY_STREAM);
	if (d->orderly || ops->serve == NULL || d->never_back || !vb_rng_chance(&r, 0.15))
		return;
	d->bound_ns = vb_draw_spread(&r, 200 * US, 2);
	d->lease_ns = vb_draw_between(&r, 2 * d->bound_ns, 11 * d->bound_ns / 5);
	d->faults.early = vb_draw_one_of(&r, chances, 2);
	d->read_ratio = vb_draw_one_of(&r, ratios, 4);
	d->hold_max_ns = vb_draw_spread(&r, d->bound_ns / 16, 3);
	d->think_max_ns = vb_draw_spread(&r, 1 * US, 5);
}

/* Requests that are left unknown while their server stands still, or another begins: it meets them,
 * and what the client asks for next, later. */
static void draw_impatience(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, QUIT_STREAM);
	if (d->orderly || d->never_back || explore_option(ops, "ask_for") == NULL ||
	    !vb_rng_chance(&r, 0.15))
		return;
	d->ask_for_ns = vb_draw_spread(&r, d->lease_ns / 4 > 1 * MS ? d->lease_ns / 4 : 1 * MS, 3);
	explore_add_option(d, "ask_for=%" PRIu64 "ns", d->ask_for_ns);
	if (d->faults.stall > 0)
		return;
	d->faults.stall = 0.002;
	d->faults.stall_max_ns = vb_draw_between(&r, d->ask_for_ns, 8 * d->ask_for_ns);
}

/*
 * Servers that keep files, from which those after them go on.  What a segment knew of them is lost
 * only where each has kept its file in one place, and could: nothing is promised otherwise.
 */
static void draw_files(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double chances[] = {0.001, 0.01, 0.05};
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, FILE_STREAM);
	if (d->orderly || d->never_back || explore_option(ops, "persist") == NULL ||
	    !vb_rng_chance(&r, 0.3))
		return;
	d->keeps_files = true;
	d->faults.node_clocks = true;
	if (d->serve_max_ns == 0) {
		d->serve_max_ns = vb_draw_spread(&r, 2 * d->lease_ns, 5);
		d->away_max_ns = vb_draw_spread(&r, d->lease_ns / 16, 6);
		d->servers_die = d->faults.stall > 0 || vb_rng_chance(&r, 0.7);
	}
	if (d->servers_die && vb_rng_chance(&r, 0.6))
		d->p_torn = vb_draw_one_of(&r, chances, 3);
	if (vb_rng_chance(&r, 0.3)) {
		d->loses_segment = true;
		return;
	}
	d->moves_files = vb_rng_chance(&r, 0.3);
	if (vb_rng_chance(&r, 0.3))
		d->p_full = vb_draw_one_of(&r, chances, 3);
}

/* Grants that are used to the very end of their lease. */
static void draw_edges(struct vb_explore_draw *d)
{
	static const double chances[] = {0.02, 0.1};
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, EDGE_STREAM);
	if (!d->orderly && vb_rng_chance(&r, 0.2))
		d->p_edge = vb_draw_one_of(&r, chances, 2);
}

/* Leases that begin anew, of protocols that can; a planted one that can does it wrong. */
static void draw_renewals(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double chances[] = {0.03, 0.1, 0.3};
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, RENEW_STREAM);
	if (ops->renew != NULL && (vb_rng_chance(&r, 0.4) || ops->planted != NULL))
		d->p_renew = vb_draw_one_of(&r, chances, 3);
}

/* Of protocols whose words tell who holds. */
static void draw_holder(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double chances[] = {0.1, 0.5};
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, HOLDER_STREAM);
	if (ops->holder != NULL && vb_rng_chance(&r, 0.3))
		d->p_holder = vb_draw_one_of(&r, chances, 2);
}

/* Who stands still until a word looks once more as it did. */
static void draw_around(const struct vb_lock_ops *ops, struct vb_explore_draw *d, struct vb_rng *r)
{
	static const double rare[] = {0.0005, 0.002, 0.01};

	if (!(ops->caps & VB_LOCK_SURVIVES) || !vb_rng_chance(r, 0.15))
		return;
	d->faults.around = vb_draw_one_of(r, rare, 3);
	d->faults.around_max_ns = vb_draw_between(r, 4 * d->lease_ns, 14 * d->lease_ns);
}

/*
 * Counters that come round again and again, while somebody stands still.  A round may not be over
 * within a lease: its tickets are at most ROUND_CLIENTS in 3 us, and the lease is short.  Holds are
 * so long that whoever comes back finds one.
 */
#define ROUND_TICKETS 256
#define ROUND_CLIENTS 5

static void draw_rounds(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double ratios[] = {0, 0, 0, 0.5, 1};
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, ROUND_STREAM);
	if (d->orderly)
		return;
	draw_around(ops, d, &r);
	if (d->beyond || explore_option(ops, "count_max") == NULL || !vb_rng_chance(&r, 0.12))
		return;
	d->round_tickets = ROUND_TICKETS;
	d->bound_ns = 25 * US;
	d->lease_ns = vb_draw_between(&r, 2 * d->bound_ns, 3 * d->bound_ns);
	d->clients = (unsigned)vb_draw_between(&r, VB_EXPLORE_CLIENTS_MIN, ROUND_CLIENTS);
	d->near_wrap = 0;
	d->locks = d->servers = 1;
	d->leases = 1;
	d->options[0] = '\0';
	d->attempts = 12 * ROUND_TICKETS / d->clients;
	d->read_ratio = vb_draw_one_of(&r, ratios, 5);
	d->p_try = d->p_two = 0;
	d->think_max_ns = vb_draw_spread(&r, 1 * US, 3);
	d->hold_max_ns = vb_draw_spread(&r, 2 * US, 5);
	d->p_long = vb_rng_chance(&r, 0.5) ? 0.03 : 0;
	d->faults.around = 0.005;
	d->faults.around_max_ns = 2 * ROUND_TICKETS * (16 * US + d->hold_max_ns / 2);
	d->faults.delay_max_ns = min64(d->faults.delay_max_ns, d->bound_ns / 2);
}

/*
 * How long who has left a queue waits for the name of who stands behind it, where answers are lost: as
 * long as one that is alive may need to tell it.  Behind an answer that was lost there may be nobody,
 * and the others poll for as long.
 */
static void draw_patience(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	const struct vb_opt *o = explore_option(ops, "successor_wait");
	uint64_t tell_ns = VB_LOCK_ASKS * (2 * d->bound_ns + COPY_AFTER_NS);

	if (o == NULL || !d->loses)
		return;
	d->patience_ns = 2 * (tell_ns + d->faults.pause_max_ns + d->faults.deaf_max_ns +
			      d->faults.partition_max_ns);
	if (d->patience_ns < o->min)
		d->patience_ns = o->min;
	explore_add_option(d, "successor_wait=%" PRIu64 "ns", d->patience_ns);
}

static void draw_bounds(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	uint64_t still = d->faults.pause_max_ns + d->faults.nic_stall_max_ns +
			 d->faults.partition_max_ns + d->faults.deaf_max_ns +
			 d->faults.stall_max_ns + d->faults.around_max_ns + d->away_max_ns +
			 d->too_late * d->bound_ns + 3 * d->lease_ns;
	uint64_t mend =
		(uint64_t)(d->clients + 2) * (ops->recovery_leases + 1) * d->lease_ns * d->leases;

	/* Some verbs that are as late as they may be, each with a pause before and behind it. */
	if (d->orderly && !d->loses)
		d->prompt_ns = EXPLORE_PROMPT_VERBS * (d->bound_ns + d->faults.pause_max_ns);
	if (d->prompt_ns != 0 && (d->faults.lose_ops != 0 || d->near.full > 0))
		d->prompt_ns += VB_LOCK_ASKS * (2 * d->bound_ns + COPY_AFTER_NS);
	if (d->faults.lose_ops == 1u << VB_OP_CAS64)
		d->alone_ns = ALONE_VERBS * (3 * d->bound_ns + d->faults.pause_max_ns);
	d->safety_ns =
		20 * MS + d->attempts * (20 * US + d->think_max_ns + d->hold_max_ns) * d->clients;
	if (!d->orderly)
		d->safety_ns += 60 * d->lease_ns;
	d->safety_ns += SERVER_ENDS_MAX * (d->serve_max_ns + d->away_max_ns);
	d->safety_ns += 64ull * d->keep_leases * d->lease_ns;
	d->safety_ns += (d->leases - 1) * d->attempts * d->lease_ns;
	d->liveness_ns = 100 * MS + d->clients * d->cycles * 2 * MS;
	if (ops->caps & VB_LOCK_SURVIVES)
		d->liveness_ns += still + mend;
	if (d->never_back)
		d->liveness_ns += (uint64_t)(d->cycles + 4) * 3 * d->ask_for_ns;
	/* Whoever asked a server that has died since waits twice as long for each answer as for the
	 * one before it. */
	else if (d->serve_max_ns != 0 && explore_option(ops, "ask_for") != NULL)
		d->liveness_ns += EXPLORE_ASK_FOR_NS;
	/* A release that cannot tell whether it has freed the lock waits for who may stand behind
	 * it. */
	d->liveness_ns += d->clients * d->patience_ns;
	/* A writer waits for the end of a lease and may lose to readers then: every cycle may cost
	 * many leases. */
	if (ops->caps & VB_LOCK_READ_LEASE)
		d->liveness_ns += (uint64_t)d->clients * d->cycles * 32 * d->lease_ns;
}

/* ---- two spaces at once ---- */

/* Whether a space of that protocol meets no fault that it need not stand where `first` stands all. */
static bool may_be_beside(const struct vb_lock_ops *first, const struct vb_lock_ops *ops,
			  const struct vb_explore_draw *d)
{
	const uint32_t same = VB_LOCK_SURVIVES | VB_LOCK_READ_LEASE;

	return (ops->caps & same) == (first->caps & same) && !(ops->caps & VB_LOCK_DENIES) &&
	       d->faults.lose_ops == 0 && can_run(ops, d->profile);
}

/* The same protocol once more, or another; not where a seed is long as it is, or keeps files. */
static void draw_spaces(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	struct vb_rng r;
	unsigned n = 0;

	vb_rng_seed(&r, d->seed, SPACE_STREAM);
	if (d->keeps_files || d->never_back || d->round_tickets != 0 || d->leases > 1 ||
	    strstr(d->options, "count_max") != NULL || !vb_rng_chance(&r, 0.15))
		return;
	d->beside = ops;
	if (ops->planted != NULL || vb_rng_chance(&r, 0.5))
		return;
	/* Each of those that may be as likely as the next. */
	for (unsigned i = 0; vb_locks[i] != NULL; i++)
		if (may_be_beside(ops, vb_locks[i], d) && vb_rng_below(&r, ++n) == 0)
			d->beside = vb_locks[i];
}

void explore_draw_beside(const struct vb_explore_draw *first, struct vb_explore_draw *d)
{
	const struct vb_lock_ops *ops = first->beside;
	struct vb_rng r;

	*d = *first;
	d->seed = first->seed ^ SPACE_STREAM;
	d->beside = NULL;
	d->ops = ops;
	vb_rng_seed(&r, d->seed, SPACE_STREAM);
	d->attempts = 1 + d->attempts / 2;
	if (ops == first->ops)
		return;
	d->options[0] = '\0';
	d->all_modes = d->any_order = d->keeps_age = d->recounts = false;
	d->p_convert = d->p_end = d->p_path = d->p_update = d->p_upgrade = d->p_renew = 0;
	d->p_holder = d->p_keep = d->keep_leases = 0;
	d->prompt_ns = d->alone_ns = d->patience_ns = d->ask_for_ns = 0;
	draw_small_options(ops, &r, d);
	draw_patience(ops, d);
	draw_bounds(ops, d);
}

static void draw(const struct vb_lock_ops *ops, uint64_t seed, bool beyond,
		 struct vb_explore_draw *d)
{
	static const uint32_t drifts[] = {100, 1000, 10000};
	bool survives = (ops->caps & VB_LOCK_SURVIVES) != 0;
	struct vb_rng r;

	vb_rng_seed(&r, seed, DRAW_STREAM);
	*d = (struct vb_explore_draw){.seed = seed, .ops = ops, .beyond = beyond};
	draw_cluster(ops, &r, d);
	draw_load(&r, d);
	d->orderly = !survives || (vb_rng_chance(&r, 0.35) && !beyond);
	d->fencing = vb_rng_chance(&r, 0.5);
	d->drift_ppm = drifts[vb_rng_below(&r, 3)];
	d->faults.drift_max_ppb = (int64_t)d->drift_ppm * 500;
	d->lease_ns = d->orderly ? 10 * MS : vb_draw_spread(&r, 2 * d->bound_ns, 3);
	draw_mild_faults(&r, d);
	if (!d->orderly)
		draw_hard_faults(&r, d);
	draw_options(ops, &r, d);
	if (ops->caps & VB_LOCK_READ_LEASE)
		draw_clocks(&r, d);
	draw_small_options(ops, &r, d);
	draw_extras(ops, d);
	draw_modes(ops, d);
	draw_handover(ops, d);
	draw_paths(ops, d);
	explore_draw_losses(ops, d);
	explore_draw_kinds(ops, d);
	draw_wraps(d);
	draw_long_pauses(d);
	draw_late_words(ops, d);
	draw_closes(d);
	draw_times(d);
	explore_draw_links(ops, d);
	explore_draw_refusals(ops, d);
	draw_servers(ops, d);
	explore_draw_never_back(ops, d);
	draw_copies(ops, d);
	draw_impatience(ops, d);
	draw_files(ops, d);
	explore_draw_ends(ops, d);
	draw_edges(d);
	draw_renewals(ops, d);
	draw_holder(ops, d);
	explore_draw_keeps(ops, d);
	draw_rounds(ops, d);
	explore_draw_too_late(ops, d);
	explore_draw_rings(ops, d);
	draw_patience(ops, d);
	draw_bounds(ops, d);
	draw_spaces(ops, d);
}

void vb_explore_draw(const struct vb_lock_ops *ops, uint64_t seed, struct vb_explore_draw *out)
{
	draw(ops, seed, false, out);
}

void vb_explore_draw_beyond(const struct vb_lock_ops *ops, uint64_t seed,
			    struct vb_explore_draw *out)
{
	draw(ops, seed, vb_explore_goes_beyond(ops), out);
}

void vb_explore_describe(const struct vb_explore_draw *d, FILE *to)
{
	char t1[16], t2[16], t3[16], t4[16];

	fprintf(to,
		"seed %" PRIu64 ": profile %s, verb bound %s, clients %u on %u nodes%s, locks %u "
		"on %u servers, workers %u, "
		"reads %g, attempts %u, think %s, hold %s, lease %s, drift %u ppm%s",
		d->seed, d->profile->name, vb_format_ns(t4, sizeof(t4), (double)d->bound_ns),
		d->clients, d->client_nodes, d->colocated ? " and the servers'" : "", d->locks,
		d->servers, d->workers, d->read_ratio, d->attempts,
		vb_format_ns(t1, sizeof(t1), (double)d->think_max_ns),
		vb_format_ns(t2, sizeof(t2), (double)d->hold_max_ns),
		vb_format_ns(t3, sizeof(t3), (double)d->lease_ns), d->drift_ppm,
		d->fencing ? ", fencing" : "");
	if (d->options[0] != '\0')
		fprintf(to, ", %s", d->options);
	vb_draw_tell_chance(to, "try", d->p_try, 0);
	vb_draw_tell_chance(to, "timeout", d->p_timeout,
			    d->p_timeout > 0 ? 500ull << d->timeout_octaves : 0);
	if (d->begins_ns != 0)
		fprintf(to, ", from %s on", vb_format_ns(t1, sizeof(t1), (double)d->begins_ns));
	vb_draw_tell_chance(to, "two locks", d->p_two, 0);
	vb_draw_tell_chance(to, "long holds", d->p_long, 0);
	vb_draw_tell_chance(to, "holds to the end of the lease", d->p_edge, 0);
	vb_draw_tell_chance(to, "renew", d->p_renew, 0);
	explore_tell_keeps(to, d);
	explore_tell_rings(to, d);
	vb_draw_tell_chance(to, "ask who holds", d->p_holder, 0);
	if (d->near_wrap > 0)
		fprintf(to, ", counters up to %u steps before they come round", d->near_wrap);
	if (d->round_tickets > 0)
		fprintf(to, ", rounds of %u tickets", d->round_tickets);
	if (d->all_modes)
		fprintf(to, ", all modes");
	if (d->any_order)
		fprintf(to, ", in any order");
	vb_draw_tell_chance(to, "convert", d->p_convert, 0);
	vb_draw_tell_chance(to, "release together", d->p_end, 0);
	vb_draw_tell_chance(to, "path", d->p_path, 0);
	if (d->leases > 1)
		vb_draw_tell_chance(to, "more than one lease", d->p_leases, 0);
	vb_draw_tell_chance(to, "update instead of exclusive", d->p_update, 0);
	vb_draw_tell_chance(to, "upgrade", d->p_upgrade, 0);
	vb_draw_tell_chance(to, "close", d->p_close, 0);
	if (d->serve_max_ns != 0 && !d->never_back)
		fprintf(to, ", servers %s within %s, and are away for up to %s",
			d->servers_die ? "die" : "stop",
			vb_format_ns(t1, sizeof(t1), (double)d->serve_max_ns),
			vb_format_ns(t2, sizeof(t2), (double)d->away_max_ns));
	explore_tell_beyond(to, d);
	explore_tell_ends(to, d);
	if (d->keeps_files)
		fprintf(to, ", with files%s%s", d->moves_files ? " here and there" : "",
			d->loses_segment ? ", without the segment" : "");
	vb_draw_tell_chance(to, "die in a write", d->p_torn, 0);
	vb_draw_tell_chance(to, "disk full", d->p_full, 0);
	if (d->cancel_every_ns != 0)
		fprintf(to, ", cancel every %s",
			vb_format_ns(t1, sizeof(t1), (double)d->cancel_every_ns));
	if (d->beside != NULL)
		fprintf(to, ", beside a space of %s", d->beside->name);
	vb_draw_tell_faults(to, &d->faults);
}
