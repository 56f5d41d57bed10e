/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a cluster, and what can be asked of it; inner.h says what is where. */
#define VB_LOG_ROOM "cluster"
#include "cluster/inner.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"

#define TIMEOUT_NS    30000000000ull
#define SILENCE_NS    3000000000ull
#define SILENCE_LEAST 10000000ull
#define TIMES_MOST    (86400ull * 1000000000ull * 365)
#define MEET          "127.0.0.1:7531"

/* ---- who we are ---- */

static void read_line(const char *path, char *to, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, to, size - 1) : -1;

	if (fd >= 0)
		close(fd);
	to[n > 0 ? n : 0] = '\0';
	to[strcspn(to, "\n")] = '\0';
}

/* Processes with the same text share their clocks: the same boot, and the same time namespace. */
static void who_am_i(struct cl_identity *me)
{
	char boot[64], ns[CL_MACHINE - 56] = "";

	me->pid = (uint32_t)getpid();
	if (gethostname(me->host, sizeof(me->host)) != 0)
		snprintf(me->host, sizeof(me->host), "?");
	me->host[CL_HOSTNAME] = '\0';
	read_line("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
	if (boot[0] == '\0') {
		me->machine[0] = '\0'; /* unknown: nobody's */
		return;
	}
	if (readlink("/proc/self/ns/time", ns, sizeof(ns) - 1) < 0)
		ns[0] = '\0';
	snprintf(me->machine, sizeof(me->machine), "%.54s %s", boot, ns);
}

/* ---- making one ---- */

static int copy_text(char **to, const char *from)
{
	*to = strdup(from);
	return *to != NULL ? 0 : vb_fail(-ENOMEM, "no memory for a cluster");
}

static int check_params(const struct vb_cluster_params *p)
{
	size_t config = p->config != NULL ? strlen(p->config) : 0;

	if (p->hosts > VB_CLUSTER_HOSTS_MAX || (p->hosts == 0 && !p->pmix))
		return vb_fail(-EINVAL, "%u processes: 1 to %u are possible", p->hosts,
			       VB_CLUSTER_HOSTS_MAX);
	if (p->role > VB_CLUSTER_MEMBER)
		return vb_fail(-EINVAL, "there is no role %d", (int)p->role);
	if (p->rank != VB_CLUSTER_ANY_RANK && !p->pmix && p->rank >= p->hosts)
		return vb_fail(-EINVAL, "rank %u: there are ranks 0 to %u", p->rank, p->hosts - 1);
	if (p->role == VB_CLUSTER_ROOT && p->rank != 0 && p->rank != VB_CLUSTER_ANY_RANK)
		return vb_fail(-EINVAL, "the root has rank 0, not %u", p->rank);
	if (p->role == VB_CLUSTER_MEMBER && p->hosts == 1)
		return vb_fail(-EINVAL, "a cluster of 1 process has no members");
	if (config > CL_CONFIG)
		return vb_fail(-EINVAL, "a configuration of %zu bytes: %u are the most", config,
			       CL_CONFIG);
	if (p->silence_ns != 0 && (p->silence_ns < SILENCE_LEAST || p->silence_ns > TIMES_MOST))
		return vb_fail(-EINVAL, "silence of %llu ns: 10 ms to a year are possible",
			       (unsigned long long)p->silence_ns);
	if (p->seal > VB_CLUSTER_SEAL_NEVER_ON_A_TRUSTED_NETWORK)
		return vb_fail(-EINVAL, "there is no way %d to seal frames", (int)p->seal);
	if (p->timeout_ns > TIMES_MOST)
		return vb_fail(-EINVAL, "timeout of %llu ns: a year is the most",
			       (unsigned long long)p->timeout_ns);
	return 0;
}

static int init_locks(struct vb_cluster *c)
{
	pthread_mutexattr_t recursive;
	pthread_condattr_t monotonic;

	pthread_mutexattr_init(&recursive);
	pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->tell_lock, &recursive);
	pthread_cond_init(&c->opened, &monotonic);
	pthread_mutexattr_destroy(&recursive);
	pthread_condattr_destroy(&monotonic);
	c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return c->wake_fd >= 0 ? 0 : vb_fail(-errno, "eventfd: %s", strerror(errno));
}

