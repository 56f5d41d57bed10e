/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fabric of the program's own (verbena/provider.h): the suite of all fabrics on it; what vb_provider_check says to a
 * provider that keeps its promises, and to those that each break one; and what is refused.
 */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/fabric.h"
#include "own_memory.h"

static struct memory *memory;

static int suite_open(struct vb_fabric_params *p, struct vb_fabric **out)
{
	if (memory != NULL)
		memory_free(memory);
	memory = memory_new(p->nodes, p->node_bytes, BUG_NONE);
	if (memory == NULL)
		return -ENOMEM;
	memory->p.seed = p->seed;
	return vb_fabric_provide(&memory->p, out);
}

#include "fabric_suite.h"

#include <verbena/lock.h>
#include <verbena/txn.h>

#include "child.h"

/* ---- vb_provider_check ---- */

static void test_keeps_its_promises(void **state)
{
	struct vb_provider_broken broken = {.promise = "untouched"};
	struct memory *m = memory_new(3, 1 << 16, BUG_NONE);

	(void)state;
	assert_int_equal(vb_provider_check(&m->p, &broken), 0);
	assert_string_equal(broken.promise, "untouched");
	/* Again: it has left everything as it was.  And without messages. */
	m->p.recv = NULL;
	assert_int_equal(vb_provider_check(&m->p, &broken), 0);
	memory_free(m);
}

/* One who has room for four verbs: all that a verb has on this side lies in its buffer. */
static int opens_four(void *ctx, uint16_t node, struct vb_provider_endpoint *out)
{
	int err = memory_ep_open(ctx, node, out);

	out->buffer_bytes = 4 * VB_PROVIDER_VERB_BYTES;
	return err;
}

static int posts_in_four(void *ctx, void *ep, const struct vb_provider_verb *verbs, unsigned n)
{
	const uint8_t *buffer = ((struct memory_ep *)ep)->buffer;

	assert_in_range(n, 1, 4 - ((struct memory_ep *)ep)->verbs);
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *local = verbs[i].local;

		assert_true(local >= buffer &&
			    local + verbs[i].bytes <= buffer + 4 * VB_PROVIDER_VERB_BYTES);
	}
	return memory_post(ctx, ep, verbs, n);
}

static void test_small_buffer(void **state)
{
	struct vb_provider_broken broken;
	struct memory *m = memory_new(1, 1 << 16, BUG_NONE);

	(void)state;
	m->p.ep_open = opens_four;
	m->p.post = posts_in_four;
	assert_int_equal(vb_provider_check(&m->p, &broken), 0);
	memory_free(m);
}

static const struct {
	const char *bug, *promise;
	enum memory_bug is;
} bugs[] = {
	{"a CAS in two steps", "atomic", BUG_CAS_IN_TWO_STEPS},
	{"an FAA in two steps", "atomic", BUG_FAA_IN_TWO_STEPS},
	{"a CAS that compares half of the word", "cas", BUG_CAS_OF_HALF},
	{"an FAA that adds to half of the word", "faa", BUG_FAA_CARRIES},
	{"a WRITE of a word in two steps", "whole-words", BUG_TEARS_WORDS},
	{"a WRITE of a byte too much", "read-write", BUG_WRITES_TOO_MUCH},
	{"a WRITE that overtakes a WRITE", "write-order", BUG_WRITE_OVERTAKES_WRITE},
	{"a SEND that overtakes a WRITE", "write-order", BUG_SEND_OVERTAKES_WRITE},
	{"a READ that overtakes a WRITE", "read-after-write", BUG_READ_OVERTAKES_WRITE},
	{"a WRITE that overtakes in spite of its fence", "fence", BUG_IGNORES_FENCES},
	{"a WRITE that others see late", "one-sees-the-other", BUG_WRITES_LATE},
	{"an end that is lost", "ends", BUG_LOSES_AN_END},
	{"an end that is told twice", "ends", BUG_ENDS_TWICE},
	{"a verb that fails", "ends", BUG_FAILS_A_VERB},
	{"a number that comes again", "endpoints", BUG_NUMBERS_COME_AGAIN},
	{"one who lives taken for dead", "alive", BUG_TAKES_FOR_DEAD},
	{"a message that is lost", "messages", BUG_LOSES_A_MESSAGE},
	{"messages that change places", "messages", BUG_SWAPS_MESSAGES},
	{"a message for who is gone that another gets", "messages", BUG_TELLS_ANYBODY},
	{"memory that is not zero", "zero", BUG_IS_NOT_ZERO},
	{"memory that ends early", "read-write", BUG_LENDS_LESS},
	{"a view of other memory", "local", BUG_SHOWS_ANOTHER},
};
_Static_assert(VB_ARRAY_SIZE(bugs) == BUGS - 1, "each bug is told of");

