/* SPDX-License-Identifier: Apache-2.0 */
/* A crowd of a day: processes that come, take locks and go; some are killed, some stopped for a while. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/rng.h"
#include "child.h"
#include "day.h"

#define HOT      3u           /* locks that half of all calls are for */
#define WAIT_NS  (500 * MS)   /* for a lock */
#define BOUND_NS (30000 * MS) /* a call that may wait for so long is back by then */
#define GONE_NS  (3000 * MS)  /* of calls that say that a peer is gone: the client comes anew */
#define LIFE_NS  (20000 * MS) /* mean */
#define STEP_NS  (20 * MS)
#define PAUSE_NS (400 * MS) /* mean, between two calls of a client */

/* ---- a client ---- */

struct client {
	struct board *b;
	struct life *l;
	struct day_client c;
	struct vb_rng rng;
	const char *servers, *key;
	uint64_t gone_since_ns;
};

static void nap(uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000),
			     .tv_nsec = (long)(ns % 1000000000)};

	nanosleep(&t, NULL);
}

/* Exponential, nearly: what matters is that it is short, and now and then long. */
static uint64_t about(struct vb_rng *r, uint64_t mean)
{
	uint64_t x = vb_rng_below(r, mean), y = vb_rng_below(r, mean);

	return x / 4 + vb_rng_below(r, 8) * y / 2;
}

static void note(struct client *k, int err)
{
	struct counts *n = &k->b->count;

	if (err == -ETIMEDOUT || err == -EAGAIN)
		add(&n->not_now);
	else if (err == -VB_EPEERGONE)
		add(&n->gone);
	else if (err == -VB_EUNKNOWN)
		add(&n->unknown);
	else if (err == -VB_ELOST)
		add(&n->lost);
	else if (err != 0)
		day_found(k->b, "%s: %s: %s", day_space(k->c.which).lock, k->l->what,
			  vb_strerror(err));
	if (err != -VB_EPEERGONE)
		k->gone_since_ns = 0;
	else if (k->gone_since_ns == 0)
		k->gone_since_ns = day_now();
}

static void hold(struct client *k, struct vb_grant *g, uint64_t token)
{
	uint64_t owner;
	struct entry *e = day_enter(k->b, &k->c, g, token, &owner);
	int err = 0;

	add(&k->b->count.grants);
	if (g->mode == VB_EXCLUSIVE && vb_lock_valid(k->c.me, g)) {
		day_call(k->l, "FAA", BOUND_NS);
		note(k, day_count(k->b, &k->c, g));
	}
	if (vb_rng_below(&k->rng, 8) == 0)
		nap(vb_rng_below(&k->rng, 20 * MS));
	/* Who dies or is stopped here has it until its lease is over. */
	day_exit(e, owner);
	day_call(k->l, "release", BOUND_NS);
	err = vb_lock_release(k->c.me, g);
	day_back(k->l);
	note(k, err);
}

static void work(struct client *k)
{
	uint64_t lock = vb_rng_below(&k->rng, vb_rng_below(&k->rng, 2) != 0 ? HOT : DAY_LOCKS);
	enum vb_mode mode = vb_rng_below(&k->rng, 3) == 0 ? VB_SHARED : VB_EXCLUSIVE;
	uint64_t token = get(&k->b->lock[k->c.which][lock].token);
	struct vb_grant g;
	int err;

	day_call(k->l, "acquire", BOUND_NS);
	err = vb_lock_acquire(k->c.me, lock, mode, WAIT_NS, &g);
	day_back(k->l);
	if (err == 0)
		hold(k, &g, token);
	else
		note(k, err);
}

static int client(struct client *k, unsigned number, uint64_t life_ns)
{
	uint64_t end = day_now() + life_ns;

	k->c.which = number % DAY_SPACES;
	while (day_now() < end && !get(&k->b->rest)) {
		if (k->c.f == NULL &&
		    day_come(k->b, k->l, &k->c, k->servers, k->key, number / DAY_SPACES) != 0) {
			add(&k->b->count.late);
			nap(200 * MS);
			continue;
		}
		work(k);
		if (k->gone_since_ns != 0 && day_now() - k->gone_since_ns > GONE_NS) {
			add(&k->b->count.again);
			k->gone_since_ns = 0;
			day_leave(k->l, &k->c);
		}
		nap(about(&k->rng, PAUSE_NS));
	}
	day_leave(k->l, &k->c);
	return 0;
}

/* ---- the crowd ---- */

enum fate { FATE_LEAVES, FATE_KILLED, FATE_STOPPED };

struct member {
	pid_t pid;
	enum fate fate;
	uint64_t at_ns, for_ns; /* of its fate; stopped for so long */
	bool stopped;
};

