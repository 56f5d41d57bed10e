/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes that meet, and the network fabric, while calls of one of them fail; see sweep.h. */
#include <verbena/cluster.h>
#include <verbena/lock.h>

#include "cluster/cluster.h"
#include "sweep.h"

/* Carries on only while nothing has failed. */
#define STEP(call)                                                                                 \
	do {                                                                                       \
		if (err == 0)                                                                      \
			err = (call);                                                              \
	} while (0)

pid_t __real_fork(void);

/* ---- what both do ---- */

static int with_locks(struct vb_cluster *c, uint16_t node)
{
	struct vb_fabric *f = NULL;
	struct vb_lock_space *space = NULL;
	struct vb_lock_client *me = NULL;
	struct vb_grant grant;
	int err = vb_fabric_open(&(struct vb_fabric_params){.fabric = "ucx",
							    .options = "bound=500ms",
							    .nodes = 2,
							    .node_bytes = 64 << 10,
							    .endpoints = 8,
							    .cluster = c},
				 &f);

	STEP(vb_lock_space_open(f, &(struct vb_lock_space_params){.lock = "cas", .locks = 4},
				&space));
	STEP(vb_lock_client_open(space, node, &me));
	for (uint64_t i = 0; i < 4; i++) {
		STEP(vb_lock_acquire(me, i, VB_EXCLUSIVE, patience_ns(), &grant));
		STEP(vb_lock_release(me, &grant));
	}
	/* Nobody goes while the other still asks. */
	if (c != NULL)
		STEP(vb_cluster_barrier(c));
	vb_lock_client_close(me);
	promise(vb_lock_space_close(space) == 0);
	promise(vb_fabric_close(f) == 0);
	return err;
}

/* fd: the root's listening socket; -1: a member. */
static int take_part(int fd, uint16_t port, bool locks)
{
	struct vb_cluster_params p = {.hosts = 2, .timeout_ns = patience_ns()};
	struct vb_cluster *c = NULL;
	char meet[32];
	int err;

	snprintf(meet, sizeof(meet), "127.0.0.1:%u", port);
	p.meet = meet;
	if (fd >= 0) {
		err = vb_cluster_open_on(&p, fd, &c);
	} else {
		p.role = VB_CLUSTER_MEMBER;
		err = vb_cluster_open(&p, &c);
	}
	STEP(vb_cluster_barrier(c));
	if (locks && err == 0)
		err = with_locks(c, (uint16_t)vb_cluster_rank(c));
	vb_cluster_close(c);
	return err;
}

/* ---- scenarios ---- */

static int together(bool root, bool locks)
{
	uint16_t port;
	int fd, err = vb_cluster_listen("127.0.0.1", 0, &fd, &port), status;
	pid_t peer;

	if (err != 0)
		return err;
	peer = __real_fork();
	if (peer == 0) {
		inject_leave();
		if (root)
			close(fd);
		_exit(take_part(root ? -1 : fd, port, locks) == 0 ? 0 : 1);
	}
	promise(peer > 0);
	if (!root)
		close(fd);
	err = take_part(root ? fd : -1, port, locks);
	if (err != 0)
		kill(peer, SIGKILL);
	promise(waitpid(peer, &status, 0) == peer);
	promise(err != 0 || told->faulty || status == 0);
	return err;
}

static int as_root(const char *locks)
{
	return together(true, locks != NULL);
}

static int as_member(const char *locks)
{
	return together(false, locks != NULL);
}

static int alone(const char *unused)
{
	return with_locks(NULL, 0);
}

int main(int argc, char **argv)
{
	static const struct scenario s[] = {
		{"root of two", as_root, NULL},
		{"member of two", as_member, NULL},
		{"ucx alone", alone, NULL},
		{"ucx, root of two", as_root, "locks"},
		{"ucx, member of two", as_member, "locks"},
	};

	return sweep_all(s, VB_ARRAY_SIZE(s), argc > 1 ? argv[1] : NULL);
}
