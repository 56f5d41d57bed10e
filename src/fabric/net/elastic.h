/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An elastic cluster: servers, which have the nodes and are named beforehand, and clients, which have none
 * and come and go (doc/elastic.md).
 *
 * Hosts.  The servers are hosts 0 to hosts - 1, in the order in which they are named; node n lives at host
 * n % hosts.  A server has a number of *places* for clients, which are its hosts from `hosts` on; each
 * server gives a client a place of its own.  A client knows the servers only, and is host `hosts` to itself.
 * A place belongs to an id of 16 bytes, which a client draws when it opens the fabric (its incarnation):
 * a client that connects anew finds its place as it left it.  One that is away for longer than `linger` is dead
 * to the others, and stays so: each place has a number of its own, which a server's greetings bear, and to who
 * is told another one than before that server's nodes are gone.
 *
 * Greetings.  Each side's HELLO bears a card: which version it is, how many servers there are, and the
 * nodes' number, size and bound.  What differs ends the connection, and is said by both.  A client takes
 * nodes and bound from the first card that it sees.
 *
 * Servers that begin again.  A card bears the sender's id, too.  A server with another id than before has lost
 * what it had: to who has known it, its memory is gone for good, since no address says which of the two it is
 * in.  A client that has endpoints there opens the fabric anew (home.c).  All others go on with the new one as far
 * as no memory of it is needed: messages go to it, and it works on the others' memory, so that their lock servers
 * answer clients that have their homes there.  What it made in their memory before it made as another.  Who has been
 * replaced stays dead: its id is refused, should it come back from behind a cut link.  To who comes new it is a server
 * like any other, so it must not grant what the former one has granted: it is there for nobody until `settle` is over,
 * and no lock is granted for longer than that (caps.lease_max_ns).  That the former one may live yet, with clients
 * that reach it: later.c.
 *
 * Endpoints.  One of a client has its home at the node for which it is opened: that node's server draws its
 * number, and who sends it a message sends it there, whether there is a connection to the client or not.
 * The server keeps what comes in a *box* until the client has it.
 *
 *	sender             home                                      client
 *	  SEND  ------->     into the box; -EAGAIN: it is full
 *	                     LETTER {number of the letter, message} ->  into the endpoint's ring
 *	                                                <- TAKEN {so many came, so many were taken}
 *
 * A box takes a message when the client's ring surely has room for it: letters in the box and in the ring
 * are NET_RING at most together.  A letter is kept until TAKEN says that it came; after a reconnection
 * those that are left are sent again, and the client drops what it has by their numbers.  So a SEND that
 * is done has arrived as surely as in the ring of somebody near.
 *
 * A reconnection begins with HAVE for each of the client's endpoints, and HAVE_ALL: boxes that were not
 * named are given back.  Letters go after that.
 *
 * Everything here is under the engine, but for the functions that say otherwise.
 */
#ifndef VB_FABRIC_NET_ELASTIC_H
#define VB_FABRIC_NET_ELASTIC_H

#include "fabric/net/core.h"

#define NET_ID         16
#define NET_BOXES_EACH 1024u /* endpoints that a client may have at one server */
#define NET_FORMER     64u   /* ids of a server's that are known not to be its any more */

struct net_elastic_params {
	uint32_t servers;
	uint32_t rank;    /* which of them this process is; `servers`: none, a client */
	uint32_t clients; /* places that a server has */
	uint64_t linger_ns, patience_ns;
	uint64_t settle_ns; /* so long after it has begun a server is there for nobody */
	uint64_t session;   /* of all who have the key */
	const char *named;  /* the servers, as the user has named them */
	const char *state;  /* the directory of a server's state (state.h); NULL: it has none */
	const char *self;   /* the server's own name */
	const struct vb_cluster_parts *addresses; /* theirs, as the transport writes them */
};

/* A place for a client. */
struct net_member {
	uint8_t id[NET_ID];
	bool used;
	bool live;         /* its endpoints were counted since it connected: letters go */
	uint32_t turn;     /* of its connections */
	uint64_t number;   /* no other place of this server had it, or will */
	uint64_t until_ns; /* it is away; VB_FOREVER: it is not */
	uint32_t n_boxes;
	struct vb_list boxes;
};

/* Letters begin to end are kept, those up to `sent` are on their way; taken of all that came were received
 * by the client's tasks. */
