/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments that are damaged or crafted, and files that are none: whoever opens one is told what is
 * wrong, nobody crashes or hangs, and nothing is deleted.
 */
#include <fcntl.h>
#include <stddef.h>
#include <sys/file.h>

#include "fabric/shm/inner.h"
#include "lock/board.h"
#include "procs.h"

#include <verbena/lock.h>

#define BYTES_MAX (4u << 20)

static const char *name;
static char path[300];
static uint8_t good[BYTES_MAX] VB_ALIGNED(4096);
static size_t good_bytes;
static struct shm_header head; /* of the good one */

static const uint64_t hostile[] = {
	0,
	1,
	UINT64_MAX,
	1ull << 31,
	1ull << 40,
	0x7fffffff0000ull,
	0ull - (1ull << 30),
	0xdeadbeefdeadbeefull,
};

/* A segment as a program with a visible space leaves it, read while it is there. */
static int make_good(void **state)
{
	const struct vb_lock_space_params lp = {
		.lock = "dslr", .locks = 16, .visible = true, .lease_ns = 1000000000};
	struct vb_fabric_params p = {
		.name = unique_name(), .node_bytes = 1 << 19, .endpoints = 4, .options = "ring=16"};
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	struct vb_grant grant;
	struct vb_fabric *f;
	FILE *in;

	(void)state;
	assert_int_equal(vb_fabric_open(&p, &f), 0);
	assert_int_equal(vb_lock_space_open(f, &lp, &space), 0);
	assert_int_equal(vb_lock_client_open(space, 0, &me), 0);
	assert_int_equal(vb_lock_try(me, 3, VB_EXCLUSIVE, &grant), 0);
	snprintf(path, sizeof(path), "/dev/shm/verbena.%s", p.name);
	in = fopen(path, "re");
	assert_non_null(in);
	good_bytes = fread(good, 1, sizeof(good), in);
	assert_true(good_bytes > sizeof(head) && good_bytes < sizeof(good));
	fclose(in);
	memcpy(&head, good, sizeof(head));
	assert_int_equal(vb_lock_release(me, &grant), 0);
	vb_lock_client_close(me);
	vb_lock_space_close(space);
	vb_fabric_close(f);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	name = unique_name();
	snprintf(path, sizeof(path), "/dev/shm/verbena.%s", name);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return segment_exists(name);
}

/* A file of that name; in use, as long as the descriptor that is returned is open. */
static int put_file(const void *bytes, size_t n)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), n);
	assert_int_equal(flock(fd, LOCK_SH | LOCK_NB), 0);
	return fd;
}

static int open_said(char how, char *said, size_t n)
{
	struct vb_fabric_params p = {.name = name,
				     .node_bytes = 4096,
				     .endpoints = 4,
				     .attach = how == 'a',
				     .attach_or_create = how == 'o'};
	struct vb_fabric *f = NULL;
	int err;

	said[0] = '\0';
	vb_log_capture_begin(said, n);
	err = vb_fabric_open(&p, &f);
	vb_log_capture_end();
	if (err == 0)
		vb_fabric_close(f);
	return err;
}

/* As `verbena dump` does, and a message to itself. */
static void use(struct vb_fabric *f)
{
	struct vb_msg m = {.tag = 1};
	struct vb_board_view v;
	struct vb_ep *ep;

	if (vb_ep_open(f, 0, &ep) != 0)
		return;
	if (vb_board_view(ep, "locks", &v) == 0)
		vb_board_view_free(&v);
	(void)vb_ep_sleep(ep, 1000000);
	(void)vb_send_wait(ep, ep->self, &m);
	(void)vb_ep_recv(ep, &m);
	vb_ep_close(ep);
}

