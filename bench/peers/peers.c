/* SPDX-License-Identifier: Apache-2.0 */
/* peers: the command.  See peers.h. */
#define VB_LOG_ROOM "peers"
#include "peers.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/opt.h"
#include "lab/json.h"
#include "lab/run.h"

#define SEC 1000000000ull
#define O   struct peer_opts
static const struct vb_opt table[] = {
	VB_OPT_CHOICE(O, peer, "peer", "redis|etcd|etcd-put", "redis", "whose lock"),
	VB_OPT_CHOICE(O, drive, "drive", "loop|spin|threads", "loop",
		      "all clients in one event loop, which sleeps or spins, or each in a thread "
		      "that blocks"),
	VB_OPT_CHOICE(O, wire, "wire", "json|grpc", "json",
		      "etcd: HTTP/1.1 and JSON through the gateway, or HTTP/2 and gRPC"),
	VB_OPT_STRING(O, host, "host", "HOST", "127.0.0.1", "the server's address"),
	VB_OPT_SIZE(O, port, "port", "0", 0, 65535, "the server's port"),
	VB_OPT_SIZE(O, clients, "clients", "8", 1, PEER_CLIENTS, "clients, a connection each"),
	VB_OPT_SIZE(O, locks, "locks", "100k", 1, 100000000, "locks in all"),
	VB_OPT_STRING(O, dist, "dist", "DIST", "uniform", "which lock, as in `verbena bench lock`"),
	VB_OPT_TIME(O, duration_ns, "duration", "2s", 1000000, 3600 * SEC, "the measured span"),
	VB_OPT_TIME(O, warmup_ns, "warmup", "200ms", 0, 3600 * SEC, "the span before it"),
	VB_OPT_TIME(O, hold_ns, "hold", "0", 0, 60 * SEC, "how long a client holds its lock"),
	VB_OPT_TIME(O, backoff_ns, "backoff", "0", 0, 10 * SEC,
		    "redis: who finds a lock taken asks again after a random time up to this"),
	VB_OPT_TIME(O, lease_ns, "lease", "10s", 1000000, 3600 * SEC, "validity of a grant"),
	VB_OPT_TIME(O, connect_ns, "connect", "10s", 1000000, 600 * SEC,
		    "how long to wait for the server to answer"),
	VB_OPT_SIZE(O, seed, "seed", "1", 0, INT64_MAX, "decides every random choice"),
	VB_OPT_STRING(O, json, "json", "FILE", NULL, "write the result as JSON; - is stdout"),
	VB_OPT_FLAG(O, free_port, "free-port", "print a free port of the loopback and end"),
	VB_OPT_END};
#undef O

static const struct peer_ops *const peers[] = {&peer_redis, &peer_etcd, &peer_etcd_put};
static const char *const drives[] = {"loop", "spin", "threads"}, *const wires[] = {"json", "grpc"};

static void on_signal(int sig)
{
	if (vb_interrupted) {
		signal(sig, SIG_DFL);
		raise(sig);
	}
	vb_interrupted = true;
}

static int print_free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &len) != 0)
		return vb_fail(-errno, "no free port: %s", strerror(errno));
	close(fd);
	printf("%u\n", ntohs(a.sin_port));
	return 0;
}

/* A server that was just started needs a moment. */
static int await_server(const struct peer_ops *ops, const struct peer_opts *o)
{
	uint64_t end = vb_clock_ns() + o->connect_ns;
	char why[256] = "";
	int err;

	while ((err = ops->probe(o, why, sizeof(why))) != 0 && vb_clock_ns() < end &&
	       !vb_interrupted)
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	if (err != 0)
		return vb_fail(err, "no answer from %s at %s:%" PRIu64 ": %s", ops->name, o->host,
			       o->port, why);
	return 0;
}

static json_t *run_json(const struct peer_run *r, const struct peer_tally *t)
{
	const struct peer_opts *o = r->o;
	bool etcd = r->ops != &peer_redis;
	json_t *j = json_object(), *w = json_object(), *lat = json_object();

	json_object_set_new(j, "kind", json_string("peer"));
	json_object_set_new(j, "lock", json_string(r->ops->name));
	json_object_set_new(j, "drive", json_string(drives[o->drive]));
	json_object_set_new(j, "wire", json_string(etcd ? wires[o->wire] : "resp"));
	json_object_set_new(j, "clients", json_integer((json_int_t)o->clients));
	json_object_set_new(j, "locks", json_integer((json_int_t)o->locks));
	json_object_set_new(j, "lease_ns", json_integer((json_int_t)o->lease_ns));
	json_object_set_new(j, "backoff_ns", json_integer((json_int_t)o->backoff_ns));
	json_object_set_new(w, "dist", vb_json_text(o->dist));
	json_object_set_new(w, "read_ratio", json_real(0));
	json_object_set_new(w, "hold_ns", json_integer((json_int_t)o->hold_ns));
	json_object_set_new(j, "workload", w);
	json_object_set_new(j, "duration_s", json_real((double)o->duration_ns / 1e9));
	json_object_set_new(j, "ops", json_integer((json_int_t)t->ops));
	json_object_set_new(j, "goodput_ops_s",
			    json_real((double)t->ops * 1e9 / (double)o->duration_ns));
	json_object_set_new(j, "tries_per_op", vb_json_ratio((double)t->tries, (double)t->ops));
	json_object_set_new(j, "lost", json_integer((json_int_t)t->lost));
	json_object_set_new(j, "unfinished_max_us", vb_json_us((double)t->unfinished_max_ns));
	json_object_set_new(j, "violations", json_integer((json_int_t)r->violations));
	json_object_set_new(lat, "acquire_exclusive", vb_json_hist(&t->acquire));
	json_object_set_new(lat, "release", vb_json_hist(&t->release));
	json_object_set_new(j, "latency_us", lat);
	json_object_set_new(j, "interrupted", json_boolean(vb_interrupted));
	return j;
}

