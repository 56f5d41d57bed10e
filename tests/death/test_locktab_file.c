/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock table's file: when it counts as whole, what an agent that is killed between the file and
 * the answer has done, and disks that are full, gone or read-only.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "base/log.h"
#include "procs.h"
#include "lock/table/table.h"
#include "side_by_side.h"

#define LEASE_NS    (5000 * MS)
#define SOON_NS     (2200 * MS) /* less than a grace period, and plenty for a grant */
#define PATIENCE_NS (30000 * MS)
/* Of a client that holds another lock, too: an agent of a busy machine may stand still. */
#define PATIENT "ask_for=20s,wait=20s"
/* Most of their time they wait for the ends of leases. */
#define AT_ONCE 9

static char dir[64], file[96];

/* ---- faults in the agent's process ---- */

enum { NOTHING, KILL_AFTER, NO_SPACE, READ_ONLY, NO_SYNC };
static uint32_t *fault; /* on the board */
static pid_t serving;   /* the last agent's, for a test that fails */

static ssize_t faulty_write(int fd, const void *buf, size_t bytes)
{
	uint32_t what = fault ? board_get(fault) : NOTHING;
	ssize_t n;

	if (what == NO_SPACE || what == READ_ONLY) {
		errno = what == NO_SPACE ? ENOSPC : EROFS;
		return -1;
	}
	n = write(fd, buf, bytes);
	if (what == KILL_AFTER)
		kill(getpid(), SIGKILL);
	return n;
}

static int faulty_unlink(const char *path)
{
	if (fault && board_get(fault) == READ_ONLY) {
		errno = EROFS;
		return -1;
	}
	return unlink(path);
}

static int faulty_sync(int fd)
{
	if (fault && board_get(fault) == NO_SYNC) {
		errno = EIO;
		return -1;
	}
	return fdatasync(fd);
}

/* ---- a segment, its spaces with and without a file, two clients ---- */

struct scene {
	struct procs w;
	struct vb_lock_space *with, *without;
	struct vb_lock_client *a, *b;
};

static void open_with(struct scene *s, const char *where, const char *more,
		      struct vb_lock_space **out)
{
	char options[200];
	const struct vb_lock_space_params sp = {.lock = "table",
						.options = options,
						.locks = 64,
						.lease_ns = LEASE_NS,
						.fencing = true};

	snprintf(options, sizeof(options), PATIENT ",persist=%s%s", where, more);
	assert_int_equal(vb_lock_space_open(s->w.f, &sp, out), 0);
}

static void begin(struct scene *s, const char *more)
{
	const struct vb_lock_space_params sp = {.lock = "table",
						.options = PATIENT,
						.locks = 64,
						.lease_ns = LEASE_NS,
						.fencing = true};

	*s = (struct scene){0};
	procs_begin(&s->w, &sp);
	s->without = s->w.space;
	fault = &s->w.b->step[3];
	open_with(s, dir, more, &s->with);
}

static void start(struct scene *s, struct vb_lock_space *space)
{
	s->w.space = space;
	procs_start_server(&s->w);
	serving = s->w.server;
	s->w.space = s->without;
	if (s->a == NULL) {
		assert_int_equal(vb_lock_client_open(s->without, 0, &s->a), 0);
		assert_int_equal(vb_lock_client_open(s->without, 0, &s->b), 0);
		s->b->index = 1;
	}
}

static void slay(struct scene *s)
{
	kill(s->w.server, SIGKILL);
	assert_true(procs_wait(&s->w, s->w.server, PATIENCE_NS));
	s->w.server = 0;
}

static void stop(struct scene *s)
{
	board_add(&s->w.b->dismissed);
	assert_false(procs_wait(&s->w, s->w.server, PATIENCE_NS));
	__atomic_store_n(&s->w.b->dismissed, 0, __ATOMIC_SEQ_CST);
	s->w.server = 0;
}

