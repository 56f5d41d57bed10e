/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated cluster: one OS thread, virtual time, as many clients as memory holds, and one seed
 * that decides everything.  Opening it turns the thread's scheduler to virtual time, closing turns
 * it back.  inner.h tells how a verb travels.
 */
#define VB_LOG_ROOM "sim"
#include "fabric/sim/inner.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

struct sim_options {
	int profile;
	uint64_t handlers;
	uint64_t cores;
	int own; /* 1: a client uses its own node's memory without its card */
	uint64_t delay_ns;
	uint64_t bound_ns;
	int scope; /* 1: the owner's CPU may use atomics on words that the NIC uses */
	const char *without;
};

static const struct vb_opt sim_table[] = {
	VB_OPT_CHOICE(struct sim_options, profile, "profile",
		      "cx5|cx3|plain64|zero|cx5-card|cx4-card|cx3-card", "cx5",
		      "which NIC is simulated"),
	VB_OPT_STRING(
		struct sim_options, without, "without", "EFFECT+...", NULL,
		"effects of the profile, or single parameters of them, that are switched off"),
	VB_OPT_SIZE(struct sim_options, handlers, "handlers", "1", 1, SIM_HANDLERS_MAX,
		    "server threads that work on one endpoint's requests"),
	VB_OPT_SIZE(
		struct sim_options, cores, "cores", "0", 0, SIM_CORES_MAX,
		"of each node, which its clients and server threads share; 0: each has its own"),
	VB_OPT_CHOICE(struct sim_options, own, "own", "card|memory", "card",
		      "how clients reach their own node: as any other, or as memory"),
	VB_OPT_TIME(struct sim_options, delay_ns, "delay", "0", 0, 10000000000ull,
		    "added to each request and message from one node to another"),
	VB_OPT_CHOICE(struct sim_options, scope, "scope", "nic|global", "nic",
		      "what atomics are atomic with: the NIC's others, or the CPU's too"),
	VB_OPT_TIME(struct sim_options, bound_ns, "bound", "0", 0, 10000000000ull,
		    "a verb takes effect within this time or never; 0 is the profile's"),
	VB_OPT_END};

static const struct vb_env_ops sim_env = {.name = "sim", .is_virtual = true};

/* Streams of the seed.  Clients draw from others. */
#define STREAM_FAULTS      0x51f0000000000001ull
#define STREAM_CLOCKS      0x51f0000000000002ull
#define STREAM_NODE_CLOCKS 0x51f1000000000000ull

/* Below this the first touch of a huge page (2 MiB to clear) costs more than it saves; and always where pages
 * are touched here and there, as the mailboxes of thousands of clients are. */
#define HUGE_PAGES_FROM (128ull << 20)

static struct sim *sim_of(struct vb_fabric *f)
{
	while (f->lower != NULL)
		f = f->lower;
	vb_assert(f->ops == &vb_fabric_sim);
	return vb_container_of(f, struct sim, base);
}

/* The same for an endpoint that somebody else names. */
static struct sim_ep *ep_of(const struct vb_ep *ep)
{
	struct sim_ep *of = sim_ep_of((struct vb_ep *)ep);

	vb_assert(of->base.ops == &vb_fabric_sim);
	return of;
}

/* ---- open, close ---- */

static int map_memory(struct sim *s)
{
	uint64_t all = s->base.nodes * s->base.node_bytes;
	uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	void *m;

	if (s->base.node_bytes > ram)
		return vb_fail(-ENOMEM,
			       "a segment of %" PRIu64
			       " bytes does not fit in this machine's memory "
			       "of %" PRIu64 ": use fewer locks",
			       s->base.node_bytes, ram);
	m = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		 0);
	if (m == MAP_FAILED)
		return vb_fail(-ENOMEM, "cannot map %u segments of %" PRIu64 " bytes: %s",
			       s->base.nodes, s->base.node_bytes, strerror(errno));
	s->memory = m;
	return 0;
}

