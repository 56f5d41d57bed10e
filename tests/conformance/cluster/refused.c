/* SPDX-License-Identifier: Apache-2.0 */
/* Who does not get in, and what is said then: keys, strangers, differences, those who never
 * come. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "cluster/auth.h"
#include "cluster/wire.h"
#include "procs.h"

#define SOON 1500000000ull /* for what must time out */

enum { REFUSED, READY };

static char key_a[64], key_b[64];

static void make_key(char *path, size_t size, char letter)
{
	uint8_t bytes[40]; /* no two keys the same */
	int fd;

	snprintf(path, size, "/tmp/verbena-test-key-%d-%c", (int)getpid(), letter);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(letter + i);
	assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	close(fd);
}

static int make_keys(void **state)
{
	make_key(key_a, sizeof(key_a), 'a');
	make_key(key_b, sizeof(key_b), 'b');
	return 0;
}

static int remove_keys(void **state)
{
	return unlink(key_a) | unlink(key_b);
}

/* Opens and must fail so; the words must be in what is logged. */
static void must_fail(struct procs *w, unsigned me, const struct vb_cluster_params *p, int err,
		      const char *words, const char *more)
{
	struct vb_cluster *c = NULL;
	char text[1024] = "";
	int got;

	vb_log_capture_begin(text, sizeof(text));
	got = procs_open_as(w, me, p, &c);
	vb_log_capture_end();
	if (got != err || strstr(text, words) == NULL || strstr(text, more) == NULL) {
		fprintf(stderr, "got %d, not %d: %s\n", got, err, text);
		procs_must(!"the right failure");
	}
	procs_must(c == NULL);
}

static void open_and_meet(struct procs *w, unsigned me, const struct vb_cluster_params *p)
{
	struct vb_cluster *c = NULL;

	procs_must(procs_open_as(w, me, p, &c) == 0);
	procs_must(vb_cluster_barrier(c) == 0);
	vb_cluster_close(c);
}

/* ---- keys ---- */

/* 0 and 1 have key a; 2 has another one, 3 none: the cluster is of the first two. */
static void keys(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);

	p.rank = VB_CLUSTER_ANY_RANK;
	p.auth_key_file = me < 2 ? key_a : me == 2 ? key_b : NULL;
	if (me == 1)
		procs_must(procs_reached(w, REFUSED, 2));
	if (me < 2) {
		open_and_meet(w, me, &p);
	} else {
		must_fail(w, me, &p, -EACCES, "refused", "key");
		procs_mark(w, REFUSED);
	}
}

static void test_keys(void **state)
{
	struct procs w = {.params.hosts = 2};

	procs_begin(&w);
	for (unsigned i = 0; i < 4; i++)
		procs_start(&w, i, keys);
	for (unsigned i = 0; i < 4; i++)
		procs_join(&w, i);
	procs_said(&w, 0, "refused: 127.0.0.1:");
	procs_said(&w, 0, "has another key than the root");
	procs_end(&w);
}

/* The root has no key, the member has one. */
static void key_of_member(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);

	if (me == 0) {
		p.timeout_ns = SOON;
		must_fail(w, me, &p, -ETIMEDOUT, "missing: rank 1", "only 1 of 2");
	} else {
		p.auth_key_file = key_a;
		must_fail(w, me, &p, -EACCES, "refused", "key");
	}
}

static void test_key_of_member(void **state)
{
	struct procs w = {0};

	procs_run(&w, 2, key_of_member);
}

/* Processes that are forked have a key that nobody else can know: a neighbour without a key stays out, and one
 * with a file. */
static struct vb_cluster_key drawn;

