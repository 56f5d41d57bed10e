/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a cluster, for the files of this room only.
 *
 *	cluster.c  opening and closing
 *	query.c    the questions of the public interface, collective calls
 *	thread.c   the cluster's own thread: poll(), sockets, timers
 *	frames.c   what comes over a connection: bytes, frames out of them
 *	member.c   a member's side, and finding the root
 *	root.c     the root's side of a connection, from HELLO to the member's death
 *	steps.c    what the root collects for collective calls
 *	peers.c    the processes: who is suspect, who is gone
 *	proof.c    how a connection begins: what protects it, the key
 *	conn.c     a connection, and its two lanes of bytes out
 *	calls.c    what the program's threads wait for
 *
 * Each calls those below it only.
 *
 * Everything in struct vb_cluster is under `lock`, but for what is marked.  The thread holds it
 * except while it sleeps in poll() and while it tells listeners of deaths.
 *
 * What root.c, member.c and steps.c do with a frame touches no socket: they put bytes into a
 * connection's queue, and thread.c moves them.  So they can be fed with anything (tests/fuzz).
 */
#ifndef VB_CLUSTER_INNER_H
#define VB_CLUSTER_INNER_H

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "base/list.h"
#include "cluster/auth.h"
#include "cluster/cluster.h"
#include "cluster/wire.h"
#include "seal/seal.h"
#include "task/task.h"

#define CL_PENDING_MAX   64         /* connections that have not proved themselves */
#define CL_TX_MAX        (4u << 20) /* bytes of frames that wait to be sent, without parts */
#define CL_HANDSHAKE_NS  5000000000ull
#define CL_PARTING_NS    1000000000ull /* for a refusal to reach the other side */
#define CL_RETRY_NS      50000000ull   /* between a member's attempts to reach the root */
#define CL_STEPS         16            /* collective calls that the root remembers */
#define CL_SLOTS         8
#define CL_NAME          128
#define CL_SAMPLES       8     /* round trips before a clock elsewhere is believed */
#define CL_DRIFT_PPM     1000u /* two clocks drift apart by less, both slewed by NTP */
#define CL_DEAD_SILENCES 20    /* nothing acknowledged for so many times silence_ns: dead */

enum cluster_phase {
	CONN_CONNECTING, /* member: connect() is under way */
	CONN_MODE,       /* member: has said HELLO */
	CONN_PROOF_ROOT, /* member: the handshake is under way */
	CONN_WAITING,    /* member: has joined, waits for START */
	CONN_HELLO,      /* root: nothing came yet */
	CONN_PROOF,      /* root: has answered HELLO, the same */
	CONN_JOIN,       /* root: the other side has the key */
	CONN_JOINED,     /* root: waits for the others */
	CONN_GOING,      /* both: after START */
	CONN_LEAVING,    /* refused, or said goodbye: what is queued still leaves */
};

/* Bytes that several connections may be sending. */
struct cluster_blob {
	uint32_t refs;
	size_t bytes;
	uint8_t data[];
};

/* How a step ended, with everybody's parts if it ended well. */
struct cluster_result {
	uint32_t refs;
	struct cl_verdict verdict;
	uint32_t n; /* of parts; 0: none are told */
	struct cluster_blob *parts[];
};

/* What goes out in pieces, behind one another: parts and results. */
enum cluster_bulk_kind { BULK_PART, BULK_RESULT, BULK_GOODBYE };

struct cluster_bulk {
	struct vb_list link;
	enum cluster_bulk_kind kind;
	struct cl_part part;
	struct cluster_blob *blob;     /* PART; NULL if empty */
	struct cluster_result *result; /* RESULT */
	uint32_t rank;                 /* RESULT: whose part is next */
	size_t at;                     /* bytes of the part that have left */
	bool begun;                    /* its header has left */
};

struct cluster_conn {
	struct vb_list link; /* in cluster.conns */
	int fd;
	enum cluster_phase phase;
	char peer[64];        /* "127.0.0.1:4711" */
	uint64_t deadline_ns; /* of the phase; VB_FOREVER: none */
	uint64_t heard_ns;    /* when something came last */
	uint64_t pinged_ns;
	bool pinging;       /* a ping is not answered yet */
	uint64_t ping_time; /* what the ping said */
	bool said_goodbye, heard_goodbye, shut;
	bool eof;        /* the connection has ended */
	bool broken;     /* the other side broke the rules, or memory ran out */
	bool starved;    /* broken, and it was memory */
	const char *why; /* of either; NULL: nothing more is known */
	uint32_t rank, wanted;
	uint64_t next_seq; /* root: of the member's next part */
	bool notice_due;   /* ours has changed since it went this way */
	struct cl_identity who;