static int allocate(struct sim *s, uint32_t endpoints)
{
	int err = map_memory(s);

	if (err != 0)
		return err;
	while ((1u << s->slot_bits) < endpoints)
		s->slot_bits++;
	s->n_slots = endpoints;
	s->nics = calloc(s->base.nodes, sizeof(s->nics[0]));
	s->eps = calloc(endpoints, sizeof(s->eps[0]));
	s->incarnations = calloc(endpoints, sizeof(s->incarnations[0]));
	if (s->nics == NULL || s->eps == NULL || s->incarnations == NULL)
		return vb_fail(-ENOMEM, "no memory for %u nodes and %u endpoints", s->base.nodes,
			       endpoints);
	return 0;
}

static void release(struct sim *s)
{
	for (uint32_t i = 0; s->eps != NULL && i < s->n_slots; i++) {
		if (s->eps[i] != NULL)
			sim_ep_free(s->eps[i]);
	}
	vb_timer_disarm(s->sched, &s->air.tick);
	sim_pool_destroy(s);
	sim_cores_close(s);
	for (unsigned i = 0; i < s->n_regions; i++)
		free(s->regions[i].name);
	free(s->regions);
	free(s->incarnations);
	free(s->eps);
	free(s->nics);
	if (s->memory != NULL)
		munmap(s->memory, s->base.nodes * s->base.node_bytes);
	free(s);
}

static void set_caps(struct sim *s)
{
	struct vb_fabric_caps *c = &s->base.caps;

	*c = vb_fabric_sim.caps;
	c->verb_bound_ns = s->p.verb_bound_ns;
	c->rtt_ns = vb_sim_rtt_ns(&s->p) + s->delay_ns;
	if (!s->p.masked64)
		c->flags &= ~(uint32_t)VB_CAP_MASKED64;
	if (!s->p.masked128)
		c->flags &= ~(uint32_t)VB_CAP_MASKED128;
}

static int use_options(struct sim *s, const struct sim_options *o)
{
	int err = o->without != NULL ? vb_sim_without(&s->p, o->without) : 0;

	if (err != 0)
		return err;
	if (o->own == 1 && s->p.own_ns == 0)
		return vb_fail(-EINVAL,
			       "own=memory: profile '%s' has not what that takes (effect own-node)",
			       s->p.name);
	if (o->bound_ns != 0)
		s->p.verb_bound_ns = o->bound_ns;
	s->own_ns = o->own == 1 ? s->p.own_ns : 0;
	/* What is late on purpose is not lost. */
	s->delay_ns = o->delay_ns;
	s->p.verb_bound_ns += o->delay_ns;
	return 0;
}

static int sim_open(const struct vb_fabric_params *params, const void *options,
		    struct vb_fabric **out)
{
	const struct sim_options *o = options;
	struct vb_sched *sched;
	struct sim *s;
	int err = vb_sched_ready();

	if (err != 0)
		return err;
	sched = vb_sched_self();
	if (vb_sched_env(sched)->is_virtual || vb_sched_tasks(sched) > 0)
		return vb_fail(-EBUSY, "this thread's tasks live in another time: close the open "
				       "simulation, or simulate in a thread of its own");
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return vb_fail(-ENOMEM, "no memory for a simulator");
	s->base.ops = &vb_fabric_sim;
	s->base.nodes = params->nodes;
	s->base.node_bytes = params->node_bytes;
	s->base.seed = params->seed;
	s->sched = sched;
	s->p = vb_sim_profiles[o->profile];
	s->handlers = (unsigned)o->handlers;
	s->cores = (unsigned)o->cores;
	err = use_options(s, o);
	if (err != 0) {
		free(s);
		return err;
	}
	set_caps(s);
	if (o->scope == 1)
		s->base.caps.flags |= VB_CAP_CPU_ATOMICS;
	vb_rng_seed(&s->fault_rng, params->seed, STREAM_FAULTS);
	vb_rng_seed(&s->clock_rng, params->seed, STREAM_CLOCKS);
	s->trace_hash = params->seed;
	err = allocate(s, params->endpoints);
	if (err == 0)
		err = sim_cores_open(s);
	if (err != 0) {
		release(s);
		return err;
	}
	vb_sched_set_env(sched, &sim_env, s);
	*out = &s->base;
	return 0;
}

