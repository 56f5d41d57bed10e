/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A root and a member whose connection goes through somebody else: this test's process, which reads all, and from a
 * moment on bends a bit, repeats, reorders or cuts what the member says.  (Each byte of the handshake is bent in
 * tests/unit/test_cluster_proof.c.)
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "beyond.h"
#include "key_file.h"
#include "procs.h"
#include "seal/seal.h"

#define KNOWN "203.0.113.77:4711"
#define SEEN  (1u << 20)

enum { MET, SPOILT }; /* marks */
enum spoiling { HONEST, FLIPS, REPEATS, REORDERS, CUTS, SPOILINGS };

static struct between {
	uint16_t root_port; /* where it goes to */
	int listening;
	char meet[32]; /* where the member thinks the root is */
	pthread_t thread;
	uint8_t seen[SEEN];
	size_t n;
	uint32_t spoiling; /* atomic */
} between;

static void note(const uint8_t *bytes, size_t n)
{
	n = between.n + n > SEEN ? SEEN - between.n : n;
	memcpy(between.seen + between.n, bytes, n);
	between.n += n;
}

static void pass(int to, const uint8_t *bytes, size_t n)
{
	(void)!send(to, bytes, n, MSG_NOSIGNAL);
}

/* What it makes of a piece of the member's words, which is one record or several. */
static void spoil(enum spoiling how, int to, uint8_t *bytes, size_t n)
{
	static uint8_t kept[65536];
	static size_t kept_n;

	switch (how) {
	case FLIPS:
		bytes[n / 2] ^= 1;
		pass(to, bytes, n);
		break;
	case REPEATS:
		pass(to, bytes, n);
		pass(to, bytes, n);
		break;
	case REORDERS: /* the first one is kept, and comes behind the second */
		if (kept_n == 0) {
			memcpy(kept, bytes, n);
			kept_n = n;
			break;
		}
		pass(to, bytes, n);
		pass(to, kept, kept_n);
		break;
	case CUTS:
		if (kept_n == 0)
			kept_n = n;
		else
			pass(to, bytes, n);
		break;
	default:
		pass(to, bytes, n);
	}
	if (how == HONEST)
		kept_n = 0;
}

/* One piece; false: the connection is over. */
static bool carry(int from, int to, bool of_member)
{
	static uint8_t bytes[65536];
	ssize_t n = recv(from, bytes, sizeof(bytes), 0);

	if (n <= 0)
		return false;
	note(bytes, (size_t)n);
	if (of_member)
		spoil((enum spoiling)__atomic_load_n(&between.spoiling, __ATOMIC_SEQ_CST), to,
		      bytes, (size_t)n);
	else
		pass(to, bytes, (size_t)n);
	return true;
}

static int call_root(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons(between.root_port),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0)
		abort();
	return fd;
}

/* One connection, from beginning to end. */
static void *stand_between(void *arg)
{
	struct pollfd fd[2] = {{.events = POLLIN}, {.events = POLLIN}};

	(void)arg;
	fd[0].fd = accept(between.listening, NULL, NULL);
	if (fd[0].fd < 0)
		abort();
	fd[1].fd = call_root();
	while (poll(fd, 2, 60000) > 0) {
		if (fd[0].revents != 0 && !carry(fd[0].fd, fd[1].fd, true))
			break;
		if (fd[1].revents != 0 && !carry(fd[1].fd, fd[0].fd, false))
			break;
	}
	close(fd[0].fd);
	close(fd[1].fd);
	return NULL;
}

static void begin(struct procs *w)
{
	uint16_t port;

	procs_begin(w);
	between.root_port = w->port;
	between.n = 0;
	between.spoiling = HONEST;
	assert_int_equal(vb_cluster_listen("127.0.0.1", 0, &between.listening, &port), 0);
	assert_int_equal(fcntl(between.listening, F_SETFL, 0), 0);
	snprintf(between.meet, sizeof(between.meet), "127.0.0.1:%u", port);
}

/* After the processes have been started: they are forked without the thread. */
static void stand(void)
{
	assert_int_equal(pthread_create(&between.thread, NULL, stand_between, NULL), 0);
}

static void end(struct procs *w)
{
	procs_end(w);
	pthread_join(between.thread, NULL);
	close(between.listening);
}

static struct vb_cluster *meet(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);
	struct vb_cluster *c = NULL;

	if (me == 1)
		p.meet = between.meet;
	procs_must(procs_open_as(w, me, &p, &c) == 0);
	return c;
}

/* ---- reading ---- */

static void tells(struct procs *w, unsigned me)
{
	struct vb_cluster *c = meet(w, me);
	struct vb_cluster_parts parts;

	procs_must(vb_cluster_gather(c, "addresses", KNOWN, sizeof(KNOWN), VB_CLUSTER_TO_ALL, false,
				     0, &parts) == 0);
	for (uint32_t r = 0; r < 2; r++)
		procs_must(parts.bytes[r] == sizeof(KNOWN) && strcmp(parts.data[r], KNOWN) == 0);
	vb_cluster_parts_free(&parts);
	vb_cluster_close(c);
}

/* An address that they tell each other is seen where frames are plain, and only there. */
static void test_read(void **state)
{
	for (enum vb_cluster_seal seal = 0; seal < 2; seal++) {
		struct procs w = {.params = {.hosts = 2, .seal = seal}};

		begin(&w);
		procs_start(&w, 0, tells);
		procs_start(&w, 1, tells);
		stand();
		end(&w);
		assert_true(between.n > 1000);
		assert_int_equal(memmem(between.seen, between.n, KNOWN, strlen(KNOWN)) != NULL,
				 seal == VB_CLUSTER_SEAL_AUTO);
	}
}