	/* Trust (proof.c). */
	bool beyond;    /* its addresses are not loopback's */
	bool called;    /* the root's end */
	uint32_t hello; /* what it said */
	enum vb_seal_mode mode;
	struct vb_shake *shake;  /* while it is under way */
	uint8_t mask[CL_SECRET]; /* on the run's secret */
	struct vb_seal *seal;    /* NULL: plain */
	struct vb_buf raw;       /* sealed: came, and is not opened yet */
	struct vb_buf opened;    /* of one record, on its way to rx */
	struct vb_buf out;       /* sealed, on its way from tx to the socket */

	uint8_t *rx, *tx;
	size_t rx_len, rx_size;
	size_t tx_at, tx_len, tx_size;
	struct vb_list bulk;

	/* The part that is coming in; blob NULL: nobody wants it. */
	struct {
		bool on;
		uint64_t left, at;
		struct cluster_blob *blob;
		struct cl_part part;     /* root */
		struct cl_result result; /* member */
	} in;
};

/* A process, by rank. */
struct cluster_peer {
	struct cl_identity who;
	char name[CL_NAME];
	bool known, local, noticed;
	uint8_t notice[VB_CLUSTER_NOTICE];
	uint32_t state;            /* enum cluster_state; atomic */
	uint32_t suspect;          /* atomic */
	struct cluster_conn *conn; /* at the root: the member's; at a member: [0], the root's */
};

enum cluster_state { PEER_ALIVE, PEER_LEFT, PEER_DIED };

/* At the root: what has come for one collective call. */
enum cluster_step_state { STEP_FREE, STEP_OPEN, STEP_OVER };

struct cluster_step {
	enum cluster_step_state state;
	uint64_t seq, deadline_ns;
	uint32_t first; /* who came first; the others must be at the same step */
	struct cl_part part;
	struct cluster_blob **blobs; /* by rank; NULL: has not come */
	struct cl_verdict verdict;   /* once it is over */
};

/* A collective call of this process. */
struct cluster_call {
	struct vb_list link; /* in cluster.calls, until it is done */
	uint32_t done;       /* atomic; what follows belongs to the caller then */
	struct cl_verdict verdict;
	struct cluster_result *result; /* root */
	struct vb_cluster_parts parts; /* member */
	uint64_t seq;
};

struct cluster_slot {
	void (*fn)(void *ctx, uint32_t rank, bool died);
	void *ctx;
	uint32_t next; /* of cluster.gone */
};

struct cluster_addr {
	struct sockaddr_storage sa;
	socklen_t len;
};
#define CL_ADDRS 8

struct vb_cluster {
	/* As opened; constant. */
	uint32_t hosts;
	uint32_t forks; /* vb_forks of the process that has opened it */
	enum vb_cluster_role role;
	uint32_t wanted;
	uint64_t timeout_ns, silence_ns;
	enum vb_sealing seal;
	bool warned; /* that it is never */
	char *bind, *meet, *config;
	size_t config_bytes;
	struct vb_cluster_key key;
	uint8_t psk[VB_SEAL_KEY]; /* made of it */
	struct cl_identity me;
	struct cluster_addr meet_addrs[CL_ADDRS];
	unsigned n_meet_addrs;

	pthread_mutex_t lock;
	pthread_cond_t opened;
	pthread_t thread;
	bool has_thread;
	int wake_fd;

	uint32_t rank;
	bool is_root, started, open_done;
	bool closing; /* asked for by vb_cluster_close */
	bool parting; /* the goodbyes are queued */
	struct cl_verdict open_verdict;
	uint64_t open_by_ns;
	uint16_t port;
	uint8_t secret[CL_SECRET];
	struct ssl_ctx_st *context; /* of handshakes; NULL: there was none yet */
	struct cluster_peer *peers; /* [hosts] */
	uint32_t members_known;

	int listen_fd;
	uint64_t accept_after_ns;           /* no descriptors left: not before */
	struct vb_list conns;               /* root: all; member: its one, if any */
	char difference[CL_TEXT + 1];       /* root: the last member that did not agree */
	uint64_t refusals_second, refusals; /* logged in it */

	/* member */
	uint64_t retry_ns;
	unsigned next_addr;
	char trouble[CL_TEXT + 1]; /* why it has not worked so far */
	int trouble_err;