static void sim_close(struct vb_fabric *f)
{
	struct sim *s = sim_of(f);
	struct vb_sched *sched = s->sched;

	if (vb_sched_tasks(sched) > 0)
		vb_error("%u tasks are alive at the end of a simulation: they must be killed first",
			 vb_sched_tasks(sched));
	vb_assert(vb_sched_tasks(sched) == 0);
	release(s);
	vb_sched_set_env(sched, NULL, NULL);
}

/* The child has a copy of all memory, and another scheduler whose time begins anew.  The timers of
 * the parent's are armed in a wheel that nobody turns here: they are forgotten, not disarmed. */
static void sim_after_fork(struct vb_fabric *f)
{
	struct sim *s = sim_of(f);

	s->sched = vb_sched_self();
	for (uint32_t i = 0; i < s->n_slots; i++) {
		if (s->eps[i] == NULL)
			continue;
		s->eps[i]->cpu_timer.slot = s->eps[i]->death.slot = 0;
		sim_ep_free(s->eps[i]);
	}
	sim_pool_forget(s);
	for (uint16_t i = 0; i < s->base.nodes; i++)
		s->nics[i] = (struct sim_nic){0};
	sim_cores_forget(s);
	s->n_cuts = 0;
	vb_sched_set_env(s->sched, &sim_env, s);
}

/* ---- endpoints ---- */

static void cpu_free(struct vb_timer *t)
{
	vb_ep_wake(&vb_container_of(t, struct sim_ep, cpu_timer)->base);
}

static int find_slot(struct sim *s, uint32_t *slot)
{
	for (uint32_t i = 0; i < s->n_slots; i++) {
		*slot = (s->next_slot + i) % s->n_slots;
		if (s->eps[*slot] == NULL) {
			s->next_slot = *slot + 1;
			return 0;
		}
	}
	return vb_fail(-ENOSPC, "all %u endpoints are open: raise `endpoints`", s->n_slots);
}

/* Between a time service that hardly moves and one that runs after itself at half the speed of
 * time. */
static void draw_wander(struct sim_ep *ep)
{
	struct vb_rng *r = &ep->sim->clock_rng;
	uint64_t max = ep->sim->faults.common_error_max_ns;

	if (max == 0)
		return;
	ep->wander_ns = max;
	ep->wander_period_ns = max * (8ull << vb_rng_below(r, 9));
	ep->wander_phase_ns = vb_rng_below(r, ep->wander_period_ns);
}

/* The error goes from one end of its bound to the other and back, in a straight line. */
static uint64_t sim_common_now(struct vb_ep *vep, uint64_t *error_ns)
{
	struct sim_ep *ep = sim_ep_of(vep);
	uint64_t now = vb_sched_now(ep->sim->sched), max = ep->wander_ns, at, swing;

	*error_ns = max;
	if (max == 0)
		return now;
	at = (now + ep->wander_phase_ns) % ep->wander_period_ns;
	swing = (uint64_t)((unsigned __int128)4 * max * at / ep->wander_period_ns);
	if (swing > 2 * max)
		swing = 4 * max - swing;
	return now + swing < max ? 0 : now + swing - max;
}

static void draw_clock(struct sim_ep *ep, uint16_t node)
{
	const struct vb_sim_faults *f = &ep->sim->faults;
	struct vb_rng *r = &ep->sim->clock_rng, its_node;
	int64_t drift = f->drift_max_ppb;

	if (f->node_clocks) {
		vb_rng_seed(&its_node, ep->sim->base.seed, STREAM_NODE_CLOCKS + node);
		r = &its_node;
	}
	ep->base.drift_ppb = (int64_t)vb_rng_below(r, 2 * (uint64_t)drift + 1) - drift;
	if (f->drift_edge)
		ep->base.drift_ppb = ep->base.drift_ppb < 0 ? -drift : drift;
	ep->base.offset_ns = vb_rng_below(r, 1000000000);
}

