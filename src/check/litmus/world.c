/* SPDX-License-Identifier: Apache-2.0 */
#define VB_LOG_ROOM "check"
#include "check/litmus/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"

#define STEP_NS        16u    /* a verb of the profile `zero`, there and back, takes less */
#define BOUND_NS       20000u /* of a verb, where nobody is struck */
#define SHORT_BOUND_NS 2500u  /* where leases end */
#define SHORT_LEASE_NS 10000u

/* ---- parties ---- */

static void party_ends(struct litmus_party *p)
{
	if (p->ended)
		return;
	p->ended = true;
	p->x->n_ended++;
	if (p->x->waiter != NULL)
		vb_task_wake(p->x->waiter);
}

static void on_death(struct vb_ep *ep, void *arg)
{
	struct litmus_world *x = arg;

	for (unsigned i = 0; i < x->parties; i++) {
		struct litmus_party *p = x->party[i];

		if (p->ep != ep)
			continue;
		x->kind->died(p);
		p->dead = true;
		party_ends(p);
	}
}

static void party_body(void *arg)
{
	struct litmus_party *p = arg;

	p->x->kind->live(p);
	party_ends(p);
}

static void wait_for_all(void *arg)
{
	struct litmus_world *x = arg;

	while (x->n_ended < x->parties)
		vb_task_suspend(VB_FOREVER);
}

static int open_parties(struct litmus_world *x)
{
	static const struct vb_task_params params = {.name = "party", .daemon = true},
					   waiter = {.name = "waiter"};
	struct vb_task *t;
	int err = 0;

	for (unsigned i = 0; i < x->parties && err == 0; i++)
		err = x->kind->open_party(x->party[i], &x->party[i]->ep);
	for (unsigned i = 0; i < x->parties && err == 0; i++)
		err = vb_task_spawn(x->sched, party_body, x->party[i], &params, &t);
	return err ? err : vb_task_spawn(x->sched, wait_for_all, x, &waiter, &x->waiter);
}

void litmus_world_leave(struct litmus_world *x)
{
	for (unsigned i = 0; i < x->parties; i++) {
		struct litmus_party *p = x->party[i];

		if (p->dead)
			continue;
		vb_sim_ep_mortal(p->ep, false);
		p->ep = NULL;
		x->kind->close_party(p);
	}
}

bool litmus_world_starves(struct litmus_world *x, int answer)
{
	if (answer != -ENOMEM)
		return false;
	x->err = answer;
	litmus_enough(x->l);
	return true;
}

/* ---- a run ---- */

static int open_fabric(struct litmus_world *x)
{
	char options[48];
	struct vb_fabric_params p = {
		.fabric = "sim",
		.options = options,
		.nodes = (uint16_t)(x->parties + x->kind->nodes_more),
		.node_bytes = x->kind->node_bytes,
		.endpoints = x->kind->endpoints,
		.seed = 1,
	};
	int err;

	snprintf(options, sizeof(options), "profile=zero,bound=%uns",
		 x->short_leases ? SHORT_BOUND_NS : BOUND_NS);
	err = vb_fabric_open(&p, &x->fabric);
	if (err)
		return err;
	x->sched = vb_sched_self();
	vb_sim_on_death(x->fabric, on_death, x);
	return 0;
}

static int run_parties(struct litmus_world *x)
{
	int err;

	x->l->fabric = x->fabric;
	x->l->chooser.pause_ns = x->leases * x->lease_ns + x->lease_ns / 4;
	vb_sim_set_chooser(x->fabric, &x->l->chooser);
	vb_sim_ep_mortal(x->party[0]->ep, true);
	err = vb_sched_run(x->sched, &x->l->stop, vb_sched_now(x->sched) + x->kind->patience_ns);
	vb_sim_set_chooser(x->fabric, NULL);
	return err;
}

static void begin(struct litmus_world *x, struct litmus *l)
{
	x->kind->begin(x);
	x->l = l;
	x->fabric = NULL;
	x->sched = NULL;
	x->waiter = NULL;
	x->n_ended = 0;
	x->err = 0;
	for (unsigned i = 0; i < x->parties; i++)
		*x->party[i] = (struct litmus_party){.x = x, .index = i};
}

static int run(struct litmus *l, void *ctx)
{
	struct litmus_world *x = ctx;
	char said[256] = "";
	int err;

	begin(x, l);
	vb_log_capture_begin(said, sizeof(said));
	err = open_fabric(x);
	if (err == 0)
		err = x->kind->open(x);
	if (err == 0)
		err = open_parties(x);
	if (err == 0) {
		x->kind->judge(x, run_parties(x));
		l->out->verbs += vb_sim_verbs(x->fabric);
		err = x->err;
	}
	x->kind->tear_down(x);
	vb_log_capture_end();
	return err ? vb_fail(err, "%s: %s: %s", x->protocol, x->name, said) : 0;
}

static const char *name_verb(void *ctx, const struct vb_sim_verb *v, char *buf, size_t size)
{
	const struct litmus_world *x = ctx;
	const uint64_t *word;
	int n = snprintf(buf, size, "node %u: %s", vb_peer_node(v->self), vb_op_names[v->op]);

	if (v->len == 0) {
		snprintf(buf + n, size - (size_t)n, " to node %u", v->node);
		return buf;
	}
	n += snprintf(buf + n, size - (size_t)n, " node %u +%#" PRIx64, v->node,
		      vb_addr_offset(v->addr));
	n += x->kind->tell_verb(x, v, buf + n, size - (size_t)n);
	if (litmus_is_plain(v))
		return buf;
	word = vb_local(x->fabric, v->addr, 8);
	snprintf(buf + n, size - (size_t)n, ": %#" PRIx64 ", %#" PRIx64 ", is %#" PRIx64,
		 v->compare.lo, v->swap.lo, *word);
	return buf;
}

int litmus_world_explore(struct litmus_world *x, const struct vb_litmus_params *p,
			 struct vb_litmus_result *out)
{
	struct litmus *l = calloc(1, sizeof(*l));
	int err;

	*out = (struct vb_litmus_result){0};
	if (l == NULL)
		return vb_fail(-ENOMEM, "no memory for a small world");
	if (x->short_leases)
		x->lease_ns = SHORT_LEASE_NS;
	l->chooser.step_ns = STEP_NS;
	l->p = p;
	l->strikes = x->strikes;
	l->delays = p->delays;
	l->name = name_verb;
	l->name_ctx = x;
	l->out = out;
	err = litmus_explore(l, run, x);
	free(l);
	return err;
}