	/* The best round trip so far, in vb_clock_ns: root = own + offset, to within half of rtt,
	 * and what the clocks may have drifted since. */
	bool same_clock, clock_held;
	uint32_t samples;
	uint64_t rtt_ns, sampled_ns;
	int64_t offset_ns;

	/* collective calls */
	uint64_t next_seq;
	struct vb_list calls;
	struct cluster_step steps[CL_STEPS];

	/* Deaths and departures in the order in which they were learnt.  n_gone and first_dead are
	 * atomic; the slots are under tell_lock, which is held while listeners are told. */
	uint32_t *gone; /* [hosts] */
	uint32_t n_gone;
	int first_dead;
	pthread_mutex_t tell_lock; /* recursive */
	struct cluster_slot slots[CL_SLOTS];
	struct pollfd *polled; /* the thread's own */
	struct cluster_conn **polled_conns;
};

/* CLOCK_MONOTONIC: the cluster's own times do not depend on a calibration. */
static inline uint64_t cluster_now(void)
{
	return vb_clock_gettime_ns();
}

static inline uint64_t cluster_later(uint64_t now, uint64_t ns)
{
	return ns > UINT64_MAX - now ? UINT64_MAX : now + ns;
}

/* ---- cluster.c ---- */

/* A cluster as vb_cluster_open makes it, before it has a socket or a thread; -errno (said).
 * key NULL: of the file in p. */
int cluster_create(const struct vb_cluster_params *p, const struct vb_cluster_key *key,
		   struct vb_cluster **out);
void cluster_free(struct vb_cluster *c);

/* ---- query.c ---- */

/* 0, or -VB_EFOREIGN, said: a forked child. */
int cluster_check(const struct vb_cluster *c);

/* ---- calls.c ---- */

void cluster_wake(struct vb_cluster *c);
/* The opening is over, one way or the other; the first verdict counts. */
void cluster_open_ends(struct vb_cluster *c, int err, const char *fmt, ...) VB_PRINTF(3, 4);
struct cluster_call *cluster_call_find(struct vb_cluster *c, uint64_t seq);
void cluster_call_ends(struct vb_cluster *c, struct cluster_call *call, const struct cl_verdict *v);
void cluster_calls_fail(struct vb_cluster *c, int err, const char *text);

/* ---- peers.c ---- */

void cluster_set_peer(struct vb_cluster *c, uint32_t rank, const struct cl_identity *who);
/* A process is dead (died) or has left: flags, listeners, the calls that wait for it. */
void cluster_gone(struct vb_cluster *c, uint32_t rank, bool died);
void cluster_set_suspect(struct vb_cluster *c, uint32_t rank, bool on);

/* ---- thread.c ---- */

void *cluster_thread(void *arg);

/* ---- frames.c ---- */

/* Bytes have come: frame after frame goes to root_frame or member_frame. */
void conn_feed(struct vb_cluster *c, struct cluster_conn *k, const void *data, size_t bytes);
/* Reads what is there; k->eof and k->broken say how it went. */
void conn_read(struct vb_cluster *c, struct cluster_conn *k);

/* ---- proof.c ---- */

/* What a member's HELLO says. */
uint32_t proof_flags(const struct vb_cluster *c, const struct cluster_conn *k);
/* Root: how frames will be protected, into k->mode; false: the two do not go together. */
bool proof_choose(const struct vb_cluster *c, struct cluster_conn *k, uint32_t theirs);
/* Member: the root's choice, into k->mode; false: it is not to be had with this process. */
bool proof_accepts(const struct vb_cluster *c, struct cluster_conn *k, uint32_t mode);
/* Both, with k->mode; `called`: the root.  The member begins to speak.  0, or as proof_step. */
int proof_begin(struct vb_cluster *c, struct cluster_conn *k, bool called);
/* A PROOF's or PROOF_ROOT's bytes; the answer is queued.  1: both have proved themselves, and what is queued and
 * comes from here on is sealed; 0: more is to come; -EACCES: it has not; -ENOMEM, with k->broken. */
int proof_step(struct cluster_conn *k, const void *bytes, size_t n);

/* ---- conn.c ---- */

struct cluster_conn *conn_new(struct vb_cluster *c, int fd, const char *peer);
void conn_free(struct vb_cluster *c, struct cluster_conn *k);
/* Room for a frame of up to n bytes, and how long it became.  NULL: the queue is full,
 * k->broken. */