struct net_box {
	struct vb_list link; /* of its member */
	uint32_t place, client, asked, turn;
	uint16_t node;
	uint32_t taken, begin, sent, end;
	uint32_t room; /* 0, or a power of 2 */
	uint32_t ring; /* which one of the state's `letter` is, from 1 on; 0: none */
	struct vb_msg *letter;
};

/* Who a server was before. */
struct net_former {
	uint32_t n; /* there have been */
	uint8_t id[NET_FORMER][NET_ID];
};

/* A server, to a client that has endpoints there. */
struct net_home {
	uint32_t eps;
	uint64_t linger_ns; /* as it says */
	uint64_t lost_ns;   /* VB_FOREVER: it is connected, or never was */
	uint64_t asked_ns,
		due_ns; /* the question that it has not answered (0: none), the next one */
};

struct net_state;

struct net_elastic {
	struct net_elastic_params p;
	struct net_state *state; /* NULL: it is in memory alone */
	/* a server's */
	struct net_member *member; /* [clients] */
	struct net_box **box;      /* [NET_CLIENTS_MAX], as net_core.clients */
	uint32_t members, boxes;
	uint64_t places; /* that there have been */
	uint64_t born;   /* when it has begun: later.c */
	bool replaced;   /* another has begun in its name since then, and it has stopped */
	/* a client's */
	uint8_t id[NET_ID];
	bool shaped;               /* nodes, node_bytes and the bound are known */
	const char *why;           /* what has kept the last connection from being made */
	char other[128];           /* of that: which version the other end is */
	bool refused;              /* a server is another version, or names other servers */
	uint64_t said_ns;          /* when that was said */
	uint8_t (*seen)[NET_ID];   /* [servers]: their ids; zeros: not known yet */
	struct net_former *former; /* [servers] */
	uint64_t *later;           /* [servers]: when the latest one known has begun; 0: none is */
	uint32_t *turn;            /* [servers]: of our connections to them */
	bool *up;                  /* [servers]: there is one */
	bool *met;                 /* [servers]: there has been one */
	uint64_t *place;           /* [servers]: the numbers of our places there */
	struct net_home *home;     /* [servers] */
	struct vb_list away;       /* our endpoints */
	uint64_t report_ns;        /* when to look whether letters were taken; VB_FOREVER */
	/* how far the clock of server 0 is before ours, at the time `read_ns` of ours; 0: not known */
	int64_t offset_ns;
	uint64_t error_ns, read_ns;
	uint64_t clock_asked_ns,
		clock_due_ns; /* the last question, with that number; the next one */
	uint32_t clock_number;
};

static inline bool net_is_client(const struct net_fabric *f)
{
	return f->elastic != NULL && f->host == f->hosts;
}

/* What people call a server, as its option `serve`, or a client: from 1 on. */
static inline uint32_t net_elastic_number(const struct net_fabric *f, uint32_t host)
{
	return (host < f->hosts ? host : host - f->hosts) + 1;
}

/* How many hosts there may be. */
static inline uint32_t net_hosts_max(const struct net_fabric *f)
{
	return f->elastic != NULL && !net_is_client(f) ? f->hosts + f->elastic->p.clients
						       : f->hosts;
}

/* ---- for transports ---- */

int net_open_elastic(const struct vb_fabric_params *p, const void *options,
		     const struct vb_fabric_ops *ops, const struct net_transport *t,
		     const struct net_elastic_params *e, struct vb_fabric **out);

/* What HELLO bears. */
#define NET_CARD 104
void net_elastic_card(const struct net_fabric *f, uint32_t host, uint8_t to[NET_CARD]);
/* NULL: welcome; or why the connection ends (said). */
const char *net_elastic_greeted(struct net_fabric *f, uint32_t host, const void *card,
				size_t bytes);
/* Messages can be sent to it; its clock, read between two times of ours. */
void net_elastic_up(struct net_fabric *f, uint32_t host, uint64_t clock, uint64_t sent_ns,
		    uint64_t came_ns);
void net_elastic_down(struct net_fabric *f, uint32_t host);
/* At a server: the place of the client with that id; NET_NOBODY: there is none left. */
uint32_t net_elastic_place(struct net_fabric *f, const uint8_t id[NET_ID]);
/* A client takes its leave: what it sends a server after that need not happen, and a new connection would be
 * somebody's who never leaves. */
