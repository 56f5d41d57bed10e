/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs and locks between two processes on a network fabric, beside a bare TCP socket between the
 * same two.
 *
 * This process only forks and waits, because a network library does not survive the fork of the
 * next section.  A pair is a driver (rank 0), which measures, and a server (rank 1), which does
 * what the driver tells it through a page that they share: serve the fabric, echo on the
 * socket, compute.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/fabric/fabric.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hist.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "lab/bench/engine/process.h"
#include "lab/reap.h"
#include "lab/run.h"

#define ROUNDS     100u /* of a turn */
#define SINGLES    4000u
#define BATCH      16u
#define MESSAGE    512u
#define COMPUTE_NS 20000000ull
#define CHANGE_NS  10000000000ull /* until the other has seen what to do next */
#define QUIT       0xff

enum server_mode { IDLE, SERVE, ECHO_SPIN, ECHO_BLOCK, COMPUTE, LEAVE };

struct pair_page {
	uint32_t wanted, doing; /* enum server_mode */
	uint32_t failed, ended;
	double read_ns, worst_ns; /* of pair_times */
	struct vb_floor floor;    /* what the driver has to say */
};

struct pair {
	const char *fabric, *options, *section;
	enum server_mode meanwhile; /* busy: what the server does */
	int listening;
	uint16_t port;
	int sock[2];
	struct pair_page *page;
	pid_t pid[2];
	struct vb_cluster_key key; /* of the two */
	/* in one of the two */
	struct vb_cluster *cluster;
	struct vb_fabric *f;
	struct vb_ep *ep;
	vb_addr at; /* on the server's node */
	struct vb_lock_space *cas, *rpc;
	struct vb_lock_client *cas_me, *rpc_me;
	struct vb_lock_server *server;
};

/* ---- both processes ---- */

/* Two ends of a TCP connection over loopback, as a two-sided protocol would have it. */
static int tcp_pair(int sock[2])
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int on = 1, l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	sock[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	sock[1] = -1;
	if (l < 0 || sock[0] < 0 || bind(l, (struct sockaddr *)&a, sizeof(a)) != 0 ||
	    listen(l, 1) != 0 || getsockname(l, (struct sockaddr *)&a, &len) != 0 ||
	    connect(sock[0], (struct sockaddr *)&a, sizeof(a)) != 0 ||
	    (sock[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC)) < 0) {
		int err = -errno;

		close(l);
		close(sock[0]);
		return vb_fail(err, "no TCP connection over loopback: %s", strerror(-err));
	}
	close(l);
	for (unsigned i = 0; i < 2; i++)
		setsockopt(sock[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return 0;
}

static int open_lock(struct pair *p, const char *lock, struct vb_lock_space **out)
{
	uint64_t bound = p->f->caps.verb_bound_ns;
	const struct vb_lock_space_params sp = {
		.lock = lock,
		.name = lock,
		.locks = 2, /* lock 1 is the server's */
		.servers = 2,
		.lease_ns = bound > 5000000 ? 2 * bound + bound / 8 : 10000000,
	};

	return vb_lock_space_open(p->f, &sp, out);
}

static int open_side(struct pair *p, uint32_t rank)
{
	struct vb_cluster_params cp = {.hosts = 2, .rank = rank};
	struct vb_fabric_params fp = {.fabric = p->fabric,
				      .options = p->options,
				      .nodes = 2,
				      .node_bytes = 4 << 20,
				      .endpoints = 16,
				      .no_keeper = true};
	char meet[32];
	bool fresh;
	int err;

	vb_sched_forget();
	if (rank == 0) {
		err = vb_cluster_open_keyed(&cp, p->listening, &p->key, &p->cluster);
	} else {
		close(p->listening);
		snprintf(meet, sizeof(meet), "127.0.0.1:%u", p->port);
		cp.role = VB_CLUSTER_MEMBER;
		cp.meet = meet;
		err = vb_cluster_open_keyed(&cp, -1, &p->key, &p->cluster);
	}
	fp.cluster = p->cluster;
	if (err == 0)
		err = vb_fabric_open(&fp, &p->f);
	if (err == 0 && rank == 1)
		err = vb_region(p->f, 1, "floor", 4096, &p->at, &fresh);
	if (err == 0)
		err = open_lock(p, "cas", &p->cas);
	if (err == 0)
		err = open_lock(p, "rpc", &p->rpc);
	if (err == 0)
		err = vb_lock_server_start(p->rpc, (uint16_t)rank, 0, 1, &p->server);
	if (err == 0)
		err = vb_cluster_barrier(p->cluster);
	if (err == 0 && rank == 0)
		err = vb_region(p->f, 1, "floor", 4096, &p->at, &fresh);
	if (err == 0 && rank == 0)
		err = vb_ep_open(p->f, 0, &p->ep);
	if (err == 0 && rank == 0)
		err = vb_lock_client_open(p->cas, 0, &p->cas_me);
	if (err == 0 && rank == 0)
		err = vb_lock_client_open(p->rpc, 0, &p->rpc_me);
	return err;
}

static void close_side(struct pair *p)
{
	vb_lock_client_close(p->cas_me);
	vb_lock_client_close(p->rpc_me);
	vb_cluster_barrier(p->cluster); /* who closes needs the other's answers */
	vb_ep_close(p->ep);
	vb_lock_server_stop(p->server);
	vb_lock_space_close(p->cas);
	vb_lock_space_close(p->rpc);
	vb_fabric_close(p->f);
	vb_cluster_close(p->cluster);
}

/* ---- the server ---- */

static bool move_all(int fd, void *buf, size_t n, bool spin, bool out)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = out ? send(fd, (char *)buf + done, n - done, MSG_NOSIGNAL)
				: recv(fd, (char *)buf + done, n - done, spin ? MSG_DONTWAIT : 0);

		if (k > 0)
			done += (size_t)k;
		else if (k == 0 || (errno != EAGAIN && errno != EINTR))
			return false;
	}
	return true;
}

