/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who knocks at a process of the fabric tcp without being of its run, and what a member's connection may
 * not bring: refused, said, and the process goes on.  One process, which reaches itself over the wire.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#define VB_LOG_ROOM "test"
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/log.h"
#include "beyond.h"
#include "child.h"
#include "fabric/tcp/inner.h"

#define WAIT_NS 20000000000ull
#define LEVELS  "warn,net:info"

struct world {
	struct vb_fabric *f;
	struct tcp_via *t;
	struct vb_ep *ep;
	vb_addr a;
	uint64_t done; /* additions to the word at a */
};

static void begin(struct world *w, const char *more)
{
	char options[160];
	bool fresh;

	*w = (struct world){0};
	snprintf(options, sizeof(options), "local=wire,helper=0,bound=5s,retry=8ms%s", more);
	assert_int_equal(vb_fabric_open(&(struct vb_fabric_params){.fabric = "tcp",
								   .nodes = 1,
								   .node_bytes = 64 << 10,
								   .options = options},
					&w->f),
			 0);
	assert_int_equal(vb_region(w->f, 0, "word", 64, &w->a, &fresh), 0);
	assert_int_equal(vb_ep_open(w->f, 0, &w->ep), 0);
	w->t = tcp_of(am_of(net_of(w->f)));
}

/* It serves, perhaps over another connection. */
static void works(struct world *w)
{
	uint64_t until = vb_ep_now(w->ep) + WAIT_NS, old;
	int err;

	while ((err = vb_faa64(w->ep, w->a, 1, &old)) == -VB_EPEERGONE && vb_ep_now(w->ep) < until)
		(void)vb_ep_sleep(w->ep, 1000000);
	assert_int_equal(err, 0);
	assert_true(old == w->done);
	w->done++;
}

static void end(struct world *w)
{
	works(w);
	vb_ep_close(w->ep);
	assert_int_equal(vb_fabric_close(w->f), 0);
}

static int knock(struct world *w)
{
	int fd = socket(w->t->here.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&w->t->here.sa, w->t->here.len), 0);
	return fd;
}

/* Until the other end has closed it; what it says until then is no concern of ours. */
static bool closed(struct world *w, int fd)
{
	uint64_t until = vb_ep_now(w->ep) + WAIT_NS;
	char buf[512];
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0 ||
	       (n < 0 && errno == EAGAIN && vb_ep_now(w->ep) < until))
		(void)vb_ep_sleep(w->ep, 1000000);
	return n == 0 || errno == ECONNRESET;
}