static void forked(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);
	struct vb_cluster *c = NULL;

	p.rank = VB_CLUSTER_ANY_RANK;
	if (me == 1)
		procs_must(procs_reached(w, REFUSED, 2));
	if (me < 2) {
		procs_must(vb_cluster_open_keyed(&p, me == 0 ? w->listening : -1, &drawn, &c) == 0);
		procs_must(vb_cluster_barrier(c) == 0);
		vb_cluster_close(c);
		return;
	}
	p.auth_key_file = me == 2 ? NULL : key_a;
	must_fail(w, me, &p, -EACCES, "refused", "key");
	procs_mark(w, REFUSED);
}

static void test_forked_key(void **state)
{
	struct procs w = {.params.hosts = 2};

	assert_int_equal(vb_cluster_key_make(&drawn, NULL), 0);
	procs_begin(&w);
	for (unsigned i = 0; i < 4; i++)
		procs_start(&w, i, forked);
	procs_end(&w);
}

static void test_beyond_loopback(void **state)
{
	struct vb_cluster_params p = {.hosts = 2, .role = VB_CLUSTER_MEMBER, .timeout_ns = SOON};
	struct vb_cluster *c;
	char text[1024];

	p.meet = "240.0.0.1:7531";
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(vb_cluster_open(&p, &c), -EACCES);
	vb_log_capture_end();
	assert_non_null(strstr(text, "240.0.0.1:7531 is beyond loopback"));
	p.meet = "[2001:db8::1]:7531";
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(vb_cluster_open(&p, &c), -EACCES);
	vb_log_capture_end();
	assert_non_null(strstr(text, "[2001:db8::1]:7531 is beyond loopback"));
}

/* ---- strangers ---- */

static int knock(struct procs *w)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons(w->port),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static void just_open(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);

	open_and_meet(w, me, &p);
}

/* More of them than the root keeps, of every kind, and none of them goes away by itself. */
static void test_strangers(void **state)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
	static const uint8_t almost[] = {12, 0, 0, 0, 1, CL_VERSION, 'V', 'B', 'x'};
	static const uint8_t huge[] = {255, 255, 255, 255, 1, CL_VERSION, 'V', 'B'};
	static const uint8_t join[] = {64, 0, 0, 0, 5, CL_VERSION, 'V', 'B'}; /* unproved */
	struct procs w = {.params.hosts = 3};
	int fds[200];

	procs_begin(&w);
	procs_start(&w, 0, just_open);
	for (unsigned i = 0; i < 200; i++) {
		fds[i] = knock(&w);
		switch (i % 6) {
		case 0:
			send(fds[i], http, sizeof(http) - 1, MSG_NOSIGNAL);
			break;
		case 1: /* goes on for ever, a byte now and then */
			send(fds[i], almost, sizeof(almost), MSG_NOSIGNAL);
			break;
		case 2:
			send(fds[i], huge, sizeof(huge), MSG_NOSIGNAL);
			break;
		case 3:
			send(fds[i], join, sizeof(join), MSG_NOSIGNAL);
			break;
		case 4:
			close(fds[i]);
			fds[i] = -1;
			break;
		default: /* says nothing at all */
			break;
		}
	}
	procs_start(&w, 1, just_open);
	procs_start(&w, 2, just_open);
	for (unsigned i = 0; i < 3; i++)
		procs_join(&w, i);
	procs_said(&w, 0, "does not speak Verbena's cluster protocol");
	for (unsigned i = 0; i < 200; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	procs_end(&w);
}