/* ---- spoiling ---- */

static void meets_and_goes_on(struct procs *w, unsigned me)
{
	struct vb_cluster *c = meet(w, me);
	char said[2048] = "";
	int err = vb_cluster_barrier(c);

	procs_must(err == 0);
	procs_mark(w, MET);
	procs_must(procs_reached(w, SPOILT, 1));
	vb_log_capture_begin(said, sizeof(said));
	/* What comes before the spoilt one is good; and a ping that is kept is nothing but silence, until more is
	 * said. */
	while (err == 0 || err == -ETIMEDOUT)
		err = vb_cluster_barrier(c);
	vb_log_capture_end();
	procs_must(err == -VB_EPEERGONE);
	procs_must(!vb_cluster_alive(c, 1 - me));
	procs_must(strstr(said, me == 0 ? "rank 1 (" : "the root") != NULL);
	vb_cluster_close(c);
}

/* How often `words` are in there. */
static unsigned count(const char *text, const char *words)
{
	unsigned n = 0;

	while ((text = strstr(text, words)) != NULL) {
		n++;
		text += strlen(words);
	}
	return n;
}

static void test_spoilt(void **state)
{
	static const char line[] =
		"is dead: its connection ended without a goodbye (brought a frame "
		"that the other end has not sealed so)";

	for (enum spoiling how = FLIPS; how < SPOILINGS; how++) {
		struct procs w = {.params = {.hosts = 2, .seal = VB_CLUSTER_SEAL_ALWAYS}};

		begin(&w);
		/* Often, so that there is always something to spoil. */
		w.params.silence_ns = 200000000;
		procs_start(&w, 0, meets_and_goes_on);
		procs_start(&w, 1, meets_and_goes_on);
		stand();
		assert_true(procs_reached(&w, MET, 2));
		__atomic_store_n(&between.spoiling, how, __ATOMIC_SEQ_CST);
		procs_mark(&w, SPOILT);
		for (unsigned me = 0; me < 2; me++)
			procs_join(&w, me);
		if (count(procs_log(&w, 0), line) != 1)
			fail_msg("way %d: \"%s\"", (int)how, procs_log(&w, 0));
		end(&w);
	}
}

/* ---- beyond loopback ---- */

static char address[INET_ADDRSTRLEN], key[KEY_FILE_NAME];

static void is_sealed(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);
	struct vb_cluster *c = NULL;

	p.bind = address;
	p.auth_key_file = key;
	procs_must(procs_open_as(w, me, &p, &c) == 0);
	procs_must(vb_cluster_barrier(c) == 0);
	vb_cluster_close(c);
}

/* A process that would be plain there, asked for nothing, is sealed; one that never is says so, and one that is does
 * not meet it. */
static void is_refused(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);
	struct vb_cluster *c = NULL;
	char said[1024] = "";

	p.bind = address;
	p.auth_key_file = key;
	if (me == 0) {
		p.timeout_ns = 1500000000;
		procs_must(procs_open_as(w, me, &p, &c) == -ETIMEDOUT);
		return;
	}
	p.seal = VB_CLUSTER_SEAL_NEVER_ON_A_TRUSTED_NETWORK;
	vb_log_capture_begin(said, sizeof(said));
	procs_must(vb_cluster_open(&p, &c) == -EPROTO);
	vb_log_capture_end();
	procs_must(strstr(said, "give every process the same option seal") != NULL);
}

static void begin_beyond(struct procs *w)
{
	procs_begin(w);
	close(w->listening);
	assert_int_equal(vb_cluster_listen(address, 0, &w->listening, &w->port), 0);
	snprintf(w->meet, sizeof(w->meet), "%s:%u", address, w->port);
}

static void test_beyond(void **state)
{
	static const char warning[] =
		"the cluster's frames are neither encrypted nor authenticated";
	struct procs sealed = {.params.hosts = 2}, refused = sealed, plain = sealed;
	int file = key_file("0123456789abcdef0123456789abcdef", 32, key);

	assert_true(file >= 0);
	if (!beyond_loopback(address)) {
		close(file);
		print_message("this machine has no address but loopback's\n");
		skip();
	}
	begin_beyond(&sealed);
	procs_start(&sealed, 0, is_sealed);
	procs_start(&sealed, 1, is_sealed);
	for (unsigned me = 0; me < 2; me++) {
		procs_join(&sealed, me);
		assert_null(strstr(procs_log(&sealed, me), warning));
	}
	procs_end(&sealed);

	begin_beyond(&refused);
	procs_start(&refused, 0, is_refused);
	procs_start(&refused, 1, is_refused);
	procs_join(&refused, 1);
	procs_join(&refused, 0);
	procs_said(&refused, 0, "do not agree whether frames are sealed");
	procs_end(&refused);

	plain.params.seal = VB_CLUSTER_SEAL_NEVER_ON_A_TRUSTED_NETWORK;
	begin_beyond(&plain);
	procs_start(&plain, 0, is_sealed);
	procs_start(&plain, 1, is_sealed);
	for (unsigned me = 0; me < 2; me++) {
		procs_join(&plain, me);
		procs_said(&plain, me, warning);
	}
	procs_end(&plain);
	close(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_spoilt),
		cmocka_unit_test(test_beyond),
	};

	return cmocka_run_group_tests_name("cluster: sealed", tests, NULL, NULL);
}