/* In a child, for it may crash: 0 or -EPROTO, with what is said. */
static void body_look(struct vb_fabric *none, unsigned tell, void *unused)
{
	struct vb_fabric_params p = {.name = name, .attach = true};
	struct vb_fabric *f = NULL;
	char said[512] = "";
	int err;

	(void)none;
	(void)unused;
	alarm(60);
	vb_sched_forget();
	vb_log_capture_begin(said, sizeof(said));
	err = vb_fabric_open(&p, &f);
	if (err == 0) {
		use(f);
		vb_fabric_close(f);
		said[0] = '\0';
	}
	vb_log_capture_end();
	child_must(err == 0 || (err == -EPROTO && said[0] != '\0'));
	child_must(write((int)tell, said, sizeof(said)) == sizeof(said));
}

/* What was said of a segment of these bytes; "": it was joined and used. */
static void look_at(const void *bytes, size_t n, char said[512])
{
	int fd = put_file(bytes, n), pipes[2];
	struct stat st;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = start_child(NULL, (unsigned)pipes[1], body_look, NULL);
	end_child(pid);
	assert_int_equal(read(pipes[0], said, 512), 512);
	close(pipes[0]);
	close(pipes[1]);
	assert_int_equal(stat(path, &st), 0); /* it is not ours to remove */
	assert_int_equal(st.st_size, n);
	assert_int_equal(unlink(path), 0);
	close(fd);
}

/* ---- the header ---- */

#define FIELD(f)                                                                                   \
	{                                                                                          \
		offsetof(struct shm_header, f), sizeof(head.f), #f                                 \
	}

static const struct {
	size_t at, bytes;
	const char *field;
} fields[] = {FIELD(nodes),      FIELD(node_bytes), FIELD(stride),         FIELD(endpoints),
	      FIELD(ring_bits),  FIELD(slot_bits),  FIELD(directories_at), FIELD(endpoints_at),
	      FIELD(workers_at), FIELD(users_at),   FIELD(mail_at),        FIELD(rings_at),
	      FIELD(memory_at),  FIELD(total_bytes)};

static void test_fields(void **state)
{
	static uint8_t bad[BYTES_MAX] VB_ALIGNED(4096);
	char said[512];

	(void)state;
	memcpy(bad, good, good_bytes);
	look_at(bad, good_bytes, said);
	assert_string_equal(said, "");
	for (unsigned i = 0; i < VB_ARRAY_SIZE(fields); i++) {
		for (unsigned k = 0; k < VB_ARRAY_SIZE(hostile); k++) {
			if (memcmp(&hostile[k], good + fields[i].at, fields[i].bytes) == 0)
				continue;
			memcpy(bad + fields[i].at, &hostile[k], fields[i].bytes);
			look_at(bad, good_bytes, said);
			/* A size that is possible is found out by what should follow from it. */
			if (strstr(said, fields[i].field) == NULL &&
			    strstr(said, "_at is ") == NULL && strstr(said, "_bits is ") == NULL &&
			    strstr(said, "stride is ") == NULL)
				fail_msg("%s = %#llx: '%s'", fields[i].field,
					 (unsigned long long)hostile[k], said);
			memcpy(bad + fields[i].at, good + fields[i].at, fields[i].bytes);
		}
	}
	bad[offsetof(struct shm_header, version)] ^= 64;
	look_at(bad, good_bytes, said);
	assert_non_null(strstr(said, "another version"));
}

/* Is every wait in there bounded?  A mutex that a thread of long ago seems to hold is waited for. */
static void test_every_word(void **state)
{
	static uint8_t bad[BYTES_MAX] VB_ALIGNED(4096);
	size_t words = sizeof(head) / 4;
	unsigned joined = 0;
	char said[512];

	(void)state;
	memcpy(bad, good, good_bytes);
	for (size_t w = 2; w < words; w++) {
		bool in_mutex = w * 4 >= offsetof(struct shm_header, mutex) &&
				w * 4 < offsetof(struct shm_header, mutex) + sizeof(head.mutex);

		for (unsigned k = 0; k < (in_mutex ? 3 : VB_ARRAY_SIZE(hostile)); k++) {
			memcpy(bad + w * 4, &hostile[k], 4);
			look_at(bad, good_bytes, said);
			joined += said[0] == '\0';
			memcpy(bad + w * 4, good + w * 4, 4);
		}
	}
	assert_true(joined > 0); /* some words say nothing, the creator's number for one */
}

