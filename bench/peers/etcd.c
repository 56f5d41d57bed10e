/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etcd's lock: Lock and Unlock of its v3 lock service, each client with a lease of its own that
 * outlasts the run (so that no keep-alive is sent).  Lock waits at the server, in order of arrival.
 *
 * Each client has its own libcurl handle, and thus its own kept-alive connection: HTTP/1.1 and JSON
 * through the gateway that etcd-server has built in, or HTTP/2 and gRPC, without the gateway.
 */
#define VB_LOG_ROOM "etcd"
#include "peers.h"

#if VB_PEERS_CURL

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/log.h"
#include "etcd_wire.h"

struct etcd_conn {
	struct peer_watch watch; /* first: what the loop hands back */
	struct peer_client *client;
	CURLM *multi;
	CURL *easy;
	struct curl_slist *headers;
	enum peer_wire wire;
	enum etcd_call call; /* under way */
	char *url[ETCD_CALLS];
	int64_t lease;
	struct etcd_key key; /* of the grant */
	uint8_t request[ETCD_REQUEST];
	uint8_t reply[2048];
	size_t reply_len;
	long grpc_status; /* -1: none came */
	char error[CURL_ERROR_SIZE];
};

static size_t on_body(char *data, size_t one, size_t n, void *arg)
{
	struct etcd_conn *k = arg;

	(void)one;
	if (n > sizeof(k->reply) - k->reply_len)
		return 0; /* curl reports a failed write */
	memcpy(k->reply + k->reply_len, data, n);
	k->reply_len += n;
	return n;
}

/* gRPC's verdict is a header that comes last. */
static size_t on_header(char *data, size_t one, size_t n, void *arg)
{
	static const char name[] = "grpc-status:";
	struct etcd_conn *k = arg;
	char text[sizeof(name) + 16];

	(void)one;
	if (n < sizeof(text) && n >= sizeof(name) &&
	    strncasecmp(data, name, sizeof(name) - 1) == 0) {
		memcpy(text, data, n);
		text[n] = '\0';
		k->grpc_status = strtol(text + sizeof(name) - 1, NULL, 10);
	}
	return n;
}

/* ---- calls outside of the measured span: JSON, a connection each ---- */

static int once(const struct peer_opts *o, const char *path, const char *body, struct etcd_conn *k)
{
	CURL *easy = curl_easy_init();
	char url[512];
	long status = 0;
	int err = -ECONNREFUSED;

	k->reply_len = 0;
	snprintf(k->error, sizeof(k->error), "no memory");
	if (easy == NULL)
		return -ENOMEM;
	snprintf(url, sizeof(url), "http://%s:%" PRIu64 "%s", o->host, o->port, path);
	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1l);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(o->connect_ns / 1000000 + 1));
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, k->error);
	curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, k);
	if (curl_easy_perform(easy) == CURLE_OK) {
		curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
		err = status == 200 ? 0 : -EPROTO;
		if (err != 0)
			snprintf(k->error, sizeof(k->error), "status %ld: %.*s", status,
				 (int)(k->reply_len < 160 ? k->reply_len : 160), k->reply);
	}
	curl_easy_cleanup(easy);
	return err;
}

static int grant_lease(const struct peer_opts *o, uint64_t seconds, struct etcd_conn *k)
{
	const char *id;
	json_t *root;
	char body[64];
	int err;

	snprintf(body, sizeof(body), "{\"TTL\":\"%" PRIu64 "\"}", seconds);
	err = once(o, "/v3/lease/grant", body, k);
	if (err != 0)
		return err;
	root = json_loadb((const char *)k->reply, k->reply_len, 0, NULL);
	id = json_string_value(json_object_get(root, "ID"));
	k->lease = id != NULL ? strtoll(id, NULL, 10) : 0;
	json_decref(root);
	if (k->lease == 0) {
		snprintf(k->error, sizeof(k->error), "the answer names no lease");
		return -EPROTO;
	}
	return 0;
}

static void revoke_lease(const struct peer_opts *o, struct etcd_conn *k)
{
	char body[64];

	snprintf(body, sizeof(body), "{\"ID\":\"%" PRId64 "\"}", k->lease);
	if (once(o, "/v3/lease/revoke", body, k) != 0)
		vb_warn("cannot revoke a lease: %s; it ends by itself", k->error);
}

static int etcd_probe(const struct peer_opts *o, char *why, size_t size)
{
	struct etcd_conn *k = calloc(1, sizeof(*k));
	int err;

	if (k == NULL)
		return -ENOMEM;
	curl_global_init(CURL_GLOBAL_ALL); /* counts; before there are threads */
	err = grant_lease(o, 60, k);
	if (err != 0)
		snprintf(why, size, "%s", k->error);
	else
		revoke_lease(o, k);
	free(k);
	return err;
}

/* ---- one request after the other ---- */