struct crowd {
	struct board *b;
	const char *servers, *key;
	unsigned most, first; /* lives first, first + 1, ... are its members' */
	uint64_t seed, born;
	struct vb_rng rng;
	struct member member[DAY_CLIENTS];
};

static void bear(struct crowd *w, unsigned i)
{
	struct member *m = &w->member[i];
	uint64_t life_ns = 100 * MS + about(&w->rng, LIFE_NS), n = w->born++;
	unsigned draw = (unsigned)vb_rng_below(&w->rng, 20);
	struct life *l = &w->b->life[w->first + i];

	*l = (struct life){.since_ns = 0};
	*m = (struct member){
		.fate = draw < 4   ? FATE_KILLED
			: draw < 7 ? FATE_STOPPED
				   : FATE_LEAVES,
		.at_ns = day_now() + vb_rng_below(&w->rng, life_ns),
		/* Less than a lease, more than one, more than a server's patience. */
		.for_ns = (20 + vb_rng_below(&w->rng, draw == 6 ? 9000 : 2500)) * MS,
	};
	m->pid = fork_child();
	if (m->pid == 0) {
		struct client k = {.b = w->b, .l = l, .servers = w->servers, .key = w->key};

		l->pid = (uint32_t)getpid();
		vb_rng_seed(&k.rng, w->seed, 1000 + n);
		_exit(client(&k, (unsigned)vb_rng_below(&w->rng, 1 << 20), life_ns));
	}
	if (m->pid < 0) {
		perror("fork");
		m->pid = 0;
		return;
	}
	add(&w->b->count.came);
}

static void bury(struct crowd *w, unsigned i, int status)
{
	struct member *m = &w->member[i];

	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && m->fate == FATE_KILLED)
		add(&w->b->count.killed);
	else if (status != 0)
		day_found(w->b, "client %d ended with status 0x%x", (int)m->pid, status);
	else
		add(&w->b->count.left);
	*m = (struct member){.pid = 0};
}

/* A call that is not back: by its bound, and the time for which the client was stopped. */
static void look_for_hang(struct crowd *w, unsigned i, uint64_t now)
{
	struct life *l = &w->b->life[w->first + i];
	uint64_t since = get(&l->since_ns);

	if (since == 0 || w->member[i].stopped || now < since + l->bound_ns + w->member[i].for_ns)
		return;
	day_found(w->b, "client %d: %s has not come back for %" PRIu64 " s", (int)w->member[i].pid,
		  l->what, (now - since) / 1000000000);
	set(&l->since_ns, now);
}

static void meet_fate(struct crowd *w, unsigned i, uint64_t now)
{
	struct member *m = &w->member[i];

	if (m->stopped && now >= m->at_ns + m->for_ns) {
		kill(m->pid, SIGCONT);
		m->stopped = false;
		m->fate = FATE_LEAVES;
	}
	if (m->stopped || m->fate == FATE_LEAVES || now < m->at_ns)
		return;
	if (m->fate == FATE_KILLED) {
		kill(m->pid, SIGKILL);
		return;
	}
	kill(m->pid, SIGSTOP);
	m->at_ns = now;
	m->stopped = true;
	add(&w->b->count.stopped);
}

/* How many are there; one more may be born. */
static unsigned step(struct crowd *w, bool more)
{
	uint64_t now = day_now();
	unsigned alive = 0;
	int status;

	for (unsigned i = 0; i < w->most; i++) {
		struct member *m = &w->member[i];

		if (m->pid != 0 && waitpid(m->pid, &status, WNOHANG) == m->pid)
			bury(w, i, status);
		if (m->pid == 0 && more) {
			bear(w, i);
			more = false;
		}
		if (m->pid == 0)
			continue;
		alive++;
		meet_fate(w, i, now);
		look_for_hang(w, i, now);
	}
	return alive;
}

/* More at noon: from a third of the crowd to all of it and back, in 20 s. */
static unsigned wanted(const struct crowd *w)
{
	uint64_t at = day_now() / MS % 20000, up = at < 10000 ? at : 20000 - at;

	return w->most / 3 + (unsigned)((w->most - w->most / 3) * up / 10000);
}

int day_crowd(struct board *b, const char *servers, const char *key, unsigned most, unsigned first,
	      uint64_t seed)
{
	static struct crowd w;
	unsigned alive = 0;

	if (most == 0 || first + most > DAY_CLIENTS) {
		fprintf(stderr, "at most %d clients\n", DAY_CLIENTS);
		return 2;
	}
	w = (struct crowd){
		.b = b, .servers = servers, .key = key, .most = most, .first = first, .seed = seed};
	vb_rng_seed(&w.rng, seed, 0);
	do {
		alive = step(&w, !get(&b->rest) && alive < wanted(&w));
		nap(STEP_NS);
	} while (alive > 0 || !get(&b->over));
	return 0;
}
