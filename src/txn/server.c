/* SPDX-License-Identifier: Apache-2.0 */
/* How the server of a node is started and stopped: as a task here, or on a thread of its own. */
#define VB_LOG_ROOM "txn"
#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "store/places.h"
#include "txn/serve.h"

#define STOP_POLL_NS 20000000ull

/* ---- starting and stopping ---- */

static vb_addr server_word(const struct vb_db_server *s)
{
	return s->db->region[s->node] + offsetof(struct vb_db_header, server);
}

/* Our name instead of nobody's, or of a dead server's. */
static int announce(struct vb_db_server *s)
{
	uint64_t was = 0, old;
	int err = vb_cas64(s->ep, server_word(s), was, s->ep->self, &old);

	while (err == 0 && old != was) {
		if (vb_peer_alive(s->db->fabric, old))
			return vb_fail(
				-EBUSY,
				"node %u has a server of database '%s' already, which lives: one "
				"is enough",
				s->node, s->db->name);
		was = old;
		err = vb_cas64(s->ep, server_word(s), was, s->ep->self, &old);
	}
	return err;
}

static void free_server(struct vb_db_server *s)
{
	vb_sequencer_close(s->sequencer);
	for (unsigned i = 0; i < REPLIES; i++)
		free(s->reply[i].buf);
	for (unsigned i = 0; i < WAITING_MAX; i++)
		free(s->waiting[i].items);
	free(s->now.items);
	free(s->image);
	free(s);
}

static int make_server(struct vb_db *db, uint16_t node, struct vb_db_server **out)
{
	size_t slot = (size_t)db->store.record_bytes_max + VB_SLOT_HEAD + 8;
	size_t one = db->store.slots * slot + db->store.meta_bytes + db->cc->item_bytes + 128;
	size_t image = ITEMS_MAX * (one > VB_SCAN_KEYS * 8 ? one : VB_SCAN_KEYS * 8);
	struct vb_db_server *s;
	bool room;

	if (node >= db->fabric->nodes)
		return vb_fail(-EINVAL, "there is no node %u: the fabric has %u", node,
			       db->fabric->nodes);
	if (vb_local(db->fabric, db->region[node], 8) == NULL)
		return vb_fail(-EXDEV, "node %u lives in another process: it is served there",
			       node);
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return vb_fail(-ENOMEM, "no memory for a server");
	s->db = db;
	s->node = node;
	s->image = aligned_alloc(64, (image + 63) & ~(size_t)63);
	s->now.items = aligned_alloc(64, db->call_bytes);
	room = s->now.items != NULL;
	for (unsigned i = 0; i < WAITING_MAX; i++) {
		s->waiting[i].items = aligned_alloc(64, db->call_bytes);
		room &= s->waiting[i].items != NULL;
	}
	for (unsigned i = 0; i < REPLIES; i++) {
		s->reply[i].buf = aligned_alloc(64, db->call_bytes);
		room &= s->reply[i].buf != NULL;
	}
	if (!room || s->image == NULL) {
		free_server(s);
		return vb_fail(-ENOMEM, "no memory for a server");
	}
	memset(s->image, 0, image);
	*out = s;
	return 0;
}

static int start_here(struct vb_db *db, uint16_t node, struct vb_db_server **out)
{
	static const struct vb_task_params params = {.name = "database server", .daemon = true};
	struct vb_db_server *s;
	int err = make_server(db, node, &s);

	if (err)
		return err;
	err = vb_ep_open(db->fabric, node, &s->ep);
	if (err) {
		free_server(s);
		return err;
	}
	vb_ep_serve(s->ep);
	vb_acc_init(&s->acc, s->ep, true, true);
	err = announce(s);
	for (unsigned i = 0; i < db->store.n_tables && err == 0; i++) {
		vb_index_repair(&db->store.table[i]->node[node].index);
		vb_places_forget(&db->store.table[i]->node[node]);
		err = vb_table_order_anew(db->store.table[i], node);
	}
	if (err == 0 && vb_cc_sequenced(db->cc))
		err = vb_sequencer_open(db, node, s->ep, &s->acc, &s->sequencer);
	if (err == 0)
		err = vb_task_spawn(s->ep->sched, vb_server_body, s, &params, &s->task);
	if (err) {
		vb_ep_close(s->ep);
		free_server(s);
		return err;
	}
	*out = s;
	return 0;
}

static void stop_here(struct vb_db_server *s)
{
	uint64_t old;

	(void)vb_cas64(s->ep, server_word(s), s->ep->self, 0, &old);
	s->stop = true;
	if (s->task != NULL)
		vb_task_cancel(s->task);
	/* It may be waiting for an answer to arrive: time must pass for that, also where it is
	 * virtual. */
	while (s->task != NULL)
		(void)vb_task_suspend_uninterruptible(vb_ep_now(s->ep) + LOOK_NS);
	vb_ep_close(s->ep);
	vb_opened_drop(&s->opened); /* last: whoever waits for it closes the fabric */
	free_server(s);
}