void net_elastic_leave(struct net_fabric *f);
/* Does what is due; says when to look again. */
uint64_t net_elastic_tick(struct net_fabric *f, uint64_t now);

/* ---- for the core ---- */

int net_elastic_new(struct net_fabric *f, const struct net_elastic_params *p);
/* The clients that a state has, when the transport is there and has seen nobody yet. */
int net_elastic_resume(struct net_fabric *f);
void net_elastic_free(struct net_fabric *f);
/* False: it means nothing. */
bool net_elastic_control(struct net_fabric *f, uint32_t from, const void *data, size_t bytes);
int net_elastic_home(struct net_fabric *f);
uint64_t net_elastic_now(struct net_fabric *f, uint64_t now, uint64_t *error_ns);

/* ---- later.c ---- */

/* The calendar: when a server begins that comes back empty. */
uint64_t net_later_now(void);
/* Another one is where the server was, and this process goes on with it. */
void net_later_replaced(struct net_fabric *f, uint32_t host);
/* Its memory is there.  0; -ESTALE, said: it is the state of one that has stopped. */
int net_later_begin(struct net_fabric *f);
/* What is known of all servers goes to that host. */
void net_later_tell(struct net_fabric *f, uint32_t host);
/* False: it means nothing. */
bool net_later_control(struct net_fabric *f, const void *data, size_t bytes);
/* A server greets: NULL, or it is not the latest of its name. */
const char *net_later_greeted(struct net_fabric *f, uint32_t server, uint64_t born);
/* Of the name of this server so much is known: true, it has stopped. */
bool net_later_heard_of_us(struct net_fabric *f, uint64_t born);

/* ---- box.c: at a server ---- */

/* A message for a client's endpoint: 0; -EAGAIN: its box is full; -VB_EPEERGONE: there is no such. */
int net_box_put(struct net_fabric *f, uint32_t client, const struct vb_msg *m);
struct net_box *net_box_find(const struct net_fabric *f, uint32_t client);
/* NUMBER and LIVES. */
void net_box_asked(struct net_fabric *f, uint32_t from, const struct control_ask *q,
		   struct control_answer *a);
struct control_count;
void net_box_told(struct net_fabric *f, uint32_t from, const struct control_count *c);
void net_box_free_all(struct net_fabric *f, struct net_member *m);
/* Those that a state has.  0, -ENOMEM, said. */
int net_box_resume(struct net_fabric *f);

/* ---- home.c: at a client ---- */

/* The number of a question for the clock whose answer is a sign of life, and no more. */
#define NET_CLOCK_UNREAD UINT32_MAX

/* It is gone for good, and whoever waits at an endpoint there is told. */
void net_home_gone(struct net_fabric *f, uint32_t host, const char *why);
void net_home_up(struct net_fabric *f, uint32_t host);
void net_home_down(struct net_fabric *f, uint32_t host);
/* Says when to look again. */
uint64_t net_home_tick(struct net_fabric *f, uint64_t now);

/* ---- away.c: at a client ---- */

struct control_letter;
void net_away_letter(struct net_fabric *f, uint32_t from, const struct control_letter *l);
/* Tells a server all endpoints that have their home there. */
void net_away_tell_all(struct net_fabric *f, uint32_t host);
void net_away_report(struct net_fabric *f);
/* Without the engine: a number for an endpoint at a node, or -error (said); *turn: of the connection by
 * which it was asked for. */
int net_away_draw(struct net_fabric *f, uint16_t node, uint32_t *client, uint32_t *turn);
/* The endpoint is there; with the engine. */
void net_away_opened(struct net_fabric *f, struct net_ep *e, uint32_t turn);
void net_away_closed(struct net_fabric *f, struct net_ep *e);
/* Without the engine: asks its home; true also if that does not say. */
bool net_away_lives(struct net_fabric *f, vb_peer peer);

/* Besides control_ask and control_answer. */
struct control_count {
	uint8_t kind, version;
	uint16_t node;
	uint32_t client, came, taken;
};

struct control_letter {
	uint8_t kind, version;
	uint16_t node;
	uint32_t client, number, pad;
	struct vb_msg msg;
};
_Static_assert(sizeof(struct control_letter) <= NET_CONTROL_MAX, "a letter fits");

#endif