/* Another version, the one before this too, is told so in a frame that every version can read. */
static void test_other_version(void **state)
{
	static const uint8_t versions[] = {1, 99};
	struct procs w = {.params.hosts = 2};

	procs_begin(&w);
	procs_start(&w, 0, just_open);
	for (unsigned i = 0; i < sizeof(versions); i++) {
		uint8_t hello[48] = {40, 0, 0, 0, 1, versions[i], 'V', 'B', 'v', 'b'};
		uint8_t answer[600];
		char words[100];
		ssize_t n = 0, got;
		int fd = knock(&w);

		assert_int_equal(send(fd, hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
		while ((got = recv(fd, answer + n, sizeof(answer) - 1 - (size_t)n, 0)) > 0)
			n += got;
		answer[n] = '\0';
		assert_true(n > 9 && answer[4] == 8 && answer[6] == 'V'); /* REFUSE */
		snprintf(words, sizeof(words),
			 "speaks version %d of the cluster protocol, the root version %d: use",
			 versions[i], CL_VERSION);
		assert_non_null(strstr((char *)answer + 9, words));
		close(fd);
	}
	procs_start(&w, 1, just_open);
	procs_end(&w);
}

/* ---- differences ---- */

static void configs(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);

	p.rank = me == 0 ? 0 : 1;
	p.config = me == 2 ? "locks=100\n--seed=7\n" : "locks=100\n--seed=1\n";
	if (me == 1)
		procs_must(procs_reached(w, REFUSED, 1));
	if (me < 2) {
		open_and_meet(w, me, &p);
	} else {
		must_fail(w, me, &p, -EPROTO, "--seed: rank 1 (", ") has 7, the root has 1");
		procs_mark(w, REFUSED);
	}
}

static void test_configs(void **state)
{
	struct procs w = {.params.hosts = 2};

	procs_begin(&w);
	for (unsigned i = 0; i < 3; i++)
		procs_start(&w, i, configs);
	for (unsigned i = 0; i < 3; i++)
		procs_join(&w, i);
	procs_said(&w, 0, "has 7, the root has 1");
	procs_end(&w);
}

/* Nobody better comes: the root fails with the difference. */
static void configs_for_good(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);

	p.config = me == 0 ? "a=1\n" : "a=1\nb=2\n";
	if (me == 0)
		p.timeout_ns = SOON;
	must_fail(w, me, &p, -EPROTO, "b: rank 1 (", ") has 2, the root has none");
}

static void test_configs_for_good(void **state)
{
	struct procs w = {0};

	procs_run(&w, 2, configs_for_good);
}

static void hosts_differ(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);

	p.hosts = me == 0 ? 2 : 3;
	if (me == 0)
		p.timeout_ns = SOON;
	must_fail(w, me, &p, -EPROTO, "hosts: rank 1 (", ") has 3, the root has 2");
}

static void test_hosts_differ(void **state)
{
	struct procs w = {0};

	procs_run(&w, 2, hosts_differ);
}

static void has_said(struct procs *w, unsigned who, const char *what)
{
	uint64_t until = vb_clock_gettime_ns() + PROCS_NS;

	while (strstr(procs_log(w, who), what) == NULL) {
		assert_true(vb_clock_gettime_ns() < until);
		usleep(1000);
	}
}

static void root_has_seen_one(struct procs *w)
{
	has_said(w, 0, ") has come");
}

/* Two want rank 1: the second is told who was first. */
static void same_rank(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);

	p.rank = me == 0 ? 0 : me == 3 ? 2 : 1;
	if (me == 2) {
		procs_must(procs_reached(w, READY, 1));
		must_fail(w, me, &p, -EPROTO, "its rank is that of rank 1 (", "rank 1 (");
		procs_mark(w, REFUSED);
		return;
	}
	if (me == 3)
		procs_must(procs_reached(w, REFUSED, 1));
	open_and_meet(w, me, &p);
}

static void test_same_rank(void **state)
{
	struct procs w = {.params.hosts = 3};

	procs_begin(&w);
	procs_start(&w, 0, same_rank);
	procs_start(&w, 1, same_rank);
	procs_start(&w, 2, same_rank);
	procs_start(&w, 3, same_rank);
	root_has_seen_one(&w);
	procs_mark(&w, READY);
	procs_end(&w);
}

/* ---- not coming ---- */

static void missing(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);

	p.timeout_ns = SOON;
	must_fail(w, me, &p, -ETIMEDOUT, me == 0 ? "only 3 of 5" : "", "missing: rank 2 rank 4");
}