static void prepare(struct etcd_conn *k, enum etcd_call call)
{
	char name[32];
	size_t len;

	snprintf(name, sizeof(name), "lock/%" PRIu64, k->client->op.lock);
	len = etcd_encode(k->wire, call, name, k->lease, &k->key, k->request);
	k->call = call;
	k->reply_len = 0;
	k->grpc_status = -1;
	k->error[0] = '\0';
	curl_easy_setopt(k->easy, CURLOPT_URL, k->url[call]);
	curl_easy_setopt(k->easy, CURLOPT_POSTFIELDSIZE, (long)len);
}

static int answer_of(struct etcd_conn *k, CURLcode code)
{
	long status = 0;

	/* The connection is HTTP/2 now and used again.  To say so by prior knowledge once more would
	 * break it in libcurl 7.88 (curl issue 10634). */
	if (k->wire == PEER_GRPC)
		curl_easy_setopt(k->easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_2_0);

	if (code != CURLE_OK)
		return vb_fail(-ECONNRESET, "no answer from etcd: %s",
			       k->error[0] != '\0' ? k->error : curl_easy_strerror(code));
	curl_easy_getinfo(k->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200)
		return vb_fail(-EPROTO, "etcd answers with status %ld: %.*s", status,
			       (int)(k->reply_len < 200 ? k->reply_len : 200), k->reply);
	if (k->wire == PEER_GRPC && k->grpc_status != 0)
		return vb_fail(-EPROTO, "etcd answers with gRPC status %ld", k->grpc_status);
	if (k->call == ETCD_LOCK && etcd_decode_lock(k->wire, k->reply, k->reply_len, &k->key) != 0)
		return vb_fail(-EPROTO, "etcd's answer to Lock names no key");
	return PEER_YES;
}

static int ask(struct peer_client *c, enum etcd_call call)
{
	struct etcd_conn *k = c->conn;

	prepare(k, call);
	return answer_of(k, curl_easy_perform(k->easy));
}

static int etcd_acquire(struct peer_client *c)
{
	return ask(c, ETCD_LOCK);
}

static int etcd_release(struct peer_client *c)
{
	return ask(c, ETCD_UNLOCK);
}

static int put_acquire(struct peer_client *c)
{
	return ask(c, ETCD_PUT);
}

/* ---- in a loop: curl says which socket and which time it waits for ---- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *per_socket)
{
	struct etcd_conn *k = arg;
	uint32_t events =
		(what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);

	(void)easy;
	(void)per_socket;
	if (what == CURL_POLL_REMOVE)
		events = 0;
	/* One connection has one socket; another comes only after the last one is gone. */
	if (k->watch.armed == 0)
		k->watch.fd = fd;
	if (k->watch.fd != fd)
		return events == 0 ? 0 : -1;
	return peer_watch_set(k->client->loop, &k->watch, events) == 0 ? 0 : -1;
}

static int on_timer(CURLM *multi, long ms, void *arg)
{
	struct etcd_conn *k = arg;

	(void)multi;
	k->client->timer_ns = ms < 0 ? 0 : vb_clock_ns() + (uint64_t)ms * 1000000;
	return 0;
}

static void go_on(struct etcd_conn *k, curl_socket_t fd, int what)
{
	CURLMsg *m;
	int left;

	curl_multi_socket_action(k->multi, fd, what, &left);
	while ((m = curl_multi_info_read(k->multi, &left)) != NULL) {
		CURLcode code = m->data.result;

		if (m->msg != CURLMSG_DONE)
			continue;
		curl_multi_remove_handle(k->multi, k->easy);
		peer_done(k->client, answer_of(k, code));
	}
}

