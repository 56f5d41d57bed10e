/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Active messages: the transport of net/net.h for networks that carry bytes, and no more.
 *
 * One message to a host is an ordered list of verbs (wire.h), one answer comes back.  The owner
 * executes them with its CPU when it looks at the network (serve.c); so every atomic there is
 * atomic with every other, whoever does it, and the order within one host is total: a VB_FENCE is
 * free there.
 *
 * What moves the messages is a *carrier* (fabric/ucx, fabric/tcp), struct am_carrier below.
 *
 * A message's life, at the host that sends it:
 *
 *	open     post() appends verbs to it; closed by the doorbell, or when it is full
 *	queued   the window is used up (`window` messages unanswered), it waits
 *	flying   given to the carrier, unanswered
 *	idle     in the pool.  The carrier may still hold the buffer of a message that is over
 *	         (`sending`): it goes there once the carrier lets go
 *
 * The files call one way: what comes (serve.c) and what leaves (post.c) stand on the looking
 * (progress.c), that on the connections (host.c), those on what is under way (flight.c), what waits
 * for its turn (held.c) and what is over (past.c), and all of it on the buffers (msg.c).
 *
 * Everything here is under the engine (net/net.h), but for what helper.c says.
 */
#ifndef VB_FABRIC_NET_AM_AM_H
#define VB_FABRIC_NET_AM_AM_H

#include "fabric/net/elastic.h"
#include "fabric/net/am/wire.h"

#define AM_DRIFT_PPM 200u
#define AM_POOL_MAX  256u        /* idle messages that are kept */
#define AM_ROOM_KEPT (32u << 10) /* one with a longer buffer is not kept */
#define AM_KEPT_MAX  64u         /* answers that are kept for a host, */
#define AM_KEPT_EACH 4096u       /* none longer than this */
#define AM_CONTROLS  64u         /* control messages to one host that the carrier holds at a time */

/* What every carrier has; a carrier's own options begin with it. */
struct am_options {
	uint64_t
		grace_ns; /* of carriers that may lose answers: how long one is waited for beyond bound */
	uint64_t bound_ns, retry_ns, silence_ns, helper_ns;
	uint64_t window, queue;
	bool coalesce;
	int local; /* enum am_local */
};
enum am_local { AM_LOCAL_CPU, AM_LOCAL_WIRE };

/* The table's entries for them, where struct type has them as its member `am`. */
#define AM_MS 1000000ull
#define AM_S  1000000000ull
#define AM_OPTIONS(type, bound)                                                                    \
	VB_OPT_TIME(type, am.bound_ns, "bound", bound, 100000, 10 * AM_S,                          \
		    "a verb that its owner reads later after its posting does not happen; leases " \
		    "must be twice as long"),                                                      \
		VB_OPT_SIZE(type, am.window, "window", "16", 1, 1024,                              \
			    "messages to one host without an answer; more verbs are collected "    \
			    "meanwhile"),                                                          \
		VB_OPT_SIZE(type, am.queue, "queue", "64", 1, 65536,                               \
			    "full messages to one host that are collected before posts wait"),     \
		{.kind = VB_OPT_KIND_FLAG,                                                         \
		 .name = "coalesce",                                                               \
		 .init = "yes",                                                                    \
		 .help = "one message carries the verbs of several batches and tasks",             \
		 .offset = offsetof(type, am.coalesce)},                                           \
		{.kind = VB_OPT_KIND_CHOICE,                                                       \
		 .name = "local",                                                                  \
		 .value = "HOW",                                                                   \
		 .init = "cpu",                                                                    \
		 .help = "how verbs reach this host's own memory",                                 \
		 .choices = "cpu|wire",                                                            \
		 .offset = offsetof(type, am.local)},                                              \
		VB_OPT_TIME(type, am.helper_ns, "helper", "2ms", 0, 1 * AM_S,                      \
			    "a thread answers when the others have not looked for so long; 0: "    \
			    "none"),                                                               \
		VB_OPT_TIME(type, am.retry_ns, "retry", "200ms", 1 * AM_MS, 60 * AM_S,             \
			    "how often a lost connection is tried again"),                         \
		VB_OPT_TIME(type, am.silence_ns, "silence", "1s", 10 * AM_MS, 600 * AM_S,          \
			    "a host that owes an answer for so long has lost its connection")

