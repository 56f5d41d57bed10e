/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the model of each profile does, measured on it in virtual time, beside what has been
 * published of such a card (published.c); and each effect, on and off.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/fabric/fabric.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fabric/sim/sim.h"
#include "lab/bench/fabric/published.h"
#include "lab/run.h"

#define OTHERS     4u /* nodes beside node 0 */
#define CLIENTS    128u
#define EACH       64u
#define FIRST      4096u /* where what is measured begins, on each node */
#define LEN_MAX    4096u
#define NODE_BYTES (1ull << 20)
#define MANY_WORDS 8u /* bytes from one client's word to the next one's */

/* Up to MESSAGE few clients, and then all. */
enum scene {
	ALONE,    /* one client, one verb, nothing in its way: us */
	OWN,      /* ALONE, of the client's own node */
	BATCH,    /* one client, 64 verbs in one doorbell: us */
	MESSAGE,  /* from client to client to client, each sends when it has heard: us a hop */
	TO_ONE,   /* all clients, on four nodes, to the fifth */
	FROM_ONE, /* all clients on one node, to the four others */
	BESIDE,   /* as TO_ONE, every other client to one hot word: us of the others' */
};

static const struct measure {
	const char *name, *unit;
	enum scene scene;
	enum vb_op op;
	uint32_t len, stride;
	const char *effect; /* that it shows */
	/* Options that it needs, and, if it shows an effect, needs that for: it is not measured otherwise. */
	const char *with;
} measures[] = {
	[VB_MODEL_READ] = {"READ of 8 B", "us", ALONE, VB_OP_READ, 8, 0, NULL, NULL},
	[VB_MODEL_WRITE] = {"WRITE of 64 B", "us", ALONE, VB_OP_WRITE, 64, 0, NULL, NULL},
	[VB_MODEL_CAS] = {"CAS", "us", ALONE, VB_OP_CAS64, 0, 0, NULL, NULL},
	[VB_MODEL_WIDE] = {"16-byte atomic", "us", ALONE, VB_OP_MFAA128, 0, 0, NULL, NULL},
	[VB_MODEL_SEND] = {"SEND, waited for", "us", ALONE, VB_OP_SEND, 0, 0, NULL, NULL},
	[VB_MODEL_HANDOVER] = {"handover, client to client", "us", MESSAGE, VB_OP_SEND, 0, 0,
			       "messages", NULL},
	[VB_MODEL_WORD] = {"atomics on one word", "M/s", TO_ONE, VB_OP_FAA64, 0, 0, "busy-word",
			   NULL},
	[VB_MODEL_WIDE_WORD] = {"16-byte atomics on one", "M/s", TO_ONE, VB_OP_MFAA128, 0, 0, NULL,
				NULL},
	[VB_MODEL_WORDS] = {"atomics on many words", "M/s", TO_ONE, VB_OP_FAA64, 0, MANY_WORDS,
			    "atomics-unit", NULL},
	[VB_MODEL_COLD] = {"atomic beside a hot word", "us", BESIDE, VB_OP_FAA64, 0, MANY_WORDS,
			   "in-order", NULL},
	[VB_MODEL_READS_64] = {"READs of 64 B", "M/s", TO_ONE, VB_OP_READ, 64, 64, NULL, NULL},
	[VB_MODEL_READS_1K] = {"READs of 1 KB", "Gb/s", TO_ONE, VB_OP_READ, 1024, 1024,
			       "answer-wire", NULL},
	[VB_MODEL_READS_4K] = {"READs of 4 KB", "Gb/s", TO_ONE, VB_OP_READ, 4096, 4096, NULL, NULL},
	[VB_MODEL_WIRE] = {"wire time of a 4 KB READ", "ns", TO_ONE, VB_OP_READ, 4096, 4096, NULL,
			   NULL},
	[VB_MODEL_INCAST] = {"4 nodes' 4 KB WRITEs to one", "Gb/s", TO_ONE, VB_OP_WRITE, 4096, 4096,
			     NULL, NULL},
	[VB_MODEL_INCAST_READS] = {"4 KB READs from 4 nodes", "Gb/s", FROM_ONE, VB_OP_READ, 4096,
				   4096, "port-wire", NULL},
	[VB_MODEL_CORE] = {"verbs of clients on one core", "M/s", FROM_ONE, VB_OP_READ, 8, 8,
			   "core", "cores=1"},
	[VB_MODEL_BATCH] = {"64 READs of 8 B, one doorbell", "us", BATCH, VB_OP_READ, 8, 0,
			    "outstanding", NULL},
	[VB_MODEL_OWN] = {"CAS on the own node", "us", OWN, VB_OP_CAS64, 0, 0, "own-node",
			  "own=memory"},
	[VB_MODEL_DELAYED] = {"READ of 8 B, delay=1us", "us", ALONE, VB_OP_READ, 8, 0, NULL,
			      "delay=1us"},
};

