/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks on memory and connections that a program has already (verbena/provider.h), over plain rdma-core: as
 * own_fabric.c, with cards in the place of this process's memory.
 *
 * own_fabric_rdma.h is what the program has: two processes, each with a device and a piece of registered memory, and
 * queue pairs between them.  Here Verbena gets a part of that memory, and functions that reach it.  Then clients in
 * both processes count under a lock, once with "dslr" and once with "shiftlock", which hands its locks over by
 * messages.  The count lies in the same memory, behind what is lent, and is read and written by verbs of the program's.
 *
 * The CPU's view of the memory (`local`) is not given: neither lock wants it, nor the server of "shiftlock".
 *
 *	cc own_fabric_rdma.c -o own_fabric_rdma $(pkg-config --cflags --libs verbena) -libverbs -pthread
 *	./own_fabric_rdma [DEVICE [DEVICE]]
 *
 * Exit status 77 where there is no RDMA device.
 */
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include <verbena/lock.h>
#include <verbena/provider.h>

#include "own_fabric_rdma.h"

#define LENT_BYTES (1 << 20)
#define PLACES     16                               /* verbs of an endpoint that are under way */
#define WORDS      (VB_PROVIDER_VERB_BYTES / 8 + 1) /* that one verb touches at most */
#define THREADS    2
#define ROUNDS     100
#define BEGIN_NS   3000000000ull /* what has waited for its turn for longer is not begun any more */
#define LEASE_NS   10000000000ull

_Static_assert(MESSAGE_BYTES == VB_PROVIDER_MESSAGE_BYTES, "messages fit");
_Static_assert(LEASE_NS >= 2 * (REQUEST_NS + BEGIN_NS), "a lease is longer than two verbs");

/* A verb that is under way, or waits for its turn. */
struct going {
	struct vb_provider_verb v;
	bool used;
	unsigned out; /* work requests that have not ended */
	int err;
	uint64_t posted_ns;
	uint64_t expected[WORDS]; /* of a WRITE by words: what each is taken to be */
};

/* Its memory has PLACES verbs, and behind them for each the words that its atomics have found. */
struct endpoint {
	struct caller c;
	bool by_words; /* where words may be torn, READs and WRITEs are made of atomics */
	bool broken[NODES];
	struct going going[PLACES];
	unsigned queue[PLACES], head, tail; /* of `going`: not begun */
	const struct going *writing;        /* a WRITE by words, of which not all words are */
	struct vb_provider_end end[PLACES];
	unsigned ends;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* ---- verbs ---- */

static void has_ended(struct endpoint *e, struct going *g)
{
	e->end[e->ends++] = (struct vb_provider_end){.id = g->v.id, .err = g->err};
	g->used = false;
}

/* One work request; `word` comes back with its end. */
static void request(struct endpoint *e, struct going *g, unsigned word, void *local, uint32_t bytes,
		    struct ibv_send_wr wr)
{
	struct ibv_sge sge = {(uintptr_t)local, bytes, e->c.mr->lkey};
	struct ibv_send_wr *bad;