static void finish(struct scene *s)
{
	__atomic_store_n(fault, NOTHING, __ATOMIC_SEQ_CST);
	vb_lock_client_close(s->a);
	vb_lock_client_close(s->b);
	vb_lock_space_close(s->with);
	procs_close(&s->w);
	fault = NULL;
	serving = 0;
}

static void no_file(void)
{
	char fresh[128];

	snprintf(fresh, sizeof(fresh), "%s.new", file);
	(void)unlink(fresh);
	(void)unlink(file);
}

/* A directory for each case: they are made side by side. */
static int own_dir(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/verbena-locktab-file-%d", (int)getpid());
	snprintf(file, sizeof(file), "%s/locks.0.0", dir);
	return mkdir(dir, 0700);
}

/* One that failed leaves an agent, too. */
static int tidy(void **state)
{
	if (serving > 0 && waitpid(serving, NULL, WNOHANG) == 0) {
		kill(serving, SIGKILL);
		waitpid(serving, NULL, 0);
	}
	serving = 0;
	fault = NULL;
	no_file();
	(void)rmdir(dir);
	return 0;
}

static void takes(struct vb_lock_client *c, uint64_t lock, struct vb_grant *g)
{
	assert_int_equal(vb_lock_acquire(c, lock, VB_EXCLUSIVE, PATIENCE_NS, g), 0);
}

/* By B, which holds nothing else: whoever does waits no longer than that is valid. */
static void cycle(struct scene *s, uint64_t lock)
{
	struct vb_grant g;

	takes(s->b, lock, &g);
	procs_judge(&s->w, s->b, &g);
	procs_give_back(&s->w, s->b, &g);
}

/* B asks for what A holds: not while that is valid. */
static void guarded(struct scene *s, struct vb_grant *held)
{
	struct vb_grant g;
	int err = vb_lock_acquire(s->b, held->lock, VB_EXCLUSIVE, SOON_NS, &g);

	if (err == 0 && vb_lock_valid(s->a, held))
		fail_msg("granted beside a valid grant");
	if (err == 0)
		(void)vb_lock_release(s->b, &g);
}

/* A gives back what the file has kept for it: lost only if it is over. */
static void give_back(struct scene *s, struct vb_grant *held)
{
	int err = vb_lock_release(s->a, held);

	if (err != -VB_ELOST || vb_lock_now(s->a) < held->valid_until_ns)
		assert_int_equal(err, 0);
}

/* A free lock: at once, or after a grace period. */
static void free_lock(struct scene *s, bool at_once)
{
	uint64_t before = vb_lock_now(s->b);
	struct vb_grant g;

	takes(s->b, 63, &g);
	if (at_once)
		assert_true(vb_lock_now(s->b) - before < SOON_NS);
	else
		assert_true(vb_lock_now(s->b) - before > SOON_NS);
	assert_int_equal(vb_lock_release(s->b, &g), 0);
}

/* ---- four files of the past ---- */

/* Another agent has served in between, without the file. */
static void test_agent_between(void **state)
{
	struct vb_grant g;
	struct scene s;

	begin(&s, "");
	start(&s, s.with);
	cycle(&s, 2);
	stop(&s);
	start(&s, s.without);
	takes(s.a, 1, &g);
	slay(&s);
	start(&s, s.with);
	guarded(&s, &g);
	(void)vb_lock_release(s.a, &g);
	finish(&s);
	no_file();
}

/* Two segments, one file: refused while the other serves, and nothing to go by when it does not. */
static void test_two_segments(void **state)
{
	struct vb_lock_server *refused;
	struct vb_grant g, h;
	struct scene one, two;
	char said[512] = "";

	begin(&one, "");
	start(&one, one.with);
	takes(one.a, 1, &g);
	begin(&two, "");
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_server_start(two.with, 0, 0, 1, &refused), -EBUSY);
	vb_log_capture_end();
	assert_non_null(strstr(said, "another agent's"));
	slay(&one);
	start(&two, two.with);
	free_lock(&two, false);
	takes(two.a, 2, &h);
	assert_int_equal(vb_lock_release(two.a, &h), 0);
	slay(&two);
	start(&one, one.with);
	guarded(&one, &g);
	(void)vb_lock_release(one.a, &g);
	fault = &two.w.b->step[3];
	finish(&two);
	fault = &one.w.b->step[3];
	finish(&one);
	no_file();
}