uint8_t *conn_room(struct cluster_conn *k, size_t n);
void conn_put(struct cluster_conn *k, size_t n);
/* From here on what comes and what is queued is sealed; what has been queued leaves as it is. */
void conn_seal(struct cluster_conn *k, struct vb_seal *seal);
void conn_break(struct cluster_conn *k, const char *why);
/* The same, because there is no memory. */
void conn_starve(struct cluster_conn *k, const char *why);
/* The kernel says that it is over. */
void conn_end(struct cluster_conn *k, int error);
/* Writes what can be written; k->eof and k->broken say how it went. */
void conn_write(struct cluster_conn *k);
/* Moves pieces of the bulk into the queue. */
void conn_fill(struct cluster_conn *k);
bool conn_wants_write(const struct cluster_conn *k);
/* Our latest notice, once the queue is empty: a connection that stands still gets one, not all. */
void conn_notice(struct vb_cluster *c, struct cluster_conn *k);
void conn_take_notice(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f);
int conn_bulk(struct cluster_conn *k, const struct cluster_bulk *b);
void conn_ping(struct cluster_conn *k);
void conn_pong(struct cluster_conn *k, uint64_t time);
/* Tells the other side why, and lets go of it. */
void conn_refuse(struct cluster_conn *k, int err, const char *text);

struct cluster_blob *cluster_blob_new(const void *data, size_t bytes);
void cluster_blob_put(struct cluster_blob *b);
void cluster_result_put(struct cluster_result *r);

/* ---- root.c ---- */

void root_frame(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f);
/* The connection is over: the end of a member, or of a stranger. */
void root_lost(struct vb_cluster *c, struct cluster_conn *k);
void root_accept(struct vb_cluster *c);
/* Before one more connection is taken: one of those that have proved nothing goes if there are many. */
void root_make_room(struct vb_cluster *c);
void root_begin(struct vb_cluster *c);
/* Nobody has come in time. */
void root_gives_up(struct vb_cluster *c);
/* Refuses a stranger, and says so in the log. */
void root_refuse(struct vb_cluster *c, struct cluster_conn *k, int err, const char *fmt, ...)
	VB_PRINTF(4, 5);

/* ---- member.c ---- */

void member_frame(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f);
void member_lost(struct vb_cluster *c, struct cluster_conn *k);
/* Tries to reach the root, or to become it (role AUTO). */
void member_seek(struct vb_cluster *c);
void member_connected(struct vb_cluster *c, struct cluster_conn *k);
void member_begin(struct vb_cluster *c, struct cluster_conn *k);
void member_gives_up(struct vb_cluster *c);

/* ---- steps.c ---- */

/* Root: process `rank` has come to a step; takes the blob over. */
void steps_came(struct vb_cluster *c, uint32_t rank, const struct cl_part *p,
		struct cluster_blob *blob);
/* Whether a part for this step is still of use. */
bool steps_wanted(struct vb_cluster *c, uint64_t seq);
/* Root: ends the steps that are complete, or cannot become it. */
void steps_look(struct vb_cluster *c, uint64_t now);
/* When steps_look has something to do at the latest. */
uint64_t steps_deadline(const struct vb_cluster *c);
void steps_free(struct vb_cluster *c);

/* ---- address.c ---- */

/* "HOST:PORT", "HOST" (port_if_none), "[v6]:PORT".  host of CL_HOST bytes.  -EINVAL (said). */
#define CL_HOST 256
int address_split(const char *text, uint16_t port_if_none, char host[CL_HOST], uint16_t *port);
/* -EINVAL (said): there is no such host. */
int address_find(const char *host, uint16_t port, struct cluster_addr *out, unsigned *n);
bool address_is_loopback(const struct cluster_addr *a);
bool address_is_ours(const struct cluster_addr *a);
void address_say(const struct cluster_addr *a, char *to, size_t size);
/* A numeric address, or an interface's: the address to bind to.  malloc'ed; -errno (said). */
int address_of_bind(const char *bind, char **out);
/* Quiet: -EADDRINUSE and -EADDRNOTAVAIL are for the caller to judge.  The socket, or -errno. */
int address_listen(const struct cluster_addr *a, uint16_t *port);
/* What every connection has: no delay, and an end when nothing is acknowledged any more. */
void address_tune(int fd, uint64_t silence_ns);

/* ---- pmix.c ---- */

/* This process's place among those that the launcher started.  -ENOENT (said): no launcher. */
int cluster_pmix_begin(uint32_t *rank, uint32_t *hosts);
/* The root tells its address, the others learn it.  Collective. */
int cluster_pmix_tell(const char *address);
int cluster_pmix_learn(char **address, uint64_t timeout_ns);

#endif
