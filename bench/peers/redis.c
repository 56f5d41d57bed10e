/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock of Redis' documentation on one server: SET key token NX PX lease, where the token is
 * another for each grant, and a script that deletes the key if it still has the token.  Who finds it
 * taken asks again, at once or after a random delay (--backoff).
 */
#define VB_LOG_ROOM "redis"
#include "peers.h"

#if VB_PEERS_REDIS

#include <errno.h>
#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/log.h"

static const char script[] = "if redis.call('get', KEYS[1]) == ARGV[1] then "
			     "return redis.call('del', KEYS[1]) else return 0 end";
static char script_sha[48];

struct redis_conn {
	struct peer_watch watch; /* first: what the loop hands back */
	struct peer_client *client;
	redisContext *blocking;
	redisAsyncContext *async;
	bool connected, want_write, busy; /* busy: inside of hiredis, which must not be entered */
	char key[32], token[48], lease[24];
	size_t key_len, token_len, lease_len;
};

static struct timeval timeval_of(uint64_t ns)
{
	return (struct timeval){.tv_sec = (time_t)(ns / 1000000000),
				.tv_usec = (suseconds_t)(ns % 1000000000 / 1000)};
}

static redisContext *connect_blocking(const struct peer_opts *o, char *why, size_t size)
{
	redisContext *c = redisConnectWithTimeout(o->host, (int)o->port, timeval_of(o->connect_ns));

	if (c != NULL && c->err == 0 && redisSetTimeout(c, timeval_of(PEER_ANSWER_NS)) == REDIS_OK)
		return c;
	snprintf(why, size, "%s", c != NULL ? c->errstr : "no memory");
	if (c != NULL)
		redisFree(c);
	return NULL;
}

static int redis_probe(const struct peer_opts *o, char *why, size_t size)
{
	redisContext *c = connect_blocking(o, why, size);
	redisReply *r;
	int err = -EPROTO;

	if (c == NULL)
		return -ECONNREFUSED;
	r = redisCommand(c, "SCRIPT LOAD %s", script);
	if (r != NULL && r->type == REDIS_REPLY_STRING && (size_t)r->len < sizeof(script_sha)) {
		memcpy(script_sha, r->str, (size_t)r->len + 1);
		err = 0;
	} else {
		snprintf(why, size, "SCRIPT LOAD: %s", r != NULL ? r->str : c->errstr);
	}
	if (r != NULL)
		freeReplyObject(r);
	redisFree(c);
	return err;
}

/* ---- what is asked, and what the answer means ---- */

/* Lengths are given because argv is not parsed again: no format, no quoting. */
static int acquire_argv(struct redis_conn *k, const char **argv, size_t *len)
{
	struct peer_client *c = k->client;

	k->key_len = (size_t)snprintf(k->key, sizeof(k->key), "lock:%" PRIu64, c->op.lock);
	k->token_len = (size_t)snprintf(k->token, sizeof(k->token), "%016" PRIx64 "%08x%016" PRIx64,
					c->run->o->seed, c->index, c->grants);
	argv[0] = "SET", len[0] = 3;
	argv[1] = k->key, len[1] = k->key_len;
	argv[2] = k->token, len[2] = k->token_len;
	argv[3] = "NX", len[3] = 2;
	argv[4] = "PX", len[4] = 2;
	argv[5] = k->lease, len[5] = k->lease_len;
	return 6;
}

static int release_argv(struct redis_conn *k, const char **argv, size_t *len)
{
	argv[0] = "EVALSHA", len[0] = 7;
	argv[1] = script_sha, len[1] = strlen(script_sha);
	argv[2] = "1", len[2] = 1;
	argv[3] = k->key, len[3] = k->key_len;
	argv[4] = k->token, len[4] = k->token_len;
	return 5;
}

static int answer_of(const redisReply *r, const char *error)
{
	if (r == NULL)
		return vb_fail(-ECONNRESET, "the connection to Redis broke: %s", error);
	switch (r->type) {
	case REDIS_REPLY_STATUS: /* +OK: set */
		return PEER_YES;
	case REDIS_REPLY_NIL: /* the key was there */
		return PEER_NO;
	case REDIS_REPLY_INTEGER: /* keys deleted */
		return r->integer == 1 ? PEER_YES : PEER_NO;
	case REDIS_REPLY_ERROR:
		return vb_fail(-EPROTO, "Redis refuses: %s", r->str);
	default:
		return vb_fail(-EPROTO, "an answer of Redis has the unexpected type %d", r->type);
	}
}

/* ---- blocking ---- */

static int ask(struct redis_conn *k, int argc, const char **argv, const size_t *len)
{
	redisReply *r = redisCommandArgv(k->blocking, argc, argv, len);
	int answer = answer_of(r, k->blocking->errstr);

	if (r != NULL)
		freeReplyObject(r);
	return answer;
}

static int redis_acquire(struct peer_client *c)
{
	const char *argv[6];
	size_t len[6];

	return ask(c->conn, acquire_argv(c->conn, argv, len), argv, len);
}

static int redis_release(struct peer_client *c)
{
	const char *argv[6];
	size_t len[6];

	return ask(c->conn, release_argv(c->conn, argv, len), argv, len);
}