static int sim_ep_open(struct vb_fabric *f, uint16_t node, struct vb_ep **out)
{
	struct sim *s = sim_of(f);
	int64_t drift = s->faults.drift_max_ppb;
	struct sim_ep *ep;
	uint32_t slot = 0, client;
	int err = find_slot(s, &slot);

	if (err != 0)
		return err;
	ep = calloc(1, sizeof(*ep));
	if (ep != NULL) {
		ep->flows = calloc(s->base.nodes, sizeof(ep->flows[0]));
		/* A message that is lost later, for want of memory, would look like the protocol's. */
		ep->inbox = malloc(SIM_INBOX_FIRST * sizeof(ep->inbox[0]));
		ep->inbox_size = SIM_INBOX_FIRST;
	}
	if (ep == NULL || ep->flows == NULL || ep->inbox == NULL) {
		if (ep != NULL) {
			free(ep->flows);
			free(ep->inbox);
		}
		free(ep);
		return vb_fail(-ENOMEM, "no memory for an endpoint");
	}
	client = (s->incarnations[slot]++ << s->slot_bits | slot) &
		 ((1u << VB_PEER_CLIENT_BITS) - 1);
	vb_ep_init(&ep->base, &s->base, vb_peer_make(node, client));
	ep->sim = s;
	ep->slot = slot;
	ep->cpu_timer.fire = cpu_free;
	sim_cores_attach(ep);
	if (drift != 0)
		draw_clock(ep, node);
	draw_wander(ep);
	s->eps[slot] = ep;
	*out = &ep->base;
	return 0;
}

/* What it has posted still lands; nobody waits for the answers. */
static void sim_ep_close(struct vb_ep *vep)
{
	struct sim_ep *ep = sim_ep_of(vep);

	ep->closed = true;
	if (ep->ops == 0) {
		sim_ep_free(ep);
		return;
	}
	vb_timer_disarm(ep->sim->sched, &ep->cpu_timer);
	vb_timer_disarm(ep->sim->sched, &ep->death);
	sim_ops_detach(ep->sim, ep);
}

static void sim_serve(struct vb_ep *ep)
{
	sim_ep_of(ep)->server = true;
}

static bool sim_peer_alive(struct vb_fabric *f, vb_peer peer)
{
	return sim_find_peer(sim_of(f), peer) != NULL;
}

static bool sim_node_gone(struct vb_fabric *f, uint16_t node)
{
	return sim_of(f)->lost[node] != SIM_THERE;
}

/* ---- memory ---- */

static void *sim_local(struct vb_fabric *f, vb_addr addr, uint64_t bytes)
{
	struct sim *s = sim_of(f);
	uint64_t offset = vb_addr_offset(addr);

	if (vb_addr_node(addr) >= s->base.nodes || bytes > s->base.node_bytes ||
	    offset > s->base.node_bytes - bytes)
		return NULL;
	return s->memory + vb_addr_node(addr) * s->base.node_bytes + offset;
}

static void sim_dense(struct vb_fabric *f, vb_addr addr, uint64_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)sim_local(f, addr, bytes), to = from + bytes;

	from = (from + page - 1) & ~(page - 1);
	to &= ~(page - 1);
	if (bytes >= HUGE_PAGES_FROM)
		(void)madvise((void *)from, to - from, MADV_HUGEPAGE);
}

/* ---- sim.h ---- */

static void lose(struct vb_fabric *f, uint16_t node, enum sim_lost how)
{
	struct sim *s = sim_of(f);

	vb_assert(node < f->nodes);
	s->lost[node] = (uint8_t)how;
	s->any_lost = s->faulty = true;
}

void vb_sim_lose_node(struct vb_fabric *f, uint16_t node)
{
	lose(f, node, SIM_LOST);
}

void vb_sim_lose_sent(struct vb_fabric *f, uint16_t node, uint64_t to)
{
	sim_ops_lose(sim_of(f), node, to);
}

void vb_sim_disown_node(struct vb_fabric *f, uint16_t node)
{
	lose(f, node, SIM_DISOWNED);
}

void vb_sim_ep_disown(struct vb_ep *vep, uint16_t node)
{
	struct sim_ep *ep = sim_ep_of(vep);

	ep->disowned = true;
	ep->disowner = node;
	ep->sim->any_lost = ep->sim->faulty = true;
	sim_ops_refuse(ep->sim, ep, node);
}