/* ---- one measurement ---- */

struct crowd {
	const struct measure *m;
	uint64_t done, first_ns, last_ns;
	uint64_t cold, cold_ns; /* verbs beside a hot word, and all that they took */
	int err;
};

struct worker {
	struct crowd *crowd;
	struct vb_ep *ep;
	vb_addr at;
	bool hot;
};

static struct vb_verb verb_of(const struct measure *m, vb_addr at)
{
	static char buf[LEN_MAX];

	return (struct vb_verb){
		.op = (uint8_t)m->op, .addr = at, .compare.lo = 1, .buf = buf, .len = m->len};
}

static void work(void *arg)
{
	struct worker *w = arg;
	struct crowd *c = w->crowd;

	for (unsigned i = 0; i < EACH && c->err == 0; i++) {
		struct vb_verb v = verb_of(c->m, w->at);
		uint64_t start = vb_ep_now(w->ep);

		c->err = vb_verb_run(w->ep, &v);
		c->last_ns = vb_ep_now(w->ep);
		c->cold += !w->hot;
		c->cold_ns += w->hot ? 0 : c->last_ns - start;
		if (c->done++ == 0)
			c->first_ns = c->last_ns;
	}
}

/* ns from one completion to the next of all clients; or of one verb beside a hot word. */
static int measure_crowd(struct vb_fabric *f, const struct measure *m, double *ns)
{
	const struct vb_task_params params = {.name = "model"};
	struct worker *w = calloc(CLIENTS, sizeof(*w));
	struct crowd c = {.m = m};
	int err = 0;

	if (w == NULL)
		return vb_fail(-ENOMEM, "no memory for %u simulated clients", CLIENTS);
	for (unsigned i = 0; i < CLIENTS && err == 0; i++) {
		uint16_t other = (uint16_t)(1 + i % OTHERS);
		struct vb_task *task;

		w[i].crowd = &c;
		w[i].hot = m->scene == BESIDE && i % 2 == 0;
		w[i].at = vb_addr_make(m->scene == FROM_ONE ? other : 0,
				       FIRST + (w[i].hot ? 0 : i * m->stride));
		err = vb_ep_open(f, m->scene == FROM_ONE ? 0 : other, &w[i].ep);
		if (err == 0)
			err = vb_task_spawn(w[i].ep->sched, work, &w[i], &params, &task);
	}
	if (err == 0)
		err = vb_sched_run(vb_sched_self(), NULL, VB_FOREVER);
	if (err == 0)
		err = c.err;
	*ns = m->scene == BESIDE ? (double)c.cold_ns / (double)c.cold
				 : (double)(c.last_ns - c.first_ns) / (double)(CLIENTS * EACH - 1);
	for (unsigned i = 0; i < CLIENTS; i++)
		vb_ep_close(w[i].ep);
	free(w);
	return err;
}

static int hand_over(struct vb_ep *from, struct vb_ep *to)
{
	const struct vb_msg msg = {.tag = 1};
	struct vb_msg got;
	int err = vb_send(from, to->self, &msg);

	while (err == 0 && vb_ep_recv(to, &got) != 0)
		err = vb_ep_wait(to, VB_FOREVER);
	return err;
}

/* The first hop sets out from a client that has heard nothing. */
static int measure_hops(struct vb_ep **ep, unsigned n, double *ns)
{
	int err = hand_over(ep[0], ep[1]);
	uint64_t start = vb_ep_now(ep[1]);

	for (unsigned i = 1; i + 1 < n && err == 0; i++)
		err = hand_over(ep[i], ep[i + 1]);
	*ns = (double)(vb_ep_now(ep[1]) - start) / (n - 2);
	return err;
}

static int measure_alone(struct vb_ep *ep, const struct vb_ep *to, const struct measure *m,
			 double *ns)
{
	struct vb_verb v[VB_BATCH_MAX];
	const struct vb_msg msg = {.tag = 1};
	unsigned n = m->scene == BATCH ? VB_BATCH_MAX : 1;
	uint64_t start = vb_ep_now(ep);
	int err;

	for (unsigned i = 0; i < n; i++) {
		v[i] = verb_of(m, vb_addr_make(m->scene == OWN ? 1 : 0, FIRST));
		v[i].flags = VB_SIGNALLED;
		v[i].peer = to->self;
		v[i].msg = &msg;
	}
	err = vb_post_wait(ep, v, n);
	*ns = (double)(vb_ep_now(ep) - start);
	return err;
}

