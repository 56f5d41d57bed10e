/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabric ucx from the inside: UCX active messages as the transport of net/net.h.
 *
 * One message to a host is an ordered list of verbs (wire.h), one answer comes back.  The owner
 * executes them with its CPU when it looks at the network (serve.c); so every atomic there is
 * atomic with every other, whoever does it, and the order within one host is total: a VB_FENCE is
 * free there.
 *
 * A message's life, at the host that sends it:
 *
 *	open     post() appends verbs to it; closed by the doorbell, or when it is full
 *	queued   the window is used up (`window` messages unanswered), it waits
 *	flying   given to UCX, unanswered
 *	idle     in the pool.  UCX may still hold the buffer of a message that is over (`sending`):
 *	         it goes there once UCX lets go
 *
 * The files call one way: what comes (serve.c) and what leaves (post.c) stand on the looking
 * (progress.c), that on the connections (host.c), those on what is under way (flight.c) and what waits
 * for its turn (held.c), and all of it on the buffers (msg.c).
 *
 * Everything here is under the engine (net/net.h), but for what helper.c says.
 */
#ifndef VB_FABRIC_UCX_INNER_H
#define VB_FABRIC_UCX_INNER_H

#include "fabric/net/net.h"
#include "fabric/ucx/lib.h"
#include "fabric/ucx/wire.h"

#define UCX_AM_ID      7u /* of all our active messages; the kind is in the header */
#define UCX_DRIFT_PPM  200u
#define UCX_POOL_MAX   256u        /* idle messages that are kept */
#define UCX_ROOM_KEPT  (32u << 10) /* one with a longer buffer is not kept */
#define UCX_CONTROLS   64u         /* control messages to one host that UCX holds at a time */
#define UCX_CONNECT_NS 30000000000ull

struct ucx_options {
	const char *tls, *net_devices;
	uint64_t bound_ns, grace_ns, retry_ns, silence_ns, helper_ns;
	uint64_t window, queue, eager;
	bool coalesce;
	int local; /* enum ucx_local */
};
enum ucx_local { UCX_LOCAL_CPU, UCX_LOCAL_WIRE };

extern const struct vb_opt ucx_option_table[];

/* A verb in a message: those that are signalled, and those with a time of their own. */
struct ucx_entry {
	struct vb_verb *v; /* NULL: unsignalled, or taken back */
	struct vb_batch *batch;
	struct net_thread *thread;
	uint64_t not_after_ns;
	uint32_t at, bytes; /* in the body */
};

struct ucx_msg {
	struct vb_list link; /* in a host's queue or flight, in the pool, or alone */
	struct vb_list all;
	struct ucx_wire *wire;
	struct ucx_host *host;
	uint8_t kind;
	bool sending; /* UCX holds the buffer */
	bool over;    /* belongs to nobody: to the pool when UCX lets go */
	bool given_up;
	bool fetching; /* its long answer is being received */
	bool unsent;   /* flying, but UCX has said at once that it is not */
	uint64_t number;
	uint64_t oldest_ns;    /* when its first verb was posted */
	uint64_t sent_ns;      /* when it was given to UCX */
	uint64_t not_after_ns; /* the earliest of its verbs' own; VB_FOREVER: none has */
	uint32_t verbs, bytes, room, answer;
	uint32_t entries, entries_room;
	struct ucx_entry *entry;
	uint8_t *buffer; /* [UCX_HEADER + room] */
};

/* A message that has come and waits: for its data (rendezvous) or for those before it. */
struct ucx_in {
	struct vb_list link;
	struct vb_list all;
	struct ucx_host *host;
	struct ucx_header h;
	bool receiving; /* UCX writes to the data */
	bool dropped;   /* nobody wants it any more: freed when UCX lets go */
	uint8_t *data;
};

/* A lower bound of a host's clock: it showed `there` at or before our `here`. */
struct ucx_clock {
	uint64_t there, here;
};

