/* SPDX-License-Identifier: Apache-2.0 */
/* What the two drivers of `verbena bench lock` have in common: space, servers, auditor. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/lock/lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

unsigned vb_bench_claims(const struct vb_bench_plan *plan)
{
	return VB_CLAIMS_MAX + (plan->tracing ? plan->trace.locks_max : 0);
}

int vb_bench_open_space(const struct vb_bench_plan *plan, const struct vb_lock_ops *ops,
			struct vb_fabric *fabric, struct vb_lock_space **out)
{
	struct vb_lock_space_params p = {
		.lock = ops->name,
		.options = plan->o.lock_options,
		.locks = plan->o.locks,
		.servers = (uint16_t)plan->o.servers,
		.lease_ns = plan->o.lease_ns,
		.fencing = plan->o.fencing,
		.claims = vb_bench_claims(plan),
		.visible = plan->o.visible,
	};

	int err = vb_lock_space_open(fabric, &p, out);

	/* A lock that was lost with a holder, or with the answer to a verb, hands nobody his turn. */
	if (err == 0)
		(*out)->husk_wait_ns = vb_bench_stall_ns(plan, *out);
	return err;
}

/* A recovery lets everybody queue anew: no order is promised across it.  Who holds a lock for longer
 * than a lease is taken for dead. */
static bool needs_recovery(const struct vb_bench_opts *o)
{
	return o->fail_rate > 0 || o->hold_ns >= o->lease_ns || o->scan_ns >= o->lease_ns;
}

static int open_audit(const struct vb_bench_plan *plan, const struct vb_lock_space *space,
		      struct vb_audit **out)
{
	struct vb_audit_params p = {
		.locks = plan->o.locks,
		.clients = (unsigned)plan->o.clients,
		.claims = vb_bench_claims(plan),
		.ops = space->ops,
		.space = space,
		.fencing = plan->o.fencing,
		.bypass = plan->o.fabric == VB_BENCH_SIM && !needs_recovery(&plan->o),
	};

	*out = NULL;
	return plan->o.no_audit ? 0 : vb_audit_open(&p, out);
}

int vb_bench_servers_of(struct vb_bench_servers *s, const struct vb_bench_plan *plan,
			struct vb_lock_space *space, uint16_t node)
{
	unsigned workers = (unsigned)plan->o.server_threads, room = s->n + workers;

	if (room > s->room) {
		struct vb_lock_server **more = reallocarray(s->server, room, sizeof(*more));

		if (more == NULL)
			return vb_fail(-ENOMEM, "no memory for %u lock servers", room);
		s->server = more;
		s->room = room;
	}
	for (unsigned i = 0; i < workers; i++) {
		struct vb_lock_server *server;
		int err = vb_lock_server_start(space, node, i, workers, &server);

		if (err)
			return err;
		if (server != NULL)
			s->server[s->n++] = server;
	}
	return 0;
}

int vb_bench_servers_start(struct vb_bench_servers *s, const struct vb_bench_plan *plan,
			   struct vb_lock_space *space)
{
	int err = 0;

	for (unsigned node = 0; node < plan->o.servers && err == 0; node++)
		err = vb_bench_servers_of(s, plan, space, (uint16_t)node);
	return err;
}

void vb_bench_servers_stop(struct vb_bench_servers *s)
{
	while (s->n > 0)
		vb_lock_server_stop(s->server[--s->n]);
	free(s->server);
	*s = (struct vb_bench_servers){0};
}

void vb_bench_servers_meter(const struct vb_bench_servers *s, struct vb_bench_meter *out)
{
	memset(out, 0, sizeof(*out));
	for (unsigned i = 0; i < s->n; i++)
		for (unsigned op = 0; op < VB_OP_COUNT; op++)
			out->verbs[op] += s->server[i]->ep->count[op];
}

int vb_bench_ground_open(struct vb_bench_ground *g, const struct vb_bench_plan *plan,
			 const struct vb_lock_ops *ops, const struct vb_fabric_params *p)
{
	int err = vb_fabric_open(p, &g->fabric);

	if (err == 0)
		err = vb_bench_open_space(plan, ops, g->fabric, &g->space);
	if (err == 0)
		err = open_audit(plan, g->space, &g->audit);
	if (err == 0 && g->audit != NULL)
		g->space->watch = vb_audit_watch(g->audit);
	return err == 0 ? vb_bench_servers_start(&g->servers, plan, g->space) : err;
}

void vb_bench_ground_close(struct vb_bench_ground *g)
{
	vb_bench_servers_stop(&g->servers);
	if (g->space != NULL)
		vb_lock_space_close(g->space);
	if (g->audit != NULL)
		vb_audit_close(g->audit);
	if (g->fabric != NULL)
		vb_fabric_close(g->fabric);
}

void vb_bench_meter_client(const struct vb_lock_client *c, struct vb_bench_meter *out)
{
	memcpy(out->verbs, c->ep->count, sizeof(out->verbs));
	out->retries = c->retries;
	out->lost = c->lost;
	out->recoveries = c->recoveries;
	out->untold = c->untold;
}