static int allocate(struct vb_cluster *c, const struct vb_cluster_params *p)
{
	size_t fds = 2 + CL_PENDING_MAX + c->hosts + 16; /* a round of accept() more */
	int err;

	c->peers = calloc(c->hosts, sizeof(c->peers[0]));
	c->gone = calloc(c->hosts, sizeof(c->gone[0]));
	c->polled = calloc(fds, sizeof(c->polled[0]));
	c->polled_conns = calloc(fds, sizeof(c->polled_conns[0]));
	if (c->peers == NULL || c->gone == NULL || c->polled == NULL || c->polled_conns == NULL)
		return vb_fail(-ENOMEM, "no memory for a cluster of %u", c->hosts);
	err = copy_text(&c->config, p->config != NULL ? p->config : "");
	c->config_bytes = err == 0 ? strlen(c->config) : 0;
	return err != 0 ? err : address_of_bind(p->bind, &c->bind);
}

int cluster_create(const struct vb_cluster_params *p, const struct vb_cluster_key *key,
		   struct vb_cluster **out)
{
	struct vb_cluster *c = calloc(1, sizeof(*c));
	int err;

	if (c == NULL)
		return vb_fail(-ENOMEM, "no memory for a cluster");
	c->hosts = p->hosts;
	c->role = p->role;
	c->wanted = p->rank == 0 ? VB_CLUSTER_ANY_RANK : p->rank;
	if (c->role == VB_CLUSTER_AUTO && c->wanted != VB_CLUSTER_ANY_RANK)
		c->role = VB_CLUSTER_MEMBER;
	c->timeout_ns = p->timeout_ns != 0 ? p->timeout_ns : TIMEOUT_NS;
	c->silence_ns = p->silence_ns != 0 ? p->silence_ns : SILENCE_NS;
	_Static_assert((int)VB_CLUSTER_SEAL_NEVER_ON_A_TRUSTED_NETWORK == (int)VB_SEALING_NEVER,
		       "the same choices");
	c->seal = (enum vb_sealing)p->seal;
	c->listen_fd = -1;
	c->wake_fd = -1;
	c->first_dead = -1;
	c->forks = vb_forks;
	vb_list_init(&c->conns);
	vb_list_init(&c->calls);
	who_am_i(&c->me);
	err = init_locks(c);
	if (err == 0)
		err = allocate(c, p);
	if (err == 0 && key != NULL)
		c->key = *key;
	else if (err == 0)
		err = auth_key_load(&c->key, p->auth_key_file);
	if (err == 0)
		auth_psk(&c->key, c->psk);
	if (err != 0)
		cluster_free(c);
	else
		*out = c;
	return err;
}

void cluster_free(struct vb_cluster *c)
{
	if (c->clock_held)
		vb_clock_let();
	vb_list_for_each (it, &c->conns)
		conn_free(c, vb_container_of(it, struct cluster_conn, link));
	if (c->peers != NULL)
		steps_free(c);
	if (c->listen_fd >= 0)
		close(c->listen_fd);
	if (c->wake_fd >= 0)
		close(c->wake_fd);
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->tell_lock);
	pthread_cond_destroy(&c->opened);
	auth_forget(&c->key, sizeof(c->key));
	auth_forget(c->secret, sizeof(c->secret));
	auth_forget(c->psk, sizeof(c->psk));
	vb_shake_context_free(c->context);
	free(c->peers);
	free(c->gone);
	free(c->polled);
	free(c->polled_conns);
	free(c->bind);
	free(c->meet);
	free(c->config);
	free(c);
}

/* ---- where to meet ---- */

static int need_key(const struct vb_cluster_params *p, const struct cluster_addr *a,
		    const char *what)
{
	char text[64];

	if (p->auth_key_file != NULL || address_is_loopback(a))
		return 0;
	address_say(a, text, sizeof(text));
	return vb_fail(-EACCES,
		       "%s %s is beyond loopback: that needs an authentication key file, the same "
		       "for all processes (head -c 32 /dev/urandom > KEYFILE and chmod 600 KEYFILE "
		       "make one)",
		       what, text);
}