/* Until the driver says that the turn is over. */
static void echo(struct pair *p, bool spin)
{
	unsigned char buf[MESSAGE];
	uint32_t size;

	while (move_all(p->sock[1], &size, sizeof(size), spin, false)) {
		if (size == 0 || size > sizeof(buf))
			return;
		do {
			if (!move_all(p->sock[1], buf, size, spin, false))
				return;
			if (buf[0] != QUIT && !move_all(p->sock[1], buf, size, spin, true))
				return;
		} while (buf[0] != QUIT);
		return;
	}
}

static void compute(void)
{
	uint64_t until = vb_clock_gettime_ns() + COMPUTE_NS;

	while (vb_clock_gettime_ns() < until)
		;
}

static void server_main(struct pair *p)
{
	struct vb_sched *s = vb_sched_self();

	for (;;) {
		uint32_t mode = __atomic_load_n(&p->page->wanted, __ATOMIC_ACQUIRE);
		bool news = mode != __atomic_exchange_n(&p->page->doing, mode, __ATOMIC_ACQ_REL);

		if (mode == LEAVE)
			return;
		if ((mode == ECHO_SPIN || mode == ECHO_BLOCK) && news)
			echo(p, mode == ECHO_SPIN);
		else if (mode == COMPUTE)
			compute();
		vb_task_sleep_until(vb_sched_now_slow(s) + (mode == COMPUTE ? 1000 : 200000));
	}
}

/* ---- the driver ---- */

static int tell(struct pair *p, enum server_mode mode)
{
	uint64_t until = vb_clock_gettime_ns() + CHANGE_NS;

	__atomic_store_n(&p->page->wanted, mode, __ATOMIC_RELEASE);
	while (__atomic_load_n(&p->page->doing, __ATOMIC_ACQUIRE) != mode) {
		if (vb_clock_gettime_ns() > until)
			return vb_fail(-ETIMEDOUT, "the other process of the pair does not answer");
		usleep(50);
	}
	return 0;
}

enum {
	READ8,
	READ512,
	WRITE64,
	FAA,
	FAA_BATCH,
	CAS_LOCK,
	RPC_LOCK,
	SOCKET64,
	SOCKET512,
	SOCKET_BLOCKING
};

