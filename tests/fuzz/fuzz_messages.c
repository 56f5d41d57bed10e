/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arbitrary messages to lock servers and to clients that wait, hold and release.
 *
 * A peer that lies can have a lock granted twice; no protocol of this kind survives that.  What
 * must hold whatever comes: nothing is read or written outside of the space that is meant, every
 * client's call ends, and so does the server's handler.
 *
 * Input: records of 65 bytes.  The first says for whom the message is and whether its subject is
 * made to fit; the message follows.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "fabric/sim/sim.h"
#include "lock/lock.h"

#define RECORDS_MAX 64
#define NODES       3
#define US          1000ull
#define LEASE_NS    (2000 * US)
#define CANARY      0x5ca1ab1e0ddba11ull
#define CANARIES    32

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Those with messages: to a server, or between clients. */
static const char *const protocols[] = {"rpc",    "shiftlock", "mcs", "ncosed", "traditional-ro",
					"rma-rw", "table"};
#define PROTOCOLS VB_ARRAY_SIZE(protocols)

struct party {
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *client[2];
	unsigned ended;
};

struct world {
	struct vb_fabric *f;
	struct vb_ep *liar;
	vb_addr canary;
	struct party party[PROTOCOLS];
	const uint8_t *data;
	size_t records;
};

struct actor {
	struct party *p;
	unsigned i;
};

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fuzz_messages: %s\n", what);
	abort();
}

/* Takes lock 0 again and again with little patience. */
static void client_body(void *arg)
{
	struct actor *a = arg;
	struct vb_lock_client *me = a->p->client[a->i];

	for (unsigned i = 0; i < 3; i++) {
		struct vb_grant g;

		if (vb_lock_acquire(me, 0, VB_EXCLUSIVE, 5 * LEASE_NS, &g) != 0)
			continue;
		(void)vb_ep_sleep(me->ep, LEASE_NS / 4);
		(void)vb_lock_release(me, &g);
	}
	a->p->ended++;
}

static void send_record(struct world *w, const uint8_t *record)
{
	struct party *p = &w->party[record[0] % PROTOCOLS];
	unsigned whom = record[0] / PROTOCOLS % 3;
	struct vb_msg m;

	memcpy(&m, record + 1, sizeof(m));
	if (whom == 2) {
		if (p->server != NULL)
			p->space->ops->serve(p->server, &m);
		return;
	}
	if (record[0] & 0x80)
		m.subject = vb_lock_entry(p->space, 0);
	m.len = m.len <= VB_MSG_DATA ? m.len : VB_MSG_DATA; /* the fabric's own check */
	(void)vb_send(w->liar, p->client[whom]->ep->self, &m);
}

static void liar_body(void *arg)
{
	struct world *w = arg;

	for (size_t i = 0; i < w->records; i++) {
		send_record(w, w->data + i * (1 + sizeof(struct vb_msg)));
		(void)vb_ep_sleep(w->liar, LEASE_NS / 10);
	}
}

static void open_party(struct world *w, struct party *p, const char *protocol)
{
	struct vb_lock_space_params sp = {
		.lock = protocol, .name = protocol, .locks = 4, .lease_ns = LEASE_NS};

	must(vb_lock_space_open(w->f, &sp, &p->space) == 0, "no space");
	must(vb_lock_server_start(p->space, 0, 0, 1, &p->server) == 0, "no server");
	for (uint16_t i = 0; i < 2; i++)
		must(vb_lock_client_open(p->space, (uint16_t)(1 + i), &p->client[i]) == 0,
		     "no client");
}

static void open_world(struct world *w)
{
	struct vb_fabric_params fp = {.fabric = "sim",
				      .options = "profile=cx5,bound=100us",
				      .nodes = NODES,
				      .node_bytes = 1 << 20,
				      .endpoints = 64,
				      .seed = 1};
	bool fresh;

	must(vb_fabric_open(&fp, &w->f) == 0, "no fabric");
	must(vb_ep_open(w->f, 2, &w->liar) == 0, "no endpoint");
	must(vb_region(w->f, 0, "canary", CANARIES * 8, &w->canary, &fresh) == 0, "no region");
	for (unsigned i = 0; i < CANARIES; i++)
		((uint64_t *)vb_local(w->f, w->canary, CANARIES * 8))[i] = CANARY;
	for (unsigned i = 0; i < PROTOCOLS; i++)
		open_party(w, &w->party[i], protocols[i]);
}

static void close_world(struct world *w)
{
	for (unsigned i = 0; i < PROTOCOLS; i++) {
		for (unsigned j = 0; j < 2; j++)
			vb_lock_client_close(w->party[i].client[j]);
		vb_lock_server_stop(w->party[i].server);
		vb_lock_space_close(w->party[i].space);
	}
	vb_ep_close(w->liar);
	vb_fabric_close(w->f);
	vb_sched_destroy(vb_sched_self());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world w = {.data = data, .records = size / (1 + sizeof(struct vb_msg))};
	struct actor actors[PROTOCOLS][2];
	struct vb_sched *s;
	char said[256];

	if (w.records > RECORDS_MAX)
		w.records = RECORDS_MAX;
	vb_log_capture_begin(said, sizeof(said)); /* refusals are what is wanted here */
	open_world(&w);
	s = w.liar->sched;
	for (unsigned i = 0; i < PROTOCOLS; i++) {
		for (unsigned j = 0; j < 2; j++) {
			actors[i][j] = (struct actor){.p = &w.party[i], .i = j};
			must(vb_task_spawn(s, client_body, &actors[i][j], NULL, NULL) == 0,
			     "no task");
		}
	}
	must(vb_task_spawn(s, liar_body, &w, NULL, NULL) == 0, "no task");
	must(vb_sched_run(s, NULL, vb_sched_now(s) + 1000000 * LEASE_NS) == 0,
	     "a call does not end");
	for (unsigned i = 0; i < PROTOCOLS; i++)
		must(w.party[i].ended == 2, "a client did not end");
	for (unsigned i = 0; i < CANARIES; i++)
		must(((uint64_t *)vb_local(w.f, w.canary, CANARIES * 8))[i] == CANARY,
		     "a server has written outside of its space");
	close_world(&w);
	vb_log_capture_end();
	return 0;
}