static void warn_if_plain(struct vb_cluster *c, const struct cluster_addr *a)
{
	if (c->seal != VB_SEALING_NEVER || c->warned || address_is_loopback(a))
		return;
	c->warned = true;
	vb_warn("the cluster's frames are neither encrypted nor authenticated (option seal): "
		"whoever is "
		"between two processes can read and change what they send");
}

static int find_meet(struct vb_cluster *c, const struct vb_cluster_params *p)
{
	struct cluster_addr addrs[CL_ADDRS];
	const char *meet = p->meet != NULL ? p->meet : MEET;
	char host[CL_HOST];
	uint16_t port;
	unsigned n;
	int err = address_split(meet, VB_CLUSTER_PORT, host, &port);

	if (err == 0)
		err = copy_text(&c->meet, meet);
	/* The root listens where it binds; the others, and who may become it, go where they are
	 * told. */
	if (err == 0)
		err = address_find(
			c->role == VB_CLUSTER_ROOT && (p->bind != NULL || p->meet == NULL) ? c->bind
											   : host,
			port, c->meet_addrs, &c->n_meet_addrs);
	if (err == 0)
		err = address_find(c->bind, 0, addrs, &n);
	if (err == 0)
		err = need_key(p, &addrs[0], "bind address");
	for (unsigned i = 0; err == 0 && i < c->n_meet_addrs; i++) {
		err = need_key(p, &c->meet_addrs[i], "address");
		if (err == 0)
			warn_if_plain(c, &c->meet_addrs[i]);
	}
	if (err == 0 && port == 0 && c->role != VB_CLUSTER_ROOT)
		err = vb_fail(-EINVAL, "address '%s': where the processes meet needs a port", meet);
	return err;
}

static int listen_as_root(struct vb_cluster *c)
{
	char text[64] = "";
	int fd = -EADDRNOTAVAIL;

	if (c->role != VB_CLUSTER_ROOT || c->hosts == 1)
		return 0;
	for (unsigned i = 0; i < c->n_meet_addrs && fd < 0; i++) {
		address_say(&c->meet_addrs[i], text, sizeof(text));
		fd = address_listen(&c->meet_addrs[i], &c->port);
		if (fd == -EADDRINUSE)
			break;
	}
	if (fd < 0)
		return vb_fail(fd, "cannot listen at %s: %s%s", text, strerror(-fd),
			       fd == -EADDRINUSE ? "; another program has the port" : "");
	c->listen_fd = fd;
	return 0;
}

/* A socket that the launcher has bound; it is ours from here on. */
static int take_listener(struct vb_cluster *c, const struct vb_cluster_params *p, int fd)
{
	struct cluster_addr a = {.len = sizeof(a.sa)};

	c->listen_fd = fd;
	if (getsockname(fd, (struct sockaddr *)&a.sa, &a.len) != 0 ||
	    fcntl(fd, F_SETFL, O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
		return vb_fail(-EINVAL, "the listening socket: %s", strerror(errno));
	c->port = ntohs(a.sa.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)&a.sa)->sin6_port
						   : ((const struct sockaddr_in *)&a.sa)->sin_port);
	warn_if_plain(c, &a);
	return need_key(p, &a, "listening address");
}

int vb_cluster_listen(const char *host, uint16_t port, int *fd, uint16_t *port_out)
{
	struct cluster_addr addrs[CL_ADDRS];
	char text[64];
	unsigned n;
	int err = address_find(host, port, addrs, &n);

	if (err != 0)
		return err;
	err = address_listen(&addrs[0], port_out);
	address_say(&addrs[0], text, sizeof(text));
	if (err < 0)
		return vb_fail(err, "cannot listen at %s: %s", text, strerror(-err));
	*fd = err;
	return 0;
}