void vb_sim_set_faults(struct vb_fabric *f, const struct vb_sim_faults *faults)
{
	struct sim *s = sim_of(f);

	s->faults = *faults;
	s->faulty = faults->die > 0 || faults->pause > 0 || faults->pause_told > 0 ||
		    faults->around > 0 || faults->delay > 0 || faults->tear > 0 ||
		    faults->stall > 0 || faults->lose > 0 || faults->deaf > 0 ||
		    faults->early > 0 || faults->nic_stall > 0 || faults->partition > 0 ||
		    s->any_lost;
	s->n_cuts = 0;
}

void vb_sim_ep_mortal(struct vb_ep *ep, bool mortal)
{
	ep_of(ep)->mortal = mortal;
}

void vb_sim_ep_stalls(struct vb_ep *ep, bool stalls)
{
	ep_of(ep)->stalls = stalls;
}

void vb_sim_ep_pause(struct vb_ep *ep, uint64_t until_ns)
{
	ep_of(ep)->paused_until_ns = until_ns;
}

bool vb_sim_ep_disowned(const struct vb_ep *ep)
{
	return ep_of(ep)->disowned;
}

bool vb_sim_ep_dead(const struct vb_ep *ep)
{
	return ep_of(ep)->dead;
}

unsigned vb_sim_ep_adrift(const struct vb_ep *ep)
{
	return ep_of(ep)->adrift;
}

void vb_sim_on_death(struct vb_fabric *f, void (*fn)(struct vb_ep *ep, void *arg), void *arg)
{
	struct sim *s = sim_of(f);

	s->on_death = fn;
	s->on_death_arg = arg;
}

void vb_sim_as_memory(struct vb_fabric *f)
{
	struct sim *s = sim_of(f);

	s->base.caps.flags |= VB_CAP_INLINE | VB_CAP_CPU_ATOMICS;
	s->base.caps.verb_bound_ns = 0;
}

uint64_t vb_sim_now(struct vb_fabric *f)
{
	return sim_now(sim_of(f));
}

uint64_t vb_sim_trace_hash(struct vb_fabric *f)
{
	return sim_of(f)->trace_hash;
}

uint64_t vb_sim_verbs(struct vb_fabric *f)
{
	return sim_of(f)->verbs;
}

uint64_t vb_sim_late_verbs(struct vb_fabric *f)
{
	return sim_of(f)->late_verbs;
}

int vb_sim_compute(struct vb_ep *vep, uint64_t ns)
{
	struct sim_ep *ep = ep_of(vep);
	uint64_t *cpu = &ep->cpu_free_ns[ep->cpu];
	int err;

	sim_checkpoint(vep, true);
	*cpu = sim_max(*cpu, sim_now(ep->sim)) + ns;
	err = vb_task_sleep_until(*cpu);
	sim_checkpoint(vep, false);
	return err;
}

const struct vb_fabric_ops vb_fabric_sim = {
	.name = "sim",
	.summary = "a simulated cluster in virtual time, with faults and exact replay",
	.options = sim_table,
	.options_size = sizeof(struct sim_options),
	.caps =
		{
			.flags = VB_CAP_MASKED64 | VB_CAP_MASKED128 | VB_CAP_SEND | VB_CAP_NOTIFY |
				 VB_CAP_VIRTUAL,
			.verb_bound_ns = 1000000,
			.atomics = "by the simulated NIC, as the profile says",
			.order = "that of a reliable connection; without faults, first come first "
				 "served",
		},
	.open = sim_open,
	.close = sim_close,
	.after_fork = sim_after_fork,
	.ep_open = sim_ep_open,
	.ep_close = sim_ep_close,
	.post = sim_post,
	.recv = sim_recv,
	.peer_alive = sim_peer_alive,
	.node_gone = sim_node_gone,
	.region = sim_region,
	.regions = sim_regions,
	.region_hold = sim_region_hold,
	.region_let_go = sim_region_let_go,
	.region_take = sim_region_take,
	.region_remove = sim_region_remove,
	.dense = sim_dense,
	.local = sim_local,
	.checkpoint = sim_checkpoint,
	.serve = sim_serve,
	.common_now = sim_common_now,
};
