/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The carrier of active messages over TCP, from the inside.
 *
 * One connection per pair of processes.  The process of the lower rank makes it, and makes it anew
 * when it is lost; the other one listens.  To itself a process has one as well (local=wire), and reads
 * at the end that it has accepted.
 *
 *	shaking    a TLS 1.3 handshake proves to each end that the other knows the run's secret, and
 *	           which ranks the two are (shake.c)
 *	open       messages of net/am/wire.h one behind the other; each says how long it is.  Beyond
 *	           loopback they are sealed in records (seal/seal.c)
 *
 * Nothing that arrives is believed before it is bounded: a connection that has proved nothing gets
 * VB_SHAKE_MAX bytes and TCP_SHAKE_NS, there are TCP_HALF_MAX of them, and a message is AM_BODY_MAX
 * long at most.  What a peer does not read of its answers is kept up to `backlog`, which is more than
 * one that keeps to the window can owe; beyond that its connection ends.
 *
 * Clients of an elastic cluster may be many, and execute nothing.  So nothing more of one is executed while it has not
 * read TCP_OWED bytes of what it was sent: its connection is *held*, what it sends stays in the kernels, and if it
 * reads nothing for `silence` the connection ends.  What comes to it from others (letters) may make that
 * TCP_OWED_MAX, which ends it at once.  Between servers this could stop both, each waiting for the other to read.
 *
 * What is sent is gathered, and leaves in one write when the caller has nothing more (`push`): all
 * answers to what one read has brought, all messages that one doorbell closes.
 *
 * The files call one way: tcp.c (the carrier's calls) and listen.c stand on conn.c, that on shake.c and
 * address.c; the proof and the records are in src/seal.  listen.c asks names.c, too.
 */
#ifndef VB_FABRIC_TCP_INNER_H
#define VB_FABRIC_TCP_INNER_H

#include <netinet/in.h>
#include <sodium.h>
#include <sys/socket.h>

#include "fabric/net/am/am.h"
#include "fabric/net/elastic.h"
#include "seal/seal.h"

#define TCP_HALF_MAX    64u
#define TCP_SHAKE_NS    5000000000ull
#define TCP_READ        32768u /* bytes that a read asks for at least */
#define TCP_SERVERS_MAX 64u
#define TCP_OWED        262144u
#define TCP_OWED_MAX    (4u << 20)
#define TCP_CLIENT      UINT32_MAX /* instead of a rank: it has none, but an id */

struct tcp_options {
	struct am_options am;
	int seal; /* enum vb_sealing */
	const char *bind;
	/* Of an elastic cluster; servers NULL: it is none. */
	const char *servers, *key, *fresh, *state;
	uint64_t serve, clients, patience_ns, linger_ns, settle_ns;
	const struct tcp_servers *list; /* what `servers` names, while the fabric is opened */
};

/* ---- address.c ---- */

/* What a process tells the others: TCP_ADDRESS bytes, little-endian.
 *
 *	 0  u16 version   2  u16 flags (TCP_HAS_AES)   4  u16 family: 4 or 6   6  u16 port
 *	 8  16 bytes: the address, of IPv4 the first four
 */
#define TCP_ADDRESS 24u
#define TCP_VERSION 1u
#define TCP_HAS_AES 1u

struct tcp_address {
	struct sockaddr_storage sa;
	socklen_t len;
	uint16_t flags;
};

void tcp_address_put(uint8_t to[TCP_ADDRESS], const struct tcp_address *a);
/* -EPROTO, not said. */
int tcp_address_get(struct tcp_address *out, const void *from, size_t bytes);
/* What `host`, a name, an address or an interface of this machine, stands for; port 0. */
int tcp_address_find(struct tcp_address *out, const char *host);
void tcp_address_set_port(struct tcp_address *a, uint16_t port);
bool tcp_address_is_loopback(const struct tcp_address *a);
/* Of IPv6 the first 64 bits count: who has one of the others has all of them. */
bool tcp_address_same_owner(const struct sockaddr_storage *a, const struct sockaddr_storage *b);
/* "127.0.0.1:4711" */
#define TCP_ADDRESS_TEXT 64
void tcp_address_say(const struct sockaddr_storage *sa, char to[TCP_ADDRESS_TEXT]);

/* ---- elastic.c ---- */

#define TCP_NAME_MAX 300
struct tcp_name {
	char host[TCP_NAME_MAX], port[8];
	bool is_address; /* which stands for itself */
};

struct tcp_servers {
	uint32_t n, found;
	struct tcp_name name[TCP_SERVERS_MAX];
	struct tcp_address at[TCP_SERVERS_MAX]; /* len 0: its name stands for none */
	uint8_t key[VB_SEAL_KEY];
};

/* The fabric of a server or a client. */
int tcp_open_elastic(const struct vb_fabric_params *p, const struct tcp_options *o,
		     const struct vb_fabric_ops *ops, const struct net_transport *t,
		     struct vb_fabric **out);

/* ---- names.c ---- */

struct tcp_via;
struct tcp_lookup;

/* At once, without the engine: 0; -ENOENT: it stands for no address now; -EINVAL.  Said. */
int tcp_name_find(struct tcp_name *name, struct tcp_address *at);
/* Its address is wanted: what a lookup has found is taken, and another one begun if it is time to. */
void tcp_name_look(struct tcp_via *t, uint32_t server);
void tcp_names_free(struct tcp_via *t);

/* ---- shake.c ---- */

struct tcp_conn;

/* The key is the fabric's, t->psk. */
int tcp_shake_begin(struct tcp_conn *c);
void tcp_shake_end(struct tcp_conn *c);
/* Goes on with what is in c->raw, leaves what is to be sent in c->out.  1: proved, c->from and c->mode
 * are true; 0: more is needed; -EACCES and -ENOMEM with c->why. */
int tcp_shake_step(struct tcp_conn *c);

/* ---- connections ---- */

enum tcp_state { TCP_CONNECTING, TCP_SHAKING, TCP_OPEN, TCP_DEAD };

struct tcp_conn {
	struct vb_list link; /* in via->conns */
	struct tcp_via *t;
	struct am_host *host; /* NULL: nobody has proved to be one */
	int fd;
	enum tcp_state state;
	bool accepted;
	bool pushing;      /* in via->push */
	bool wants_room;   /* epoll tells when it can be written to */
	bool held;         /* nothing is read of it until it has read */
	uint32_t events;   /* that epoll tells of */
	uint64_t wrote_ns; /* held: when it last took something */
	struct vb_list in_push;
	uint64_t until_ns; /* of the handshake */
	struct sockaddr_storage peer;
	size_t missing; /* of the message whose beginning has come; 0: not known */
	struct vb_shake *shake;
	uint32_t from, to;  /* ranks: who connects, to whom */
	uint8_t id[NET_ID]; /* if `from` is TCP_CLIENT */
	enum vb_seal_mode mode;
	const char *why;      /* it is of no use any more */
	struct vb_seal *seal; /* NULL: plain */
	struct vb_buf raw;    /* came, and is not opened (plain: not taken apart) yet */
	struct vb_buf in;     /* sealed: opened, and not taken apart yet */
	struct vb_buf text;   /* sealed: to be sealed */
	struct vb_buf out;    /* to be written */
};

struct tcp_peer {
	struct tcp_address address; /* len 0: not known */
	struct tcp_lookup *lookup;  /* under way; NULL: none is */
	uint64_t looked_ns;         /* when the last one began */
	unsigned tries;             /* in vain since the last connection */
	uint64_t again_ns;          /* not before */
};

/* What happens again and again, and is said in a line now and then. */
struct tcp_refusals {
	uint64_t all, untold, again_ns;
};

struct tcp_via {
	struct am_wire *w;
	struct tcp_options o;
	struct tcp_address here;
	int listener;
	bool deaf; /* no descriptors: the listener is left alone until listen_ns */
	uint64_t listen_ns;
	uint8_t psk[VB_SEAL_KEY];
	struct ssl_ctx_st *ssl;
	bool sealed;
	struct tcp_peer *peer; /* [net_hosts_max] */
	struct tcp_name *name; /* [servers of an elastic cluster]; NULL: it is none */
	struct vb_list conns, push;
	unsigned open, half; /* of conns: TCP_OPEN; accepted and not yet open */
	unsigned held;
	bool dead;     /* some are TCP_DEAD */
	bool look_all; /* ask for everything: not only reading is due */
	bool slept;    /* somebody has, since the last look */
	unsigned looks;
	size_t backlog;
	struct tcp_refusals refused; /* connections that did not become one */
	struct tcp_refusals spoilt;  /* that brought what their other end cannot have sent */
};

static inline struct tcp_via *tcp_of(const struct am_wire *w)
{
	return w->via;
}

/* ---- conn.c ---- */

/* A connection over fd, which it closes in the end, also after -error. */
int tcp_conn_new(struct tcp_via *t, int fd, bool accepted, struct tcp_conn **out);
/* It is of no use any more: its host hears of it, and it is closed by tcp_conn_reap. */
void tcp_conn_fail(struct tcp_conn *c, const char *why);
/* The same without a word to its host. */
void tcp_conn_drop(struct tcp_conn *c);
void tcp_conn_reap(struct tcp_via *t);
/* What epoll says of it. */
void tcp_conn_event(struct tcp_conn *c, uint32_t events);
/* Takes apart what has been read, as far as it is whole. */
void tcp_conn_take(struct tcp_conn *c);
/* Reads what is there; true if something was. */
bool tcp_conn_read(struct tcp_conn *c);
/* Goes on with those that were held and have read. */
void tcp_conn_resume(struct tcp_via *t);
/* One of them has. */
bool tcp_conn_can_resume(const struct tcp_via *t);
/* Ends those that do not read; says when to look again. */
uint64_t tcp_conn_tick(struct tcp_via *t, uint64_t now);
/* Queues a message. 0, -EPIPE. */
int tcp_conn_send(struct tcp_conn *c, const uint8_t *bytes, size_t n);
void tcp_conn_push(struct tcp_conn *c);
void tcp_conn_free_all(struct tcp_via *t);

/* ---- listen.c ---- */

/* A server of an elastic cluster returns when `settle` is over. */
int tcp_listen(struct tcp_via *t);
void tcp_accept(struct tcp_via *t);
/* Begins a connection to a host: 0 or -error. */
int tcp_dial(struct tcp_via *t, struct am_host *h);
/* Sockets and attempts whose time has come; says when to look again. */
uint64_t tcp_listen_tick(struct tcp_via *t, uint64_t now);
void tcp_tune(int fd, uint64_t silence_ns);

#endif