/* Two of one process. */
static void test_two_in_a_process(void **state)
{
	struct vb_lock_server *server, *refused;
	struct scene one, two;
	char said[512] = "";

	begin(&one, "");
	begin(&two, "");
	assert_int_equal(vb_lock_server_start(one.with, 0, 0, 1, &server), 0);
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_server_start(two.with, 0, 0, 1, &refused), -EBUSY);
	vb_log_capture_end();
	vb_lock_server_stop(server);
	assert_int_equal(vb_lock_server_start(two.with, 0, 0, 1, &server), 0);
	vb_lock_server_stop(server);
	finish(&two);
	fault = &one.w.b->step[3];
	finish(&one);
	no_file();
}

/* The disk fills up, or turns read-only so that the file cannot even be removed. */
static void test_no_disk(void **state)
{
	for (uint32_t what = NO_SPACE; what <= NO_SYNC; what++) {
		struct vb_grant g;
		struct scene s;

		begin(&s, what == NO_SYNC ? ",sync" : "");
		start(&s, s.with);
		cycle(&s, 2);
		__atomic_store_n(fault, what, __ATOMIC_SEQ_CST);
		takes(s.a, 1, &g);
		for (unsigned i = 0; i < 1000; i++)
			cycle(&s, 2);
		assert_int_equal(access(file, F_OK), what == READ_ONLY ? 0 : -1);
		slay(&s);
		__atomic_store_n(fault, NOTHING, __ATOMIC_SEQ_CST);
		start(&s, s.with);
		guarded(&s, &g);
		(void)vb_lock_release(s.a, &g);
		finish(&s);
		no_file();
	}
}

/* An agent that cannot write its file does not begin, and leaves what there is. */
static void test_no_beginning(void **state)
{
	struct vb_lock_server *none;
	char said[512] = "";
	struct vb_grant g;
	struct scene s;

	begin(&s, "");
	start(&s, s.with);
	takes(s.a, 1, &g);
	slay(&s);
	__atomic_store_n(fault, NO_SPACE, __ATOMIC_SEQ_CST);
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_server_start(s.with, 0, 0, 1, &none), -ENOSPC);
	vb_log_capture_end();
	assert_non_null(strstr(said, "cannot be written"));
	__atomic_store_n(fault, NOTHING, __ATOMIC_SEQ_CST);
	start(&s, s.with);
	free_lock(&s, true);
	guarded(&s, &g);
	give_back(&s, &g);
	finish(&s);
	no_file();
}

static unsigned told(const char *log)
{
	FILE *in = fopen(log, "r");
	unsigned said = 0;
	char line[512];

	assert_non_null(in);
	while (fgets(line, sizeof(line), in) != NULL)
		said += strstr(line, "no file is kept") != NULL;
	fclose(in);
	return said;
}

/* Said once, with the way out; the next agent has a grace period. */
static void test_no_directory(void **state)
{
	char log[96];
	int err = dup(2), fd;
	struct vb_grant g;
	struct scene s;

	snprintf(log, sizeof(log), "%s.log", dir);
	begin(&s, "");
	fd = open(log, O_RDWR | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0 && dup2(fd, 2) == 2);
	start(&s, s.with);
	dup2(err, 2);
	close(err);
	close(fd);
	no_file();
	assert_int_equal(rmdir(dir), 0);
	/* Fewer records than make it be written anew, which would fail. */
	usleep(20000);
	for (unsigned i = 0; i < 100; i++)
		cycle(&s, 2);
	assert_int_equal(told(log), 1);
	for (unsigned i = 0; i < 20000; i++)
		cycle(&s, 2);
	assert_int_equal(mkdir(dir, 0700), 0);
	assert_int_equal(told(log), 1);
	(void)unlink(log);
	/* Not before: on a busy machine all that may take longer than a lease. */
	takes(s.a, 1, &g);
	slay(&s);
	start(&s, s.with);
	guarded(&s, &g);
	(void)vb_lock_release(s.a, &g);
	finish(&s);
	no_file();
}