/* ---- in a loop ---- */

/* Writes what there is at once instead of waiting to be told that the socket is writable, which it
 * is: that saves two system calls a request. */
static void settle(struct redis_conn *k)
{
	if (k->async != NULL && k->want_write && k->connected) {
		k->busy = true;
		redisAsyncHandleWrite(k->async);
		k->busy = false;
	}
	if (k->async != NULL)
		peer_watch_set(k->client->loop, &k->watch,
			       EPOLLIN | (k->want_write ? EPOLLOUT : 0));
}

static void redis_ready(struct peer_watch *w, uint32_t events)
{
	struct redis_conn *k = (struct redis_conn *)w;

	if (k->async == NULL)
		return;
	k->busy = true;
	k->connected = true; /* hiredis looks for the connect's error first */
	if (events & EPOLLOUT)
		redisAsyncHandleWrite(k->async);
	if (k->async != NULL && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		redisAsyncHandleRead(k->async);
	k->busy = false;
	settle(k);
}

static void on_add_write(void *data)
{
	((struct redis_conn *)data)->want_write = true;
}

static void on_delete_write(void *data)
{
	((struct redis_conn *)data)->want_write = false;
}

/* Reading is never off. */
static void on_read(void *data)
{
	(void)data;
}

/* hiredis is about to free the connection. */
static void on_cleanup(void *data)
{
	struct redis_conn *k = data;

	peer_watch_set(k->client->loop, &k->watch, 0);
	k->async = NULL;
}

static void on_answer(redisAsyncContext *a, void *reply, void *data)
{
	struct redis_conn *k = data;

	if (k->client->doing == PEER_FINISHED)
		return; /* freed with a request under way */
	peer_done(k->client, answer_of(reply, a->errstr != NULL ? a->errstr : "closed"));
}

static int start(struct redis_conn *k, int argc, const char **argv, const size_t *len)
{
	if (k->async == NULL ||
	    redisAsyncCommandArgv(k->async, on_answer, k, argc, argv, len) != REDIS_OK)
		return vb_fail(-ECONNRESET, "the connection to Redis is closed");
	if (!k->busy)
		settle(k);
	return 0;
}

static int redis_start_acquire(struct peer_client *c)
{
	const char *argv[6];
	size_t len[6];

	return start(c->conn, acquire_argv(c->conn, argv, len), argv, len);
}

static int redis_start_release(struct peer_client *c)
{
	const char *argv[6];
	size_t len[6];

	return start(c->conn, release_argv(c->conn, argv, len), argv, len);
}

static int open_async(struct redis_conn *k, const struct peer_opts *o)
{
	redisAsyncContext *a = redisAsyncConnect(o->host, (int)o->port);
	int one = 1;

	if (a == NULL || a->err != 0) {
		int err = vb_fail(-ECONNREFUSED, "cannot connect to Redis at %s:%" PRIu64 ": %s",
				  o->host, o->port, a != NULL ? a->errstr : "no memory");

		if (a != NULL)
			redisAsyncFree(a);
		return err;
	}
	setsockopt(a->c.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	k->watch = (struct peer_watch){.ready = redis_ready, .fd = a->c.fd};
	a->ev.data = k;
	a->ev.addRead = a->ev.delRead = on_read;
	a->ev.addWrite = on_add_write;
	a->ev.delWrite = on_delete_write;
	a->ev.cleanup = on_cleanup;
	k->async = a;
	return 0;
}

/* ---- connections ---- */

static int redis_open(struct peer_client *c)
{
	const struct peer_opts *o = c->run->o;
	struct redis_conn *k = calloc(1, sizeof(*k));
	char why[256];
	int err = 0;

	if (k == NULL)
		return vb_fail(-ENOMEM, "no memory for a connection");
	k->client = c;
	k->lease_len = (size_t)snprintf(k->lease, sizeof(k->lease), "%" PRIu64,
					(o->lease_ns + 999999) / 1000000);
	if (c->loop != NULL) {
		err = open_async(k, o);
	} else {
		k->blocking = connect_blocking(o, why, sizeof(why));
		if (k->blocking == NULL)
			err = vb_fail(-ECONNREFUSED,
				      "cannot connect to Redis at %s:%" PRIu64 ": %s", o->host,
				      o->port, why);
	}
	if (err != 0)
		free(k);
	else
		c->conn = k;
	return err;
}

static void redis_close(struct peer_client *c)
{
	struct redis_conn *k = c->conn;

	c->doing = PEER_FINISHED;
	if (k->async != NULL)
		redisAsyncFree(k->async);
	if (k->blocking != NULL)
		redisFree(k->blocking);
	free(k);
}
#endif

const struct peer_ops peer_redis = {
	.name = "redis",
	.summary = "SET NX PX and a compare-and-delete script",
#if VB_PEERS_REDIS
	.probe = redis_probe,
	.open = redis_open,
	.close = redis_close,
	.acquire = redis_acquire,
	.release = redis_release,
	.start_acquire = redis_start_acquire,
	.start_release = redis_start_release,
#else
	.absent = "libhiredis-dev",
#endif
};
