/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: known answers, and key files that are not taken.  Proofs are in test_cluster_proof.c. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "cluster/auth.h"

static struct vb_cluster_key key_of(const char *text)
{
	struct vb_cluster_key key;

	auth_key_of(&key, text, strlen(text));
	return key;
}

#define FORTY "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"

static void check_hex(const uint8_t *bytes, const char *hex)
{
	char text[65];

	for (unsigned i = 0; i < 32; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	assert_string_equal(text, hex);
}

/* Computed with Python's hashlib (BLAKE2b: salt 1 as 16 bytes, person "vb_clus2"). */
static void test_vectors(void **state)
{
	struct vb_cluster_key key = key_of(FORTY);
	uint8_t psk[VB_SEAL_KEY];

	check_hex(key_of("").bytes,
		  "55583f6f430c89286541ce03d0ca6c45e4f7e537cd34a6ec6cbdfa54526f8f25");
	check_hex(key.bytes, "263b60ba1c5c9ff4dd8d4f6dac31b3415df90475a31957289a621d6ef3bac85d");
	auth_psk(&key, psk);
	check_hex(psk, "9882251f65786c1a412150a0e089e24b129b0452daeedcc0419018ae3b3b0ca8");
}

static void test_fresh(void **state)
{
	uint8_t a[32], b[32];

	auth_draw(a, sizeof(a));
	auth_draw(b, sizeof(b));
	assert_memory_not_equal(a, b, sizeof(a));
	auth_forget(a, sizeof(a));
	memset(b, 0, sizeof(b));
	assert_memory_equal(a, b, sizeof(a));
}

/* ---- files ---- */

static char path[64];

static void make_file(const void *data, size_t bytes, mode_t mode)
{
	int fd;

	snprintf(path, sizeof(path), "/tmp/verbena-test-auth-%d", (int)getpid());
	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, bytes), bytes);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void refused(const char *words)
{
	struct vb_cluster_key key;
	char text[1024];

	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(auth_key_load(&key, path), -EACCES);
	vb_log_capture_end();
	if (strstr(text, words) == NULL)
		fail_msg("'%s' is not in '%s'", words, text);
}

static void test_files(void **state)
{
	static char data[AUTH_FILE_MAX + 1];
	struct vb_cluster_key key, same;
	char zeros[48];

	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = (char)('a' + i % 26);
	make_file(data, 40, 0600);
	assert_int_equal(auth_key_load(&key, path), 0);
	auth_key_of(&same, data, 40);
	assert_memory_equal(&key, &same, sizeof(key));
	make_file(data, 40, 0400);
	assert_int_equal(auth_key_load(&key, path), 0);
	make_file(data, AUTH_FILE_MIN, 0600);
	assert_int_equal(auth_key_load(&key, path), 0);
	assert_memory_not_equal(&key, &same, sizeof(key)); /* every byte of the file counts */
	make_file(data, AUTH_FILE_MAX, 0600);
	assert_int_equal(auth_key_load(&key, path), 0);
	assert_int_equal(auth_key_load(&key, NULL), 0);
	same = key_of("");
	assert_memory_equal(&key, &same, sizeof(key));

	make_file(data, 40, 0600);
	/* Only root can give a file away, and read what is not its own; of a namespace, where it has others. */
	if (chown(path, 1234, (gid_t)-1) == 0) {
		refused("belongs to user 1234");
	}
	make_file(FORTY, 40, 0600);
	refused("has one byte over and over");
	memset(zeros, 0, sizeof(zeros));
	make_file(zeros, sizeof(zeros), 0600);
	refused("has one byte over and over");
	zeros[sizeof(zeros) - 1] = 1;
	make_file(zeros, sizeof(zeros), 0600);
	assert_int_equal(auth_key_load(&key, path), 0); /* it is not ours to judge more than that */

	make_file(data, AUTH_FILE_MIN - 1, 0600);
	refused("has 31 bytes, 32 to 4096 are allowed");
	make_file(data, AUTH_FILE_MAX + 1, 0600);
	refused("has 4097 bytes");
	make_file(data, 0, 0600);
	refused("has 0 bytes");
	make_file(data, 40, 0640);
	refused("can be used by others (mode 640)");
	make_file(data, 40, 0604);
	refused("can be used by others (mode 604)");
	make_file(data, 40, 0620);
	refused("can be used by others (mode 620)");
	unlink(path);
	refused("No such file or directory; head -c 32 /dev/urandom");
	assert_int_equal(mkdir(path, 0700), 0);
	refused("is no regular file");
	rmdir(path);
	assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes to it: opening must not wait */
	refused("is no regular file");
	unlink(path);
}

/* Drawn for processes that are forked: another one each time; and the file's, if there is one. */
static void test_made(void **state)
{
	struct vb_cluster_key a, b, none = key_of("");
	char text[1024];

	assert_int_equal(vb_cluster_key_make(&a, NULL), 0);
	assert_int_equal(vb_cluster_key_make(&b, NULL), 0);
	assert_memory_not_equal(&a, &b, sizeof(a));
	assert_memory_not_equal(&a, &none, sizeof(a));
	make_file("0123456789abcdef0123456789abcdef", 32, 0600);
	assert_int_equal(vb_cluster_key_make(&a, path), 0);
	b = key_of("0123456789abcdef0123456789abcdef");
	assert_memory_equal(&a, &b, sizeof(a));
	unlink(path);
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(vb_cluster_key_make(&a, path), -EACCES);
	vb_log_capture_end();
}

/* Of one secret the same number for one purpose, another for each other; of another secret another. */
static void test_number(void **state)
{
	uint8_t secret[CL_SECRET] = {1}, other[CL_SECRET] = {2};
	uint64_t number = auth_number(secret, "vb_am_id");

	assert_int_equal(auth_number(secret, "vb_am_id"), number);
	assert_int_not_equal(auth_number(secret, "vb_verbs"), number);
	assert_int_not_equal(auth_number(other, "vb_am_id"), number);
	for (unsigned i = 0; i < CL_SECRET; i += 8)
		assert_memory_not_equal(&number, secret + i, sizeof(number));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors), cmocka_unit_test(test_fresh),
		cmocka_unit_test(test_files),   cmocka_unit_test(test_made),
		cmocka_unit_test(test_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