static int faa_batch(struct pair *p)
{
	struct vb_verb v[BATCH];

	for (unsigned i = 0; i < BATCH; i++)
		v[i] = (struct vb_verb){.op = VB_OP_FAA64,
					.flags = VB_SIGNALLED,
					.addr = p->at + 128 + 8 * i,
					.compare = {.lo = 1}};
	return vb_post_wait(p->ep, v, BATCH);
}

static int lock_cycle(struct vb_lock_client *me)
{
	struct vb_grant g;
	int err = vb_lock_acquire(me, 1, VB_EXCLUSIVE, VB_FOREVER_NS, &g);

	return err != 0 ? err : vb_lock_release(me, &g);
}

static int round_of(struct pair *p, unsigned what)
{
	static char buf[MESSAGE];
	uint64_t old;

	switch (what) {
	case READ8:
		return vb_read(p->ep, p->at, buf, 8);
	case READ512:
		return vb_read(p->ep, p->at, buf, MESSAGE);
	case WRITE64:
		return vb_write(p->ep, p->at + 64, buf, 64);
	case FAA:
		return vb_faa64(p->ep, p->at, 1, &old);
	case FAA_BATCH:
		return faa_batch(p);
	default:
		return lock_cycle(what == CAS_LOCK ? p->cas_me : p->rpc_me);
	}
}

static int bounce(struct pair *p, uint32_t n, bool spin)
{
	unsigned char buf[MESSAGE] = {0};

	return move_all(p->sock[0], buf, n, spin, true) && move_all(p->sock[0], buf, n, spin, false)
		       ? 0
		       : -EPIPE;
}

/* The server echoes messages of n bytes from the first to the second. */
static int echo_begin(struct pair *p, uint32_t n, bool spin)
{
	int err = tell(p, spin ? ECHO_SPIN : ECHO_BLOCK);

	return err == 0 && move_all(p->sock[0], &n, sizeof(n), spin, true) ? 0 : -EPIPE;
}

static int echo_end(struct pair *p, uint32_t n, bool spin)
{
	unsigned char quit[MESSAGE] = {QUIT};

	return move_all(p->sock[0], quit, n, spin, true) && tell(p, SERVE) == 0 ? 0 : -EPIPE;
}

static double turn(void *ctx, unsigned what)
{
	const bool socket = what >= SOCKET64, spin = what != SOCKET_BLOCKING;
	const uint32_t size = what == SOCKET512 ? MESSAGE : 64;
	struct pair *p = ctx;
	int err = socket ? echo_begin(p, size, spin) : 0;
	double ns = VB_FLOOR_TIMED(ROUNDS, {
		if (err == 0)
			err = socket ? bounce(p, size, spin) : round_of(p, what);
	});

	if (err == 0 && socket)
		err = echo_end(p, size, spin);
	return err != 0 ? err : what == FAA_BATCH ? ns / BATCH : ns;
}

/* The slowest of a hundred. */
static int measure_tail(struct pair *p)
{
	struct vb_hist *h = malloc(2 * sizeof(*h));
	int err = h == NULL ? -ENOMEM : 0;

	for (unsigned socket = 0; socket < 2 && err == 0; socket++) {
		vb_hist_init(&h[socket]);
		err = socket ? echo_begin(p, 64, true) : 0;
		for (unsigned i = 0; i < SINGLES && err == 0; i++) {
			uint64_t from = vb_clock_gettime_ns();

			err = socket ? bounce(p, 64, true) : round_of(p, READ8);
			vb_hist_record(&h[socket], vb_clock_gettime_ns() - from);
		}
	}
	if (err == 0)
		err = echo_end(p, 64, true);
	if (err == 0)
		vb_floor_add(&p->page->floor, p->section, "READ, 8 bytes, p99", "ns",
			     (double)vb_hist_percentile(&h[0], 99), "bare socket, 64 bytes, p99",
			     (double)vb_hist_percentile(&h[1], 99));
	free(h);
	return err;
}