void vb_db_server_bury(struct vb_db_server *s)
{
	if (s == NULL)
		return;
	if (!s->db->fabric->no_keeper)
		vb_sched_background_end(s->ep->sched);
	vb_ep_close(s->ep);
	vb_opened_drop(&s->opened);
	free_server(s);
}

struct vb_ep *vb_db_server_ep(struct vb_db_server *s)
{
	return s->ep;
}

static void note_open(struct vb_db_server *s)
{
	s->opened = (struct vb_opened){
		.kind = "server", .of = s->db, .name = s->db->name, .node = s->node};
	vb_opened_note(s->db->fabric, &s->opened);
}

int vb_db_server_start(struct vb_db *db, uint16_t node, struct vb_db_server **out)
{
	VB_SCHED_INSIDE(vb_sched_here());
	int err;

	if (vb_any_null(db, out))
		return -EINVAL;
	err = vb_fabric_check(db->fabric);
	if (err == 0)
		err = start_here(db, node, out);
	if (err)
		return err;
	note_open(*out);
	if (db->fabric->no_keeper)
		return 0;
	vb_sched_background_begin((*out)->ep->sched);
	vb_keeper_settle((*out)->ep->sched);
	return 0;
}

void vb_db_server_stop(struct vb_db_server *s)
{
	if (s == NULL || vb_opened_check_mine(&s->opened) != 0 ||
	    (s->thread == NULL && vb_ep_check(s->ep) != 0))
		return;
	VB_SCHED_INSIDE(s->thread == NULL ? s->ep->sched : NULL);
	if (s->thread == NULL) {
		if (!s->db->fabric->no_keeper)
			vb_sched_background_end(s->ep->sched);
		stop_here(s);
		return;
	}
	__atomic_store_n(&s->stop, true, __ATOMIC_RELEASE);
	pthread_join(*s->thread, NULL);
	vb_opened_drop(&s->opened);
	free(s->thread);
	free(s);
}

/* ---- on a thread of its own ---- */

struct start {
	struct vb_db_server *outer;
	struct vb_db *db;
	uint16_t node;
	int err;
	bool ready;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
};

static void *thread_body(void *arg)
{
	struct start *t = arg;
	struct vb_db_server *inner = NULL, *outer = t->outer;
	int err = vb_sched_ready();
	bool ready = err == 0;

	if (ready)
		err = start_here(t->db, t->node, &inner);
	pthread_mutex_lock(&t->mutex);
	t->err = err;
	t->ready = true;
	pthread_cond_signal(&t->cond);
	pthread_mutex_unlock(&t->mutex);
	if (err == 0) {
		while (!__atomic_load_n(&outer->stop, __ATOMIC_ACQUIRE))
			vb_task_suspend(vb_sched_now(vb_sched_self()) + STOP_POLL_NS);
		stop_here(inner);
	}
	if (ready)
		vb_sched_destroy(vb_sched_self());
	return NULL;
}

int vb_db_server_thread_start(struct vb_db *db, uint16_t node, struct vb_db_server **out)
{
	struct start t = {
		.db = db,
		.node = node,
		.mutex = PTHREAD_MUTEX_INITIALIZER,
		.cond = PTHREAD_COND_INITIALIZER,
	};
	int err;

	if (vb_any_null(db, out))
		return -EINVAL;
	err = vb_fabric_check(db->fabric);
	if (err)
		return err;
	if (db->fabric->caps.flags & VB_CAP_VIRTUAL)
		return vb_fail(-EOPNOTSUPP,
			       "a simulated fabric has one thread; start a server task");
	t.outer = calloc(1, sizeof(*t.outer));
	if (t.outer != NULL)
		t.outer->thread = malloc(sizeof(*t.outer->thread));
	if (t.outer == NULL || t.outer->thread == NULL) {
		free(t.outer);
		return vb_fail(-ENOMEM, "no memory for a server");
	}
	err = -pthread_create(t.outer->thread, NULL, thread_body, &t);
	if (err) {
		vb_error("a server's thread cannot be made: %s", vb_strerror(err));
		goto fail;
	}
	pthread_mutex_lock(&t.mutex);
	while (!t.ready)
		pthread_cond_wait(&t.cond, &t.mutex);
	pthread_mutex_unlock(&t.mutex);
	err = t.err;
	if (err == 0) {
		t.outer->db = db;
		t.outer->node = node;
		note_open(t.outer);
		*out = t.outer;
		return 0;
	}
	pthread_join(*t.outer->thread, NULL);
fail:
	free(t.outer->thread);
	free(t.outer);
	return err;
}