/* Under a launcher the ranks are given, and the root's address goes through it. */
static int meet_through_pmix(struct vb_cluster *c, struct vb_cluster_params *p)
{
	char address[CL_HOST + 16], *root = NULL;
	bool v6;
	int err;

	if (p->rank == 0) {
		p->role = c->role = VB_CLUSTER_ROOT;
		p->meet = p->meet != NULL ? p->meet : "127.0.0.1:0";
		if (p->bind == NULL)
			p->bind = "127.0.0.1";
		err = find_meet(c, p);
		if (err == 0)
			err = listen_as_root(c);
		v6 = strchr(c->bind, ':') != NULL;
		snprintf(address, sizeof(address), "%s%s%s:%u", v6 ? "[" : "", c->bind,
			 v6 ? "]" : "", c->port);
		/* Told in any case: the others wait for it. */
		if (c->hosts > 1 && cluster_pmix_tell(err == 0 ? address : "") != 0)
			err = err != 0 ? err : -VB_EPEERGONE;
		return err;
	}
	p->role = c->role = VB_CLUSTER_MEMBER;
	err = cluster_pmix_learn(&root, c->timeout_ns);
	if (err == 0)
		p->meet = root;
	if (err == 0)
		err = find_meet(c, p);
	free(root);
	p->meet = NULL;
	return err;
}

/* ---- opening ---- */

static int start_thread(struct vb_cluster *c)
{
	sigset_t all, before;
	int err;

	/* The program's signals are for the program's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&c->thread, NULL, cluster_thread, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	c->has_thread = err == 0;
	return err == 0 ? 0 : vb_fail(-err, "cannot start the cluster's thread: %s", strerror(err));
}

static void stop(struct vb_cluster *c)
{
	if (!c->has_thread)
		return;
	pthread_mutex_lock(&c->lock);
	c->closing = true;
	pthread_mutex_unlock(&c->lock);
	cluster_wake(c);
	pthread_join(c->thread, NULL);
	c->has_thread = false;
}

static int run(struct vb_cluster *c)
{
	int err;

	c->open_by_ns = cluster_later(cluster_now(), c->timeout_ns);
	if (c->role == VB_CLUSTER_ROOT)
		root_begin(c);
	err = start_thread(c);
	if (err != 0)
		return err;
	pthread_mutex_lock(&c->lock);
	while (!c->open_done)
		pthread_cond_wait(&c->opened, &c->lock);
	err = c->open_verdict.err;
	pthread_mutex_unlock(&c->lock);
	return err == 0 ? 0 : vb_fail(err, "%s", c->open_verdict.text);
}

int vb_cluster_open_keyed(const struct vb_cluster_params *params, int listening_fd,
			  const struct vb_cluster_key *key, struct vb_cluster **out)
{
	struct vb_cluster_params p = *params;
	struct vb_cluster *c = NULL;
	int err = check_params(&p);

	if (err == 0 && p.pmix)
		err = cluster_pmix_begin(&p.rank, &p.hosts);
	if (err != 0) {
		if (listening_fd >= 0)
			close(listening_fd);
		return err;
	}
	if (listening_fd >= 0)
		p.role = VB_CLUSTER_ROOT;
	else if (p.hosts == 1 && p.role == VB_CLUSTER_AUTO)
		p.role = VB_CLUSTER_ROOT;
	err = cluster_create(&p, key, &c);
	if (err != 0) {
		if (listening_fd >= 0)
			close(listening_fd);
	} else {
		if (p.pmix)
			err = meet_through_pmix(c, &p);
		else
			err = find_meet(c, &p);
		if (err == 0 && listening_fd >= 0)
			err = take_listener(c, &p, listening_fd);
		else if (err == 0 && !p.pmix)
			err = listen_as_root(c);
	}
	if (err == 0)
		err = run(c);
	if (err == 0) {
		*out = c;
		return 0;
	}
	if (c != NULL) {
		if (listening_fd >= 0 && c->listen_fd < 0)
			close(listening_fd); /* never taken */
		stop(c);
		cluster_free(c);
	}
	return err;
}

int vb_cluster_open(const struct vb_cluster_params *params, struct vb_cluster **out)
{
	return vb_any_null(params, out) ? -EINVAL : vb_cluster_open_keyed(params, -1, NULL, out);
}

int vb_cluster_open_on(const struct vb_cluster_params *params, int listening_fd,
		       struct vb_cluster **out)
{
	return vb_cluster_open_keyed(params, listening_fd, NULL, out);
}

void vb_cluster_close(struct vb_cluster *c)
{
	/* A goodbye of the child's would be taken for the parent's. */
	if (c == NULL || cluster_check(c) != 0)
		return;
	stop(c);
	cluster_free(c);
}