/* ---- growth ---- */

static off_t file_bytes(void)
{
	struct stat st;

	assert_int_equal(stat(file, &st), 0);
	return st.st_size;
}

/* Written anew again and again, and all that counts is in it. */
static void test_growth(void **state)
{
	struct vb_grant g;
	struct scene s;

	begin(&s, "");
	start(&s, s.with);
	takes(s.a, 1, &g);
	/* In short holds: on a busy machine all of it takes longer than a lease. */
	for (unsigned anew = 0, batches = 0; anew < 2; batches++) {
		off_t before = file_bytes();

		assert_true(batches < 100);
		give_back(&s, &g);
		takes(s.a, 1, &g);
		for (unsigned i = 0; i < 500; i++)
			cycle(&s, 2);
		anew += file_bytes() < before;
		assert_in_range(file_bytes(), 128, 17000 * 72);
	}
	slay(&s);
	start(&s, s.with);
	free_lock(&s, true);
	guarded(&s, &g);
	give_back(&s, &g);
	finish(&s);
	no_file();
}

/* ---- between the file and the answer ---- */

enum what { RELEASE, RELEASE_ALL, CONVERT, CONVERT_LATE, WHATS };

/* What the call did is as if no agent had died. */
static void kept(struct procs *w, const struct vb_lock_client *me, enum what what, int err,
		 const struct vb_grant *g)
{
	if (err != (what == CONVERT_LATE ? -ETIMEDOUT : 0))
		procs_fail(w->b, "call %d: %s", what, vb_strerror(err));
	if (me->lost != 0)
		procs_fail(w->b, "call %d: counted as lost", what);
	if (what >= CONVERT && (g[0].mode == VB_EXCLUSIVE) != (what == CONVERT))
		procs_fail(w->b, "call %d: held %s", what, vb_lock_mode_name(g[0].mode));
}

static void caller(struct procs *w, struct vb_lock_client *me, const void *arg)
{
	enum what what = *(const enum what *)arg;
	struct vb_grant g[3];
	uint64_t before = vb_lock_now(me);
	int err = 0;

	for (unsigned i = 0; i < 3 && err == 0; i++)
		err = vb_lock_acquire(me, i, VB_SHARED, PATIENCE_NS, &g[i]);
	board_add(&w->b->step[0]);
	while (board_get(&w->b->step[1]) == 0)
		vb_ep_sleep(me->ep, MS);
	if (err == 0 && what == RELEASE)
		err = vb_lock_release(me, &g[0]);
	else if (err == 0 && what == RELEASE_ALL)
		err = vb_lock_release_all(me, g, 3);
	else if (err == 0)
		err = vb_lock_convert(me, &g[0], VB_EXCLUSIVE,
				      what == CONVERT ? PATIENCE_NS : 200 * MS);
	/* Agents that took as long as the lease, on a busy machine under a sanitizer, keep nothing. */
	if (vb_lock_now(me) - before < LEASE_NS)
		kept(w, me, what, err, g);
	if (what == CONVERT && err == 0)
		procs_judge(w, me, &g[0]);
	board_add(&w->b->step[2]);
	while (board_get(&w->b->step[1]) < 2)
		vb_ep_sleep(me->ep, MS);
}

