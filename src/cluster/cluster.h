/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fabrics and drivers want of a cluster beyond the public header.
 *
 * All traffic goes through the root: a member sends its part, the root collects and answers.  The
 * cluster's own thread does the sending, receiving, pinging and burying, so that liveness does not
 * depend on what the program's threads do.
 */
#ifndef VB_CLUSTER_CLUSTER_H
#define VB_CLUSTER_CLUSTER_H

#include <verbena/cluster.h>

#include "base/clock.h"

/* One part from each process, by rank; `data[r]` is NULL and `bytes[r]` 0 for the dead. */
struct vb_cluster_parts {
	uint32_t n;
	void **data;
	size_t *bytes;
};
void vb_cluster_parts_free(struct vb_cluster_parts *p);

#define VB_CLUSTER_PART_MAX (64u << 20)

enum vb_cluster_to {
	VB_CLUSTER_TO_ALL,  /* everybody gets everybody's part */
	VB_CLUSTER_TO_ROOT, /* only the root does; elsewhere *out has n = 0 */
};

/*
 * Collective: gives each process's `mine` (up to VB_CLUSTER_PART_MAX bytes) to all or to the root.
 * `what` names the step (up to 31 characters); processes that are at different steps are refused
 * with both names (-EPROTO).  With `partial`, the dead and those that time out are left out (NULL
 * parts) instead of failing the call.  While it waits this thread's other tasks run.
 * 0, -ETIMEDOUT, -VB_EPEERGONE (root gone, or without `partial` anybody), -EPROTO, -ENOMEM, -E2BIG.
 * timeout_ns 0: the cluster's.
 */
int vb_cluster_gather(struct vb_cluster *c, const char *what, const void *mine, size_t bytes,
		      enum vb_cluster_to to, bool partial, uint64_t timeout_ns,
		      struct vb_cluster_parts *out);

/* The first process known to be dead (died, not said goodbye), or -1.  Cheap: one atomic load. */
int vb_cluster_first_dead(const struct vb_cluster *c);
bool vb_cluster_suspect(const struct vb_cluster *c, uint32_t rank);
/* Called on the cluster's thread when a process is found dead or has said goodbye, and for each one
 * that already was; one listener at a time per slot; `ctx` must live until it is taken away
 * (fn = NULL), which waits for a call under way: hold no lock then that fn takes.  Slots 0 to 7,
 * for the fabric, the driver, ... */
void vb_cluster_on_gone(struct vb_cluster *c, unsigned slot,
			void (*fn)(void *ctx, uint32_t rank, bool died), void *ctx);

/*
 * A notice: a few bytes that each process hangs out, out of step with anything.  The root sees
 * everybody's, the members see the root's: the latest one, without those before it, and without a
 * promise of when.  For progress, and for word that a run ends early.
 */
#define VB_CLUSTER_NOTICE 32
void vb_cluster_post(struct vb_cluster *c, const void *notice);
/* False, and zeros: nothing was hung out there yet, or it is not for this process to see. */
bool vb_cluster_read(struct vb_cluster *c, uint32_t rank, void *notice);

/*
 * Time.  On machines that are the root's own (same boot), opening the cluster has adopted the
 * root's calibration: clocks are one and *error_ns is 0; unless this process had a fabric or another
 * cluster open, which go by the calibration they found.  There, and elsewhere, root_time = vb_clock_ns() +
 * *offset, true to within *error_ns: half the best round trip seen, and 1000 ppm of the time since,
 * for two clocks that NTP slews; refreshed with each ping.
 */
void vb_cluster_clock(const struct vb_cluster *c, int64_t *offset_ns, uint64_t *error_ns);

/* How many of the cluster's processes run on this machine (same boot), this one included. */
uint32_t vb_cluster_local_hosts(const struct vb_cluster *c);
/* The address fabrics bind to ("127.0.0.1" unless told otherwise). */
const char *vb_cluster_bind(const struct vb_cluster *c);
/* 32 bytes drawn by the root for this run, known to members only: fabrics use them to refuse
 * strangers. */
const uint8_t *vb_cluster_secret(const struct vb_cluster *c);
/* A number that all members have and nobody else can guess, one for each purpose (8 characters); it says
 * nothing of the secret that it is made of. */
uint64_t vb_cluster_number(const struct vb_cluster *c, const char purpose[8]);
/* The port on which the root listens (for a launcher that asked for port 0): root only. */
uint16_t vb_cluster_port(const struct vb_cluster *c);

/*
 * For a launcher that forks its members (`--procs`): binds and listens on loopback, any port,
 * before the fork, and says where.  The root hands the socket to vb_cluster_open_on, which takes it
 * over whatever it returns; the children close theirs and join the port.  -errno.
 */
int vb_cluster_listen(const char *host, uint16_t port, int *fd, uint16_t *port_out);
int vb_cluster_open_on(const struct vb_cluster_params *params, int listening_fd,
		       struct vb_cluster **out);

/*
 * The key of such a cluster: read from the file, or, with NULL, drawn afresh, so that nobody but the
 * launcher's own children gets in.  Made before the fork; whoever opens with it needs no file.
 * -EACCES (said, once for all the processes).
 */
struct vb_cluster_key {
	uint8_t bytes[32];
};
int vb_cluster_key_make(struct vb_cluster_key *key, const char *path);
/* listening_fd -1: as vb_cluster_open does.  key NULL: the one of the params. */
int vb_cluster_open_keyed(const struct vb_cluster_params *params, int listening_fd,
			  const struct vb_cluster_key *key, struct vb_cluster **out);

/*
 * A file of hosts: one "HOST[:PORT]" per line, blank lines and # comments skipped; line k (from 0)
 * is rank k, the first is the root.  Finds this process's rank: `rank_wanted` if that is not
 * VB_CLUSTER_ANY_RANK, else the one line whose host is an address of this machine.  -EINVAL with
 * the line named: no line or several lines are this machine.  Strings in *out are malloc'ed (meet).
 */
struct vb_cluster_hosts_file {
	uint32_t hosts, rank;
	char *meet; /* the root's HOST:PORT */
	char *bind; /* this line's host */
};
int vb_cluster_read_hosts(const char *path, uint32_t rank_wanted,
			  struct vb_cluster_hosts_file *out);

#endif