enum ucx_state {
	UCX_DOWN,     /* no connection; tried again every `retry` if there is something to post */
	UCX_GREETING, /* HELLO is on its way */
	UCX_UP,
	UCX_GONE, /* for good: the cluster says so */
};

struct ucx_host {
	struct ucx_wire *wire;
	uint32_t rank;
	void *address;
	size_t address_bytes;
	ucp_ep_h ep; /* NULL: none */
	enum ucx_state state;
	bool failed;   /* UCX says so; torn down after the present call into UCX */
	bool rung;     /* the open message leaves as soon as the window allows */
	bool dirty;    /* in wire->dirty */
	bool welcome;  /* HELLO came, WELCOME is owed */
	bool welcomed; /* WELCOME was sent since the fabric opened */
	bool regreet;  /* it has dropped our connection */
	const char *failure;
	struct vb_list in_dirty;

	/* as a destination */
	uint32_t epoch;       /* of our present connection to it; 0: none yet */
	uint64_t next_number; /* of the next message */
	struct ucx_msg *open;
	struct vb_list queue, flight;
	uint32_t queued, flying, controls;
	uint64_t heard_ns;   /* when something last came from it */
	uint64_t greeted_ns; /* when HELLO left */
	uint64_t retry_at_ns;
	struct ucx_clock best, before; /* of the present and of the last half second */
	uint64_t best_since_ns;

	/* as a source */
	uint32_t from_epoch;   /* 0: none */
	uint32_t newest_epoch; /* that there has been */
	uint64_t expected;     /* number of the message that is executed next */
	struct vb_list held;   /* struct ucx_in, by number */
	uint32_t held_n;
};

struct ucx_helper {
	pthread_t thread;
	bool running;
	uint32_t stop;   /* atomic */
	uint64_t passes; /* atomic: looks at the network by others than the helper */
	int stop_fd;
};

struct ucx_wire {
	struct net_fabric *f;
	const struct ucx_lib *lib;
	struct ucx_options o;
	uint64_t session;
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_address_t *address;
	size_t address_bytes;
	int worker_fd, timer_fd;
	uint64_t setup_until_ns; /* the interface may be down until then */
	char device[16];         /* the interface of the cluster's address */
	const char *devices;     /* those to look at, or NULL: they are UCX's to choose */
	struct ucx_host *host;   /* [f->hosts] */
	struct ucx_owner owner;
	struct vb_list dirty;
	struct vb_list later;               /* messages that were sent from within UCX's progress */
	bool looking;                       /* this is within it */
	struct vb_list pool, messages, ins; /* idle ones; all there are */
	uint32_t pooled, sends;             /* sends: that UCX has not finished */
	uint64_t due_ns;                    /* nothing has to be looked at before */
	uint64_t timer_ns;                  /* when the descriptor of the timer fires; 0: not set */
	uint64_t came;                      /* events so far */
	bool helping;                       /* the helper is at it */
	bool closing, tending;
	uint64_t refused;          /* messages that nobody of this run has sent */
	uint64_t refused_untold;   /* of those, since it was said */
	uint64_t refused_again_ns; /* not before */
	struct ucx_helper helper;
};

static inline struct ucx_wire *ucx_of(const struct net_fabric *f)
{
	return f->wire;
}

static inline void ucx_due(struct ucx_wire *w, uint64_t at_ns)
{
	if (at_ns < w->due_ns)
		w->due_ns = at_ns;
}

static inline void ucx_mark(struct ucx_host *h)
{
	if (h->dirty)
		return;
	h->dirty = true;
	vb_list_push(&h->wire->dirty, &h->in_dirty);
}

/* setup.c */
int ucx_setup(struct ucx_wire *w);
void ucx_teardown(struct ucx_wire *w);