void vb_bench_meter_add(struct vb_bench_meter *into, const struct vb_bench_meter *m)
{
	for (unsigned i = 0; i < VB_OP_COUNT; i++)
		into->verbs[i] += m->verbs[i];
	into->retries += m->retries;
	into->lost += m->lost;
	into->recoveries += m->recoveries;
	into->untold += m->untold;
}

void vb_bench_meter_subtract(struct vb_bench_meter *from, const struct vb_bench_meter *m)
{
	for (unsigned i = 0; i < VB_OP_COUNT; i++)
		from->verbs[i] -= m->verbs[i];
	from->retries -= m->retries;
	from->lost -= m->lost;
	from->recoveries -= m->recoveries;
	from->untold -= m->untold;
}

void vb_bench_tally_init(struct vb_bench_tally *t)
{
	memset(t, 0, offsetof(struct vb_bench_tally, lat));
	for (unsigned i = 0; i < VB_LAT_COUNT; i++)
		vb_hist_init(&t->lat[i]);
	for (unsigned i = 0; i < VB_TRACE_TYPES_MAX; i++)
		vb_hist_init(&t->txn[i]);
}

static int life_start(void *worker)
{
	return vb_bench_worker_start(worker);
}

static void life_measure(void *worker, bool on)
{
	vb_bench_worker_measure(worker, on);
}

static void life_flush(void *worker)
{
	vb_bench_worker_flush(worker);
}

struct vb_bench_life vb_bench_worker_life(struct vb_bench_worker *w)
{
	return (struct vb_bench_life){
		.worker = w,
		.drain = &w->drain,
		.all_finished = &w->all_finished,
		.start = life_start,
		.measure = life_measure,
		.flush = life_flush,
	};
}

unsigned vb_bench_workers(const struct vb_bench_plan *plan)
{
	const struct vb_bench_opts *o = &plan->o;

	if (!vb_bench_is_net(o->fabric) || o->servers == o->cluster.procs)
		return (unsigned)o->cluster.procs;
	return (unsigned)(o->cluster.procs - o->servers);
}

/* Nothing but counters: added word by word. */
void vb_bench_stats_add(struct vb_fabric_stats *into, const struct vb_fabric_stats *s)
{
	_Static_assert(sizeof(*s) % sizeof(uint64_t) == 0, "counters");
	for (size_t i = 0; i < sizeof(*s) / sizeof(uint64_t); i++)
		((uint64_t *)into)[i] += ((const uint64_t *)s)[i];
}

void vb_bench_tally_rates(struct vb_bench_tally *t)
{
	double per_s = t->measured_ns > 0 ? 1e9 / (double)t->measured_ns : 0;

	t->rate = (double)t->ops * per_s;
	t->txn_rate = (double)t->txns.committed * per_s;
}

static void merge_txns(struct vb_bench_tally *into, const struct vb_bench_tally *t)
{
	for (unsigned i = 0; i < VB_TRACE_TYPES_MAX; i++)
		if (t->txn[i].total != 0)
			vb_hist_merge(&into->txn[i], &t->txn[i]);
	into->txns.committed += t->txns.committed;
	into->txns.locks += t->txns.locks;
	into->txns.given_up += t->txns.given_up;
	into->txns.died += t->txns.died;
	for (unsigned i = 0; i < VB_ABORT_CAUSES; i++)
		into->txns.aborts[i] += t->txns.aborts[i];
	if (t->measured_ns > 0)
		into->txn_rate += (double)t->txns.committed * 1e9 / (double)t->measured_ns;
}

void vb_bench_tally_merge(struct vb_bench_tally *into, const struct vb_bench_tally *t)
{
	for (unsigned i = 0; i < VB_LAT_COUNT; i++)
		if (t->lat[i].total != 0)
			vb_hist_merge(&into->lat[i], &t->lat[i]);
	merge_txns(into, t);
	into->ops += t->ops;
	into->failed += t->failed;
	into->skipped += t->skipped;
	into->release_lost += t->release_lost;
	into->uncertain += t->uncertain;
	if (t->measured_ns > 0)
		into->rate += (double)t->ops * 1e9 / (double)t->measured_ns;
	if (t->measured_ns > into->measured_ns)
		into->measured_ns = t->measured_ns;
	if (into->rtt_clients + t->rtt_clients > 0)
		into->rtt_ns = (into->rtt_ns * into->rtt_clients + t->rtt_ns * t->rtt_clients) /
			       (into->rtt_clients + t->rtt_clients);
	into->rtt_clients += t->rtt_clients;
	vb_bench_meter_add(&into->spent, &t->spent);
	vb_bench_stats_add(&into->fabric, &t->fabric);
	for (unsigned call = 0; call < VB_CALL_COUNT; call++) {
		into->timing.calls[call] += t->timing.calls[call];
		for (unsigned phase = 0; phase < VB_PHASE_COUNT; phase++)
			into->timing.ns[call][phase] += t->timing.ns[call][phase];
	}
	if (t->last_error != 0)
		into->last_error = t->last_error;
}

