/* SPDX-License-Identifier: Apache-2.0 */
/* verbena dump: who holds, who waits for whom and how long, and who waits in a circle. */
#define VB_LOG_ROOM "dump"
#include "lab/watch/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/opt.h"
#include "lab/json.h"

#define O struct vb_look_opts

/* Between the two views: what lasts as long is no picture of something in motion. */
#define SETTLE_NS 2000000ull

static const struct vb_opt dump_options[] = {
	VB_OPT_STRING(O, segment, "segment", "NAME", NULL,
		      "segment of shared memory to look at: the name that the program, or bench "
		      "lock --segment, has given it"),
	VB_OPT_STRING(O, space, "space", "NAME", "locks", "lock space in it"),
	VB_OPT_SIZE(O, most, "most", "40", 1, 1000000, "show at most so many locks"),
	VB_OPT_STRING(O, json, "json", "FILE", NULL, "write all of it there too; - is stdout"),
	VB_OPT_END};

VB_OPT_GROUPS(vb_dump_groups, struct vb_look_opts, {"What to look at", dump_options, NULL})

/* ---- joining ---- */

int vb_look_open(struct vb_look *l, const struct vb_look_opts *o)
{
	struct vb_fabric_params p = {.fabric = "shm", .name = o->segment, .attach = true};
	int err;

	*l = (struct vb_look){0};
	if (o->segment == NULL)
		return vb_fail(-EINVAL, "which segment? --segment NAME says it (ls /dev/shm shows "
					"those of this machine, as verbena.NAME)");
	err = vb_fabric_open(&p, &l->fabric);
	if (err == 0)
		err = vb_ep_open(l->fabric, 0, &l->ep);
	if (err)
		vb_look_close(l);
	return err;
}

void vb_look_close(struct vb_look *l)
{
	vb_ep_close(l->ep);
	vb_fabric_close(l->fabric);
	*l = (struct vb_look){0};
}

const char *vb_span(struct vb_span_text *t, uint64_t ns)
{
	static const char *const units[] = {"ns", "us", "ms", "s"};
	double v = (double)ns;
	unsigned u = 0;

	for (; v >= 1000 && u < VB_ARRAY_SIZE(units) - 1; u++)
		v /= 1000;
	snprintf(t->text, sizeof(t->text), "%.*f %s", u == 0 ? 0 : 1, v, units[u]);
	return t->text;
}

/* ---- for people ---- */

static uint64_t since(const struct vb_waits *w, uint64_t ns)
{
	return w->view->now_ns > ns ? w->view->now_ns - ns : 0;
}

struct client_text {
	char text[96];
};

static const char *tell_client(struct client_text *t, const struct vb_waits *w, unsigned i)
{
	const struct vb_board_slot *s = &w->view->slot[i];

	snprintf(t->text, sizeof(t->text), "client %" PRIu64 " (node %u, process %" PRIu64 "%s)",
		 s->index, w->view->node[i], s->pid, w->view->alive[i] ? "" : ", gone");
	return t->text;
}

/* A lock that somebody holds or waits for. */
struct row {
	uint64_t lock;
	unsigned waiters;
};

static int most_waited_for(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->waiters != y->waiters)
		return x->waiters > y->waiters ? -1 : 1;
	return x->lock < y->lock ? -1 : x->lock > y->lock;
}

static int by_number(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return x->lock < y->lock ? -1 : x->lock > y->lock;
}

/* Each lock once; *n of them, malloc'ed, or NULL. */
static struct row *rows_of(const struct vb_waits *w, unsigned *n)
{
	struct row *r = calloc((size_t)w->n_holds + w->n_waits + 1, sizeof(*r));
	unsigned all = 0, kept = 0;

	*n = 0;
	if (r == NULL)
		return NULL;
	for (unsigned i = 0; i < w->n_holds; i++)
		r[all++].lock = w->hold[i].lock;
	for (unsigned i = 0; i < w->view->n; i++)
		if (w->waits[i])
			r[all++] = (struct row){w->view->slot[i].wait.lock1 - 1, 1};
	qsort(r, all, sizeof(*r), by_number);
	for (unsigned i = 0; i < all; i++) {
		if (kept == 0 || r[kept - 1].lock != r[i].lock)
			r[kept++] = (struct row){.lock = r[i].lock};
		r[kept - 1].waiters += r[i].waiters;
	}
	qsort(r, kept, sizeof(*r), most_waited_for);
	*n = kept;
	return r;
}