/* Flags of caps, and texts for `verbena list`, that all carriers have. */
#define AM_CAP_FLAGS                                                                               \
	(VB_CAP_MASKED64 | VB_CAP_MASKED128 | VB_CAP_SEND | VB_CAP_NOTIFY | VB_CAP_CPU_ATOMICS |   \
	 VB_CAP_TARGET_CPU | VB_CAP_PROCESSES | VB_CAP_CLUSTER)
#define AM_CAP_ATOMICS "the owner's CPU executes messages of verbs: xadd, cmpxchg, cmpxchg16b"
#define AM_CAP_ORDER                                                                               \
	"all verbs of one host to another take effect in the order of their posting; a fence "     \
	"costs nothing"

/* A verb in a message: those that are signalled, and those with a time of their own. */
struct am_entry {
	struct vb_verb *v; /* NULL: unsignalled, or taken back */
	struct vb_batch *batch;
	struct net_thread *thread;
	uint64_t not_after_ns;
	uint32_t at, bytes; /* in the body */
};

struct am_msg {
	struct vb_list link; /* in a host's queue or flight, in the pool, or alone */
	struct vb_list all;
	struct am_wire *wire;
	struct am_host *host;
	uint8_t kind;
	bool sending; /* the carrier holds the buffer */
	bool over;    /* belongs to nobody: to the pool when the carrier lets go */
	bool given_up;
	bool fetching; /* its long answer is being received */
	bool unsent;   /* flying, but the carrier has said at once that it is not */
	bool goes_on;  /* begins in the midst of a batch, the rest of which is in the one before */
	uint64_t number;
	uint64_t oldest_ns;    /* when its first verb was posted; of one that goes_on: as before */
	uint64_t sent_ns;      /* when it was given to the carrier */
	uint64_t not_after_ns; /* the earliest of its verbs' own; VB_FOREVER: none has */
	uint32_t verbs, bytes, room, answer;
	uint32_t entries, entries_room;
	struct am_entry *entry;
	uint8_t *buffer; /* [AM_HEADER + room] */
};

/* A message that has come and waits: for its data (rendezvous) or for those before it. */
struct am_in {
	struct vb_list link;
	struct vb_list all;
	struct am_host *host;
	struct am_header h;
	bool receiving; /* the carrier writes to the data */
	bool dropped;   /* nobody wants it any more: freed when the carrier lets go */
	uint8_t *data;
};

/* A lower bound of a host's clock: it showed `there` at or before our `here`. */
struct am_clock {
	uint64_t there, here;
};

enum am_state {
	AM_DOWN,     /* no connection; tried again every `retry` if there is something to post */
	AM_GREETING, /* HELLO is on its way */
	AM_UP,
	AM_GONE, /* for good: the cluster says so */
};

/* An answer that was sent, and may not have come. */
struct am_kept {
	uint64_t number; /* 0: none */
	uint32_t bytes, room;
	uint8_t flags;
	uint8_t *data;
};

/* What of a host's verbs was executed, for who comes again and has not heard (past.c). */
struct am_past {
	uint32_t epoch;       /* in which of its connections; 0: nothing is known */
	uint32_t greeted;     /* the last of its connections that has begun */
	uint64_t number;      /* of the message that was executed last; 0: none was */
	bool asked;           /* it has come again, and has not heard */
	struct am_kept *kept; /* [the window, AM_KEPT_MAX at most], by number; NULL: none yet */
};

