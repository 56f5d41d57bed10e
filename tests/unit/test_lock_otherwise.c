/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock space that exists, opened with other parameters: the message names each that differs, what
 * the space has and what was asked for, and the way out; on every way that a header is read.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <verbena/lock.h>

#define VB_LOG_ROOM "test"
#include "base/log.h"
#include "task/task.h"
#include "vb_config.h"

#define MS 1000000ull

static struct vb_fabric *f;
static char said[1024];

static int open_with(const struct vb_lock_space_params *p)
{
	struct vb_lock_space *s = NULL;
	int err;

	vb_log_capture_begin(said, sizeof(said));
	err = vb_lock_space_open(f, p, &s);
	vb_log_capture_end();
	if (err == 0)
		assert_int_equal(vb_lock_space_close(s), 0);
	else
		assert_null(s);
	return err;
}

static const struct vb_lock_space_params made = {.lock = "dslr",
						 .options = "slots=2",
						 .name = "there",
						 .locks = 10,
						 .servers = 2,
						 .lease_ns = 300 * MS};

/* One or several that differ, and all that the message has to say. */
static void differs(struct vb_lock_space_params p, const char *what)
{
	char want[300];

	assert_int_equal(open_with(&p), -EINVAL);
	snprintf(want, sizeof(want), "lock space 'there' exists with %s; ask for what it has, or",
		 what);
	if (strncmp(said, want, strlen(want)) != 0 ||
	    strstr(said, "vb_lock_space_params.name") == NULL)
		fail_msg("'%s' is not '%s'", said, want);
}

#define WITH(set, what)                                                                            \
	do {                                                                                       \
		struct vb_lock_space_params p = made;                                              \
                                                                                                   \
		(void)(set);                                                                       \
		differs(p, what);                                                                  \
	} while (0)

static void on(const char *fabric)
{
	struct vb_fabric_params fp = {.fabric = fabric, .nodes = 2, .node_bytes = 1u << 20};
	struct vb_lock_space_params p = made;

	if (vb_fabric_open(&fp, &f) != 0)
		fail_msg("no fabric '%s'", fabric);
	if (open_with(&made) != 0)
		fail_msg("'%s'", said);
	assert_int_equal(open_with(&made), 0);
	WITH(p.locks = 20, "locks 10 (asked for: 20)");
	WITH(p.locks = 9, "locks 10 (asked for: 9)");
	WITH(p.lease_ns = 200 * MS, "lease_ns 300000000 (asked for: 200000000)");
	WITH(p.servers = 1, "servers 2 (asked for: 1)");
	WITH((p.lock = "cas", p.options = NULL), "lock 'dslr' (asked for: 'cas')");
	WITH((p.lock = "mcs", p.options = NULL, p.locks = 1000),
	     "lock 'dslr' (asked for: 'mcs'), locks 10 (asked for: 1000)");
	WITH(p.options = "slots=3",
	     "options that lay the locks out otherwise (asked for: 'slots=3')");
	WITH(p.options = NULL, "options that lay the locks out otherwise (asked for: '')");
	WITH(p.fencing = true, "fencing false (asked for: true)");
	/* What only this process goes by may differ; so may fencing, where the word has a token. */
	p.claims = 7;
	p.drift_ppm = 50;
	assert_int_equal(open_with(&p), 0);
	p = (struct vb_lock_space_params){.lock = "shiftlock", .locks = 10, .name = "token"};
	assert_int_equal(open_with(&p), 0);
	p.fencing = true;
	assert_int_equal(open_with(&p), 0);
	/* A name that is too long for the space's regions would be another space's, too. */
	p = made;
	p.name = "a-name-of-thirty-one-characters";
	assert_int_equal(open_with(&p), 0);
	p.name = "a-name-of-thirty-two-characters.";
	assert_int_equal(open_with(&p), -EINVAL);
	assert_non_null(strstr(said, "1 to 31 characters"));
	p.name = "";
	assert_int_equal(open_with(&p), -EINVAL);
	/* Nothing has been harmed by those that were refused. */
	assert_int_equal(open_with(&made), 0);
	assert_int_equal(vb_fabric_close(f), 0);
	vb_sched_destroy(vb_sched_self()); /* the next one waits in another way */
}

static void test_shm(void **state)
{
	(void)state;
	on("shm");
}

static void test_sim(void **state)
{
	(void)state;
	on("sim");
}

static void test_ucx(void **state)
{
	(void)state;
#if VB_HAVE_UCP
	on("ucx");
#else
	skip();
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shm),
		cmocka_unit_test(test_sim),
		cmocka_unit_test(test_ucx),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