static const struct {
	const char *what, *bytes;
	size_t n;
} strange[] = {
#define S(what, bytes)                                                                             \
	{                                                                                          \
		what, bytes, sizeof(bytes) - 1                                                     \
	}
	S("HTTP", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
	S("zeros", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
	S("a message without a proof", "Vbux\1\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
	S("UCX's magic", "\xca\xfe\xba\xbe\xca\xfe\xba\xbe\0\0\0\0\xff\xff\xff\xff"),
	S("a TLS record that is too long", "\x16\3\1\xff\xff\1\0\xff\xfb\3\3"),
	S("a TLS alert", "\x15\3\3\0\2\2\x28"),
	S("a ClientHello of nothing", "\x16\3\1\0\5\1\0\0\1\0"),
#undef S
};

static void test_strangers(void **state)
{
	struct world w;

	begin(&w, "");
	for (unsigned i = 0; i < VB_ARRAY_SIZE(strange); i++) {
		char said[256] = "";
		uint64_t refused = w.t->refused.all;
		int fd = knock(&w);

		w.t->refused.again_ns = 0;
		vb_log_capture_begin(said, sizeof(said));
		assert_true(send(fd, strange[i].bytes, strange[i].n, MSG_NOSIGNAL) > 0);
		(void)shutdown(fd, SHUT_WR);
		if (!closed(&w, fd))
			fail_msg("%s: it stays open", strange[i].what);
		vb_log_capture_end();
		close(fd);
		assert_int_equal(w.t->refused.all, refused + 1);
		if (strstr(said, "refused a connection from 127.0.0.1:") == NULL)
			fail_msg("%s: \"%s\"", strange[i].what, said);
		works(&w);
	}
	end(&w);
}

/* Those who say nothing: so many at a time, and none for long. */
static unsigned still_open(const int *fd, unsigned n)
{
	unsigned open = 0;
	char c;

	for (unsigned i = 0; i < n; i++)
		open += recv(fd[i], &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
	return open;
}

static void test_silent(void **state)
{
	int fd[3 * TCP_HALF_MAX];
	uint64_t until;
	struct world w;

	begin(&w, "");
	vb_log_mute();
	for (unsigned i = 0; i < VB_ARRAY_SIZE(fd); i++) {
		fd[i] = knock(&w);
		works(&w);
	}
	until = vb_ep_now(w.ep) + WAIT_NS;
	while (still_open(fd, VB_ARRAY_SIZE(fd)) > TCP_HALF_MAX && vb_ep_now(w.ep) < until)
		(void)vb_ep_sleep(w.ep, 1000000);
	assert_true(w.t->half <= TCP_HALF_MAX);
	assert_int_equal(still_open(fd, VB_ARRAY_SIZE(fd)), TCP_HALF_MAX);
	/* Their time is over. */
	vb_list_for_each (it, &w.t->conns) {
		struct tcp_conn *c = vb_container_of(it, struct tcp_conn, link);

		c->until_ns = c->state == TCP_OPEN ? c->until_ns : 1;
	}
	am_due(w.t->w, 1);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(fd); i++) {
		assert_true(closed(&w, fd[i]));
		close(fd[i]);
	}
	vb_log_unmute();
	assert_int_equal(w.t->half, 0);
	end(&w);
}

/* ---- one that shakes hands ---- */

/* What a client has sent, and what it is to send right behind its proof. */
static struct {
	uint8_t bytes[65536];
	size_t n;
} sent, behind;

static void append(const void *bytes, size_t n)
{
	assert_true(behind.n + n <= sizeof(behind.bytes));
	memcpy(behind.bytes + behind.n, bytes, n);
	behind.n += n;
}

static bool flush_out(struct tcp_conn *c, bool proved)
{
	size_t n;

	if (proved && behind.n > 0) {
		assert_true(vb_buf_reserve(&c->out, behind.n));
		memcpy(c->out.at + c->out.end, behind.bytes, behind.n);
		c->out.end += behind.n;
	}
	n = vb_buf_bytes(&c->out);
	if (n == 0)
		return true;
	assert_true(sent.n + n <= sizeof(sent.bytes));
	memcpy(sent.bytes + sent.n, c->out.at + c->out.begin, n);
	sent.n += n;
	if (send(c->fd, c->out.at + c->out.begin, n, MSG_NOSIGNAL) != (ssize_t)n)
		return false;
	vb_buf_take(&c->out, n);
	return true;
}

/* As a member would, with `psk` and these ranks: over a blocking socket.  What step says last. */
static int shake_hands(struct world *w, int fd, const uint8_t psk[VB_SEAL_KEY], uint32_t from,
		       uint32_t to, enum vb_seal_mode mode, struct tcp_conn *c)
{
	static struct tcp_via other;
	uint64_t until = vb_ep_now(w->ep) + WAIT_NS;
	int rc;

	other = *w->t;
	memcpy(other.psk, psk, VB_SEAL_KEY);
	*c = (struct tcp_conn){.t = &other, .fd = fd, .from = from, .to = to, .mode = mode};
	sent.n = 0;
	assert_int_equal(tcp_shake_begin(c), 0);
	while ((rc = tcp_shake_step(c)) >= 0) {
		ssize_t got;

		if (!flush_out(c, rc == 1))
			return -EPIPE;
		if (rc == 1)
			return 1;
		assert_true(vb_buf_reserve(&c->raw, 4096));
		while ((got = recv(fd, c->raw.at + c->raw.end, 4096, MSG_DONTWAIT)) < 0 &&
		       errno == EAGAIN && vb_ep_now(w->ep) < until)
			(void)vb_ep_sleep(w->ep, 1000000);
		if (got <= 0)
			return -EPIPE;
		c->raw.end += (size_t)got;
	}
	return rc;
}

static void shaken(struct tcp_conn *c)
{
	tcp_shake_end(c);
	vb_seal_free(c->seal);
	vb_buf_free(&c->raw);
	vb_buf_free(&c->out);
	close(c->fd);
}

/* The right key opens, and nothing else does: another key, another's rank, another protection. */
static void test_hands(void **state)
{
	uint8_t wrong[VB_SEAL_KEY];
	const struct {
		bool wrong;
		uint32_t from, to;
		enum vb_seal_mode mode;
		bool opens;
	} tries[] = {
		{true, 0, 0, VB_SEAL_PLAIN, false},  {false, 1, 0, VB_SEAL_PLAIN, false},
		{false, 0, 1, VB_SEAL_PLAIN, false}, {false, UINT32_MAX, 0, VB_SEAL_PLAIN, false},
		{false, 0, 0, VB_SEAL_AES, false},   {false, 0, 0, VB_SEAL_CHACHA, false},
		{false, 0, 0, VB_SEAL_PLAIN, true},
	};
	struct world w;

	begin(&w, "");
	vb_log_mute();
	for (unsigned i = 0; i < VB_ARRAY_SIZE(tries); i++) {
		uint64_t refused = w.t->refused.all;
		struct tcp_conn c;
		int fd = knock(&w), rc;

		memcpy(wrong, w.t->psk, VB_SEAL_KEY);
		wrong[i % VB_SEAL_KEY] ^= tries[i].wrong;
		rc = shake_hands(&w, fd, wrong, tries[i].from, tries[i].to, tries[i].mode, &c);
		assert_int_equal(rc == 1, tries[i].opens);
		if (!tries[i].opens) {
			assert_true(closed(&w, fd));
			assert_int_equal(w.t->refused.all, refused + 1);
		}
		works(&w);
		shaken(&c);
		(void)vb_ep_sleep(w.ep, 1000000);
	}
	vb_log_unmute();
	end(&w);
}

/* It closes its connection, whose end the process takes for one of its own to itself: both begin anew. */
static void leave(struct world *w, struct tcp_conn *c)
{
	shaken(c);
	for (unsigned i = 0; i < 1000 && w->t->open > 2; i++)
		(void)vb_ep_sleep(w->ep, 1000000);
	assert_true(w->t->open <= 2);
}

static void knock_and_shake(struct world *w, enum vb_seal_mode mode, struct tcp_conn *c)
{
	assert_int_equal(shake_hands(w, knock(w), w->t->psk, 0, 0, mode, c), 1);
}

/* What comes with the proof, in one read, is no part of it. */
static void test_right_behind(void **state)
{
	uint8_t bytes[AM_HEADER];
	struct am_header h;
	struct tcp_conn c;
	struct world w;

	begin(&w, "");
	works(&w);
	/* Answers that nobody has asked for. */
	h = (struct am_header){.kind = AM_ANSWER, .session = w.t->w->session, .number = UINT64_MAX};
	am_header_put(bytes, &h);
	for (behind.n = 0; behind.n < VB_SHAKE_MAX;)
		append(bytes, sizeof(bytes));
	knock_and_shake(&w, VB_SEAL_PLAIN, &c);
	behind.n = 0;
	for (unsigned i = 0; i < 1000 && w.t->half > 0; i++)
		(void)vb_ep_sleep(w.ep, 1000000);
	assert_int_equal(w.t->refused.all, 0);
	assert_int_equal(w.t->open, 3);
	leave(&w, &c);
	end(&w);
}

/* All that a member has said on a connection, proof and frames, said again on another. */
static void test_replay(void **state)
{
	static const char *const seals[] = {"", ",seal=always"};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(seals); i++) {
		struct tcp_conn c;
		struct world w;
		int fd;

		begin(&w, seals[i]);
		knock_and_shake(&w, i == 0 ? VB_SEAL_PLAIN : VB_SEAL_CHACHA, &c);
		works(&w);
		assert_true(sent.n > 100 && sent.n < VB_SHAKE_MAX);
		vb_log_mute();
		fd = knock(&w);
		assert_int_equal(send(fd, sent.bytes, sent.n, MSG_NOSIGNAL), sent.n);
		assert_true(closed(&w, fd));
		vb_log_unmute();
		assert_int_equal(w.t->refused.all, 1);
		close(fd);
		leave(&w, &c);
		end(&w);
	}
}

/* ---- one that is called, and is not who should be ---- */

static SSL_CTX *with_certificate(void)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *x = X509_new();

	assert_true(ctx != NULL && key != NULL && x != NULL);
	assert_non_null(X509_gmtime_adj(X509_getm_notBefore(x), 0));
	assert_non_null(X509_gmtime_adj(X509_getm_notAfter(x), 3600));
	assert_int_equal(X509_set_pubkey(x, key), 1);
	assert_true(X509_sign(x, key, EVP_sha256()) > 0);
	assert_int_equal(SSL_CTX_use_certificate(ctx, x), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
	X509_free(x);
	EVP_PKEY_free(key);
	return ctx;
}

/* Whoever has a port's address may listen there: with a certificate, or another key, it is nobody. */
static int call(struct world *w, SSL_CTX *server, const uint8_t psk[VB_SEAL_KEY])
{
	struct tcp_via other = *w->t;
	struct tcp_conn c = {.t = w->t, .fd = -1}, s = {.t = &other, .fd = -1, .accepted = true};
	int rc = 0;

	if (server != NULL)
		other.ssl = server;
	memcpy(other.psk, psk, VB_SEAL_KEY);
	assert_int_equal(tcp_shake_begin(&c), 0);
	assert_int_equal(tcp_shake_begin(&s), 0);
	for (unsigned i = 0; i < 10 && rc == 0; i++) {
		struct vb_buf swap;

		rc = tcp_shake_step(&c);
		swap = s.raw;
		s.raw = c.out;
		c.out = swap;
		if (s.shake != NULL)
			(void)tcp_shake_step(&s);
		swap = c.raw;
		c.raw = s.out;
		s.out = swap;
	}
	c.fd = dup(1);
	s.fd = dup(1);
	vb_buf_free(&c.in);
	shaken(&c);
	shaken(&s);
	return rc;
}

static void test_impostors(void **state)
{
	uint8_t wrong[VB_SEAL_KEY];
	struct world w;
	SSL_CTX *ctx = with_certificate();

	begin(&w, "");
	memcpy(wrong, w.t->psk, VB_SEAL_KEY);
	wrong[0] ^= 1;
	assert_int_equal(call(&w, NULL, w.t->psk), 1);
	assert_int_equal(call(&w, NULL, wrong), -EACCES);
	assert_int_equal(call(&w, ctx, wrong), -EACCES);
	SSL_CTX_free(ctx);
	end(&w);
}

/* ---- a process that is busy, forks, or is not read from ---- */

/* Two connections that bring something at every look do not keep a third out. */
static void test_busy(void **state)
{
	uint8_t bytes[AM_HEADER];
	struct am_header h;
	struct world w;
	int fd, from;

	begin(&w, "");
	works(&w);
	h = (struct am_header){.kind = AM_ANSWER, .session = w.t->w->session, .number = UINT64_MAX};
	am_header_put(bytes, &h);
	from = ((struct tcp_conn *)am_of(net_of(w.f))->host[0].via)->fd;
	fd = knock(&w);
	pthread_mutex_lock(&net_of(w.f)->engine);
	for (unsigned i = 0; i < 200; i++) {
		assert_int_equal(send(from, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
		assert_true(am_look(w.t->w));
	}
	assert_int_equal(w.t->half, 1);
	pthread_mutex_unlock(&net_of(w.f)->engine);
	close(fd);
	end(&w);
}

/* A child that was forked while there was a connection keeps it open; what is told of it then would be
 * told of memory that has been given back. */
static void test_forked(void **state)
{
	struct epoll_event e[64];
	struct world w;
	pid_t child;
	int fd;

	begin(&w, "");
	vb_log_mute();
	fd = knock(&w);
	for (unsigned i = 0; i < 1000 && w.t->half == 0; i++)
		(void)vb_ep_sleep(w.ep, 1000000);
	assert_int_equal(w.t->half, 1);
	child = fork_child();
	assert_true(child >= 0);
	if (child == 0)
		for (;;)
			pause();
	assert_int_equal(send(fd, "no", 2, MSG_NOSIGNAL), 2);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	for (unsigned i = 0; i < 1000 && w.t->half > 0; i++)
		(void)vb_ep_sleep(w.ep, 1000000);
	assert_int_equal(w.t->half, 0);
	works(&w);
	pthread_mutex_lock(&net_of(w.f)->engine);
	for (int n = epoll_wait(net_of(w.f)->fd, e, 64, 0); n > 0; n--) {
		bool known = e[n - 1].data.ptr == NULL || e[n - 1].data.ptr == w.t;

		vb_list_for_each (it, &w.t->conns)
			known |= e[n - 1].data.ptr == vb_container_of(it, struct tcp_conn, link);
		assert_true(known);
	}
	pthread_mutex_unlock(&net_of(w.f)->engine);
	vb_log_unmute();
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(fd);
	end(&w);
}

/* ---- a member whose connection brings what it should not ---- */

/* The end of the process's connection to itself that sends. */
static struct tcp_conn *sending(struct world *w)
{
	works(w);
	return am_of(net_of(w->f))->host[0].via;
}

/* What it is sent and does not read is kept up to a bound; then its connection ends. */
static void test_unread(void **state)
{
	static uint8_t bytes[65536];
	struct tcp_conn *c;
	size_t kept = 0;
	struct world w;

	begin(&w, ",window=1");
	c = sending(&w);
	pthread_mutex_lock(&net_of(w.f)->engine);
	while (tcp_conn_send(c, bytes, sizeof(bytes)) == 0) {
		kept += sizeof(bytes);
		assert_true(kept <= w.t->backlog);
	}
	assert_true(kept + sizeof(bytes) > w.t->backlog && kept > 2 * AM_BODY_MAX);
	pthread_mutex_unlock(&net_of(w.f)->engine);
	end(&w);
}

static void breaks(struct world *w, const void *bytes, size_t n, const char *why)
{
	char said[512] = "", want[300];
	struct tcp_conn *c = sending(w);
	uint64_t spoilt = w->t->spoilt.all;
	uint32_t epoch = am_of(net_of(w->f))->host[0].epoch;

	w->t->spoilt.again_ns = 0;
	assert_int_equal(send(c->fd, bytes, n, MSG_NOSIGNAL), n);
	vb_log_capture_begin(said, sizeof(said));
	for (unsigned i = 0; i < 10000 && am_of(net_of(w->f))->host[0].epoch == epoch; i++)
		(void)vb_ep_sleep(w->ep, 1000000);
	vb_log_capture_end();
	/* What was captured last: the loss, which is at level info, or that somebody has spoilt it. */
	if (vb_log_on("net", VB_LOG_INFO))
		snprintf(want, sizeof(want), "the connection to host 0 is lost: %s", why);
	else
		snprintf(want, sizeof(want), ": %s; 1 since the last such line", why);
	if (strstr(said, want) == NULL)
		fail_msg("\"%s\" and not: %s", said, why);
	assert_int_equal(w->t->spoilt.all, spoilt + 1);
	assert_true(am_of(net_of(w->f))->host[0].epoch > epoch);
	works(w);
}

static void test_frames(void **state)
{
	static const uint8_t zeros[AM_HEADER];
	uint8_t bytes[AM_HEADER];
	struct am_header h;
	struct world w;

	begin(&w, "");
	breaks(&w, zeros, sizeof(zeros), "not a message of ours");
	h = (struct am_header){.kind = AM_VERBS, .session = w.t->w->session, .host = 1};
	am_header_put(bytes, &h);
	breaks(&w, bytes, sizeof(bytes), "it speaks for another host");
	h.host = 0;
	am_header_put(bytes, &h);
	bytes[4]++; /* its version */
	breaks(&w, bytes, sizeof(bytes), "another version of the format");
	h.bytes = AM_BODY_MAX + 1;
	am_header_put(bytes, &h);
	breaks(&w, bytes, sizeof(bytes), "longer than a message may be");
	h.bytes = 0;
	h.kind = AM_KINDS;
	am_header_put(bytes, &h);
	breaks(&w, bytes, sizeof(bytes), "an unknown kind or flag");
	end(&w);
}

/* Plain bytes among sealed ones: as whoever is between the two can put there. */
static void test_sealed(void **state)
{
	static const uint8_t zeros[64];
	uint8_t record[64] = {44}; /* a length that may be */
	struct world w;

	begin(&w, ",seal=always");
	assert_int_equal(vb_log_levels("warn"), 0); /* as it is if nobody says otherwise */
	breaks(&w, zeros, sizeof(zeros), "a frame is not as the other end has sealed it");
	breaks(&w, record, sizeof(record), "a frame is not as the other end has sealed it");
	assert_int_equal(vb_log_levels(LEVELS), 0);
	end(&w);
}

/* ---- what it asks of the kernel, and what it leaves plain ---- */

static int option_of(int fd, int level, int name)
{
	socklen_t len = sizeof(int);
	int value = -1;

	assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
	return value;
}

/* Who vanishes is found out by the kernel, at the end that was called and at the one that called, within `silence`. */
static void test_tuned(void **state)
{
	unsigned called = 0, calling = 0;
	struct world w;

	begin(&w, ",silence=7s");
	works(&w);
	vb_list_for_each (it, &w.t->conns) {
		const struct tcp_conn *c = vb_container_of(it, struct tcp_conn, link);

		called += c->accepted;
		calling += !c->accepted;
		assert_int_equal(option_of(c->fd, IPPROTO_TCP, TCP_NODELAY), 1);
		assert_int_equal(option_of(c->fd, SOL_SOCKET, SO_KEEPALIVE), 1);
		assert_int_equal(option_of(c->fd, IPPROTO_TCP, TCP_KEEPIDLE), 7);
		assert_int_equal(option_of(c->fd, IPPROTO_TCP, TCP_KEEPINTVL), 1);
		assert_int_equal(option_of(c->fd, IPPROTO_TCP, TCP_KEEPCNT), 2);
		assert_int_equal(option_of(c->fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 8000);
	}
	assert_true(called == 1 && calling == 1);
	end(&w);
}

/* Beyond loopback frames are sealed unless that is asked away, which is said. */
static void test_plain(void **state)
{
	static const char warning[] =
		"frames are neither encrypted nor authenticated (option seal)";
	static const uint8_t zeros[AM_HEADER];
	char address[INET_ADDRSTRLEN], more[96], said[512] = "";
	struct world w;

	if (!beyond_loopback(address)) {
		print_message("this machine has no address but loopback's\n");
		skip();
	}
	assert_int_equal(vb_log_levels("warn"), 0);
	for (unsigned plain = 0; plain < 2; plain++) {
		snprintf(more, sizeof(more), ",bind=%s%s", address,
			 plain ? ",seal=" VB_SEALING_NEVER_NAME : "");
		vb_log_capture_begin(said, sizeof(said));
		begin(&w, more);
		vb_log_capture_end();
		assert_int_equal(strstr(said, warning) != NULL, plain);
		assert_int_equal(sending(&w)->seal == NULL, plain);
		/* What is read as a message is not opened first. */
		breaks(&w, zeros, sizeof(zeros),
		       plain ? "not a message of ours"
			     : "a frame is not as the other end has sealed it");
		end(&w);
	}
	assert_int_equal(vb_log_levels(LEVELS), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_strangers), cmocka_unit_test(test_silent),
		cmocka_unit_test(test_hands),     cmocka_unit_test(test_right_behind),
		cmocka_unit_test(test_replay),    cmocka_unit_test(test_impostors),
		cmocka_unit_test(test_busy),      cmocka_unit_test(test_forked),
		cmocka_unit_test(test_unread),    cmocka_unit_test(test_frames),
		cmocka_unit_test(test_sealed),    cmocka_unit_test(test_tuned),
		cmocka_unit_test(test_plain),
	};

	setenv("VERBENA_LOG", LEVELS, 1);
	return cmocka_run_group_tests_name("fabric tcp: hostile", tests, NULL, NULL);
}