	wr.wr_id = (uint64_t)(g - e->going) << 8 | word;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_SIGNALED | (g->v.fence ? IBV_SEND_FENCE : 0);
	if (ibv_post_send(e->c.qp[g->v.node], &wr, &bad) == 0) {
		g->out++;
		return;
	}
	e->broken[g->v.node] = true;
	g->err = -VB_EUNKNOWN;
}

static struct ibv_send_wr atomic_at(const struct endpoint *e, const struct going *g,
				    uint64_t offset, enum ibv_wr_opcode op, uint64_t compare_add,
				    uint64_t swap)
{
	const struct address *to = &e->c.to[g->v.node];

	return (struct ibv_send_wr){.opcode = op,
				    .wr.atomic = {.remote_addr = to->memory + offset,
						  .rkey = to->rkey,
						  .compare_add = compare_add,
						  .swap = swap}};
}

/*
 * Where words may be torn, a READ is a FAA of nothing on each of its words, and a WRITE a CAS of each, from what the
 * word is taken to be, and again from what it was found to be.  So all that touches what is lent is an atomic of one
 * device.  The CPU of the node must stay away from it then: an atomic of Soft-RoCE loads the word and stores it
 * again, also if it is the same, and what the CPU has stored meanwhile is gone.
 */
static bool is_by_words(const struct endpoint *e, const struct vb_provider_verb *v)
{
	return e->by_words && e->c.to[v->node].tears &&
	       (v->op == VB_PROVIDER_READ || v->op == VB_PROVIDER_WRITE);
}

static unsigned words_of(const struct vb_provider_verb *v)
{
	return (unsigned)((v->offset % 8 + v->bytes + 7) / 8);
}

static uint64_t *words_found(const struct endpoint *e, const struct going *g)
{
	return (uint64_t *)(e->c.memory + PLACES * VB_PROVIDER_VERB_BYTES) +
	       (size_t)(g - e->going) * WORDS;
}

/* What the word becomes: of its first or last one the WRITE may have some bytes only. */
static uint64_t word_written(const struct vb_provider_verb *v, unsigned word, uint64_t was)
{
	const uint8_t *from = v->local;
	uint8_t bytes[8];

	memcpy(bytes, &was, sizeof(bytes));
	for (unsigned i = 0; i < 8; i++) {
		const uint64_t at = 8ull * word + i;

		if (at >= v->offset % 8 && at - v->offset % 8 < v->bytes)
			bytes[i] = from[at - v->offset % 8];
	}
	memcpy(&was, bytes, sizeof(was));
	return was;
}

/* It would take effect later than Verbena has been told.  Nothing may be posted behind it then: who hears of a lock by
 * the message behind a WRITE finds it written. */
static bool is_late(struct endpoint *e, const struct going *g)
{
	e->broken[g->v.node] |= now_ns() - g->posted_ns > BEGIN_NS;
	return e->broken[g->v.node];
}

static void begin_word(struct endpoint *e, struct going *g, unsigned word)
{
	const uint64_t at = (g->v.offset & ~7ull) + 8ull * word, was = g->expected[word];
	const struct ibv_send_wr wr =
		g->v.op == VB_PROVIDER_READ ? atomic_at(e, g, at, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0)
					    : atomic_at(e, g, at, IBV_WR_ATOMIC_CMP_AND_SWP, was,
							word_written(&g->v, word, was));

	request(e, g, word, words_found(e, g) + word, 8, wr);
}

/* As in the table of doc/own-fabric.md. */
static void begin_whole(struct endpoint *e, struct going *g)
{
	const struct vb_provider_verb *v = &g->v;
	struct ibv_send_wr wr = {0};

	switch (v->op) {
	case VB_PROVIDER_READ:
	case VB_PROVIDER_WRITE:
		wr.opcode = v->op == VB_PROVIDER_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr = e->c.to[v->node].memory + v->offset;
		wr.wr.rdma.rkey = e->c.to[v->node].rkey;
		break;
	case VB_PROVIDER_CAS:
		wr = atomic_at(e, g, v->offset, IBV_WR_ATOMIC_CMP_AND_SWP, v->compare, v->value);
		break;
	case VB_PROVIDER_FAA:
		wr = atomic_at(e, g, v->offset, IBV_WR_ATOMIC_FETCH_AND_ADD, v->value, 0);
		break;
	case VB_PROVIDER_SEND:
		wr.opcode = IBV_WR_SEND_WITH_IMM;
		wr.imm_data = htonl(v->client);
		break;
	}
	request(e, g, 0, v->local, v->bytes, wr);
}

/* In their order.  Behind a WRITE by words all wait: it has taken effect only when its last CAS has. */
static void begin_next(struct program *p, struct endpoint *e)
{
	while (e->head != e->tail && e->writing == NULL) {
		struct going *g = &e->going[e->queue[e->head++ % PLACES]];
		const bool by_words = is_by_words(e, &g->v);

		if (is_late(e, g) ||
		    (g->v.op == VB_PROVIDER_SEND && !is_here(p, g->v.node, g->v.client)))
			g->err = -VB_EPEERGONE;
		else if (!by_words)
			begin_whole(e, g);
		for (unsigned i = 0; by_words && i < words_of(&g->v) && g->err == 0; i++)
			begin_word(e, g, i);
		if (g->out == 0)
			has_ended(e, g);
		else if (by_words && g->v.op == VB_PROVIDER_WRITE)
			e->writing = g;
	}
}

static void request_ended(struct endpoint *e, const struct ibv_wc *wc)
{
	struct going *g = &e->going[wc->wr_id >> 8];
	const unsigned word = wc->wr_id & 0xff;
	const uint64_t *found = words_found(e, g);

	g->out--;
	if (wc->status != IBV_WC_SUCCESS) {
		e->broken[g->v.node] = true;
		g->err = -VB_EUNKNOWN;
	}
	if (g == e->writing && g->err == 0 && found[word] != g->expected[word]) {
		g->expected[word] = found[word];
		if (is_late(e, g))
			g->err = -VB_EUNKNOWN;
		else
			begin_word(e, g, word);
	}
	if (g->out > 0)
		return;
	if (g->err == 0 && g->v.op == VB_PROVIDER_READ && is_by_words(e, &g->v))
		memcpy(g->v.local, (const uint8_t *)found + g->v.offset % 8, g->v.bytes);
	if (g == e->writing)
		e->writing = NULL;
	has_ended(e, g);
}

/* ---- what Verbena calls ---- */

static int ep_open(void *ctx, uint16_t node, struct vb_provider_endpoint *out)
{
	struct program *p = ctx;
	struct endpoint *e;
	int err;

	if (node != p->rank)
		return -EXDEV;
	e = calloc(1, sizeof(*e));
	if (e == NULL)
		return -ENOMEM;
	e->by_words = true;
	err = caller_open(p, &e->c, PLACES * (VB_PROVIDER_VERB_BYTES + WORDS * sizeof(uint64_t)),
			  PLACES * WORDS);
	if (err != 0) {
		free(e);
		return err;
	}
	*out = (struct vb_provider_endpoint){.ep = e,
					     .client = e->c.client,
					     .buffer = e->c.memory,
					     .buffer_bytes = PLACES * VB_PROVIDER_VERB_BYTES};
	return 0;
}

static void ep_close(void *ctx, void *ep)
{
	struct endpoint *e = ep;

	caller_close(ctx, &e->c);
	free(e);
}

static int post(void *ctx, void *ep, const struct vb_provider_verb *verbs, unsigned n)
{
	struct endpoint *e = ep;
	const uint64_t posted_ns = now_ns();
	unsigned at = 0;

	for (unsigned i = 0; i < n; i++) {
		while (e->going[at].used)
			at++;
		e->going[at] = (struct going){.v = verbs[i], .used = true, .posted_ns = posted_ns};
		e->queue[e->tail++ % PLACES] = at;
	}
	begin_next(ctx, e);
	return 0;
}

static int poll_ends(void *ctx, void *ep, struct vb_provider_end *out, unsigned n)
{
	struct endpoint *e = ep;
	struct ibv_wc wc[PLACES];
	const int ended = ibv_poll_cq(e->c.cq, PLACES, wc);

	if (ended < 0)
		return -EIO;
	for (int i = 0; i < ended; i++)
		request_ended(e, &wc[i]);
	begin_next(ctx, e);
	if (n > e->ends)
		n = e->ends;
	memcpy(out, e->end, n * sizeof(*out));
	e->ends -= n;
	memmove(e->end, e->end + n, e->ends * sizeof(*out));
	return (int)n;
}

static int receive(void *ctx, void *ep, void *message)
{
	return take_message(ctx, &((struct endpoint *)ep)->c, message) ? 0 : -EAGAIN;
}

/* Each endpoint has a connection here, which ends with it or with its process. */
static bool alive(void *ctx, uint16_t node, uint32_t client)
{
	return is_here(ctx, node, client);
}

/* ---- what uses it ---- */

struct worker {
	struct program *p;
	struct vb_lock_space *space;
	uint64_t count_at;
	int err;
	pthread_t thread;
};

/* A verb of the program's own, outside of what is lent. */
static int run(struct program *p, struct endpoint *e, enum vb_provider_op op, uint64_t at)
{
	const struct vb_provider_verb v = {
		.op = op, .node = NODES - 1, .offset = at, .bytes = 8, .local = e->c.memory};
	struct vb_provider_end end;
	int n;

	(void)post(p, e, &v, 1);
	while ((n = poll_ends(p, e, &end, 1)) == 0)
		sched_yield();
	return n < 0 ? n : end.err;
}

/* What Verbena's endpoints are made with serves the program, too.  Nobody else touches the count. */
static int count_one(struct program *p, struct endpoint *e, uint64_t at)
{
	int err = run(p, e, VB_PROVIDER_READ, at);

	++*(uint64_t *)(void *)e->c.memory;
	return err != 0 ? err : run(p, e, VB_PROVIDER_WRITE, at);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct vb_provider_endpoint own;
	struct vb_lock_client *me = NULL;
	struct vb_grant grant;

	w->err = ep_open(w->p, w->p->rank, &own);
	if (w->err != 0)
		return NULL;
	((struct endpoint *)own.ep)->by_words = false;
	w->err = vb_lock_client_open(w->space, w->p->rank, &me);
	for (int i = 0; i < ROUNDS && w->err == 0; i++) {
		w->err = vb_lock_acquire(me, 7, VB_EXCLUSIVE, VB_FOREVER_NS, &grant);
		if (w->err != 0)
			break;
		w->err = count_one(w->p, own.ep, w->count_at);
		if (w->err == 0)
			w->err = vb_lock_release(me, &grant);
	}
	if (me != NULL)
		vb_lock_client_close(me);
	ep_close(w->p, own.ep);
	return NULL;
}

static int count_under(struct program *p, struct vb_fabric *fabric, const char *lock, uint64_t at,
		       pthread_barrier_t *together)
{
	struct vb_lock_space_params params = {
		.lock = lock, .name = lock, .locks = 100, .servers = NODES, .lease_ns = LEASE_NS};
	struct vb_lock_server *server = NULL;
	struct worker w[THREADS];
	struct vb_lock_space *space;
	int err = vb_lock_space_open(fabric, &params, &space);

	if (err != 0)
		return err;
	/* "shiftlock" has one for its recovery; "dslr" has none. */
	err = vb_lock_server_thread_start(space, p->rank, &server);
	if (err != 0)
		return err;
	pthread_barrier_wait(together);
	for (int i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.p = p, .space = space, .count_at = at};
		must(pthread_create(&w[i].thread, NULL, work, &w[i]) == 0, "no thread");
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		err = err != 0 ? err : w[i].err;
	}
	/* All have counted when all are here. */
	if (err == 0)
		pthread_barrier_wait(together);
	if (err == 0 && p->rank == NODES - 1) {
		const uint64_t count = *(uint64_t *)(void *)(p->memory + at);

		printf("%s: %llu\n", lock, (unsigned long long)count);
		err = count == NODES * THREADS * ROUNDS ? 0 : -EPROTO;
	}
	vb_lock_server_stop(server);
	vb_lock_space_close(space);
	return err;
}

