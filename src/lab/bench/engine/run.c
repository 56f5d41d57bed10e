/* SPDX-License-Identifier: Apache-2.0 */
/* What a run is on every fabric: see run.h. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/engine/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hist.h"
#include "base/log.h"
#include "lab/bench/engine/process.h"

void *vb_bench_state_of(const struct vb_bench_run *run, unsigned client)
{
	return (char *)run->states + client * run->ops->client->state_bytes;
}

void *vb_bench_tally_of(const struct vb_bench_run *run, unsigned worker)
{
	if (run->n_tallies == 0)
		return run->tally;
	return (char *)run->tallies + (run->n_tallies > 1 ? worker : 0) * run->ops->tally_bytes;
}

unsigned vb_bench_clients_of(const struct vb_bench_run *run, unsigned worker)
{
	return run->clients / run->workers + (worker < run->clients % run->workers);
}

unsigned vb_bench_client_of(const struct vb_bench_run *run, unsigned worker, unsigned i)
{
	return run->in_rows ? worker * vb_bench_clients_of(run, worker) + i
			    : worker + i * run->workers;
}

/* The histograms are last: the pages of those that are not used are never touched. */
static struct vb_hist *hists_of(const struct vb_bench_run *run, const void *tally)
{
	return (struct vb_hist *)((char *)tally + run->ops->hists_at);
}

static unsigned n_hists(const struct vb_bench_run *run)
{
	return (unsigned)((run->ops->tally_bytes - run->ops->hists_at) / sizeof(struct vb_hist));
}

static void tally_init(const struct vb_bench_run *run, void *tally)
{
	memset(tally, 0, run->ops->hists_at);
	for (unsigned i = 0; i < n_hists(run); i++)
		vb_hist_init(&hists_of(run, tally)[i]);
}

void vb_bench_tally_merge(struct vb_bench_run *run, const void *tally)
{
	vb_bench_words(run->tally, tally, run->ops->sums_bytes, 1);
	for (unsigned i = 0; i < n_hists(run); i++)
		vb_hist_merge(&hists_of(run, run->tally)[i], &hists_of(run, tally)[i]);
	run->ops->merge(run->tally, tally);
}

int vb_bench_run_open(struct vb_bench_run *run, unsigned tallies)
{
	run->n_tallies = tallies;
	run->control = vb_bench_share(sizeof(*run->control));
	run->states = vb_bench_share(run->clients * run->ops->client->state_bytes);
	if (tallies != 0)
		run->tallies = vb_bench_share(tallies * run->ops->tally_bytes);
	if (run->control == NULL || run->states == NULL || run->tally == NULL ||
	    (tallies != 0 && run->tallies == NULL))
		return vb_fail(-ENOMEM, "no memory for the results of %u workers", run->workers);
	tally_init(run, run->tally);
	for (unsigned i = 0; i < tallies; i++)
		tally_init(run, vb_bench_tally_of(run, i));
	return run->ops->open(run);
}

/* ---- the clients of one thread ---- */

static struct vb_bench_body *body_of(const struct vb_bench_run *run, unsigned i)
{
	return (struct vb_bench_body *)((char *)run->thread.clients + i * run->ops->client->bytes);
}

int vb_bench_thread_open(struct vb_bench_run *run, unsigned worker)
{
	unsigned n = vb_bench_clients_of(run, worker);
	struct vb_bench_thread *t = &run->thread;
	int err;

	for (unsigned i = 0; i < n; i++) {
		struct vb_bench_state *s =
			vb_bench_state_of(run, vb_bench_client_of(run, worker, i));

		s->pid = getpid();
	}
	err = run->ops->worker_open(run, worker);
	if (err)
		return err;
	t->clients = calloc(n, run->ops->client->bytes);
	if (t->clients == NULL)
		return vb_fail(-ENOMEM, "no memory for %u clients", n);
	for (unsigned i = 0; i < n; i++) {
		struct vb_bench_body *c = body_of(run, i);

		c->index = vb_bench_client_of(run, worker, i);
		err = run->ops->client->open(run, c, vb_bench_state_of(run, c->index));
		if (err)
			return err;
		t->n = i + 1;
	}
	return 0;
}