static void test_bug_is_found(void **state)
{
	const unsigned i = (unsigned)(uintptr_t)*state;
	struct memory *m = memory_new(2, 1 << 16, bugs[i].is);
	struct vb_provider_broken broken = {0};
	char said[512];

	/* Who loses something is not waited for as long as who is slow. */
	m->p.verb_bound_ns = 1000000;
	m->p.end_ns = 50000000;
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_provider_check(&m->p, &broken), -EPROTO);
	vb_log_capture_end();
	print_message("%s: %s: %s\n", bugs[i].bug, broken.promise, broken.seen);
	assert_string_equal(broken.promise, bugs[i].promise);
	assert_true(broken.seen[0] != '\0');
	assert_non_null(strstr(said, broken.promise));
	assert_non_null(strstr(said, broken.seen));
	memory_free(m);
}

/* No promise is broken where it is this machine that cannot. */
static void test_no_threads(void **state)
{
	struct vb_provider_broken broken = {.promise = "untouched"};
	struct memory *m = memory_new(1, 1 << 16, BUG_NONE);
	pthread_attr_t usual, huge;
	char said[512];

	(void)state;
	assert_int_equal(pthread_getattr_default_np(&usual), 0);
	assert_int_equal(pthread_attr_init(&huge), 0);
	assert_int_equal(pthread_attr_setstacksize(&huge, 1ull << 47), 0);
	assert_int_equal(pthread_setattr_default_np(&huge), 0);
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_provider_check(&m->p, &broken), -ENOMEM);
	vb_log_capture_end();
	assert_int_equal(pthread_setattr_default_np(&usual), 0);
	assert_non_null(strstr(said, "thread"));
	assert_string_equal(broken.promise, "untouched");
	pthread_attr_destroy(&usual);
	pthread_attr_destroy(&huge);
	memory_free(m);
}

/* ---- what is refused ---- */

static int provide(const struct vb_provider *p, char *said, size_t bytes)
{
	struct vb_fabric *f = NULL;
	struct vb_provider_broken broken;
	int err;

	said[0] = '\0';
	vb_log_capture_begin(said, bytes);
	err = vb_fabric_provide(p, &f);
	if (err != 0)
		assert_int_equal(vb_provider_check(p, &broken), err);
	vb_log_capture_end();
	if (err == 0)
		vb_fabric_close(f);
	return err;
}

#define REFUSED(field, value, word)                                                                \
	do {                                                                                       \
		struct vb_provider p_ = m->p;                                                      \
		p_.field = (value);                                                                \
		assert_int_equal(provide(&p_, said, sizeof(said)), -EINVAL);                       \
		if (strstr(said, word) == NULL)                                                    \
			fail_msg("'%s' does not speak of '%s'", said, word);                       \
	} while (0)

