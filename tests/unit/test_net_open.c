/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing the network core: memory, the exchange with the other processes and what may
 * be wrong with it, errors of every step, and that nothing is left of them. */
#include <signal.h>
#include <sys/wait.h>

#include "child.h"
#include "net_fake.h"

#include "fabric/hook/hooks.h"

/* What goes to the others before the text and the address, as fabric/net/net.c lays it out. */
struct hello {
	uint32_t text_bytes, address_bytes;
	uint32_t cap_flags;
	uint32_t pad;
	uint64_t verb_bound_ns;
};

static struct vb_fabric *f;

static void opens(void **state)
{
	struct net_fabric *n;

	(void)state;
	f = fake_open();
	n = net_of(f);
	assert_string_equal(fake.addresses, "host0host1host2");
	assert_int_equal(fake.barriers, 1);
	assert_int_equal(n->local_nodes, 3);
	assert_true(n->memory_bytes >= 3 * FAKE_NODE_BYTES);
	assert_int_equal((uintptr_t)n->memory % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
	assert_int_equal(net_host_bytes(n, 0), 3 * FAKE_NODE_BYTES);
	assert_int_equal(net_host_bytes(n, 1), 2 * FAKE_NODE_BYTES);
	assert_int_equal(net_host_bytes(n, 2), 2 * FAKE_NODE_BYTES);
	for (uint16_t node = 0; node < FAKE_NODES; node++) {
		uint8_t *at = vb_local(f, vb_addr_make(node, 64), FAKE_NODE_BYTES - 64);

		assert_int_equal(net_host_of_node(n, node), node % 3);
		assert_true(net_host_offset(n, vb_addr_make(node, 8)) + 8 <=
			    net_host_bytes(n, node % 3));
		if (node % 3 == 0)
			assert_ptr_equal(at, n->memory + node / 3 * FAKE_NODE_BYTES + 64);
		else
			assert_null(at);
	}
	assert_null(vb_local(f, vb_addr_make(0, 64), FAKE_NODE_BYTES - 63));
	assert_null(vb_local(f, vb_addr_make(0, FAKE_NODE_BYTES), 1));
	assert_null(vb_local(f, vb_addr_make(0, 8), UINT64_MAX));
	assert_null(vb_local(f, vb_addr_make(FAKE_NODES + 2, 0), 8));
	for (uint64_t i = 0; i < n->memory_bytes; i++)
		assert_int_equal(n->memory[i], 0);
}

/* Another place in the cluster, other nodes; and no cluster at all: one host has them all. */
static void other_places(void **state)
{
	(void)state;
	fake.rank = 2;
	f = fake_open();
	assert_int_equal(net_of(f)->local_nodes, 2);
	assert_non_null(vb_local(f, vb_addr_make(5, 0), 8));
	assert_null(vb_local(f, vb_addr_make(6, 0), 8));
	vb_fabric_close(f);
	fake.alone = true;
	f = fake_open();
	assert_string_equal(fake.addresses, "host0");
	assert_int_equal(net_of(f)->hosts, 1);
	assert_int_equal(net_of(f)->local_nodes, FAKE_NODES);
	assert_non_null(vb_local(f, vb_addr_make(6, 0), 8));
}

/* ---- the others' parts ---- */

static struct hello bent;
static int bend_field;

static void bend(uint32_t rank, void **data, size_t *bytes)
{
	struct hello h;

	if (rank != 1)
		return;
	memcpy(&h, *data, sizeof(h));
	switch (bend_field) {
	case 0:
		free(*data);
		*data = NULL;
		*bytes = 0;
		return;
	case 1:
		*bytes = sizeof(h) - 1;
		return;
	case 2:
		h.text_bytes = UINT32_MAX;
		break;
	case 3:
		h.text_bytes = 1024; /* one more than is kept */
		break;
	case 4:
		h.address_bytes = UINT32_MAX;
		break;
	case 5:
		h.address_bytes++;
		break;
	case 6:
		(*bytes)--;
		break;
	case 7: /* sums that would be right if they were cut to 32 bits */
		h.text_bytes += 0x80000000u;
		h.address_bytes += 0x80000000u;
		break;
	case 8:
		h.verb_bound_ns = UINT64_MAX;
		break;
	case 9:
		((char *)*data)[sizeof(h) + 2] ^= 1; /* of the text */
		return;
	default:
		h.cap_flags = bent.cap_flags;
		h.verb_bound_ns = bent.verb_bound_ns;
	}
	memcpy(*data, &h, sizeof(h));
}

static void bent_parts(void **state)
{
	static const char *const words[] = {
		"sent no address", "sent no address", "odd sizes", "odd sizes", "odd sizes",
		"odd sizes",       "odd sizes",       "odd sizes", "at most",   "another fabric",
	};

	(void)state;
	fake.bend = bend;
	for (bend_field = 0; bend_field < (int)VB_ARRAY_SIZE(words); bend_field++)
		FAKE_SAYS(fake_try_open(&f), -EPROTO, words[bend_field]);
	assert_int_equal(fake.connected, 0);
	assert_int_equal(fake.closed, fake.opened);
	assert_null(fake.on_gone);
}

/* Other options are another fabric, and the line shows both. */
static void bend_options(uint32_t rank, void **data, size_t *bytes)
{
	char *at;

	if (rank != 2)
		return;
	at = memmem(*data, *bytes, "lanes=4", 7);
	assert_non_null(at);
	memcpy(at, "lanes=8", 7);
}

static void other_options(void **state)
{
	char many[2048];

	(void)state;
	fake.options = "lanes=4";
	fake.bend = bend_options;
	FAKE_SAYS(fake_try_open(&f), -EPROTO, "process 2 of the cluster opens another fabric");
	assert_non_null(strstr(fake_log, "lanes=8"));
	assert_non_null(strstr(fake_log, "lanes=4"));
	/* So long that they could not be compared whole. */
	memset(many, 'x', sizeof(many));
	many[sizeof(many) - 1] = '\0';
	fake.bend = NULL;
	fake.options = many;
	FAKE_SAYS(fake_try_open(&f), -EINVAL, "too many to compare");
	assert_int_equal(fake.closed, fake.opened);
}

/* What one of them lacks all lack, and the longest bound is everybody's. */
static void caps_of_all(void **state)
{
	(void)state;
	fake.bend = bend;
	bend_field = -1;
	bent = (struct hello){.cap_flags = ~(uint32_t)VB_CAP_MASKED128, .verb_bound_ns = 77000000};
	f = fake_open();
	assert_int_equal(f->caps.flags & (VB_CAP_MASKED64 | VB_CAP_MASKED128 | VB_CAP_SEND),
			 VB_CAP_MASKED64 | VB_CAP_SEND);
	assert_int_equal(f->caps.verb_bound_ns, 77000000);
	vb_fabric_close(f);
	/* A flag of theirs gives nobody what he lacks; a shorter bound shortens none. */
	bent = (struct hello){.cap_flags = UINT32_MAX, .verb_bound_ns = 1};
	fake.caps_without = VB_CAP_MASKED64;
	f = fake_open();
	assert_int_equal(f->caps.flags & VB_CAP_MASKED64, 0);
	assert_int_equal(f->caps.verb_bound_ns, 1000000);
}

/* ---- errors ---- */

static void every_step_fails(void **state)
{
	(void)state;
	fake.open_err = -ENODEV;
	assert_int_equal(fake_try_open(&f), -ENODEV);
	fake.open_err = 0;
	fake.gather_err = -ETIMEDOUT;
	assert_int_equal(fake_try_open(&f), -ETIMEDOUT);
	fake.gather_err = 0;
	fake.connect_err = -VB_EPEERGONE;
	assert_int_equal(fake_try_open(&f), -VB_EPEERGONE);
	fake.connect_err = 0;
	fake.barrier_err = -VB_EPEERGONE;
	assert_int_equal(fake_try_open(&f), -VB_EPEERGONE);
	fake.barrier_err = 0;
	assert_int_equal(fake.opened, 3);
	assert_int_equal(fake.closed, 3);
	assert_null(fake.on_gone);
	/* The thread waits in the plain way again. */
	assert_string_not_equal(vb_sched_env(vb_sched_self())->name, "net");
	f = fake_open();
}

/* A thread that waits in shm's way cannot wait in this one. */
static void two_ways_of_waiting(void **state)
{
	struct vb_fabric_params p = {.nodes = 1, .node_bytes = 1 << 20, .endpoints = 8};
	struct vb_fabric *shm;
	struct vb_ep *e;

	(void)state;
	assert_int_equal(vb_fabric_open(&p, &shm), 0);
	assert_int_equal(vb_ep_open(shm, 0, &e), 0);
	FAKE_SAYS(fake_try_open(&f), -EINVAL, "use another thread");
	assert_int_equal(fake.closed, fake.opened);
	vb_ep_close(e);
	vb_fabric_close(shm);
}

/* One who has died before is heard of with the first look; and after closing nobody is told
 * anything. */
static void dead_before(void **state)
{
	struct vb_ep *e;
	uint64_t old;

	(void)state;
	fake.dead_before = 1u << 2;
	f = fake_open();
	assert_false(vb_peer_alive(f, vb_peer_make(2, 1)));
	assert_true(vb_peer_alive(f, vb_peer_make(1, 1)));
	e = fake_ep(0);
	assert_int_equal(vb_faa64(e, vb_addr_make(2, 64), 1, &old), -VB_EPEERGONE);
	vb_task_yield();
	assert_true(net_try_pass(fake.f));
	assert_int_equal(fake.told_gone, 1u << 2);
	assert_int_equal(fake.posts, 0);
	vb_ep_close(e);
	vb_fabric_close(f);
	fake.fabric = NULL;
	assert_null(fake.on_gone);
}

/* ---- the rest ---- */

static void stats_through_hooks(void **state)
{
	struct vb_fabric_stats s;
	struct vb_fabric *hook;
	struct vb_ep *e;
	uint64_t word = 5;
	struct vb_verb v = {
		.op = VB_OP_WRITE, .addr = vb_addr_make(1, 64), .buf = &word, .len = sizeof(word)};
	struct vb_batch b = {.verbs = &v, .n = 1};

	(void)state;
	f = fake_open();
	assert_int_equal(vb_hook_count(f, &hook), 0);
	assert_int_equal(vb_ep_open(hook, 0, &e), 0);
	assert_int_equal(vb_post(e, &b), 0);
	vb_fabric_stats_get(hook, &s);
	assert_int_equal(s.posted, 1);
	assert_int_equal(s.doorbells, 1);
	assert_int_equal(s.completions, 0);
	vb_ep_close(e);
	fake.fabric = hook; /* closes what it wraps */
}

static void fork_is_refused(void **state)
{
	int status;
	pid_t child;

	(void)state;
	f = fake_open();
	child = fork_child();
	assert_true(child >= 0);
	if (child == 0) {
		vb_log_capture_begin(fake_log, sizeof(fake_log));
		signal(SIGABRT, SIG_DFL);
		/* Nothing of the parent's connections is closed. */
		if (vb_fabric_close(f) != -VB_EFOREIGN)
			_exit(1);
		vb_fabric_after_fork(f);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FAKE(opens),
		FAKE(other_places),
		FAKE(bent_parts),
		FAKE(other_options),
		FAKE(caps_of_all),
		FAKE(every_step_fails),
		FAKE(two_ways_of_waiting),
		FAKE(dead_before),
		FAKE(stats_through_hooks),
		FAKE(fork_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