static int use(struct program *p, const struct vb_provider *mine, pthread_barrier_t *together)
{
	static const char *const locks[] = {"dslr", "shiftlock"};
	struct vb_provider_broken broken;
	struct vb_fabric *fabric;
	int err = 0;

	/* In a program this is among its tests.  Nobody else uses the memory meanwhile. */
	if (p->rank == 0 && vb_provider_check(mine, &broken) != 0) {
		fprintf(stderr, "%s: %s\n", broken.promise, broken.seen);
		return -EPROTO;
	}
	pthread_barrier_wait(together);
	err = vb_fabric_provide(mine, &fabric);
	if (err != 0)
		return err;
	for (unsigned i = 0; i < 2 && err == 0; i++)
		err = count_under(p, fabric, locks[i], LENT_BYTES + 64 * i, together);
	/* What is lent stays until nobody uses it. */
	vb_fabric_close(fabric);
	if (err == 0)
		pthread_barrier_wait(together);
	return err;
}

static int process(struct program *p, const char *device, pthread_barrier_t *together)
{
	const struct vb_provider mine = {
		.bytes = sizeof(mine),
		.name = "connections",
		.ctx = p,
		.nodes = NODES,
		.home = p->rank,
		.node_bytes = LENT_BYTES,
		.verb_bound_ns = BEGIN_NS + REQUEST_NS,
		.end_ns = 2 * (BEGIN_NS + REQUEST_NS),
		.seed = p->rank,
		.ep_open = ep_open,
		.ep_close = ep_close,
		.post = post,
		.poll = poll_ends,
		.recv = receive,
		.alive = alive,
	};
	int err;

	program_open(p, device);
	printf("%u: %s, %s\n", p->rank, ibv_get_device_name(p->device->device),
	       p->here.tears ? "whose READs and WRITEs may tear words: by atomics"
			     : "whose READs and WRITEs are used");
	err = use(p, &mine, together);
	if (err != 0)
		fprintf(stderr, "%u: %s\n", p->rank, vb_strerror(err));
	else
		program_close(p);
	fflush(stdout);
	return err != 0;
}