struct am_host {
	struct am_wire *wire;
	uint32_t rank;
	void *address;
	size_t address_bytes;
	void *via; /* the carrier's */
	enum am_state state;
	bool linked;   /* messages can be given to the carrier */
	bool failed;   /* the carrier says so; torn down after the present call into it */
	bool rung;     /* the open message leaves as soon as the window allows */
	bool dirty;    /* in wire->dirty */
	bool greeting; /* what ends, or has ended last, had not got beyond HELLO */
	bool welcome;  /* HELLO came, WELCOME is owed */
	bool welcomed; /* WELCOME was sent since the fabric opened */
	bool regreet;  /* it has dropped our connection */
	const char *failure;
	struct vb_list in_dirty;

	/* as a destination */
	uint32_t epoch;       /* of our present connection to it; 0: none yet */
	uint64_t next_number; /* of the next message */
	struct am_msg *open;
	uint64_t batch;       /* which one's verbs came last (wire->batches), */
	uint32_t batch_epoch; /* when it began, */
	int batch_err;        /* and what it has come to: 0, or nothing more of it may happen */
	uint64_t from_ns;     /* oldest_ns of the message that was opened last */
	uint64_t clock;       /* of the message that left last: until when it may happen there */
	struct vb_list queue, flight;
	uint32_t queued, flying, controls;
	struct vb_list parked; /* unanswered when their connection broke */
	uint32_t parked_epoch; /* which one that was */
	uint64_t mend_ns;      /* until then their answers may come */
	uint64_t heard_ns;     /* when something last came from it */
	uint64_t greeted_ns;   /* when HELLO left */
	uint64_t retry_at_ns;
	struct am_clock best, before; /* of the present and of the last half second */
	uint64_t best_since_ns;

	/* as a source */
	uint32_t from_epoch;   /* 0: none */
	uint32_t newest_epoch; /* that there has been */
	uint64_t expected;     /* number of the message that is executed next */
	struct vb_list held;   /* struct am_in, by number */
	uint32_t held_n;
	struct am_past past;
};

struct am_helper {
	pthread_t thread;
	bool running;
	uint32_t stop;   /* atomic */
	uint64_t passes; /* atomic: looks at the network by others than the helper */
	int stop_fd;
};

struct am_wire {
	struct net_fabric *f;
	const struct am_carrier *carrier;
	void *via; /* the carrier's */
	struct am_options o;
	uint64_t session;
	int timer_fd;
	struct am_host *host; /* [net_hosts_max] */
	uint32_t hosts;       /* so many of them are looked at: no client has had a place beyond */
	struct am_owner owner;
	uint64_t batches; /* posted */
	struct vb_list dirty;
	struct vb_list pool, messages, ins; /* idle ones; all there are */
	uint32_t pooled;
	uint64_t due_ns;   /* nothing has to be looked at before */
	uint64_t timer_ns; /* when the descriptor of the timer fires; 0: not set */
	uint64_t came;     /* events so far */
	uint64_t letters;  /* messages for endpoints so far, */
	bool hurries; /* and since the look began something else that may have sent an answer */
	bool helping; /* the helper is at it */
	bool closing, tending;
	uint64_t refused;          /* messages that nobody of this run has sent */
	uint64_t refused_untold;   /* of those, since it was said */
	uint64_t refused_again_ns; /* not before */
	struct am_helper helper;
};

/*
 * What moves messages.  Every call with the engine held.  A carrier calls am_linked, am_failed,
 * am_sent, am_came or am_message, and am_in_ready, from within its `look` or the call that it answers.
 */
