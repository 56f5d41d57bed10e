/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process with both nodes, whose own memory the CPU reaches by itself: the generic suite.
 */
#include "fabric/fabric.h"

static int suite_open(struct vb_fabric_params *p, struct vb_fabric **out)
{
	p->fabric = "ucx";
	return vb_fabric_open(p, out);
}

#include "fabric_suite.h"
#include "base/log.h"

static void test_options(void **state)
{
	static const char *const wrong[] = {"tls=nosuch", "net_devices=nosuch0", "eager=2mi"};
	char said[300];

	for (unsigned i = 0; i < VB_ARRAY_SIZE(wrong); i++) {
		struct vb_fabric_params p = {.fabric = "ucx", .options = wrong[i]};
		struct vb_fabric *f = NULL;

		vb_log_capture_begin(said, sizeof(said));
		said[0] = '\0';
		assert_true(vb_fabric_open(&p, &f) < 0);
		vb_log_capture_end();
		assert_null(f);
		assert_true(said[0] != '\0');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_options)};
	const char *absent = vb_fabric_find("ucx")->absent();
	int failed;

	if (absent != NULL) {
		printf("SKIP fabric ucx_local: %s\n", absent);
		return 77;
	}
	failed = suite_main("fabric ucx_local");
	return cmocka_run_group_tests(tests, NULL, NULL) != 0 ? 1 : failed;
}