static void test_numbers(void **state)
{
	struct memory *m = memory_new(2, 1 << 16, BUG_NONE);
	struct vb_provider p = m->p;
	char said[512];

	(void)state;
	REFUSED(bytes, sizeof(struct vb_provider) - 1, "bytes");
	REFUSED(name, NULL, "name");
	REFUSED(name, "", "name");
	REFUSED(name, "shm", "name");
	REFUSED(name, "a name of more characters than 31", "name");
	REFUSED(nodes, 0, "nodes");
	REFUSED(nodes, 4097, "nodes");
	REFUSED(home, 2, "home");
	REFUSED(node_bytes, (1 << 16) - 1, "64 KiB");
	REFUSED(node_bytes, (1ull << 48) + 1, "64 KiB");
	REFUSED(end_ns, 0, "end_ns");
	REFUSED(end_ns, 3999999999ull, "end_ns");
	REFUSED(end_ns, 100000000001ull, "end_ns");
	REFUSED(ep_open, NULL, "ep_open");
	REFUSED(ep_close, NULL, "ep_close");
	REFUSED(post, NULL, "post");
	REFUSED(poll, NULL, "poll");
	REFUSED(alive, NULL, "alive");
	p.end_ns = 100000000000ull;
	assert_int_equal(provide(&p, said, sizeof(said)), 0);
	memory_free(m);
}

static int refuses(void *ctx, uint16_t node, struct vb_provider_endpoint *out)
{
	(void)ctx, (void)node, (void)out;
	return -EXDEV;
}

static int opens_none(void *ctx, uint16_t node, struct vb_provider_endpoint *out)
{
	int err = memory_ep_open(ctx, node, out);

	out->client = 0;
	return err;
}

static int opens_small(void *ctx, uint16_t node, struct vb_provider_endpoint *out)
{
	int err = memory_ep_open(ctx, node, out);

	out->buffer_bytes = 4 * VB_PROVIDER_VERB_BYTES - 1;
	return err;
}

static int opens_crooked(void *ctx, uint16_t node, struct vb_provider_endpoint *out)
{
	int err = memory_ep_open(ctx, node, out);

	out->buffer = (uint8_t *)out->buffer + 8;
	return err;
}

static void test_endpoints(void **state)
{
	struct memory *m = memory_new(2, 1 << 16, BUG_NONE);
	struct vb_fabric *f;
	char said[512] = "";

	(void)state;
	m->p.ep_open = refuses;
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_fabric_provide(&m->p, &f), -EXDEV);
	m->p.ep_open = opens_none;
	assert_int_equal(vb_fabric_provide(&m->p, &f), -EINVAL);
	assert_non_null(strstr(said, "client number"));
	m->p.ep_open = opens_small;
	assert_int_equal(vb_fabric_provide(&m->p, &f), -EINVAL);
	m->p.ep_open = opens_crooked;
	assert_int_equal(vb_fabric_provide(&m->p, &f), -EINVAL);
	vb_log_capture_end();
	assert_non_null(strstr(said, "aligned"));
	/* None was left open. */
	for (unsigned i = 0; i < MEMORY_ENDPOINTS; i++)
		assert_false(m->ep[i].open);
	memory_free(m);
}