struct am_carrier {
	const char *name;
	/* What is sent arrives, in order, or the connection breaks: an answer is awaited for as long as it
	 * lives and the other end shows signs of life (`silence`), however late it is. */
	bool lasting;
	/* What is needed to be called; what the others must know goes to address[*bytes] (NET_ADDRESS_MAX
	 * at first).  w->via is the carrier's. */
	int (*open)(struct am_wire *w, const void *options, void *address, size_t *bytes);
	void (*close)(struct am_wire *w); /* after a failed `open` as well */
	/* Begins a connection to h->address.  0: it can be given messages now.  -EINPROGRESS: am_linked
	 * will be called, if it can be made.  Another error, said at most at level info. */
	int (*link)(struct am_host *h);
	/* Ends it, or the attempt at one; what it holds it lets go. */
	void (*unlink)(struct am_host *h);
	/* Header and body are in m->buffer.  The carrier calls am_sent when it lets go of it, in here or
	 * later.  0, or -EPIPE: the host has failed, and nothing was sent. */
	int (*send)(struct am_msg *m);
	/* Looks once. */
	void (*look)(struct am_wire *w);
	/* What was sent leaves now.  NULL: it has. */
	void (*push)(struct am_wire *w);
	/* Before sleeping on f->fd: 0, or -EBUSY if there is something to be seen. */
	int (*arm)(struct am_wire *w);
	/* Nothing that was sent or unlinked is still in its hands. */
	bool (*idle)(const struct am_wire *w);
	/* What has to end by itself; says when to look again, or VB_FOREVER.  NULL: nothing. */
	uint64_t (*tick)(struct am_wire *w, uint64_t now);
	/* The body of a long message, which am_came was told of, to in->data: am_in_ready, now or later.
	 * NULL: bodies come whole. */
	void (*fetch)(struct am_in *in, void *body);
};

static inline struct am_wire *am_of(const struct net_fabric *f)
{
	return f->wire;
}

static inline void am_due(struct am_wire *w, uint64_t at_ns)
{
	if (at_ns < w->due_ns)
		w->due_ns = at_ns;
}

static inline void am_mark(struct am_host *h)
{
	if (h->dirty)
		return;
	h->dirty = true;
	vb_list_push(&h->wire->dirty, &h->in_dirty);
}

/* msg.c: buffers, and giving them to the carrier */
struct am_msg *am_msg_get(struct am_host *h, enum am_kind kind);
/* Makes room for so many more bytes of body, and one entry. */
bool am_msg_reserve(struct am_msg *m, uint32_t bytes);
/* Nobody needs it any more but perhaps the carrier. */
void am_msg_put(struct am_msg *m);
void am_msg_free_all(struct am_wire *w);
/* Gives it to the carrier: 0, or -EPIPE with the host marked as failed. */
int am_msg_send(struct am_msg *m, const struct am_header *h);
/* The carrier lets go of the buffer. */
void am_sent(struct am_msg *m);

/* clock.c */
/* A time of the host's clock that it surely has not passed before our `at_ns`. */
uint64_t am_clock_there(const struct am_host *h, uint64_t at_ns);
void am_clock_saw(struct am_host *h, uint64_t there, uint64_t here);
/* The first reading of a connection. */
void am_clock_first(struct am_host *h, uint64_t there, uint64_t here);

/* held.c: messages that have come and wait */
struct am_in *am_in_new(struct am_host *h, const struct am_header *head);
void am_in_free(struct am_in *in);
void am_in_free_all(struct am_wire *w);
/* Into its place by number; false: it is there already, or there are too many. */
bool am_hold(struct am_host *h, struct am_in *in);
/* Forgets what is held of a host's messages. */
void am_forget_held(struct am_host *h);

/* flight.c: messages of verbs, sent, answered and given up */
/* The open message joins the queue. */
void am_close_open(struct am_host *h);
/* Sends what the window allows. */
void am_pump(struct am_host *h);
/* The body is h->bytes long. */
void am_answered(struct am_host *from, const struct am_header *h, const uint8_t *body);
/* Whether the long answer h is wanted: once. */
bool am_wants(struct am_host *from, const struct am_header *h);
/* The status of a verb that surely is not executed. */
int am_did_not_happen(const struct vb_verb *v);
/* Ends everything: EUNKNOWN if it may have been executed, EPEERGONE if not. */
void am_fail_all(struct am_host *h);
/* The same, but what may have been executed waits for the next connection. */
void am_park(struct am_host *h);
/* It is there, and of what is parked those before `next` were executed; 0: that is not known. */
void am_unpark(struct am_host *h, uint64_t next);
/* Ends what has taken too long; says when to look again, or VB_FOREVER. */
uint64_t am_flight_expire(struct am_host *h, uint64_t now);
uint64_t am_queue_expire(struct am_host *h, uint64_t now);