static void test_clock(void **state)
{
	static uint8_t bad[BYTES_MAX] VB_ALIGNED(4096);
	struct shm_header *h = (struct shm_header *)bad;
	char said[512];

	(void)state;
	memcpy(bad, good, good_bytes);
	h->clock.use_tsc = 2;
	look_at(bad, good_bytes, said);
	assert_non_null(strstr(said, "clock.use_tsc"));
	h->clock.use_tsc = 1;
	h->clock.mult = 0; /* stands still */
	look_at(bad, good_bytes, said);
	assert_non_null(strstr(said, "clock.mult"));
	h->clock.mult = vb_clock.use_tsc ? vb_clock.mult : 1u << 23;
	h->clock.ns_base = UINT64_MAX - 1000000; /* ends in a millisecond */
	look_at(bad, good_bytes, said);
	assert_non_null(strstr(said, "clock.ns_base"));
}

/* ---- the tables ---- */

static void test_tables(void **state)
{
	static uint8_t bad[BYTES_MAX] VB_ALIGNED(4096);
	struct shm_node *d = (struct shm_node *)(bad + head.directories_at);
	struct shm_endpoint *e = (struct shm_endpoint *)(bad + head.endpoints_at);
	char said[512];

	(void)state;
#define BEND(where, value, words)                                                                  \
	do {                                                                                       \
		memcpy(bad, good, good_bytes);                                                     \
		(where) = (value);                                                                 \
		look_at(bad, good_bytes, said);                                                    \
		assert_non_null(strstr(said, words));                                              \
	} while (0)
	BEND(d->used, UINT32_MAX, "regions of node 0");
	BEND(d->used, SHM_REGIONS + 1, "regions of node 0");
	BEND(d->region[0].offset, UINT64_MAX - 63, "region 0 of node 0");
	BEND(d->region[0].offset, 1, "region 0 of node 0");
	BEND(d->region[0].bytes, UINT64_MAX, "region 0 of node 0");
	BEND(d->region[1].bytes, 1ull << 40, "region 1 of node 0");
	BEND(e[1].worker, head.endpoints, "worker of endpoint 1");
	BEND(e[3].worker, UINT32_MAX, "worker of endpoint 3");
	memcpy(bad, good, good_bytes);
	memset(d->region[0].name, 'x', sizeof(d->region[0].name));
	look_at(bad, good_bytes, said);
	assert_non_null(strstr(said, "no end"));
}

/* Any word anywhere. */
static void test_random_words(void **state)
{
	static uint8_t bad[BYTES_MAX] VB_ALIGNED(4096);
	struct vb_rng rng;
	char said[512];

	(void)state;
	vb_rng_seed(&rng, 3, 3);
	for (unsigned i = 0; i < 400; i++) {
		uint64_t end = i % 2 ? good_bytes : head.memory_at + (64 << 10);

		memcpy(bad, good, good_bytes);
		for (unsigned k = 0; k < 8; k++) {
			size_t at = head.directories_at +
				    vb_rng_below(&rng, (end - head.directories_at) / 8) * 8;

			memcpy(bad + at, &hostile[vb_rng_below(&rng, VB_ARRAY_SIZE(hostile))], 8);
		}
		look_at(bad, good_bytes, said);
	}
}

static void test_cut_short(void **state)
{
	const size_t sizes[] = {8,    10,   sizeof(head) - 1, sizeof(head),
				5000, 8191, good_bytes - 1,   good_bytes - 4096};
	char said[512];

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(sizes); i++) {
		look_at(good, sizes[i], said);
		assert_non_null(strstr(said, sizes[i] < sizeof(head) ? "shorter than a header"
								     : "the file's size"));
	}
}

/* ---- files that are none of ours ---- */

static void refused(int err, const char *words)
{
	char said[512];

	for (const char *how = "aoc"; *how; how++) {
		assert_int_equal(open_said(*how, said, sizeof(said)), err);
		assert_non_null(strstr(said, path));
		if (strstr(said, words) == NULL)
			fail_msg("no '%s' in '%s'", words, said);
		assert_true(segment_exists(name));
	}
}

