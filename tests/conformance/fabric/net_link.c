/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp or ucx (the argument) over a link that is cut and comes back: two processes, each in a network namespace of its
 * own, a pair of virtual Ethernet devices between them.  Needs root.  The cluster's connections are
 * made before and stay where they are, so that the fabric alone is concerned.
 */
#include "child.h"
#include "crowd.h"

#include <sched.h>
#include <sys/mount.h>

static const char *fabric;

#define SILENCE_NS 500000000ull
#define CUT_NS     3000000000ull

static void run(const char *format, ...)
{
	char command[300];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	if (system(command) != 0) {
		fprintf(stderr, "failed: %s\n", command);
		_exit(1);
	}
}

static void enter_namespace(struct crowd *c)
{
	crowd_must(unshare(CLONE_NEWNET | CLONE_NEWNS) == 0);
	/* UCX looks for interfaces in /sys, which shows those of whoever mounted it. */
	crowd_must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	crowd_must(mount("sysfs", "/sys", "sysfs", 0, NULL) == 0);
	crowd_must(vb_cluster_barrier(c->cluster) == 0);
	if (c->rank == 0)
		run("ip link add vb0 type veth peer name vb0 netns %d", (int)c->page->pid[1]);
	crowd_must(vb_cluster_barrier(c->cluster) == 0);
	run("ip link set lo up; ip addr add 192.0.2.%u/24 dev vb0; ip link set vb0 up",
	    c->rank + 1);
	run("timeout 20 sh -c 'until grep -q up /sys/class/net/vb0/operstate; do sleep 0.01; "
	    "done'");
	crowd_must(vb_cluster_barrier(c->cluster) == 0);
}

/* A verb of 100 ms is late, and a host of 500 ms is silent, on a machine that has other work for as
 * long.  So what must work in the end is tried until it does. */
static uint64_t read_at_last(struct crowd *c)
{
	uint64_t until = crowd_now() + CROWD_WAIT_NS, word;

	while (vb_read64(c->ep, c->a[1], &word) != 0) {
		crowd_must(crowd_now() < until);
		crowd_must(vb_ep_sleep(c->ep, 1000000) == 0);
	}
	return word;
}

static void add_at_last(struct crowd *c, uint64_t *done, uint64_t *unknown)
{
	uint64_t until = crowd_now() + CROWD_WAIT_NS, old;
	int err;

	while ((err = vb_faa64(c->ep, c->a[1], 1, &old)) != 0) {
		*unknown += err == -VB_EUNKNOWN;
		crowd_must(crowd_now() < until);
		crowd_must(vb_ep_sleep(c->ep, 1000000) == 0);
	}
	++*done;
}

static void link_driver(struct crowd *c)
{
	uint64_t done = 0, unknown = 0, old, word, since;
	int err;

	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < 10; i++)
			add_at_last(c, &done, &unknown);
		run("nsenter -t %d -n ip link set vb0 down", (int)c->page->pid[1]);
		since = crowd_now();
		while ((err = vb_faa64(c->ep, c->a[1], 1, &old)) != -VB_EPEERGONE) {
			crowd_must(err == 0 || err == -VB_EUNKNOWN);
			done += err == 0;
			unknown += err != 0;
			crowd_must(crowd_now() - since < 20 * SILENCE_NS);
		}
		/* Now posts fail at once; some of them try the link. */
		while (crowd_now() - since < CUT_NS) {
			uint64_t begin = crowd_now();

			crowd_must(vb_faa64(c->ep, c->a[1], 1, &old) == -VB_EPEERGONE);
			crowd_must(crowd_now() - begin < 1000000000);
			/* And it is known to be the link alone. */
			crowd_must(!vb_node_gone(c->ep->fabric, vb_addr_node(c->a[1])));
			crowd_must(vb_ep_sleep(c->ep, 1000000) == 0);
		}
		run("nsenter -t %d -n ip link set vb0 up", (int)c->page->pid[1]);
		read_at_last(c);
		/* What the kernel still sends on the old connection is too late to happen. */
		crowd_must(vb_ep_sleep(c->ep, CUT_NS) == 0);
		word = read_at_last(c);
		crowd_must(word >= done && word <= done + unknown);
		/* What was unknown is known now. */
		done = word;
		unknown = 0;
	}
	crowd_step(c, 1);
}

static void link_serve(struct crowd *c)
{
	crowd_await(c, 1);
}

static void test_link(void **state)
{
	const crowd_body bodies[] = {link_driver, link_serve};

	crowd_before_fabric = enter_namespace;
	crowd_end(crowd_run(
		fabric,
		strcmp(fabric, "ucx") == 0
			? "bound=100ms,grace=50ms,silence=500ms,retry=100ms,net_devices=vb0"
			: "bound=100ms,silence=500ms,retry=100ms,bind=vb0",
		2, bodies, CROWD_MAX));
}

/* Namespaces and devices in them, tried in a child. */
static bool no_namespaces(void)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0)
			_exit(1);
		_exit(system("{ ip link add vb0 type veth peer name vb1 && "
			     "nsenter -t $$ -n true; } >/dev/null 2>&1") != 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_link)};

	fabric = argc > 1 ? argv[1] : "tcp";
	if (crowd_absent(fabric))
		return 77;
	if (no_namespaces()) {
		printf("SKIP: network namespaces with virtual Ethernet need root and iproute2\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