static void test_missing(void **state)
{
	struct procs w = {.params.hosts = 5};

	procs_begin(&w);
	procs_start(&w, 0, missing);
	procs_start(&w, 1, missing);
	procs_start(&w, 3, missing);
	procs_end(&w);
}

/* It had come, and dies before all have: another one takes its place. */
static void dies_before(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);

	p.rank = me == 3 ? 1 : me;
	open_and_meet(w, me, &p);
}

static void test_dies_before(void **state)
{
	struct procs w = {.params.hosts = 3};

	procs_begin(&w);
	procs_start(&w, 0, dies_before);
	procs_start(&w, 1, dies_before);
	root_has_seen_one(&w);
	procs_kill(&w, 1);
	procs_start(&w, 2, dies_before);
	procs_start(&w, 3, dies_before);
	procs_end(&w);
}

/* One too many. */
static void complete(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);
	struct vb_cluster *c = NULL;

	p.rank = VB_CLUSTER_ANY_RANK;
	if (me == 2) {
		procs_must(procs_reached(w, READY, 2));
		p.timeout_ns = SOON;
		must_fail(w, me, &p, -EBUSY, "the cluster is complete", "all 2 processes");
		procs_mark(w, REFUSED);
		return;
	}
	procs_must(procs_open_as(w, me, &p, &c) == 0);
	procs_mark(w, READY);
	procs_must(procs_reached(w, REFUSED, 1));
	vb_cluster_close(c);
}

static void test_complete(void **state)
{
	struct procs w = {.params.hosts = 2};

	procs_begin(&w);
	for (unsigned i = 0; i < 3; i++)
		procs_start(&w, i, complete);
	procs_end(&w);
}

/* The root has refused, and stands still when the time of the one that asks again ends. */
static void test_complete_and_late(void **state)
{
	struct procs w = {.params.hosts = 2};

	procs_begin(&w);
	for (unsigned i = 0; i < 3; i++)
		procs_start(&w, i, complete);
	has_said(&w, 2, "have come; trying again");
	procs_signal(&w, 0, SIGSTOP);
	procs_join(&w, 2);
	procs_signal(&w, 0, SIGCONT);
	procs_end(&w);
}

/* ---- foreign programs at the port ---- */

static void *foreigner(void *arg)
{
	struct procs *w = arg;
	int fd = accept(w->listening, NULL, NULL);
	static const char answer[] = "220 mail.example.org ESMTP\r\n";

	if (fd >= 0) {
		send(fd, answer, sizeof(answer) - 1, MSG_NOSIGNAL);
		usleep(100000);
		close(fd);
	}
	return NULL;
}

static void test_foreign_program(void **state)
{
	struct procs w = {0};
	struct vb_cluster_params p = {.hosts = 2, .timeout_ns = PROCS_NS};
	struct vb_cluster *c;
	pthread_t thread;
	char text[1024];

	procs_begin(&w);
	assert_int_equal(fcntl(w.listening, F_SETFL, 0), 0);
	p.meet = w.meet;
	assert_int_equal(pthread_create(&thread, NULL, foreigner, &w), 0);
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(vb_cluster_open(&p, &c), -EPROTO); /* role auto: the port is taken */
	vb_log_capture_end();
	pthread_join(thread, NULL);
	assert_non_null(strstr(text, "another program may have this port"));
	/* And one that says nothing. */
	p.timeout_ns = SOON;
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(vb_cluster_open(&p, &c), -ETIMEDOUT);
	vb_log_capture_end();
	assert_non_null(strstr(text, w.meet));
	assert_non_null(strstr(text, "says nothing"));
	p.role = VB_CLUSTER_ROOT;
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(vb_cluster_open(&p, &c), -EADDRINUSE);
	vb_log_capture_end();
	assert_non_null(strstr(text, "another program has the port"));
	procs_end(&w);
}

/* ---- a false root ---- */