static int report(const struct peer_run *r, const struct peer_tally *t, struct vb_json_out *out)
{
	const struct peer_opts *o = r->o;
	json_t *root;
	int err;

	printf("%-8s %4" PRIu64 " clients %8" PRIu64 " locks %-7s %10.0f cycles/s  acquire us: p50 "
	       "%.1f p99 %.1f  tries %.2f  lost %" PRIu64 "  violations %" PRIu64 "\n",
	       r->ops->name, o->clients, o->locks, drives[o->drive],
	       (double)t->ops * 1e9 / (double)o->duration_ns,
	       (double)vb_hist_percentile(&t->acquire, 50) / 1000,
	       (double)vb_hist_percentile(&t->acquire, 99) / 1000,
	       t->ops > 0 ? (double)t->tries / (double)t->ops : 0, t->lost, r->violations);
	fflush(stdout);
	root = vb_json_head(o->seed);
	json_object_set_new(root, "runs", json_pack("[o]", run_json(r, t)));
	err = vb_json_out_commit(out, root);
	json_decref(root);
	return err;
}

static int measure(const struct peer_opts *o, const struct peer_ops *ops, struct vb_json_out *out)
{
	struct vb_micro_params p = {
		.dist = o->dist, .locks = o->locks, .clients = (unsigned)o->clients};
	unsigned n = peer_drive_tallies(o);
	struct peer_run r = {.o = o, .ops = ops};
	struct peer_tally *t;
	int err = vb_micro_init(&r.micro, &p);

	if (err != 0)
		return err;
	t = calloc(n, sizeof(*t));
	r.holders = calloc(o->locks, sizeof(*r.holders));
	if (t == NULL || r.holders == NULL)
		err = vb_fail(-ENOMEM, "no memory for the results");
	for (unsigned i = 0; err == 0 && i < n; i++) {
		vb_hist_init(&t[i].acquire);
		vb_hist_init(&t[i].release);
	}
	if (err == 0)
		err = await_server(ops, o);
	if (err == 0)
		err = peer_drive(&r, t);
	for (unsigned i = 1; err == 0 && i < n; i++) {
		vb_hist_merge(&t[0].acquire, &t[i].acquire);
		vb_hist_merge(&t[0].release, &t[i].release);
		t[0].ops += t[i].ops;
		t[0].tries += t[i].tries;
		t[0].lost += t[i].lost;
		if (t[i].unfinished_max_ns > t[0].unfinished_max_ns)
			t[0].unfinished_max_ns = t[i].unfinished_max_ns;
	}
	if (err == 0)
		err = report(&r, &t[0], out);
	free(r.holders);
	free(t);
	return err != 0 ? vb_exit_of(err) : r.violations != 0 ? VB_EXIT_VIOLATION : VB_EXIT_OK;
}

int main(int argc, char **argv)
{
	static struct peer_opts o;
	const struct vb_opt_group groups[] = {{"Options", table, &o}};
	const struct peer_ops *ops;
	struct vb_json_out out;
	int words, end;

	vb_json_set_argv(argc, argv);
	vb_clock_init();
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	signal(SIGPIPE, SIG_IGN);
	vb_opt_defaults(table, &o);
	end = vb_opt_parse_args(groups, 1, argc - 1, argv + 1, &words);
	if (end < 0)
		return VB_EXIT_USAGE;
	if (end == 1) {
		printf("Usage: peers --peer PEER --port PORT [OPTION]...\n\n"
		       "The load of `verbena bench lock` on another lock; bench/peers/run.sh "
		       "starts the "
		       "servers.\n\n");
		vb_opt_print_help(stdout, groups, 1);
		return VB_EXIT_OK;
	}
	if (o.free_port)
		return vb_exit_of(print_free_port());
	ops = peers[o.peer];
	if (words != 0 || o.port == 0)
		return vb_exit_of(vb_fail(-EINVAL, "--port is needed; see --help"));
	if (ops->absent != NULL)
		return vb_exit_of(vb_fail(
			-EOPNOTSUPP, "%s: built without its library; install %s and build again",
			ops->name, ops->absent));
	end = vb_json_out_open(&out, o.json);
	if (end != 0)
		return vb_exit_of(end);
	end = measure(&o, ops, &out);
	vb_json_out_abandon(&out);
	return vb_interrupted && end == VB_EXIT_OK ? VB_EXIT_INTERRUPTED : end;
}