/* past.c: what was executed of a host's verbs */
/* Its message h was answered so. */
void am_past_keep(struct am_host *h, const struct am_header *answer, const uint8_t *body);
/* It begins a connection, and awaits answers of an earlier one; 0: none. */
void am_past_greeted(struct am_host *h, uint32_t epoch, uint32_t awaited);
/* The answers that it may not have heard go to it again. */
void am_past_say(struct am_host *h);
/* For WELCOME: the number of the first message that it awaits an answer of, and that was not executed; 0: not known. */
uint64_t am_past_next(const struct am_host *h);
void am_past_free(struct am_host *h);

/* host.c: connections */
/* The carrier can take messages to it: it is greeted.  0, -ENOMEM, or as am_msg_send. */
int am_linked(struct am_host *h);
/* Its connection is of no use any more: torn down after the present call into the carrier. */
void am_failed(struct am_host *h, const char *why);
int am_greet(struct am_host *h);
/* What the fabric says of itself by the options. */
void am_set_caps(struct am_wire *w);
/* 0, or why this host cannot be posted to; it is greeted again when it is time to. */
int am_usable(struct am_host *h);
void am_break(struct am_host *h, const char *why);
void am_heard(struct am_host *h, const struct am_header *m);
void am_hello_came(struct am_host *h, const struct am_header *m, const void *card);
void am_welcome_came(struct am_host *h, const struct am_header *m);
/* What was left over from calls into the carrier: broken connections, welcomes, full windows. */
void am_tend(struct am_wire *w);
/* Ends what has taken too long, the connection itself too; says when to look again, or VB_FOREVER. */
uint64_t am_expire(struct am_host *h, uint64_t now);
const char *am_host_name(const struct am_host *h, char buf[64]);

/* progress.c */
bool am_look(struct am_wire *w);
int am_arm(struct net_fabric *f);

/* post.c: verbs on their way out */
int am_post(struct net_fabric *f, struct net_ep *e, struct vb_batch *b);
void am_flush(struct net_fabric *f);

/* serve.c: what comes */
/* `later`: `body` is the carrier's name for it, to be fetched.  True: it is being fetched. */
bool am_came(struct am_wire *w, const void *header, size_t header_bytes, void *body, size_t bytes,
	     bool later);
/* A message whose header has been read; `body` has h->bytes. */
void am_message(struct am_wire *w, const struct am_header *h, uint8_t *body);
/* What was fetched is there; failure NULL: whole. */
void am_in_ready(struct am_in *in, const char *failure);

/* helper.c */
bool am_progress(struct net_fabric *f);
int am_helper_start(struct am_wire *w);
void am_helper_stop(struct am_wire *w);

/* wire-up: am.c */
/* For the transport's `open`: `options` begin with struct am_options. */
int am_open(struct net_fabric *f, const struct am_carrier *c, const void *options, void *address,
	    size_t *bytes);
bool am_local_cpu(const struct net_fabric *f);
int am_connect(struct net_fabric *f, const struct vb_cluster_parts *addresses);
void am_close(struct net_fabric *f);
int am_control(struct net_fabric *f, uint32_t host, const void *data, size_t bytes);
void am_host_gone(struct net_fabric *f, uint32_t host);
void am_host_new(struct net_fabric *f, uint32_t host);
void am_due_at(struct net_fabric *f, uint64_t at_ns);
uint64_t am_silent(struct net_fabric *f, uint32_t host, uint64_t since_ns, uint64_t now);

/* All entries of a net_transport but its name and `open`. */
#define AM_TRANSPORT                                                                               \
	.local_cpu = am_local_cpu, .connect = am_connect, .close = am_close, .post = am_post,      \
	.flush = am_flush, .progress = am_progress, .arm = am_arm, .control = am_control,          \
	.host_gone = am_host_gone, .host_new = am_host_new, .due = am_due_at, .silent = am_silent

#endif
