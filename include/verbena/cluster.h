/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cluster: the processes that use one fabric across machines, and how they find each other.
 *
 * Every process opens the cluster with the same `hosts` count.  One of them, the *root*, listens;
 * the others, its *members*, connect to it.  Each gets a rank, 0 (the root) to hosts - 1, and
 * learns of the others' deaths.  Then each opens a fabric on it (vb_fabric_params.cluster, "tcp",
 * "ucx" or "verbs"), all with the same parameters.  Node n of the fabric lives in the process of rank
 * n % hosts.
 *
 *	vb_cluster_open(&(struct vb_cluster_params){ .hosts = 3, .meet = "127.0.0.1:7531" }, &c);
 *	vb_fabric_open(&(struct vb_fabric_params){ .fabric = "tcp", .nodes = 3, .cluster = c }, &f);
 *
 * The call is the same in every process: the first that can bind the address is the root.  Under
 * mpirun or srun (`pmix`) ranks and the root's address come from the launcher.
 *
 * Trust.  Everything binds to loopback unless `bind` says otherwise, and another address is
 * refused without an authentication key: a file of 32 to 4096 bytes that are not all equal, the
 * same for all processes, owned by this process's user and readable by nobody else
 * (head -c 32 /dev/urandom > KEYFILE; chmod 600 KEYFILE).  Root and member prove to each other that
 * they have it (TLS 1.3 with a pre-shared key; the key never travels), and beyond loopback all that they
 * say then is encrypted and authenticated (`seal`).  With "tcp" the fabric's own connections are, too:
 * each begins with a proof of the run's secret (doc/security.md).  With "ucx" whoever can open a TCP connection to a process can write to its
 * memory and kill it, key or no key (UCX's TCP transport asks for none): beyond one's own machine, and
 * beside users that are not trusted, use a firewall, a network namespace or a tunnel (WireGuard) that
 * lets only the cluster's processes connect.
 *
 * Agreement.  `config` is text, lines of KEY=VALUE.  The root compares each member's with its own.
 * It refuses a member that differs, naming the first difference on both sides, and goes on waiting
 * for the right ones; when they do not come, it says the difference again.
 *
 * Death.  The root and each member hold a connection.  When it ends without a goodbye, or nothing
 * is acknowledged for 20 times `silence_ns` (the machine is gone), the member is dead.  A member
 * that is silent for `silence_ns` (a stopped machine, a cut cable) is *suspect*: that ends no call
 * but the collective ones that wait for it.  When the root dies, all collective calls fail.
 *
 * Threads.  The cluster runs one thread of its own.  Every function may be called from any thread;
 * collective calls must be made by all processes in the same order.
 */
#ifndef VERBENA_CLUSTER_H
#define VERBENA_CLUSTER_H

#include <verbena/verbena.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

struct vb_cluster;

#define VB_CLUSTER_HOSTS_MAX 1024
#define VB_CLUSTER_PORT      7531
#define VB_CLUSTER_ANY_RANK  UINT32_MAX

enum vb_cluster_role {
	/* The root if the address of `meet` is this machine's and free, else a member. */
	VB_CLUSTER_AUTO,
	/* Listens at `meet`, or fails. */
	VB_CLUSTER_ROOT,
	/* Connects to `meet`. */
	VB_CLUSTER_MEMBER,
};

/* Whether what root and members say to each other is sealed: encrypted and authenticated, each frame in its
 * place.  Processes that want it and processes that never do refuse each other. */
enum vb_cluster_seal {
	/* On every connection whose addresses are not loopback's. */
	VB_CLUSTER_SEAL_AUTO,
	VB_CLUSTER_SEAL_ALWAYS,
	/* Not even there: for a network that encrypts by itself.  The log warns. */
	VB_CLUSTER_SEAL_NEVER_ON_A_TRUSTED_NETWORK,
};

struct vb_cluster_params {
	/* How many processes in all, 1 to VB_CLUSTER_HOSTS_MAX; with `pmix` also 0: as launched. */
	uint32_t hosts;
	/* Who listens. */
	enum vb_cluster_role role;
	/* The root's address, "HOST:PORT" or "[v6]:PORT"; NULL: "127.0.0.1:7531". */
	const char *meet;
	/* The wanted rank, below `hosts`; 0 or VB_CLUSTER_ANY_RANK: in order of arrival.  The
	 * root's is 0. */
	uint32_t rank;
	/* Ranks and the root's address come from the launcher; -ENOENT if there is none. */
	bool pmix;
	/* The address or interface that the root and the fabrics bind to; NULL: 127.0.0.1. */
	const char *bind;
	/* Needed if `bind` or `meet` is beyond loopback ("Trust" above); NULL: none. */
	const char *auth_key_file;
	/* What all must agree on, "KEY=VALUE\n...", up to 16 KiB; NULL: nothing. */
	const char *config;
	/* How long open and each collective call wait for the others, at most a year; 0: 30 s. */
	uint64_t timeout_ns;
	/* After how long without a sign of life a member is suspect, 10 ms to a year; 0: 3 s. */
	uint64_t silence_ns;
	/* Whether frames are sealed; the fabrics have options of their own. */
	enum vb_cluster_seal seal;
};

/*
 * Opens the cluster: returns when all have come and agreed.
 *
 *   -EINVAL       a parameter is out of range, or an address does not parse
 *   -EACCES       an address beyond loopback without a key file; or a key file that is not there,
 *                 that is another user's, that others can use, whose size is out of bounds, whose
 *                 bytes are all equal, or that differs from the other side's (the root goes on
 *                 waiting)
 *   -EPROTO       the other side is another version, or configurations differ: the log names both
 *                 versions, or the first difference; or one is to seal and the other never does
 *   -EADDRINUSE   the root's port is taken (role ROOT)
 *   -EBUSY        the cluster there was complete, and still was when the timeout ended
 *   -ETIMEDOUT    not all have come: the log says which ranks are missing
 *   -ENOMEM       memory has run out in this process
 *   -ENOENT       pmix: no launcher, libpmix is not installed, or this library was built without
 *                 PMIx's headers (the log says which)
 *   -EOPNOTSUPP   this library was built without libsodium and OpenSSL: it has no clusters
 *   -VB_EPEERGONE the root went away
 *
 * Threads: any.
 */
int vb_cluster_open(const struct vb_cluster_params *params, struct vb_cluster **out);

/* Says goodbye and closes.  Every fabric on it must be closed before.  Not collective.
 * Threads: any, alone. */
void vb_cluster_close(struct vb_cluster *cluster);

/* This process's rank, and how many processes there are.
 * Threads: any. */
uint32_t vb_cluster_rank(const struct vb_cluster *cluster);
uint32_t vb_cluster_hosts(const struct vb_cluster *cluster);

/* A process in words: "rank 2 (HOSTNAME, pid 4711)".  Valid until close.
 * Threads: any. */
const char *vb_cluster_name(const struct vb_cluster *cluster, uint32_t rank);

/* Whether a process is there: false once it is known to have died or said goodbye.  Who is only
 * suspected is alive.
 * Threads: any. */
bool vb_cluster_alive(const struct vb_cluster *cluster, uint32_t rank);

/*
 * Waits until every living process has made this call.  This thread's other tasks run meanwhile.
 *
 *   -ETIMEDOUT    some did not come within the cluster's timeout_ns; the log names them
 *   -VB_EPEERGONE a process died before it came (the log names it), or the root died
 *
 * Threads: any.
 */
int vb_cluster_barrier(struct vb_cluster *cluster);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