/* msg.c: buffers, and giving them to UCX */
struct ucx_msg *ucx_msg_get(struct ucx_host *h, enum ucx_kind kind);
/* Makes room for so many more bytes of body, and one entry. */
bool ucx_msg_reserve(struct ucx_msg *m, uint32_t bytes);
/* Nobody needs it any more but perhaps UCX. */
void ucx_msg_put(struct ucx_msg *m);
void ucx_msg_free_all(struct ucx_wire *w);
/* Gives it to UCX: 0, or -EPIPE with the host marked as failed. */
int ucx_msg_send(struct ucx_msg *m, const struct ucx_header *h);
/* What was sent from within UCX's progress. */
void ucx_msg_send_later(struct ucx_wire *w);

/* clock.c */
/* A time of the host's clock that it surely has not passed before our `at_ns`. */
uint64_t ucx_clock_there(const struct ucx_host *h, uint64_t at_ns);
void ucx_clock_saw(struct ucx_host *h, uint64_t there, uint64_t here);
/* The first reading of a connection. */
void ucx_clock_first(struct ucx_host *h, uint64_t there, uint64_t here);

/* held.c: messages that have come and wait */
struct ucx_in *ucx_in_new(struct ucx_host *h, const struct ucx_header *head);
void ucx_in_free(struct ucx_in *in);
void ucx_in_free_all(struct ucx_wire *w);
/* Into its place by number; false: it is there already, or there are too many. */
bool ucx_hold(struct ucx_host *h, struct ucx_in *in);
/* Forgets what is held of a host's messages. */
void ucx_forget_held(struct ucx_host *h);

/* flight.c: messages of verbs, sent, answered and given up */
/* The open message joins the queue. */
void ucx_close_open(struct ucx_host *h);
/* Sends what the window allows. */
void ucx_pump(struct ucx_host *h);
/* The body is h->bytes long. */
void ucx_answered(struct ucx_host *from, const struct ucx_header *h, const uint8_t *body);
/* Whether the long answer h is wanted: once. */
bool ucx_wants(struct ucx_host *from, const struct ucx_header *h);
/* The status of a verb that surely is not executed. */
int ucx_did_not_happen(const struct vb_verb *v);
/* Ends everything: EUNKNOWN if it may have been executed, EPEERGONE if not. */
void ucx_fail_all(struct ucx_host *h);
/* Ends what has taken too long; says when to look again, or VB_FOREVER. */
uint64_t ucx_flight_expire(struct ucx_host *h, uint64_t now);
uint64_t ucx_queue_expire(struct ucx_host *h, uint64_t now);

/* host.c: connections */
int ucx_greet(struct ucx_host *h);
/* 0, or why this host cannot be posted to; it is greeted again when it is time to. */
int ucx_usable(struct ucx_host *h);
void ucx_break(struct ucx_host *h, const char *why);
void ucx_heard(struct ucx_host *h, const struct ucx_header *m);
void ucx_hello_came(struct ucx_host *h, const struct ucx_header *m);
void ucx_welcome_came(struct ucx_host *h, const struct ucx_header *m);
/* What was left over from calls into UCX: broken connections, welcomes, full windows. */
void ucx_tend(struct ucx_wire *w);
/* Ends what has taken too long, the connection itself too; says when to look again, or VB_FOREVER. */
uint64_t ucx_expire(struct ucx_host *h, uint64_t now);
const char *ucx_host_name(const struct ucx_host *h, char buf[64]);

/* progress.c */
bool ucx_look(struct ucx_wire *w);
int ucx_arm(struct net_fabric *f);

/* post.c: verbs on their way out */
int ucx_post(struct net_fabric *f, struct net_ep *e, struct vb_batch *b);
void ucx_flush(struct net_fabric *f);

/* serve.c: what comes */
ucs_status_t ucx_came(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes,
		      const ucp_am_recv_param_t *param);

/* helper.c */
bool ucx_progress(struct net_fabric *f);
int ucx_helper_start(struct ucx_wire *w);
void ucx_helper_stop(struct ucx_wire *w);

#endif