enum proof { CHANCE, REFLECTED, OTHER_KEY, NONE, REFUSAL, RIGHT, PROOFS };

struct false_root {
	struct procs *w;
	enum proof proof;
	ssize_t more; /* bytes that the member sent to who had proved that, or had not */
};

/* A frame's payload. */
static size_t take_frame(int fd, uint8_t *to)
{
	uint8_t header[CL_HEADER];
	size_t n;

	procs_must(recv(fd, header, sizeof(header), MSG_WAITALL) == CL_HEADER);
	n = header[0] | (size_t)header[1] << 8;
	procs_must(n <= CL_PROOF_MAX && recv(fd, to, n, MSG_WAITALL) == (ssize_t)n);
	return n;
}

static void say(void *arg, char to[VB_SHAKE_IDENTITY])
{
	to[0] = '\0'; /* it is never asked */
}

static const char *hear(void *arg, const char *said)
{
	return NULL;
}

/* The root's side of TLS, with one key or another: what it has to say to the member's first message. */
static void answer(const struct false_root *r, const void *hello, size_t n, struct vb_buf *out)
{
	static const struct vb_shake_who who = {.say = say, .hear = hear};
	struct vb_cluster_key key;
	uint8_t psk[VB_SEAL_KEY];
	struct vb_buf in = {0};
	struct ssl_ctx_st *context = vb_shake_context();
	struct vb_shake *s;
	const char *why;

	procs_must(auth_key_load(&key, r->proof == OTHER_KEY ? key_b : key_a) == 0);
	auth_psk(&key, psk);
	procs_must(context != NULL);
	s = vb_shake_new(context, psk, true, &who, NULL);
	procs_must(s != NULL && vb_buf_add(&in, hello, n));
	procs_must(vb_shake_step(s, &in, out, &why) == (r->proof == OTHER_KEY ? -EACCES : 0));
	procs_must(vb_buf_bytes(out) > 0);
	vb_shake_free(s);
	vb_shake_context_free(context);
	vb_buf_free(&in);
}

/* Speaks the protocol, to the end of the handshake. */
static void *false_root(void *arg)
{
	struct false_root *r = arg;
	uint8_t frame[CL_CONTROL_MAX], proof[CL_PROOF_MAX];
	int fd = accept(r->w->listening, NULL, NULL);
	struct vb_buf out = {0};
	size_t n;

	procs_must(fd >= 0);
	(void)take_frame(fd, frame);
	n = cl_put_mode(frame, VB_SEAL_PLAIN);
	procs_must(send(fd, frame, n, MSG_NOSIGNAL) == (ssize_t)n);
	n = take_frame(fd, proof);
	answer(r, proof, n, &out);
	if (r->proof == CHANCE) {
		auth_draw(proof, n);
	} else if (r->proof != REFLECTED) {
		n = vb_buf_bytes(&out);
		memcpy(proof, out.at + out.begin, n);
	}
	vb_buf_free(&out);
	n = r->proof == NONE      ? cl_put_ping(frame, 1)
	    : r->proof == REFUSAL ? cl_put_refuse(frame, -EBUSY, "come back later")
				  : cl_put_bytes(frame, CL_PROOF_ROOT, proof, (uint32_t)n);
	procs_must(send(fd, frame, n, MSG_NOSIGNAL) == (ssize_t)n);
	r->more = recv(fd, frame, sizeof(frame), 0);
	close(fd);
	return NULL;
}

