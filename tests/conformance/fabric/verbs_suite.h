/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric suite on an RDMA device, both nodes in this process; VERBS_OPTIONS says how. */
#include "../../rdma/verbs_test.h"

static int suite_open(struct vb_fabric_params *p, struct vb_fabric **out)
{
	p->fabric = "verbs";
	p->options = verbs_test_options(false, VERBS_OPTIONS);
	return vb_fabric_open(p, out);
}

#include "fabric_suite.h"

static void no_device(void **state)
{
	(void)state;
	verbs_test_need_device();
}

#define SKIPPED 77 /* meson's status for a test of which nothing has run */

static int verbs_suite_main(const char *name)
{
	const struct CMUnitTest skipped[] = {cmocka_unit_test(no_device)};

	if (verbs_absent() != NULL && getenv("VERBENA_VERBS_DEVICE") == NULL)
		return _cmocka_run_group_tests(name, skipped, 1, NULL, NULL) != 0 ? 1 : SKIPPED;
	return suite_main(name);
}