static int drive_verbs(struct pair *p)
{
	static const struct vb_floor_pair rows[] = {
		{"READ, 8 bytes", READ8, "bare socket, 64 bytes, spinning", SOCKET64},
		{"READ, 8 bytes, v. blocking", READ8, "bare socket, 64 bytes, blocking",
		 SOCKET_BLOCKING},
		{"READ, 512 bytes", READ512, "bare socket, 512 bytes, spinning", SOCKET512},
		{"WRITE, 64 bytes", WRITE64, "bare socket, 64 bytes, spinning", SOCKET64},
		{"FAA, 64 bits", FAA, "bare socket, 64 bytes, spinning", SOCKET64},
		{"each of 16 FAAs in a batch", FAA_BATCH, "one FAA at a time", FAA},
		{"cas, acquire + release", CAS_LOCK, "rpc, acquire + release", RPC_LOCK},
	};
	int err = tell(p, SERVE);

	/* Connections are made, and pages touched. */
	if (err == 0 && turn(p, READ8) < 0)
		err = vb_fail(-EIO, "%s: no READ succeeds", p->fabric);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(rows) && err == 0 && !vb_interrupted; i++) {
		err = vb_floor_turns(&p->page->floor, p->section, &rows[i], turn, p);
		if (err)
			vb_error("%s: %s: %s", p->fabric, rows[i].name, vb_strerror(err));
	}
	return err != 0 || vb_interrupted ? err : measure_tail(p);
}

/* READs of a server that does p->meanwhile: mean and longest, on the page. */
static int drive_times(struct pair *p)
{
	const bool computes = p->meanwhile == COMPUTE;
	const unsigned rounds = computes ? 300 : SINGLES;
	uint64_t begun, worst = 0;
	int err = tell(p, p->meanwhile);

	if (err == 0)
		err = round_of(p, READ8);
	begun = vb_clock_gettime_ns();
	for (unsigned i = 0; i < rounds && err == 0; i++) {
		uint64_t from = vb_clock_gettime_ns(), ns;

		err = round_of(p, READ8);
		ns = vb_clock_gettime_ns() - from;
		worst = ns > worst ? ns : worst;
	}
	p->page->read_ns = (double)(vb_clock_gettime_ns() - begun) / rounds;
	p->page->worst_ns = (double)worst;
	if (err)
		return vb_fail(err, "%s: a READ of a node that %s: %s", p->fabric,
			       computes ? "computes" : "serves", vb_strerror(err));
	return tell(p, SERVE);
}

/* ---- the parent ---- */