static bool any_device(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	if (list != NULL)
		ibv_free_device_list(list);
	return n > 0;
}

static int listen_somewhere(uint16_t *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	must(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 &&
		     listen(fd, PEERS) == 0 && getsockname(fd, (struct sockaddr *)&at, &bytes) == 0,
	     "no port to listen on");
	*port = ntohs(at.sin_port);
	return fd;
}

int main(int argc, char **argv)
{
	static struct program p;
	pthread_barrier_t *together = mmap(NULL, sizeof(*together), PROT_READ | PROT_WRITE,
					   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int listener[NODES], status, bad = 0;
	pthread_barrierattr_t shared;
	pid_t pid[NODES], ended;

	if (!any_device()) {
		puts("there is no RDMA device");
		return 77;
	}
	must(together != MAP_FAILED, "no memory");
	pthread_barrierattr_init(&shared);
	pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(together, &shared, NODES);
	for (int i = 0; i < NODES; i++)
		listener[i] = listen_somewhere(&p.port[i]);
	/* Before a device is opened: what is registered does not survive a fork. */
	for (int i = 0; i < NODES; i++) {
		p.rank = (uint16_t)i;
		p.listener = listener[i];
		pid[i] = fork();
		must(pid[i] >= 0, "no process");
		if (pid[i] == 0)
			exit(process(&p, argc > 1 + i ? argv[1 + i] : argv[1], together));
	}
	while ((ended = wait(&status)) > 0) {
		bad |= status != 0;
		for (int i = 0; i < NODES; i++) {
			if (pid[i] == ended)
				pid[i] = 0;
			/* The other would wait for it. */
			else if (status != 0 && pid[i] > 0)
				kill(pid[i], SIGKILL);
		}
	}
	return bad;
}