static void test_killed_over_it(void **state)
{
	for (enum what what = RELEASE; what < WHATS; what++) {
		/* Twice: the second time two agents die, and the file is written anew between. */
		for (unsigned deaths = 1; deaths <= 2; deaths++) {
			struct vb_grant g;
			struct scene s;
			pid_t pid;
			int err;

			begin(&s, "");
			start(&s, s.with);
			pid = procs_spawn(&s.w, caller, &what);
			procs_step(&s.w, 0, 1);
			__atomic_store_n(fault, KILL_AFTER, __ATOMIC_SEQ_CST);
			board_add(&s.w.b->step[1]);
			assert_true(procs_wait(&s.w, s.w.server, PATIENCE_NS));
			__atomic_store_n(fault, NOTHING, __ATOMIC_SEQ_CST);
			if (deaths == 2 && what < CONVERT) {
				/* One that begins, and is killed before anybody asks. */
				kill(pid, SIGSTOP);
				start(&s, s.with);
				slay(&s);
				kill(pid, SIGCONT);
			}
			if (what == CONVERT_LATE)
				usleep(300000);
			start(&s, s.with);
			procs_step(&s.w, 2, 1);
			err = vb_lock_acquire(s.b, 0, VB_SHARED, SOON_NS, &g);
			/* On a busy machine the lease may have ended: the word of the first process. */
			if (err != 0 || what != CONVERT ||
			    vb_lock_now(s.b) < board_get(&s.w.b->held[0][0]) >> 1)
				assert_int_equal(err, what == CONVERT ? -ETIMEDOUT : 0);
			if (err == 0)
				assert_int_equal(vb_lock_release(s.b, &g), 0);
			board_add(&s.w.b->step[1]);
			procs_wait(&s.w, pid, PATIENCE_NS);
			finish(&s);
			no_file();
		}
	}
}

/* ---- other segments, other boots, other formats ---- */

/* Tokens grow although nothing is left of the segment, and the file was written anew. */
static void test_tokens(void **state)
{
	uint64_t last = 0;

	for (unsigned i = 0; i < 3; i++) {
		struct vb_grant g;
		struct scene s;

		begin(&s, ",sync");
		start(&s, s.with);
		for (unsigned k = 0; k < 20; k++) {
			takes(s.a, 1, &g);
			assert_true(g.token > last);
			last = g.token;
			assert_int_equal(vb_lock_convert(s.a, &g, VB_SHARED, PATIENCE_NS), 0);
			assert_int_equal(vb_lock_convert(s.a, &g, VB_EXCLUSIVE, PATIENCE_NS), 0);
			assert_true(g.token > last);
			last = g.token;
			assert_int_equal(vb_lock_release(s.a, &g), 0);
		}
		slay(&s);
		/* Nothing is held: no reason to wait but the other segment. */
		if (i == 1)
			start(&s, s.with);
		finish(&s);
	}
	no_file();
}

/* A head that says something else; its layout is the page's. */
static void change_head(unsigned at, char by)
{
	int fd = open(file, O_RDWR);
	uint64_t words[16];
	assert_true(fd >= 0 && read(fd, words, 128) == 128);
	((char *)words)[at] ^= by;
	words[15] = vb_locktab_seal_head(words);
	assert_int_equal(pwrite(fd, words, 128, 0), 128);
	close(fd);
}

/* As if the machine had been booted since. */
static void reboot(void)
{
	change_head(40, 1);
}

static void test_reboot(void **state)
{
	for (unsigned synced = 0; synced < 2; synced++) {
		struct vb_grant g;
		struct scene s;

		begin(&s, synced ? ",sync" : "");
		start(&s, s.with);
		takes(s.a, 1, &g);
		slay(&s);
		s.w.server = 0;
		vb_lock_abandon(s.a, &g);
		finish(&s);
		reboot();
		begin(&s, synced ? ",sync" : "");
		start(&s, s.with);
		free_lock(&s, synced);
		/* What the file tells is held. */
		if (synced)
			assert_int_equal(vb_lock_try(s.b, 1, VB_EXCLUSIVE, &g), -EAGAIN);
		finish(&s);
		no_file();
	}
}