void vb_bench_unfinished(struct vb_bench_result *r, const struct vb_bench_seat *seats, unsigned n,
			 uint64_t now_ns)
{
	for (unsigned i = 0; i < n; i++) {
		uint64_t since = seats[i].since_ns;

		if (seats[i].dead ||
		    __atomic_load_n(&seats[i].doing, __ATOMIC_RELAXED) != VB_DOING_ACQUIRE)
			continue;
		r->unfinished++;
		if (now_ns > since && now_ns - since > r->unfinished_max_ns)
			r->unfinished_max_ns = now_ns - since;
	}
}

bool vb_bench_standstill(struct vb_bench_pulse *p, const struct vb_bench_seat *seats, unsigned n,
			 uint64_t now_ns, uint64_t bound_ns)
{
	uint64_t cycles = 0;
	bool waiting = false;

	for (unsigned i = 0; i < n; i++) {
		cycles += __atomic_load_n(&seats[i].cycles, __ATOMIC_RELAXED);
		/* Clients that think, or wait for their time in an open loop, are not stuck. */
		if (!seats[i].dead &&
		    __atomic_load_n(&seats[i].doing, __ATOMIC_RELAXED) == VB_DOING_ACQUIRE)
			waiting = true;
	}
	if (cycles != p->cycles || !waiting) {
		p->cycles = cycles;
		p->since_ns = now_ns;
	}
	return now_ns > p->since_ns && now_ns - p->since_ns > bound_ns;
}

uint64_t vb_bench_stall_ns(const struct vb_bench_plan *plan, const struct vb_lock_space *space)
{
	/* A lock that recovers gets twice the time its recovery is allowed to take. */
	uint64_t recovery = 2ull * vb_lock_recovery_leases(space) * plan->o.lease_ns;

	uint64_t held = plan->o.hold_ns + plan->o.scan_ns + (plan->tracing ? plan->o.think_ns : 0);

	return (plan->o.stall_ns > recovery ? plan->o.stall_ns : recovery) + held;
}

void vb_bench_take_audit(struct vb_bench_result *r, struct vb_audit *a)
{
	size_t size;
	FILE *f;

	if (a == NULL)
		return;
	r->audited = true;
	vb_audit_counts(a, &r->audit);
	if (r->audit.violations == 0)
		return;
	f = open_memstream(&r->story, &size);
	if (f == NULL)
		return;
	vb_audit_print(a, f);
	fclose(f);
}

/* Whom the waiting clients wait for, as far as the dead tell: a holder before one in the queue. */
static const struct vb_bench_seat *dead_on(const struct vb_bench_seat *seats, unsigned n,
					   uint64_t lock)
{
	const struct vb_bench_seat *queued = NULL;

	for (unsigned i = 0; i < n; i++) {
		if (!seats[i].dead || seats[i].lock != lock || seats[i].doing == VB_DOING_IDLE)
			continue;
		if (seats[i].doing != VB_DOING_ACQUIRE)
			return &seats[i];
		queued = &seats[i];
	}
	return queued;
}

void vb_bench_explain_stall(struct vb_bench_result *r, const struct vb_bench_seat *seats,
			    unsigned n, uint64_t now_ns)
{
	static const char *const doing[] = {"idle", "acquiring", "holding", "releasing"};
	const struct vb_bench_seat *waiter = NULL, *dead = NULL;
	unsigned waiting = 0;

	r->end.stalled = true;
	for (unsigned i = 0; i < n; i++) {
		if (seats[i].dead || seats[i].doing != VB_DOING_ACQUIRE)
			continue;
		waiting++;
		if (dead == NULL || dead->doing == VB_DOING_ACQUIRE) {
			const struct vb_bench_seat *found = dead_on(seats, n, seats[i].lock);

			if (found != NULL)
				dead = found;
			if (found != NULL || waiter == NULL)
				waiter = &seats[i];
		}
	}
	if (waiter == NULL) {
		snprintf(r->stall, sizeof(r->stall), "no client has made progress");
		return;
	}
	r->stalled_lock = waiter->lock;
	r->stalled_client = (unsigned)(waiter - seats);
	if (dead == NULL) {
		snprintf(r->stall, sizeof(r->stall),
			 "%u clients wait for ever; client %u has waited %.3f s for lock %" PRIu64
			 " (%s)",
			 waiting, r->stalled_client, (double)(now_ns - waiter->since_ns) / 1e9,
			 waiter->lock, vb_lock_mode_name((enum vb_mode)waiter->mode));
		return;
	}
	snprintf(r->stall, sizeof(r->stall),
		 "client %u of the dead worker %d died %s lock %" PRIu64 " (%s), and '%s' does not "
		 "survive that; %u clients wait",
		 (unsigned)(dead - seats), (int)dead->pid, doing[dead->doing], dead->lock,
		 vb_lock_mode_name((enum vb_mode)dead->mode), r->ops->name, waiting);
}

void vb_bench_result_free(struct vb_bench_result *r)
{
	free(r->tally);
	free(r->story);
	free(r->died);
	r->tally = NULL;
	r->story = NULL;
}
