/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds on network fabrics.  The test's own process never opens one: neither connections nor the
 * libraries under them survive the fork of the next test.  So the whole world is made in children,
 * when the actors run: one child with all actors as tasks, whose verbs take the wire to itself; or
 * a child for each actor, and one more that leads the cluster and serves the locks; or a child for each
 * actor that is a client of an elastic cluster, and two that are its servers.
 *
 * The network is tcp, or what VERBENA_TEST_NET names: ucx, which has the same engine above it.
 */
#ifndef TEST_LOCK_WORLD_NET_H
#define TEST_LOCK_WORLD_NET_H

/* In world.h: struct world and what works on one. */

#define NET_PATIENCE_S ((unsigned)(3 * PATIENCE_NS / (1000 * MS)))

static const char *net_fabric_of(enum world_kind kind)
{
	const char *net = getenv("VERBENA_TEST_NET");

	if (kind == VERBS_TASKS || kind == VERBS_PROCESSES)
		return "verbs";
	if (kind == NET_CLIENTS)
		return "tcp";
	return net != NULL ? net : "tcp";
}

/* Why this world cannot be here, or NULL. */
static const char *net_absent(enum world_kind kind)
{
	const char *fabric = net_fabric_of(kind);
	const char *why = vb_fabric_find(fabric)->absent();

	if (why == NULL && strcmp(fabric, "verbs") == 0 && getenv("VERBENA_VERBS_DEVICE") == NULL)
		why = "VERBENA_VERBS_DEVICE names no RDMA device";
	return why;
}

/* Time and room enough for a loaded machine, as far as the lease allows. */
static void net_options(const struct world *w, char *to, size_t size)
{
	uint64_t bound_ms = w->p.lease_ns == 0 ? 2000 : w->p.lease_ns / 2 / MS;
	const char *device = getenv("VERBENA_VERBS_DEVICE");
	const char *measured = getenv("VERBENA_VERBS_MEASURED");

	if (strcmp(net_fabric_of(w->kind), "verbs") != 0)
		snprintf(to, size, "%sbound=%" PRIu64 "ms,silence=20s%s",
			 w->kind == NET_TASKS ? "local=wire," : "", bound_ms,
			 strcmp(net_fabric_of(w->kind), "ucx") == 0 ? ",grace=5s" : "");
	else
		snprintf(to, size, "device=%s%s%s", device,
			 w->p.lease_ns == 0 ? "" : ",timeout=11,retries=2,measured=",
			 w->p.lease_ns == 0 ? ""
			 : measured != NULL ? measured
					    : "0");
}

static int net_open_fabric(struct world *w, struct vb_cluster *cluster, uint16_t nodes)
{
	char options[256];
	struct vb_fabric_params p = {
		.fabric = net_fabric_of(w->kind),
		.options = options,
		.nodes = nodes,
		.node_bytes = 1 << 20,
		.endpoints = 64,
		.seed = 1,
		.cluster = cluster,
	};

	net_options(w, options, sizeof(options));
	return vb_fabric_open(&p, &w->f);
}

/* The space, the cells, and the servers of the nodes that are here. */
static int net_open_space(struct world *w, uint16_t servers, bool serves)
{
	struct vb_lock_space_params sp = world_space_params(w, servers);
	bool fresh;
	int err = vb_lock_space_open(w->f, &sp, &w->space);

	if (err)
		return err;
	w->space->watch = world_watch(w->b);
	err = vb_region(w->f, servers - 1, "suite", WORLD_LOCKS * 8, &w->cells, &fresh);
	for (uint16_t n = 0; err == 0 && serves && n < servers; n++)
		err = vb_lock_server_start(w->space, n, 0, 1, &w->server[n]);
	return err;
}

static void net_world_close(struct world *w)
{
	for (uint16_t n = 0; n < WORLD_NODES; n++)
		vb_lock_server_stop(w->server[n]);
	vb_lock_space_close(w->space);
	vb_fabric_close(w->f);
}