static void test_foreign_files(void **state)
{
	const char text[] = "the only copy of somebody's thesis";
	char back[sizeof(text)] = "";
	int fd;

	(void)state;
	fd = put_file(text, sizeof(text));
	refused(-EPROTO, "no segment of verbena");
	assert_int_equal(flock(fd, LOCK_UN), 0); /* nobody uses it: it is not left over from us */
	refused(-EPROTO, "no segment of verbena");
	assert_int_equal(pread(fd, back, sizeof(back), 0), sizeof(back));
	assert_string_equal(back, text);
	close(fd);
	unlink(path);
	close(put_file("", 0));
	refused(-EPROTO, "truncated");
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	refused(-EPROTO, "no regular file");
	unlink(path);
	assert_int_equal(symlink("/dev/null", path), 0);
	refused(-EPROTO, "cannot be opened");
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	refused(-EPROTO, "cannot be opened");
	assert_int_equal(rmdir(path), 0);
}

/* As root, for somebody else's files have to be made. */
static void test_other_user(void **state)
{
	int fd;

	(void)state;
	if (geteuid() != 0)
		skip();
	fd = put_file(good, good_bytes);
	if (fchown(fd, 1234, 1234) != 0) {
		close(fd);
		unlink(path);
		print_message("skipped: root of a namespace that has no other user\n");
		skip();
	}
	refused(-EPERM, "user 1234");
	close(fd); /* and unused */
	refused(-EPERM, "user 1234");
	unlink(path);
}

/* A damaged one that nobody uses is ours: made anew, but not by who only looks. */
static void test_left_and_damaged(void **state)
{
	static uint8_t bad[BYTES_MAX] VB_ALIGNED(4096);
	char said[512];

	(void)state;
	memcpy(bad, good, good_bytes);
	((struct shm_header *)bad)->memory_at = 0x7fffffff0000;
	for (const char *how = "oc"; *how; how++) {
		close(put_file(bad, good_bytes));
		assert_int_equal(open_said('a', said, sizeof(said)), -EPROTO);
		assert_non_null(strstr(said, "memory_at"));
		assert_true(segment_exists(name));
		assert_int_equal(open_said(*how, said, sizeof(said)), 0);
		assert_non_null(strstr(said, "taking it over"));
		assert_false(segment_exists(name));
	}
}

/* Nobody has the lock, and the table names a process: it is a user if it lives, not if its number has
 * been given to another one. */
static void test_number_given_again(void **state)
{
	static uint8_t bad[BYTES_MAX] VB_ALIGNED(4096);
	shm_process *users = (shm_process *)(bad + head.users_at);
	char said[512];

	(void)state;
	memcpy(bad, good, good_bytes);
	users[0] = shm_self();
	close(put_file(bad, good_bytes));
	assert_int_equal(open_said('c', said, sizeof(said)), -EBUSY);
	assert_int_equal(open_said('a', said, sizeof(said)), 0);
	unlink(path);
	users[0] = shm_self() + 1; /* one clock tick younger */
	close(put_file(bad, good_bytes));
	assert_int_equal(open_said('a', said, sizeof(said)), -ENOENT);
	assert_non_null(strstr(said, "left over"));
	assert_int_equal(open_said('c', said, sizeof(said)), 0);
	assert_false(segment_exists(name));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_fields, setup, teardown),
		cmocka_unit_test_setup_teardown(test_every_word, setup, teardown),
		cmocka_unit_test_setup_teardown(test_clock, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tables, setup, teardown),
		cmocka_unit_test_setup_teardown(test_random_words, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cut_short, setup, teardown),
		cmocka_unit_test_setup_teardown(test_foreign_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_user, setup, teardown),
		cmocka_unit_test_setup_teardown(test_left_and_damaged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_number_given_again, setup, teardown),
	};

	return cmocka_run_group_tests(tests, make_good, NULL);
}