/* Without messages a lock that needs them is refused by name, and one that does not is there. */
static void test_without_messages(void **state)
{
	struct memory *m = memory_new(2, 1 << 20, BUG_NONE);
	struct vb_provider p = m->p;
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	struct vb_grant g;
	struct vb_fabric *f;
	struct vb_db *db;
	char said[512] = "";

	(void)state;
	p.recv = NULL;
	assert_int_equal(vb_fabric_provide(&p, &f), 0);
	/* It has been copied. */
	memset(&p, 0xff, sizeof(p));
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(
		vb_lock_space_open(f, &(struct vb_lock_space_params){.lock = "mcs", .locks = 10},
				   &space),
		-EOPNOTSUPP);
	vb_log_capture_end();
	assert_non_null(strstr(said, "SEND/RECV"));
	assert_non_null(strstr(said, "'memory'"));
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_db_open(f, &(struct vb_db_params){.cc = "no-wait"}, &db), -EOPNOTSUPP);
	vb_log_capture_end();
	assert_non_null(strstr(said, "'no-wait' needs SEND/RECV"));
	assert_non_null(strstr(said, "'memory'"));
	assert_int_equal(
		vb_lock_space_open(f, &(struct vb_lock_space_params){.lock = "dslr", .locks = 10},
				   &space),
		0);
	assert_int_equal(vb_lock_client_open(space, 1, &me), 0);
	assert_int_equal(vb_lock_acquire(me, 3, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	assert_int_equal(vb_lock_release(me, &g), 0);
	vb_lock_client_close(me);
	assert_int_equal(vb_lock_space_close(space), 0);
	assert_int_equal(vb_fabric_close(f), 0);
	memory_free(m);
}

/* Its connections are its parent's. */
static void test_fork_is_refused(void **state)
{
	struct memory *m = memory_new(2, 1 << 20, BUG_NONE);
	char said[512] = "";
	struct vb_fabric *f;
	int status;
	pid_t child;

	(void)state;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	child = fork_child();
	assert_true(child >= 0);
	if (child == 0) {
		vb_log_capture_begin(said, sizeof(said));
		signal(SIGABRT, SIG_DFL);
		vb_fabric_after_fork(f);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
	assert_int_equal(vb_fabric_close(f), 0);
	memory_free(m);
}

static int opens_at_0(void *ctx, uint16_t node, struct vb_provider_endpoint *out)
{
	return node == 0 ? memory_ep_open(ctx, node, out) : -EXDEV;
}

/* Where no memory is seen a server that goes by verbs runs, at nodes of this process; others are refused. */
static void test_without_a_view(void **state)
{
	struct vb_lock_space_params params = {.lock = "shiftlock", .locks = 10, .servers = 1};
	struct memory *m = memory_new(2, 1 << 20, BUG_NONE);
	struct vb_lock_space *space, *other;
	struct vb_lock_server *server, *none;
	struct vb_lock_client *me;
	struct vb_grant g;
	struct vb_fabric *f;
	char said[512] = "";

	(void)state;
	m->p.local = NULL;
	m->p.ep_open = opens_at_0;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	assert_int_equal(vb_lock_space_open(f, &params, &space), 0);
	assert_int_equal(vb_lock_server_thread_start(space, 0, &server), 0);
	assert_int_equal(vb_lock_client_open(space, 0, &me), 0);
	assert_int_equal(vb_lock_acquire(me, 3, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	assert_int_equal(vb_lock_release(me, &g), 0);
	vb_lock_client_close(me);
	vb_lock_server_stop(server);
	assert_int_equal(vb_lock_space_close(space), 0);
	vb_log_capture_begin(said, sizeof(said));
	params = (struct vb_lock_space_params){
		.lock = "rpc", .name = "one", .locks = 10, .servers = 1};
	assert_int_equal(vb_lock_space_open(f, &params, &other), 0);
	assert_int_equal(vb_lock_server_start(other, 0, 0, 1, &none), -EXDEV);
	assert_non_null(strstr(said, "`local`"));
	assert_int_equal(vb_lock_space_close(other), 0);
	params = (struct vb_lock_space_params){
		.lock = "shiftlock", .name = "two", .locks = 10, .servers = 2};
	assert_int_equal(vb_lock_space_open(f, &params, &other), 0);
	assert_int_equal(vb_lock_server_start(other, 1, 0, 1, &none), -EXDEV);
	assert_int_equal(vb_lock_space_close(other), 0);
	vb_log_capture_end();
	assert_int_equal(vb_fabric_close(f), 0);
	memory_free(m);
}

/* A thread waits in one way. */
static void test_one_kind_for_a_thread(void **state)
{
	struct memory *m = memory_new(1, 1 << 16, BUG_NONE);
	struct vb_fabric *f, *shm;
	struct vb_ep *ep, *other;
	char said[512] = "";

	(void)state;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	assert_int_equal(vb_fabric_open(&(struct vb_fabric_params){.node_bytes = 1 << 16}, &shm),
			 0);
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	assert_int_equal(vb_ep_open(shm, 0, &other), -EINVAL);
	vb_ep_close(ep);
	assert_int_equal(vb_ep_open(shm, 0, &other), 0);
	assert_int_equal(vb_ep_open(f, 0, &ep), -EINVAL);
	vb_log_capture_end();
	assert_non_null(strstr(said, "'shm'"));
	vb_ep_close(other);
	vb_fabric_close(shm);
	vb_fabric_close(f);
	memory_free(m);
}

/* ---- what a provider does wrong while it is used ---- */

/* A verb that never ends is unknown, and takes its endpoint with it, and no other. */
static void test_lost_end(void **state)
{
	struct memory *m = memory_new(1, 1 << 16, BUG_NONE);
	struct vb_fabric *f;
	struct vb_ep *ep, *other;
	uint64_t old;
	vb_addr at;
	bool fresh;
	char said[512] = "";

	(void)state;
	m->p.verb_bound_ns = 1000000;
	m->p.end_ns = 30000000;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	assert_int_equal(vb_region(f, 0, "words", 64, &at, &fresh), 0);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	assert_int_equal(vb_ep_open(f, 0, &other), 0);
	for (unsigned i = 0; i < 9; i++)
		assert_int_equal(vb_faa64(ep, at, 1, &old), 0);
	m->bug = BUG_LOSES_AN_END;
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_faa64(ep, at, 1, &old), -VB_EUNKNOWN);
	assert_non_null(strstr(said, "end_ns"));
	vb_log_capture_end();
	assert_int_equal(vb_faa64(ep, at, 1, &old), -VB_EPEERGONE);
	m->bug = BUG_NONE;
	assert_int_equal(vb_faa64(other, at, 1, &old), 0);
	assert_int_equal(old, 10);
	vb_ep_close(ep);
	vb_ep_close(other);
	vb_fabric_close(f);
	memory_free(m);
}

/* Who has not been here for longer than end_ns has not heard of ends that may be there. */
static void test_stood_still(void **state)
{
	struct memory *m = memory_new(1, 1 << 16, BUG_NONE);
	struct vb_verb v[8];
	struct vb_batch b = {.verbs = v, .n = VB_ARRAY_SIZE(v)};
	struct vb_fabric *f;
	struct vb_ep *ep;
	uint64_t old;
	vb_addr at;
	bool fresh;

	(void)state;
	m->p.verb_bound_ns = 1000000;
	m->p.end_ns = 500000000;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	assert_int_equal(vb_region(f, 0, "words", 64, &at, &fresh), 0);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	for (unsigned i = 0; i < b.n; i++)
		v[i] = suite_faa(at, 1, 0);
	assert_int_equal(vb_post(ep, &b), 0);
	nanosleep(&(struct timespec){.tv_nsec = 700000000}, NULL);
	assert_int_equal(vb_faa64(ep, at, 1, &old), 0);
	assert_int_equal(old, b.n);
	vb_ep_close(ep);
	vb_fabric_close(f);
	memory_free(m);
}

/* What becomes of the next pieces, in turn, and then 0; and after how many posts none is taken any more. */
static const int *piece_ends;
static unsigned n_piece_ends, posts_left;

static int poll_tells(void *ctx, void *ep, struct vb_provider_end *out, unsigned n)
{
	int got = memory_poll(ctx, ep, out, n);

	for (int i = 0; i < got && n_piece_ends > 0; i++, n_piece_ends--)
		out[i].err = *piece_ends++;
	return got;
}

static int post_takes(void *ctx, void *ep, const struct vb_provider_verb *verbs, unsigned n)
{
	if (posts_left == 0)
		return -ENOMEM;
	posts_left--;
	return memory_post(ctx, ep, verbs, n);
}

static int write_with(struct vb_ep *ep, vb_addr at, uint32_t bytes, const int *ends, unsigned n)
{
	static const uint8_t from[(MEMORY_PLACES + 2) * VB_PROVIDER_VERB_BYTES];
	int err;

	piece_ends = ends;
	n_piece_ends = n;
	err = vb_write(ep, at, from, bytes);
	assert_int_equal(n_piece_ends, 0);
	return err;
}

/* A verb has not happened only if that is known of each piece. */
static void test_pieces_that_fail(void **state)
{
	static const int gone[] = {-VB_EPEERGONE, -VB_EPEERGONE}, some[] = {0, -VB_EPEERGONE},
			 unsure[] = {-VB_EPEERGONE, -VB_EUNKNOWN}, other[] = {-EIO};
	const uint32_t piece = VB_PROVIDER_VERB_BYTES;
	struct memory *m = memory_new(1, 1 << 16, BUG_NONE);
	struct vb_fabric *f;
	struct vb_ep *ep;
	uint64_t old;
	vb_addr at;
	bool fresh;

	(void)state;
	m->p.poll = poll_tells;
	m->p.post = post_takes;
	posts_left = UINT32_MAX;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	assert_int_equal(vb_region(f, 0, "bytes", 40 * piece, &at, &fresh), 0);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	assert_int_equal(vb_addr_offset(at) % piece, 0);
	assert_int_equal(write_with(ep, at, 2 * piece, gone, 2), -VB_EPEERGONE);
	assert_int_equal(write_with(ep, at, 2 * piece, some, 2), -VB_EUNKNOWN);
	assert_int_equal(write_with(ep, at, 2 * piece, unsure, 2), -VB_EUNKNOWN);
	/* An error that says nothing. */
	assert_int_equal(write_with(ep, at, 8, other, 1), -VB_EUNKNOWN);
	piece_ends = other;
	n_piece_ends = 1;
	assert_int_equal(vb_cas64(ep, at, 0, 1, &old), -VB_EUNKNOWN);
	/* What was not posted has not happened; but some of it was. */
	posts_left = 0;
	assert_int_equal(write_with(ep, at, 2 * piece, NULL, 0), -ENOMEM);
	posts_left = 1;
	assert_int_equal(write_with(ep, at, (MEMORY_PLACES + 2) * piece, NULL, 0), -VB_EUNKNOWN);
	vb_ep_close(ep);
	vb_fabric_close(f);
	memory_free(m);
}

static uint64_t quiet_until_ns;

static int poll_waits(void *ctx, void *ep, struct vb_provider_end *out, unsigned n)
{
	return vb_clock_ns() < quiet_until_ns ? 0 : memory_poll(ctx, ep, out, n);
}

/* A verb that has waited for a place is looked at once more: it may be too late for it. */
static void test_too_late_for_a_place(void **state)
{
	static uint8_t to[4 * VB_PROVIDER_VERB_BYTES];
	struct memory *m = memory_new(1, 1 << 16, BUG_NONE);
	struct vb_verb v[2];
	struct vb_fabric *f;
	struct vb_ep *ep;
	uint64_t old;
	vb_addr at;
	bool fresh;

	(void)state;
	m->p.ep_open = opens_four;
	m->p.poll = poll_waits;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	assert_int_equal(vb_region(f, 0, "bytes", 4096, &at, &fresh), 0);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	v[0] = suite_read(at, to, sizeof(to));
	v[1] = suite_faa(at, 1, VB_SIGNALLED);
	v[1].not_after_ns = vb_ep_now(ep) + 5000000;
	quiet_until_ns = vb_clock_ns() + 50000000;
	assert_int_equal(vb_post_wait(ep, v, 2), -VB_ETOOLATE);
	assert_int_equal(v[0].status, 0);
	assert_int_equal(vb_read64(ep, at, &old), 0);
	assert_int_equal(old, 0);
	vb_ep_close(ep);
	vb_fabric_close(f);
	memory_free(m);
}

/* An end that belongs to nothing is said and dropped. */
static void test_false_end(void **state)
{
	struct memory *m = memory_new(1, 1 << 16, BUG_NONE);
	struct vb_fabric *f;
	struct vb_ep *ep;
	uint64_t old;
	vb_addr at;
	bool fresh;
	char said[512] = "";

	(void)state;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	assert_int_equal(vb_region(f, 0, "words", 64, &at, &fresh), 0);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	m->bug = BUG_ENDS_TWICE;
	vb_log_capture_begin(said, sizeof(said));
	for (unsigned i = 0; i < 40; i++) {
		assert_int_equal(vb_faa64(ep, at, 1, &old), 0);
		assert_int_equal(old, i);
	}
	vb_log_capture_end();
	assert_non_null(strstr(said, "not under way"));
	vb_ep_close(ep);
	vb_fabric_close(f);
	memory_free(m);
}

/* Verbs that are longer than the endpoint has places for, in pieces, beside others. */
static void test_long_verbs(void **state)
{
	enum { BYTES = 3 * MEMORY_PLACES * VB_PROVIDER_VERB_BYTES / 2 };
	static uint8_t to[BYTES], from[BYTES];
	struct memory *m = memory_new(1, 1 << 20, BUG_NONE);
	struct vb_fabric *f;
	struct vb_ep *ep;
	vb_addr at;
	bool fresh;

	(void)state;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	assert_int_equal(vb_region(f, 0, "bytes", BYTES + 64, &at, &fresh), 0);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	for (unsigned i = 0; i < BYTES; i++)
		from[i] = (uint8_t)(i * 7 + i / 256);
	{
		struct vb_verb v[] = {
			suite_write(at + 5, from, BYTES, VB_SIGNALLED),
			suite_faa(at + BYTES + 8, 3, VB_SIGNALLED),
			suite_read(at + 5, to, BYTES),
		};

		assert_int_equal(vb_post_wait(ep, v, VB_ARRAY_SIZE(v)), 0);
	}
	assert_memory_equal(to, from, BYTES);
	vb_ep_close(ep);
	vb_fabric_close(f);
	memory_free(m);
}

/* ---- the directory in the lent memory ---- */

static void test_foreign_directory(void **state)
{
	struct memory *m = memory_new(1, 1 << 16, BUG_NONE);
	struct vb_fabric *f;
	vb_addr at;
	bool fresh;
	char said[512] = "";

	(void)state;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	vb_log_capture_begin(said, sizeof(said));
	m->node[0][0] = 1;
	assert_int_equal(vb_region(f, 0, "one", 64, &at, &fresh), -EPROTO);
	assert_non_null(strstr(said, "not zero at first"));
	m->node[0][0] = 0;
	assert_int_equal(vb_region(f, 0, "one", 64, &at, &fresh), 0);
	m->node[0][16] = 200; /* the newest entry */
	assert_int_equal(vb_region(f, 0, "one", 64, &at, &fresh), -EPROTO);
	m->node[0][16] = 5;
	assert_int_equal(vb_region(f, 0, "one", 64, &at, &fresh), -EPROTO);
	m->node[0][16] = 1;
	assert_int_equal(vb_region(f, 0, "one", 64, &at, &fresh), 0);
	assert_false(fresh);
	assert_int_equal(vb_region_find(f, 0, "one", 64, &at), 0);
	assert_int_equal(vb_region_find(f, 0, "two", 64, &at), -ENOENT);
	assert_int_equal(vb_region_find(f, 0, "one", 65, &at), -EPROTO);
	vb_log_capture_end();
	vb_fabric_close(f);
	memory_free(m);
}

/* As many as there is room for, and each found again by who comes later. */
static void test_many_regions(void **state)
{
	struct memory *m = memory_new(1, 1 << 16, BUG_NONE);
	struct vb_fabric *f, *g;
	vb_addr at, same;
	unsigned n = 0;
	bool fresh;
	char name[16], said[512] = "";
	int err;

	(void)state;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	assert_int_equal(vb_fabric_provide(&m->p, &g), 0);
	vb_log_capture_begin(said, sizeof(said));
	do {
		snprintf(name, sizeof(name), "number %u", n);
		err = vb_region(n % 2 == 0 ? f : g, 0, name, 8 * (1 + n % 9), &at, &fresh);
		if (err != 0)
			break;
		assert_true(fresh);
		assert_int_equal(
			vb_region(n % 2 == 0 ? g : f, 0, name, 8 * (1 + n % 9), &same, &fresh), 0);
		assert_true(!fresh && same == at && vb_addr_offset(at) % 64 == 0);
		n++;
	} while (n < 1000);
	vb_log_capture_end();
	assert_int_equal(err, -ENOSPC);
	assert_int_equal(n, 127);
	assert_non_null(strstr(said, "directory is full"));
	vb_fabric_close(f);
	vb_fabric_close(g);
	memory_free(m);
}

/* Another process makes a region just before this one puts its own in force. */
static struct vb_fabric *rival;
static const char *rival_name;
static vb_addr rival_at;

static int post_too_late(void *ctx, void *ep, const struct vb_provider_verb *verbs, unsigned n)
{
	const char *name = rival_name;
	bool fresh;

	if (name != NULL && verbs[0].op == VB_PROVIDER_CAS && verbs[0].offset == 16) {
		rival_name = NULL;
		assert_int_equal(vb_region(rival, 0, name, 64, &rival_at, &fresh), 0);
		assert_true(fresh);
	}
	return memory_post(ctx, ep, verbs, n);
}

static void test_two_make_a_region(void **state)
{
	struct memory *m = memory_new(1, 1 << 16, BUG_NONE);
	struct vb_fabric *f;
	vb_addr at;
	bool fresh;

	(void)state;
	assert_int_equal(vb_fabric_provide(&m->p, &rival), 0);
	m->p.post = post_too_late;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	rival_name = "same";
	assert_int_equal(vb_region(f, 0, "same", 64, &at, &fresh), 0);
	assert_true(!fresh && at == rival_at);
	rival_name = "other";
	assert_int_equal(vb_region(f, 0, "one", 64, &at, &fresh), 0);
	assert_true(fresh && at != rival_at);
	assert_int_equal(vb_region(rival, 0, "one", 64, &rival_at, &fresh), 0);
	assert_true(!fresh && at == rival_at);
	vb_fabric_close(f);
	vb_fabric_close(rival);
	memory_free(m);
}

/* What was posted and nobody waits for takes effect, though its endpoint is closed at once. */
static void test_close_lets_leave(void **state)
{
	struct memory *m = memory_new(1, 1 << 16, BUG_NONE);
	struct vb_verb v[8];
	struct vb_batch b = {.verbs = v, .n = VB_ARRAY_SIZE(v)};
	struct vb_fabric *f;
	struct vb_ep *ep;
	uint64_t sum;
	vb_addr at;
	bool fresh;

	(void)state;
	assert_int_equal(vb_fabric_provide(&m->p, &f), 0);
	assert_int_equal(vb_region(f, 0, "words", 64, &at, &fresh), 0);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	for (unsigned i = 0; i < b.n; i++)
		v[i] = suite_faa(at, 1, 0);
	assert_int_equal(vb_post(ep, &b), 0);
	vb_ep_close(ep);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	assert_int_equal(vb_read64(ep, at, &sum), 0);
	assert_int_equal(sum, b.n);
	vb_ep_close(ep);
	vb_fabric_close(f);
	memory_free(m);
}

int main(void)
{
	static const struct CMUnitTest others[] = {
		cmocka_unit_test(test_keeps_its_promises),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_endpoints),
		cmocka_unit_test(test_without_messages),
		cmocka_unit_test(test_fork_is_refused),
		cmocka_unit_test(test_without_a_view),
		cmocka_unit_test(test_one_kind_for_a_thread),
		cmocka_unit_test(test_lost_end),
		cmocka_unit_test(test_false_end),
		cmocka_unit_test(test_long_verbs),
		cmocka_unit_test(test_foreign_directory),
		cmocka_unit_test(test_many_regions),
		cmocka_unit_test(test_two_make_a_region),
		cmocka_unit_test(test_close_lets_leave),
		cmocka_unit_test(test_small_buffer),
		cmocka_unit_test(test_stood_still),
		cmocka_unit_test(test_pieces_that_fail),
		cmocka_unit_test(test_too_late_for_a_place),
		cmocka_unit_test(test_no_threads),
	};
	struct CMUnitTest tests[VB_ARRAY_SIZE(others) + VB_ARRAY_SIZE(bugs)];
	int failed;

	memcpy(tests, others, sizeof(others));
	for (unsigned i = 0; i < VB_ARRAY_SIZE(bugs); i++)
		tests[VB_ARRAY_SIZE(others) + i] =
			(struct CMUnitTest){.name = bugs[i].bug,
					    .test_func = test_bug_is_found,
					    .initial_state = (void *)(uintptr_t)i};
	failed = _cmocka_run_group_tests("providers", tests, VB_ARRAY_SIZE(tests), NULL, NULL);
	failed += suite_main("fabric own");
	if (memory != NULL)
		memory_free(memory);
	return failed;
}