static void print_lock(FILE *to, const struct vb_waits *w, uint64_t lock)
{
	struct client_text c;
	struct vb_span_text s;
	unsigned n;
	const struct vb_waits_hold *h = vb_waits_holders(w, lock, &n);

	fprintf(to, "\nlock %" PRIu64 "\n", lock);
	for (unsigned i = 0; i < n; i++)
		fprintf(to, "  held %s by %s for %s\n", vb_lock_mode_name(h[i].mode),
			tell_client(&c, w, h[i].client), vb_span(&s, since(w, h[i].since_ns)));
	if (n == 0)
		fprintf(to, "  held by nobody who shows it\n");
	for (unsigned i = 0; i < w->view->n; i++) {
		const struct vb_board_lock *l = &w->view->slot[i].wait;

		if (w->waits[i] && l->lock1 == lock + 1)
			fprintf(to, "  awaited %s by %s for %s\n",
				vb_lock_mode_name((enum vb_mode)l->mode), tell_client(&c, w, i),
				vb_span(&s, since(w, l->since_ns)));
	}
}

static unsigned length_of(const struct vb_waits *w, unsigned start)
{
	unsigned n = 0, i = start;

	do {
		n++;
		i = w->next[i];
	} while (i != start);
	return n;
}

/* The hold of `client` on what another waits for. */
static const struct vb_waits_hold *hold_of(const struct vb_waits *w, unsigned client, uint64_t lock)
{
	unsigned n;
	const struct vb_waits_hold *h = vb_waits_holders(w, lock, &n);

	for (unsigned i = 0; i < n; i++)
		if (h[i].client == client)
			return &h[i];
	return NULL;
}

static enum vb_mode mode_awaited(const struct vb_waits *w, unsigned client)
{
	return (enum vb_mode)w->view->slot[client].wait.mode;
}

static void print_cycle(FILE *to, const struct vb_waits *w, unsigned start)
{
	struct client_text a, b;
	struct vb_span_text s;
	unsigned i = start;

	fprintf(to, "\ncycle of %u: none of them goes on until one gives up\n",
		length_of(w, start));
	do {
		const struct vb_board_lock *l = &w->view->slot[i].wait;
		const struct vb_waits_hold *h = hold_of(w, w->next[i], l->lock1 - 1);

		fprintf(to, "  %s waits for lock %" PRIu64 " (%s, %s), %s %s by %s\n",
			tell_client(&a, w, i), l->lock1 - 1,
			vb_lock_mode_name((enum vb_mode)l->mode),
			vb_span(&s, since(w, l->since_ns)), h != NULL ? "held" : "awaited before",
			vb_lock_mode_name(h != NULL ? h->mode : mode_awaited(w, w->next[i])),
			tell_client(&b, w, w->next[i]));
		i = w->next[i];
	} while (i != start);
}

static uint64_t unseen_holds(const struct vb_board_view *v)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < v->n; i++)
		n += v->slot[i].unseen;
	return n;
}

void vb_dump_print(FILE *to, const char *space, const struct vb_waits *w, uint64_t most)
{
	const struct vb_board_view *v = w->view;
	uint64_t hidden = unseen_holds(v);
	unsigned n;
	struct row *r = rows_of(w, &n);

	fprintf(to,
		"lock space '%s': %" PRIu64
		" locks of '%s'; %u clients, %u locks held or awaited, %u "
		"clients waiting, %u cycle%s\n",
		space, v->head.locks, v->head.protocol, v->n, n, w->n_waits, w->n_cycles,
		w->n_cycles == 1 ? "" : "s");
	for (unsigned i = 0; r != NULL && i < n && i < most; i++)
		print_lock(to, w, r[i].lock);
	if (n > most)
		fprintf(to, "\n... and %" PRIu64 " locks more (--most)\n", n - most);
	for (unsigned i = 0; i < w->n_cycles; i++)
		print_cycle(to, w, w->cycle[i]);
	if (hidden != 0)
		fprintf(to,
			"\n%" PRIu64
			" locks are held that are not shown: a client shows %u of its own\n",
			hidden, VB_BOARD_HELD);
	if (v->head.unseen != 0)
		fprintf(to, "\n%" PRIu64 " clients are not shown: a node shows %u\n",
			v->head.unseen, VB_BOARD_SLOTS);
	free(r);
}