/* What was counted under the locks, for the test to see. */
static int net_keep_cells(struct world *w)
{
	struct vb_ep *ep;
	int err = vb_ep_open(w->f, 0, &ep);

	for (unsigned i = 0; err == 0 && i < WORLD_LOCKS; i++)
		err = vb_read64(ep, w->cells + i * 8, &w->b->cells[i]);
	if (ep != NULL)
		vb_ep_close(ep);
	return err;
}

static void net_must(struct world *w, int line, const char *what, int err)
{
	if (err == 0)
		return;
	board_fail(w->b, line, "%s: %s", what, vb_strerror(err));
	_exit(1);
}
#define NET_MUST(w, call) net_must(w, __LINE__, #call, call)

/* ---- one process ---- */

static void net_tasks_main(struct world *w, unsigned n)
{
	static const struct vb_task_params params = {.name = "actor"};
	struct vb_sched *s;
	struct actor a[WORLD_ACTORS];

	NET_MUST(w, net_open_fabric(w, NULL, WORLD_NODES));
	NET_MUST(w, net_open_space(w, WORLD_NODES, true));
	s = vb_sched_self();
	for (unsigned i = 0; i < n; i++) {
		a[i] = (struct actor){.w = w, .i = i};
		NET_MUST(w, vb_task_spawn(s, actor_task, &a[i], &params, &w->task[i]));
	}
	NET_MUST(w, vb_sched_run(s, NULL, vb_sched_now(s) + 2 * PATIENCE_NS));
	NET_MUST(w, net_keep_cells(w));
	net_world_close(w);
}

/* ---- processes ---- */

struct net_port {
	int listening;
	uint16_t port;
};

static void net_process_main(struct world *w, unsigned rank, unsigned hosts,
			     const struct net_port *port)
{
	struct vb_cluster_params p = {.hosts = hosts, .timeout_ns = 2 * PATIENCE_NS};
	struct vb_cluster *cluster = NULL;
	char meet[32];

	if (rank == 0) {
		NET_MUST(w, vb_cluster_open_on(&p, port->listening, &cluster));
	} else {
		close(port->listening);
		snprintf(meet, sizeof(meet), "127.0.0.1:%u", port->port);
		p.role = VB_CLUSTER_MEMBER;
		p.rank = rank;
		p.meet = meet;
		NET_MUST(w, vb_cluster_open(&p, &cluster));
	}
	NET_MUST(w, net_open_fabric(w, cluster, (uint16_t)hosts));
	if (rank == 0)
		NET_MUST(w, net_open_space(w, 1, true));
	NET_MUST(w, vb_cluster_barrier(cluster));
	if (rank != 0) {
		NET_MUST(w, net_open_space(w, 1, false));
		actor_main(w, rank - 1);
	}
	/* The root serves until all have come here. */
	NET_MUST(w, vb_cluster_barrier(cluster));
	if (rank == 0)
		NET_MUST(w, net_keep_cells(w));
	NET_MUST(w, vb_cluster_barrier(cluster));
	net_world_close(w);
	vb_cluster_close(cluster);
}

static void net_run_together(struct world *w, unsigned n)
{
	unsigned procs = w->apart ? n + 1 : 1;
	struct net_port port = {.listening = -1};
	pid_t pid[WORLD_ACTORS + 1];

	if (w->apart)
		assert_int_equal(vb_cluster_listen("127.0.0.1", 0, &port.listening, &port.port), 0);
	fflush(NULL);
	for (unsigned i = 0; i < procs; i++) {
		pid[i] = fork_child();
		assert_true(pid[i] >= 0);
		if (pid[i] != 0)
			continue;
		alarm(NET_PATIENCE_S); /* never outlives the test */
		vb_sched_forget();
		if (w->apart)
			net_process_main(w, i, procs, &port);
		else
			net_tasks_main(w, n);
		fflush(NULL);
		_exit(0);
	}
	if (w->apart)
		close(port.listening);
	reap(w, pid, procs);
}

/* ---- clients of an elastic cluster ---- */

#define NET_SERVERS 2

struct net_elastic_world {
	char key[KEY_FILE_NAME], list[64], dir[32];
	struct board_here {
		uint32_t up, over; /* servers that serve, actors that have come to their ends */
	} * b;
};