static void side_main(struct pair *p, uint32_t rank, int (*drive)(struct pair *), pid_t parent)
{
	int err;

	signal(SIGINT, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(VB_EXIT_FAILED);
	vb_sched_forget();
	err = open_side(p, rank);
	if (err == 0 && rank == 1)
		server_main(p);
	if (err == 0 && rank == 0) {
		err = drive(p);
		__atomic_store_n(&p->page->wanted, LEAVE, __ATOMIC_RELEASE);
	}
	if (err) {
		__atomic_store_n(&p->page->failed, (uint32_t)-err, __ATOMIC_RELEASE);
		_exit(1);
	}
	close_side(p);
	_exit(0);
}

static int pair_start(struct pair *p, const struct vb_floor *f, int (*drive)(struct pair *))
{
	pid_t parent = getpid();
	int err;

	p->page = vb_bench_share(sizeof(*p->page));
	if (p->page == NULL)
		return vb_fail(-ENOMEM, "no memory for a page that processes share");
	p->page->floor.o = f->o;
	err = tcp_pair(p->sock);
	if (err == 0)
		err = vb_cluster_key_make(&p->key, NULL);
	if (err == 0)
		err = vb_cluster_listen("127.0.0.1", 0, &p->listening, &p->port);
	if (err)
		return err;
	fflush(NULL);
	for (uint32_t rank = 0; rank < 2; rank++) {
		p->pid[rank] = fork();
		if (p->pid[rank] == 0)
			side_main(p, rank, drive, parent);
		if (p->pid[rank] < 0)
			err = vb_fail(-errno, "cannot fork: %s", strerror(errno));
	}
	close(p->listening);
	close(p->sock[0]);
	close(p->sock[1]);
	return err;
}

static int pair_wait(struct pair *p)
{
	int err = vb_reap(p->pid, 2, "of a pair that is measured");
	uint32_t failed = __atomic_load_n(&p->page->failed, __ATOMIC_ACQUIRE);

	return failed != 0 ? -(int)failed : err;
}

/* Why the section cannot be, on its page; else NULL. */
static const char *absent(struct vb_floor *f, const char *fabric)
{
	const char *why = vb_fabric_find(fabric)->absent();

	if (why != NULL)
		snprintf(f->note, sizeof(f->note), "absent: %s", why);
	return why;
}

static int floor_pair(struct vb_floor *f, const char *fabric, const char *options)
{
	struct pair p = {.fabric = fabric, .section = fabric, .options = options};
	int err;

	if (absent(f, fabric) != NULL)
		return 0;
	err = pair_start(&p, f, drive_verbs);
	if (err == 0)
		err = pair_wait(&p);
	for (unsigned i = 0; err == 0 && i < p.page->floor.n && f->n < VB_FLOOR_ROWS; i++)
		f->row[f->n++] = p.page->floor.row[i];
	vb_bench_unshare(p.page, sizeof(*p.page));
	return err;
}

int vb_floor_tcp(struct vb_floor *f)
{
	return floor_pair(f, "tcp", "bound=1s");
}

int vb_floor_ucx(struct vb_floor *f)
{
	return floor_pair(f, "ucx", "bound=1s");
}

int vb_floor_verbs(struct vb_floor *f)
{
	const char *device = getenv("VERBENA_VERBS_DEVICE");
	char options[128];

	snprintf(options, sizeof(options), "device=%s", device != NULL ? device : "");
	return floor_pair(f, "verbs", device != NULL ? options : NULL);
}

/* `pairs` pairs at once; the first one's times. */
static int times(struct vb_floor *f, unsigned pairs, const char *options,
		 enum server_mode meanwhile, double *mean_ns, double *worst_ns)
{
	struct pair p[2] = {0};
	int err = 0;

	for (unsigned i = 0; i < pairs; i++)
		p[i] = (struct pair){.fabric = "tcp",
				     .section = "busy",
				     .options = options,
				     .meanwhile = meanwhile};
	for (unsigned i = 0; i < pairs && err == 0; i++)
		err = pair_start(&p[i], f, drive_times);
	for (unsigned i = 0; i < pairs; i++) {
		int failed = p[i].page != NULL ? pair_wait(&p[i]) : 0;

		err = err != 0 ? err : failed;
	}
	if (err == 0) {
		*mean_ns = p[0].page->read_ns;
		*worst_ns = p[0].page->worst_ns;
	}
	for (unsigned i = 0; i < pairs; i++)
		vb_bench_unshare(p[i].page, sizeof(*p[i].page));
	return err;
}

#define BUSY_TURNS 5u /* each opens two processes */

int vb_floor_busy(struct vb_floor *f)
{
	static const char with[] = "bound=1s", without[] = "bound=1s,helper=0";
	static const char alone[] = "without the helper thread";
	static const struct {
		unsigned pairs;
		const char *options;
		enum server_mode meanwhile;
	} runs[] = {{1, with, SERVE},
		    {1, without, SERVE},
		    {1, with, COMPUTE},
		    {1, without, COMPUTE},
		    {2, with, SERVE}};
	double mean[VB_ARRAY_SIZE(runs)][BUSY_TURNS], worst[VB_ARRAY_SIZE(runs)][BUSY_TURNS];
	unsigned n = 0;
	int err = 0;

	for (; n < BUSY_TURNS && n < f->o.repeat && err == 0 && !vb_interrupted; n++)
		for (unsigned i = 0; i < VB_ARRAY_SIZE(runs) && err == 0; i++)
			err = times(f, runs[i].pairs, runs[i].options, runs[i].meanwhile,
				    &mean[i][n], &worst[i][n]);
	if (err || n == 0)
		return err;
	vb_floor_add_turns(f, "busy", "READ of a computing node, worst", worst[2], alone, worst[3],
			   n);
	vb_floor_add_turns(f, "busy", "READ of a computing node, mean", mean[2], alone, mean[3], n);
	vb_floor_add_turns(f, "busy", "READ, nothing computes", mean[0], alone, mean[1], n);
	vb_floor_add_turns(f, "busy", "READ, two pairs at once", mean[4], "one pair alone", mean[0],
			   n);
	return 0;
}