/* ---- as JSON ---- */

/* A client, and the lock that it has or awaits. */
static json_t *json_lock(const struct vb_waits *w, unsigned client, uint64_t lock, uint64_t mode,
			 uint64_t since_ns)
{
	const struct vb_board_slot *s = &w->view->slot[client];

	return json_pack("{s:I,s:i,s:I,s:b,s:o,s:s,s:o}", "client", (json_int_t)s->index, "node",
			 (int)w->view->node[client], "pid", (json_int_t)s->pid, "alive",
			 (int)w->view->alive[client], "lock", vb_json_word(lock), "mode",
			 vb_lock_mode_name((enum vb_mode)mode), "for_us",
			 vb_json_us((double)since(w, since_ns)));
}

static json_t *json_awaited(const struct vb_waits *w, unsigned client)
{
	const struct vb_board_lock *l = &w->view->slot[client].wait;

	return json_lock(w, client, l->lock1 - 1, l->mode, l->since_ns);
}

static json_t *json_of(const char *space, const struct vb_waits *w)
{
	json_t *root = vb_json_head(0), *held = json_array(), *awaited = json_array(),
	       *cycles = json_array();

	for (unsigned i = 0; i < w->n_holds; i++) {
		const struct vb_waits_hold *h = &w->hold[i];

		json_array_append_new(held, json_lock(w, h->client, h->lock, h->mode, h->since_ns));
	}
	for (unsigned i = 0; i < w->view->n; i++)
		if (w->waits[i])
			json_array_append_new(awaited, json_awaited(w, i));
	for (unsigned k = 0; k < w->n_cycles; k++) {
		json_t *cycle = json_array();
		unsigned i = w->cycle[k];

		do {
			json_array_append_new(cycle, json_awaited(w, i));
			i = w->next[i];
		} while (i != w->cycle[k]);
		json_array_append_new(cycles, cycle);
	}
	vb_json_set(root, "kind", "dump");
	vb_json_set(root, "space", space);
	vb_json_set(root, "lock_protocol", w->view->head.protocol);
	vb_json_set(root, "clients", w->view->n);
	vb_json_set(root, "held", held);
	vb_json_set(root, "awaited", awaited);
	vb_json_set(root, "cycles", cycles);
	return root;
}

/* ---- the command ---- */

int vb_dump_look(FILE *to, struct vb_ep *ep, const struct vb_look_opts *o, json_t **root)
{
	struct vb_board_view before, view;
	struct vb_waits w;
	int err = vb_board_view(ep, o->space, &before);

	if (err)
		return err;
	(void)vb_ep_sleep(ep, SETTLE_NS);
	err = vb_board_view(ep, o->space, &view);
	if (err == 0) {
		err = vb_waits_find(&before, &view, &w);
		if (err == 0) {
			if (to != NULL)
				vb_dump_print(to, o->space, &w, o->most);
			if (root != NULL)
				*root = json_of(o->space, &w);
			vb_waits_free(&w);
		}
		vb_board_view_free(&view);
	}
	vb_board_view_free(&before);
	return err;
}

int vb_dump(FILE *to, const struct vb_look_opts *o)
{
	bool only_json = o->json != NULL && strcmp(o->json, "-") == 0;
	json_t *root = NULL;
	struct vb_json_out out;
	struct vb_look l;
	int err = vb_look_open(&l, o);

	if (err)
		return err == -EINVAL ? VB_EXIT_USAGE : vb_exit_of(err);
	err = vb_json_out_open(&out, o->json);
	if (err == 0)
		err = vb_dump_look(only_json ? NULL : to, l.ep, o, &root);
	if (err == 0)
		err = vb_json_out_commit(&out, root);
	json_decref(root);
	vb_json_out_abandon(&out);
	vb_look_close(&l);
	return vb_exit_of(err);
}