int vb_bench_thread_start(struct vb_bench_run *run)
{
	static const struct vb_task_params params = {.name = "bench client"};
	struct vb_bench_thread *t = &run->thread;

	for (unsigned i = 0; i < t->n; i++) {
		struct vb_bench_body *c = body_of(run, i);
		int err = vb_task_spawn(vb_sched_self(), run->ops->client->body, c, &params,
					&c->task);

		if (err)
			return vb_fail(err, "cannot start client %u of %u: no memory for its stack",
				       i, t->n);
		t->running++;
	}
	return 0;
}

void vb_bench_thread_give_up(struct vb_bench_run *run)
{
	run->thread.drain = true;
	if (run->ops->client->give_up != NULL)
		run->ops->client->give_up(run);
	for (unsigned i = 0; i < run->thread.n; i++)
		if (body_of(run, i)->task != NULL)
			vb_task_cancel(body_of(run, i)->task);
}

void vb_bench_thread_close(struct vb_bench_run *run)
{
	for (unsigned i = 0; i < run->thread.n; i++)
		run->ops->client->close(body_of(run, i));
	free(run->thread.clients);
	run->thread.clients = NULL;
	run->thread.n = 0;
}

void vb_bench_run_measure(struct vb_bench_run *run, bool on)
{
	if (run->ops->meter != NULL && on)
		run->ops->meter(run, true);
	if (!run->server_only)
		run->ops->client->measure(run, on);
	if (run->ops->meter != NULL && !on)
		run->ops->meter(run, false);
}

void vb_bench_client_left(struct vb_bench_run *run, struct vb_bench_body *c,
			  struct vb_bench_state *s)
{
	c->task = NULL;
	__atomic_store_n(&s->finished, 1, __ATOMIC_RELEASE);
	if (--run->thread.running == 0)
		run->thread.all_finished = true;
}

/* ---- does it move? ---- */

uint64_t vb_bench_run_cycles(const struct vb_bench_run *run, bool *waiting)
{
	uint64_t cycles = 0;

	*waiting = run->ops->client->waits == NULL;
	for (unsigned i = 0; i < run->clients; i++) {
		const struct vb_bench_state *s = vb_bench_state_of(run, i);

		cycles += __atomic_load_n(&s->cycles, __ATOMIC_RELAXED);
		/* Clients that think, or wait for their time in an open loop, are not stuck. */
		if (!*waiting && !s->dead)
			*waiting = run->ops->client->waits(s);
	}
	return cycles;
}

bool vb_bench_run_stands_still(struct vb_bench_run *run, uint64_t now_ns)
{
	struct vb_bench_pulse *p = &run->pulse;
	bool waiting;
	uint64_t cycles = vb_bench_run_cycles(run, &waiting);

	if (cycles != p->cycles || !waiting) {
		p->cycles = cycles;
		p->since_ns = now_ns;
	}
	return now_ns > p->since_ns && now_ns - p->since_ns > run->stall_ns;
}

void vb_bench_run_explain(struct vb_bench_run *run, uint64_t now_ns)
{
	run->end->stalled = true;
	run->ops->explain(run, now_ns);
}

bool vb_bench_run_finished(const struct vb_bench_run *run)
{
	for (unsigned i = 0; i < run->clients; i++) {
		const struct vb_bench_state *s = vb_bench_state_of(run, i);

		if (!s->dead && !__atomic_load_n(&s->finished, __ATOMIC_ACQUIRE))
			return false;
	}
	return true;
}

uint64_t vb_bench_error_nap_ns(unsigned errors)
{
	return errors < 20 ? errors * 1000000ull : 20000000ull;
}

double vb_bench_rate(uint64_t n, uint64_t ns)
{
	return ns > 0 ? (double)n * 1e9 / (double)ns : 0;
}

void vb_bench_words(void *into, const void *from, size_t bytes, uint64_t times)
{
	for (size_t i = 0; i < bytes / sizeof(uint64_t); i++)
		((uint64_t *)into)[i] += times * ((const uint64_t *)from)[i];
}