/* A member tells nothing of itself to who has not proved that it has the key. */
static void test_false_root(void **state)
{
	struct procs w = {0};
	struct vb_cluster_params p = {
		.hosts = 2, .rank = 1, .role = VB_CLUSTER_MEMBER, .timeout_ns = SOON};

	procs_begin(&w);
	assert_int_equal(fcntl(w.listening, F_SETFL, 0), 0);
	p.meet = w.meet;
	p.auth_key_file = key_a;
	for (enum proof proof = CHANCE; proof < PROOFS; proof++) {
		struct false_root r = {.w = &w, .proof = proof};
		struct vb_cluster *c = NULL;
		char text[1024] = "";
		pthread_t thread;
		int err;

		assert_int_equal(pthread_create(&thread, NULL, false_root, &r), 0);
		vb_log_capture_begin(text, sizeof(text));
		err = vb_cluster_open(&p, &c);
		vb_log_capture_end();
		pthread_join(thread, NULL);
		assert_null(c);
		if (proof == RIGHT) {
			/* This one could have been the root. */
			assert_true(r.more > 0 && err != 0);
			continue;
		}
		assert_true(r.more <= 0);
		if (proof == REFUSAL) {
			/* Only a root could say that one should try again. */
			assert_int_equal(err, -EPROTO);
			assert_non_null(strstr(text, "has not proved that it is the root, refused: "
						     "come back later"));
			continue;
		}
		assert_int_equal(err, -EACCES);
		assert_non_null(strstr(text, "did not prove that it has our key"));
	}
	procs_end(&w);
}

static void test_parameters(void **state)
{
	static char config[20000];
	static const struct vb_cluster_params wrong[] = {
		{.hosts = 0},
		{.hosts = VB_CLUSTER_HOSTS_MAX + 1},
		{.hosts = 2, .role = 3},
		{.hosts = 2, .rank = 2},
		{.hosts = 2, .role = VB_CLUSTER_ROOT, .rank = 1},
		{.hosts = 1, .role = VB_CLUSTER_MEMBER},
		{.hosts = 2, .silence_ns = 1},
		{.hosts = 2, .seal = VB_CLUSTER_SEAL_NEVER_ON_A_TRUSTED_NETWORK + 1},
		{.hosts = 2, .timeout_ns = UINT64_MAX},
		{.hosts = 2, .config = config},
		{.hosts = 2, .meet = ""},
		{.hosts = 2, .meet = "127.0.0.1:"},
		{.hosts = 2, .meet = "127.0.0.1:70000"},
		{.hosts = 2, .meet = "127.0.0.1:x"},
		{.hosts = 2, .meet = "127.0.0.1:0"},
		{.hosts = 2, .meet = ":7531"},
		{.hosts = 2, .meet = "::1:7531"},
		{.hosts = 2, .meet = "[::1"},
		{.hosts = 2, .meet = "no.such.host.invalid:1"},
		{.hosts = 2, .bind = "240.0.0.1"},
		{.hosts = 2, .bind = "0.0.0.0"},
	};
	struct vb_cluster *c = NULL;
	char text[1024];

	memset(config, 'x', sizeof(config) - 1);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		vb_log_capture_begin(text, sizeof(text));
		if (vb_cluster_open(&wrong[i], &c) != -EINVAL)
			fail_msg("case %zu: %s", i, text);
		vb_log_capture_end();
		assert_true(text[0] != '\0' && c == NULL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys),         cmocka_unit_test(test_key_of_member),
		cmocka_unit_test(test_forked_key),   cmocka_unit_test(test_beyond_loopback),
		cmocka_unit_test(test_strangers),    cmocka_unit_test(test_other_version),
		cmocka_unit_test(test_configs),      cmocka_unit_test(test_configs_for_good),
		cmocka_unit_test(test_hosts_differ), cmocka_unit_test(test_same_rank),
		cmocka_unit_test(test_missing),      cmocka_unit_test(test_dies_before),
		cmocka_unit_test(test_complete),     cmocka_unit_test(test_complete_and_late),
		cmocka_unit_test(test_false_root),   cmocka_unit_test(test_foreign_program),
		cmocka_unit_test(test_parameters),
	};

	setenv("VERBENA_LOG", "warn,cluster:debug", 1); /* who has come: root_has_seen_one */
	return cmocka_run_group_tests(tests, make_keys, remove_keys);
}