/* This boot's first agent had no file. */
static void test_agent_since_boot(void **state)
{
	struct vb_grant g;
	struct scene s;

	begin(&s, ",sync");
	start(&s, s.with);
	cycle(&s, 2);
	slay(&s);
	finish(&s);
	reboot();
	begin(&s, ",sync");
	start(&s, s.without);
	takes(s.a, 1, &g);
	slay(&s);
	start(&s, s.with);
	guarded(&s, &g);
	(void)vb_lock_release(s.a, &g);
	finish(&s);
	no_file();
}

/* Of two agents each had half of the locks: what the other one had stands in another file. */
static void test_more_agents_before(void **state)
{
	struct vb_grant g;
	struct scene s;

	begin(&s, ",sync");
	start(&s, s.with);
	takes(s.a, 1, &g);
	slay(&s);
	change_head(28, 1 ^ 2);
	start(&s, s.with);
	free_lock(&s, false);
	(void)vb_lock_release(s.a, &g);
	finish(&s);
	no_file();
}

/*
 * As above, but an agent without the file, or with another, served last before the machine went
 * down.  What it granted stands in no file that the next boot finds.
 */
static void test_agent_before_boot(void **state)
{
	char elsewhere[96];

	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", dir);
	assert_int_equal(mkdir(elsewhere, 0700), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct vb_lock_space *other = NULL;
		struct vb_grant g;
		struct scene s;

		begin(&s, ",sync");
		open_with(&s, elsewhere, ",sync", &other);
		start(&s, s.with);
		cycle(&s, 2);
		slay(&s);
		start(&s, i == 0 ? s.without : other);
		takes(s.a, 1, &g);
		slay(&s);
		vb_lock_abandon(s.a, &g);
		vb_lock_space_close(other);
		finish(&s);
		if (access(file, F_OK) == 0)
			reboot();
		begin(&s, ",sync");
		start(&s, s.with);
		free_lock(&s, false);
		finish(&s);
		no_file();
	}
	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere/locks.0.0", dir);
	(void)unlink(elsewhere);
	*strrchr(elsewhere, '/') = '\0';
	assert_int_equal(rmdir(elsewhere), 0);
}

/* It says which file must go before an agent can begin that does not keep it; a file that another
 * segment's agents have written since is theirs. */
static void test_stays(void **state)
{
	struct vb_lock_server *none;
	char said[768] = "";
	struct vb_grant g;
	struct scene s, two;

	begin(&s, "");
	start(&s, s.with);
	slay(&s);
	__atomic_store_n(fault, READ_ONLY, __ATOMIC_SEQ_CST);
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_server_start(s.without, 0, 0, 1, &none), -EROFS);
	vb_log_capture_end();
	assert_non_null(strstr(said, file));
	assert_non_null(strstr(said, "remove it, or begin with it"));
	__atomic_store_n(fault, NOTHING, __ATOMIC_SEQ_CST);
	begin(&two, "");
	start(&two, two.with);
	takes(two.a, 1, &g);
	slay(&two);
	/* Of the second's one: it is whole, and stays so. */
	start(&s, s.without);
	slay(&s);
	start(&two, two.with);
	free_lock(&two, true);
	guarded(&two, &g);
	assert_int_equal(vb_lock_release(two.a, &g), 0);
	/* Nor while it serves. */
	fault = &s.w.b->step[3];
	start(&s, s.without);
	fault = &two.w.b->step[3];
	finish(&two);
	fault = &s.w.b->step[3];
	finish(&s);
	no_file();
}