/* With a client on each node. */
static int measure_few(struct vb_fabric *f, const struct measure *m, double *ns)
{
	struct vb_ep *ep[1 + OTHERS] = {NULL};
	int err = 0;

	for (unsigned i = 0; i < VB_ARRAY_SIZE(ep) && err == 0; i++)
		err = vb_ep_open(f, (uint16_t)i, &ep[i]);
	if (err == 0 && m->scene != MESSAGE)
		err = measure_alone(ep[1], ep[0], m, ns);
	else if (err == 0)
		err = measure_hops(ep, VB_ARRAY_SIZE(ep), ns);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ep); i++)
		vb_ep_close(ep[i]);
	return err;
}

/* In the measure's unit.  `without`: an effect that is off, or NULL. */
static int measure(const struct vb_sim_profile *p, const struct measure *m, const char *without,
		   uint64_t seed, double *value)
{
	char options[96];
	const struct vb_fabric_params fp = {
		.fabric = "sim",
		.options = options,
		.nodes = 1 + OTHERS,
		.node_bytes = NODE_BYTES,
		.endpoints = CLIENTS,
		.seed = seed,
	};
	struct vb_fabric *f;
	double ns = 0;
	int err;

	snprintf(options, sizeof(options), "profile=%s", p->name);
	if (without != NULL)
		snprintf(options, sizeof(options), "profile=%s,without=%s", p->name, without);
	else if (m->with != NULL)
		snprintf(options, sizeof(options), "profile=%s,%s", p->name, m->with);
	err = vb_fabric_open(&fp, &f);
	if (err)
		return err;
	if (m->scene <= MESSAGE)
		err = measure_few(f, m, &ns);
	else
		err = measure_crowd(f, m, &ns);
	vb_fabric_close(f);
	if (err)
		return vb_fail(err, "%s on profile '%s': %s", m->name, p->name, vb_strerror(err));
	if (strcmp(m->unit, "us") == 0)
		*value = ns / 1000;
	else if (strcmp(m->unit, "M/s") == 0)
		*value = 1000 / ns;
	else if (strcmp(m->unit, "Gb/s") == 0)
		*value = 8 * m->len / ns;
	else
		*value = ns;
	return 0;
}

/* ---- the section ---- */

static void add(struct vb_floor *f, const struct vb_sim_profile *p, const struct measure *m,
		double value, const struct vb_published *beside)
{
	vb_floor_add(f, "model", m->name, m->unit, value, NULL, 0);
	f->row[f->n - 1].profile = p->name;
	f->row[f->n - 1].published = beside;
}

static int add_without(struct vb_floor *f, const struct vb_sim_profile *p, const struct measure *m,
		       const char *without)
{
	char name[48];
	double value;
	int err = measure(p, m, without, f->o.seed, &value);

	if (err)
		return err;
	snprintf(name, sizeof(name), "without %s", without);
	vb_floor_add(f, "model", name, m->unit, value, NULL, 0);
	f->row[f->n - 1].profile = p->name;
	return 0;
}

/* Without the effect, and without each of its parameters, if they are several. */
static int add_switches(struct vb_floor *f, const struct vb_sim_profile *p, const struct measure *m)
{
	const struct vb_sim_param *of[16];
	unsigned n = 0;
	int err = add_without(f, p, m, m->effect);

	for (unsigned i = 0; i < vb_sim_param_count && n < VB_ARRAY_SIZE(of); i++) {
		const struct vb_sim_param *param = &vb_sim_params[i];

		if (param->effect != NULL && strcmp(param->effect, m->effect) == 0 &&
		    vb_sim_value(p, param) != 0)
			of[n++] = param;
	}
	for (unsigned i = 0; n > 1 && i < n && err == 0; i++)
		err = add_without(f, p, m, of[i]->name);
	return err;
}

static int one_measure(struct vb_floor *f, const struct vb_sim_profile *p, enum vb_model what)
{
	const struct measure *m = &measures[what];
	const struct vb_published *beside = vb_published_next(NULL, p->name, what);
	double value;
	int err = measure(p, m, NULL, f->o.seed, &value);

	if (err)
		return err;
	do
		add(f, p, m, value, beside);
	while (beside != NULL && (beside = vb_published_next(beside, p->name, what)) != NULL);
	if (m->effect == NULL || !vb_sim_has_effect(p, m->effect))
		return 0;
	return add_switches(f, p, m);
}

static bool can_measure(const struct vb_sim_profile *p, const struct measure *m)
{
	if (m->op == VB_OP_MFAA128 && !p->masked128)
		return false;
	return m->with == NULL || m->effect == NULL || vb_sim_has_effect(p, m->effect);
}

int vb_floor_model(struct vb_floor *f)
{
	for (unsigned i = 0; i < vb_sim_profile_count; i++) {
		const struct vb_sim_profile *p = &vb_sim_profiles[i];

		for (unsigned m = 0; m < VB_ARRAY_SIZE(measures) && !vb_interrupted; m++) {
			int err = 0;

			if (can_measure(p, &measures[m]))
				err = one_measure(f, p, (enum vb_model)m);
			if (err)
				return err;
		}
	}
	return 0;
}