static int net_open_elastic_world(struct world *w, const struct net_elastic_world *e,
				  unsigned serve, unsigned nodes)
{
	char options[512];
	size_t n;

	net_options(w, options, sizeof(options));
	n = strlen(options);
	snprintf(options + n, sizeof(options) - n,
		 ",settle=0,fresh=%s/%u,servers=%s,key=%s,serve=%u", e->dir, serve, e->list, e->key,
		 serve);
	return vb_fabric_open(&(struct vb_fabric_params){.fabric = "tcp",
							 .options = options,
							 .nodes = (uint16_t)nodes,
							 .node_bytes = 1 << 20,
							 .seed = 1},
			      &w->f);
}

static bool net_is_up(struct vb_fabric *f, uint32_t server)
{
	bool up;

	pthread_mutex_lock(&net_of(f)->engine);
	up = net_of(f)->elastic->up[server];
	pthread_mutex_unlock(&net_of(f)->engine);
	return up;
}

/* Server 1 has the locks, and all have their ends at nodes of both. */
static void net_elastic_main(struct world *w, struct net_elastic_world *e, unsigned rank,
			     unsigned n)
{
	bool serves = rank < NET_SERVERS;

	NET_MUST(w, net_open_elastic_world(w, e, serves ? rank + 1 : 0, n + 1));
	if (serves) {
		if (rank == 0)
			NET_MUST(w, net_open_space(w, 1, true));
		/* An answer to who has its home at the other server goes through that one. */
		while (!net_is_up(w->f, 1 - rank))
			vb_task_sleep_until(vb_sched_now_slow(vb_sched_self()) + MS);
		board_add(&e->b->up);
		while (board_get(&e->b->over) < n && !w->b->failed)
			vb_task_sleep_until(vb_sched_now_slow(vb_sched_self()) + MS);
		if (rank == 0)
			NET_MUST(w, net_keep_cells(w));
		net_world_close(w);
		return;
	}
	while (board_get(&e->b->up) < NET_SERVERS)
		usleep(1000);
	NET_MUST(w, net_open_space(w, 1, false));
	actor_main(w, rank - NET_SERVERS);
	net_world_close(w);
	board_add(&e->b->over);
}

static void net_elastic_run(struct world *w, unsigned n)
{
	struct net_elastic_world e = {0};
	pid_t pid[WORLD_ACTORS + NET_SERVERS];
	char mark[64];
	int key = key_file("not all of one and the same byte, not even here", 47, e.key);

	assert_true(key >= 0);
	snprintf(e.dir, sizeof(e.dir), "/tmp/elastic.XXXXXX");
	assert_non_null(mkdtemp(e.dir));
	for (unsigned i = 0; i < NET_SERVERS; i++) {
		uint16_t port = test_port();

		assert_int_not_equal(port, 0);
		snprintf(e.list + strlen(e.list), sizeof(e.list) - strlen(e.list), "%s127.0.0.1:%u",
			 i > 0 ? "+" : "", port);
	}
	e.b = mmap(NULL, sizeof(*e.b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(e.b != MAP_FAILED);
	fflush(NULL);
	for (unsigned i = 0; i < n + NET_SERVERS; i++) {
		pid[i] = fork_child();
		assert_true(pid[i] >= 0);
		if (pid[i] != 0)
			continue;
		alarm(NET_PATIENCE_S); /* never outlives the test */
		vb_sched_forget();
		net_elastic_main(w, &e, i, n);
		fflush(NULL);
		_exit(0);
	}
	reap(w, pid, n + NET_SERVERS);
	munmap(e.b, sizeof(*e.b));
	close(key);
	for (unsigned i = 1; i <= NET_SERVERS; i++) {
		snprintf(mark, sizeof(mark), "%s/%u", e.dir, i);
		(void)unlink(mark);
	}
	rmdir(e.dir);
}

static void net_run(struct world *w, unsigned n)
{
	if (w->kind == NET_CLIENTS) {
		net_elastic_run(w, n);
		return;
	}
	net_run_together(w, n);
}

#endif