/* A crash while the head was written: nothing is taken from the file, and a grace period follows. */
static void test_torn_head(void **state)
{
	static const off_t ends[] = {4, 60, 127};

	for (unsigned i = 0; i <= VB_ARRAY_SIZE(ends); i++) {
		struct vb_grant g;
		struct scene s;
		int fd;

		begin(&s, ",sync");
		start(&s, s.with);
		takes(s.a, 1, &g);
		slay(&s);
		if (i < VB_ARRAY_SIZE(ends)) {
			assert_int_equal(truncate(file, ends[i]), 0);
		} else {
			fd = open(file, O_RDWR);
			assert_int_equal(pwrite(fd, "x", 1, 30), 1);
			close(fd);
		}
		start(&s, s.with);
		guarded(&s, &g);
		(void)vb_lock_release(s.a, &g);
		finish(&s);
		no_file();
	}
}

/* A crash while a record was written, and records that have changed: a grace period follows. */
static void test_torn_record(void **state)
{
	for (unsigned i = 0; i < 3; i++) {
		struct vb_grant first, last;
		struct scene s;
		off_t end;
		int fd;

		begin(&s, ",sync");
		start(&s, s.with);
		takes(s.a, 2, &first);
		takes(s.a, 1, &last);
		slay(&s);
		fd = open(file, O_RDWR);
		end = lseek(fd, 0, SEEK_END);
		if (i == 0)
			assert_int_equal(ftruncate(fd, end - 10), 0);
		else /* of which lock it is */
			assert_int_equal(pwrite(fd, "x", 1, end - 72 * (off_t)i + 16), 1);
		close(fd);
		start(&s, s.with);
		guarded(&s, &last);
		guarded(&s, &first);
		(void)vb_lock_release(s.a, &first);
		(void)vb_lock_release(s.a, &last);
		finish(&s);
		no_file();
	}
}

/* An agent that does not begin says nothing of the one before it. */
static void test_vain_beginning(void **state)
{
	struct vb_lock_server *none;
	char said[512] = "";
	struct vb_grant g;
	struct scene s;
	int fd;

	begin(&s, "");
	start(&s, s.without);
	takes(s.a, 1, &g);
	slay(&s);
	fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
	assert_int_equal(write(fd, "somebody's", 10), 10);
	close(fd);
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_server_start(s.with, 0, 0, 1, &none), -EINVAL);
	vb_log_capture_end();
	no_file();
	start(&s, s.without);
	guarded(&s, &g);
	(void)vb_lock_release(s.a, &g);
	finish(&s);
}

static void test_formats(void **state)
{
	static const char *const heads[] = {"%VBTBL01", "#!/bin/s"};
	static const char *const why[] = {"earlier version", "no lock table's file"};

	for (unsigned i = 0; i < 2; i++) {
		int fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
		struct vb_lock_server *none;
		char said[512] = "", buf[200];
		struct scene s;

		memset(buf, 'x', sizeof(buf));
		memcpy(buf, heads[i], 8);
		assert_int_equal(write(fd, buf, sizeof(buf)), sizeof(buf));
		close(fd);
		begin(&s, "");
		vb_log_capture_begin(said, sizeof(said));
		assert_int_equal(vb_lock_server_start(s.with, 0, 0, 1, &none), -EINVAL);
		vb_log_capture_end();
		assert_non_null(strstr(said, why[i]));
		finish(&s);
		no_file();
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_agent_between, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_two_segments, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_two_in_a_process, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_no_disk, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_no_beginning, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_no_directory, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_growth, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_killed_over_it, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_tokens, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_reboot, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_formats, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_vain_beginning, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_agent_before_boot, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_stays, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_torn_head, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_torn_record, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_agent_since_boot, own_dir, tidy),
		cmocka_unit_test_setup_teardown(test_more_agents_before, own_dir, tidy),
	};

	vb_locktab_io.write = faulty_write;
	vb_locktab_io.unlink = faulty_unlink;
	vb_locktab_io.sync = faulty_sync;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return side_by_side("lock table's file", tests, VB_ARRAY_SIZE(tests), AT_ONCE);
}
