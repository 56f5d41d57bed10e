/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses and files of hosts: what is read, and what is said of what cannot be.  And what times are meant. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "cluster/inner.h"

static char path[64];

static void make_file(const char *content, size_t bytes)
{
	int fd;

	snprintf(path, sizeof(path), "/tmp/verbena-test-hosts-%d", (int)getpid());
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, bytes), bytes);
	close(fd);
}

static void reads(const char *content, uint32_t wanted, uint32_t hosts, uint32_t rank,
		  const char *meet, const char *bind)
{
	struct vb_cluster_hosts_file got;

	make_file(content, strlen(content));
	assert_int_equal(vb_cluster_read_hosts(path, wanted, &got), 0);
	assert_int_equal(got.hosts, hosts);
	assert_int_equal(got.rank, rank);
	assert_string_equal(got.meet, meet);
	assert_string_equal(got.bind, bind);
	free(got.meet);
	free(got.bind);
	unlink(path);
}

static void refuses(const char *content, uint32_t wanted, const char *words)
{
	struct vb_cluster_hosts_file got;
	char text[1024];

	make_file(content, strlen(content));
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(vb_cluster_read_hosts(path, wanted, &got), -EINVAL);
	vb_log_capture_end();
	if (strstr(text, words) == NULL)
		fail_msg("'%s' is not in '%s'", words, text);
	unlink(path);
}

static void test_reads(void **state)
{
	/* 240.0.0.0/4 is reserved: no machine has these. */
	reads("240.0.0.1\n240.0.0.2:99\n", 1, 2, 1, "240.0.0.1:7531", "240.0.0.2");
	reads("# ours\n\n  127.0.0.1:4000   # here\n240.0.0.2", VB_CLUSTER_ANY_RANK, 2, 0,
	      "127.0.0.1:4000", "127.0.0.1");
	reads("240.0.0.1:5\r\n240.0.0.2\r\n127.0.0.1\r\n", VB_CLUSTER_ANY_RANK, 3, 2, "240.0.0.1:5",
	      "127.0.0.1");
	reads("[2001:db8::1]:77\n[::1]\n", VB_CLUSTER_ANY_RANK, 2, 1, "[2001:db8::1]:77", "::1");
	/* With a rank that is said, the same host may stand there often. */
	reads("127.0.0.1\n127.0.0.1\n127.0.0.1\n", 2, 3, 2, "127.0.0.1:7531", "127.0.0.1");
}

static void test_refuses(void **state)
{
	static char text[600 + VB_CLUSTER_HOSTS_MAX * 12];
	struct vb_cluster_hosts_file got;
	size_t n = 0;

	refuses("", VB_CLUSTER_ANY_RANK, "names no host");
	refuses("# nobody\n\n", 0, "names no host");
	refuses("240.0.0.1\n240.0.0.2\n", VB_CLUSTER_ANY_RANK, "none of its 2 lines");
	refuses("127.0.0.1\n240.0.0.1\n127.0.0.2\n", VB_CLUSTER_ANY_RANK,
		"lines 1 (127.0.0.1) and 3 (127.0.0.2) are both this machine");
	refuses("240.0.0.1\n", 1, "there is no rank 1");
	refuses("a b\n", 0, ":1: 'a b': one HOST or HOST:PORT is expected");
	refuses("127.0.0.1\n127.0.0.1:x\n", 0, ":2: not a host");
	refuses("127.0.0.1\n2001:db8::1\n", 0, ":2: not a host");
	refuses("127.0.0.1\nno.such.host.invalid\n", VB_CLUSTER_ANY_RANK,
		":2: host 'no.such.host.invalid' cannot be looked up");
	memset(text, 'a', 600);
	refuses(text, 0, ":1: the line is too long");
	for (unsigned i = 0; i <= VB_CLUSTER_HOSTS_MAX; i++)
		n += (size_t)sprintf(text + n, "127.0.0.1\n");
	refuses(text, 0, "more than 1024 hosts");
	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(vb_cluster_read_hosts("/no/such/file", 0, &got), -ENOENT);
	vb_log_capture_end();
}

static void test_addresses(void **state)
{
	struct cluster_addr addrs[CL_ADDRS];
	char host[CL_HOST], text[64], *bound;
	uint16_t port;
	unsigned n;

	assert_int_equal(address_split("localhost", 5, host, &port), 0);
	assert_true(strcmp(host, "localhost") == 0 && port == 5);
	assert_int_equal(address_split("[fe80::1%eth0]:65535", 5, host, &port), 0);
	assert_true(strcmp(host, "fe80::1%eth0") == 0 && port == 65535);
	assert_int_equal(address_find("127.3.2.1", 80, addrs, &n), 0);
	assert_true(n == 1 && address_is_loopback(&addrs[0]) && address_is_ours(&addrs[0]));
	address_say(&addrs[0], text, sizeof(text));
	assert_string_equal(text, "127.3.2.1:80");
	assert_int_equal(address_find("::1", 80, addrs, &n), 0);
	assert_true(address_is_loopback(&addrs[0]));
	address_say(&addrs[0], text, sizeof(text));
	assert_string_equal(text, "[::1]:80");
	assert_int_equal(address_find("128.0.0.1", 1, addrs, &n), 0);
	assert_false(address_is_loopback(&addrs[0]));
	assert_int_equal(address_find("240.0.0.1", 1, addrs, &n), 0);
	assert_false(address_is_ours(&addrs[0]));
	assert_int_equal(address_of_bind(NULL, &bound), 0);
	assert_string_equal(bound, "127.0.0.1");
	free(bound);
	assert_int_equal(address_of_bind("lo", &bound), 0); /* an interface */
	assert_true(strcmp(bound, "127.0.0.1") == 0 || strcmp(bound, "::1") == 0);
	free(bound);
}

static void dead_after(uint64_t silence_ns, unsigned ms)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	unsigned got = 0;
	socklen_t bytes = sizeof(got);

	assert_true(fd >= 0);
	address_tune(fd, silence_ns);
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &got, &bytes), 0);
	assert_int_equal(got, ms);
	close(fd);
}

/* 0 is what the header says; and a machine that acknowledges nothing is gone after 20 times the silence. */
static void test_times(void **state)
{
	struct vb_cluster_params p = {.hosts = 2, .role = VB_CLUSTER_ROOT};
	struct vb_cluster *c;

	(void)state;
	assert_int_equal(cluster_create(&p, NULL, &c), 0);
	assert_int_equal(c->timeout_ns, 30000000000ull);
	assert_int_equal(c->silence_ns, 3000000000ull);
	cluster_free(c);
	p.timeout_ns = 7;
	p.silence_ns = 10000000;
	assert_int_equal(cluster_create(&p, NULL, &c), 0);
	assert_int_equal(c->timeout_ns, 7);
	assert_int_equal(c->silence_ns, 10000000);
	cluster_free(c);
	dead_after(3000000000ull, 60000);
	dead_after(10000000, 200);
	dead_after(366ull * 86400 * 1000000000, INT32_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads),
		cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_times),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
