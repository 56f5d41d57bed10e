/* SPDX-License-Identifier: Apache-2.0 */
/* Who has to make room at a root's door when many knock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/log.h"
#include "cluster/inner.h"

#define FLOOD  "203.0.113.7"
#define HONEST "192.0.2.1"

static uint64_t next_number;

static struct vb_cluster *root_of_three(void)
{
	struct vb_cluster_params p = {.hosts = 3, .role = VB_CLUSTER_ROOT};
	struct vb_cluster *c = NULL;

	assert_int_equal(cluster_create(&p, NULL, &c), 0);
	root_begin(c);
	return c;
}

/* As root_accept does it, without a socket. */
static uint64_t knocks(struct vb_cluster *c, const char *host, enum cluster_phase phase)
{
	struct cluster_conn *k;
	char peer[64];

	root_make_room(c);
	snprintf(peer, sizeof(peer), "%s:%u", host, (unsigned)(1024 + next_number % 60000));
	k = conn_new(c, -1, peer);
	assert_non_null(k);
	k->phase = phase;
	k->ping_time = ++next_number; /* of no use at the root */
	return k->ping_time;
}

static unsigned count(const struct vb_cluster *c)
{
	unsigned n = 0;

	vb_list_for_each (it, &c->conns)
		n++;
	return n;
}

/* By its number: memory is used again. */
static bool is_there(const struct vb_cluster *c, uint64_t number)
{
	vb_list_for_each (it, &c->conns)
		if (vb_container_of(it, struct cluster_conn, link)->ping_time == number)
			return true;
	return false;
}

/* Thousands from one address put out their like, and nobody of another address. */
static void test_other_addresses_stay(void **state)
{
	struct vb_cluster *c = root_of_three();
	uint64_t first = knocks(c, HONEST, CONN_HELLO);
	uint64_t second = knocks(c, "[2001:db8::1]", CONN_PROOF);

	for (unsigned i = 0; i < 10000; i++) {
		knocks(c, FLOOD, CONN_HELLO);
		assert_true(count(c) <= CL_PENDING_MAX);
	}
	assert_int_equal(count(c), CL_PENDING_MAX);
	assert_true(is_there(c, first) && is_there(c, second));
	cluster_free(c);
}

/* Of the same address (on loopback all are) it is a lot: as many newcomers as there are places leave about
 * one in e there, where the oldest would always have gone. */
static void test_by_lot(void **state)
{
	struct vb_cluster *c = root_of_three();
	unsigned stayed = 0;

	for (unsigned round = 0; round < 400; round++) {
		uint64_t honest = knocks(c, FLOOD, CONN_PROOF);

		for (unsigned i = 0; i < CL_PENDING_MAX; i++)
			knocks(c, FLOOD, CONN_HELLO);
		stayed += is_there(c, honest);
	}
	assert_in_range(stayed, 80, 220); /* 146, and about 10 either way */
	cluster_free(c);
}

/* Who has proved that it has the key stays, whatever its address. */
static void test_proved_stay(void **state)
{
	struct vb_cluster *c = root_of_three();
	uint64_t proved = knocks(c, FLOOD, CONN_JOIN);

	for (unsigned i = 0; i < 10000; i++)
		knocks(c, FLOOD, i % 2 ? CONN_HELLO : CONN_PROOF);
	assert_true(is_there(c, proved));
	cluster_free(c);
}

/* And yet there is a bound for all: without a key file everybody can prove to have none. */
static void test_bound(void **state)
{
	struct vb_cluster *c = root_of_three();

	for (unsigned i = 0; i < 1000; i++)
		knocks(c, i % 2 ? HONEST : FLOOD, CONN_JOIN);
	assert_int_equal(count(c), CL_PENDING_MAX);
	cluster_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_other_addresses_stay),
		cmocka_unit_test(test_by_lot),
		cmocka_unit_test(test_proved_stay),
		cmocka_unit_test(test_bound),
	};

	setenv("VERBENA_LOG", "error", 1); /* each one that goes is a line */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