static void etcd_ready(struct peer_watch *w, uint32_t events)
{
	struct etcd_conn *k = (struct etcd_conn *)w;

	if (w->armed != 0)
		go_on(k, w->fd,
		      (events & (EPOLLIN | EPOLLHUP) ? CURL_CSELECT_IN : 0) |
			      (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
			      (events & EPOLLERR ? CURL_CSELECT_ERR : 0));
}

static void etcd_expired(struct peer_client *c)
{
	go_on(c->conn, CURL_SOCKET_TIMEOUT, 0);
}

static int start(struct peer_client *c, enum etcd_call call)
{
	struct etcd_conn *k = c->conn;
	CURLMcode code;

	prepare(k, call);
	code = curl_multi_add_handle(k->multi, k->easy);
	if (code != CURLM_OK)
		return vb_fail(-EIO, "libcurl: %s", curl_multi_strerror(code));
	return 0;
}

static int etcd_start_acquire(struct peer_client *c)
{
	return start(c, ETCD_LOCK);
}

static int etcd_start_release(struct peer_client *c)
{
	return start(c, ETCD_UNLOCK);
}

static int put_start_acquire(struct peer_client *c)
{
	return start(c, ETCD_PUT);
}

/* ---- connections ---- */

static void free_conn(struct etcd_conn *k)
{
	if (k->multi != NULL && k->easy != NULL)
		curl_multi_remove_handle(k->multi, k->easy);
	if (k->easy != NULL)
		curl_easy_cleanup(k->easy);
	if (k->multi != NULL)
		curl_multi_cleanup(k->multi);
	curl_slist_free_all(k->headers);
	for (unsigned i = 0; i < ETCD_CALLS; i++)
		free(k->url[i]);
	free(k);
}

static int set_up(struct etcd_conn *k, const struct peer_opts *o)
{
	bool grpc = k->wire == PEER_GRPC;

	for (unsigned i = 0; i < ETCD_CALLS; i++)
		if (asprintf(&k->url[i], "http://%s:%" PRIu64 "%s", o->host, o->port,
			     etcd_path(k->wire, (enum etcd_call)i)) < 0) {
			k->url[i] = NULL;
			return -ENOMEM;
		}
	k->easy = curl_easy_init();
	k->headers = curl_slist_append(NULL, grpc ? "Content-Type: application/grpc"
						  : "Content-Type: application/json");
	if (k->easy == NULL || k->headers == NULL ||
	    (grpc && curl_slist_append(k->headers, "TE: trailers") == NULL))
		return -ENOMEM;
	curl_easy_setopt(k->easy, CURLOPT_PROXY, "");
	curl_easy_setopt(k->easy, CURLOPT_NOSIGNAL, 1l);
	curl_easy_setopt(k->easy, CURLOPT_TIMEOUT_MS, (long)(PEER_ANSWER_NS / 1000000));
	curl_easy_setopt(k->easy, CURLOPT_HTTP_VERSION,
			 grpc ? CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE : CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(k->easy, CURLOPT_HTTPHEADER, k->headers);
	curl_easy_setopt(k->easy, CURLOPT_ERRORBUFFER, k->error);
	curl_easy_setopt(k->easy, CURLOPT_POST, 1l);
	curl_easy_setopt(k->easy, CURLOPT_POSTFIELDS, (char *)k->request);
	curl_easy_setopt(k->easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(k->easy, CURLOPT_WRITEDATA, k);
	if (grpc) {
		curl_easy_setopt(k->easy, CURLOPT_HEADERFUNCTION, on_header);
		curl_easy_setopt(k->easy, CURLOPT_HEADERDATA, k);
	}
	if (k->client->loop == NULL)
		return 0;
	k->multi = curl_multi_init();
	if (k->multi == NULL)
		return -ENOMEM;
	curl_multi_setopt(k->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(k->multi, CURLMOPT_SOCKETDATA, k);
	curl_multi_setopt(k->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(k->multi, CURLMOPT_TIMERDATA, k);
	return 0;
}

static int etcd_open(struct peer_client *c)
{
	const struct peer_opts *o = c->run->o;
	/* Longer than the run can last: nobody keeps it alive. */
	uint64_t ttl_ns = o->lease_ns + o->warmup_ns + o->duration_ns + 2 * PEER_ANSWER_NS;
	struct etcd_conn *k = calloc(1, sizeof(*k));
	int err;

	if (k == NULL)
		return vb_fail(-ENOMEM, "no memory for a connection");
	k->client = c;
	k->watch = (struct peer_watch){.ready = etcd_ready, .fd = -1};
	k->wire = (enum peer_wire)o->wire;
	err = grant_lease(o, ttl_ns / 1000000000, k);
	if (err != 0)
		vb_error("cannot get a lease from etcd: %s", k->error);
	if (err == 0 && (err = set_up(k, o)) != 0)
		vb_error("libcurl: no memory for a connection");
	if (err != 0)
		free_conn(k);
	else
		c->conn = k;
	return err;
}

static void etcd_close(struct peer_client *c)
{
	struct etcd_conn *k = c->conn;

	revoke_lease(c->run->o, k);
	free_conn(k);
}
#endif

const struct peer_ops peer_etcd = {
	.name = "etcd",
	.summary = "Lock and Unlock of the v3 lock service",
#if VB_PEERS_CURL
	.probe = etcd_probe,
	.open = etcd_open,
	.close = etcd_close,
	.acquire = etcd_acquire,
	.release = etcd_release,
	.start_acquire = etcd_start_acquire,
	.start_release = etcd_start_release,
	.expired = etcd_expired,
#else
	.absent = "libcurl4-openssl-dev",
#endif
};

/* What etcd's lock does twice in a cycle, and more. */
const struct peer_ops peer_etcd_put = {
	.name = "etcd-put",
	.summary = "one linearizable Put, and no release: what a lock's parts cost",
	.no_release = true,
#if VB_PEERS_CURL
	.probe = etcd_probe,
	.open = etcd_open,
	.close = etcd_close,
	.acquire = put_acquire,
	.start_acquire = put_start_acquire,
	.expired = etcd_expired,
#else
	.absent = "libcurl4-openssl-dev",
#endif
};
