/* SPDX-License-Identifier: Apache-2.0 */
/* Whose extended atomics a device has; see ext.h. */
#include "fabric/verbs/ext.h"

#include "fabric/verbs/mlx5.h"

/* Each vendor's is a file of its own; NULL ends the list. */
static const struct verbs_ext_ops *const vendors[] = {
#if VB_HAVE_MLX5DV
	&verbs_mlx5_host,
	&verbs_mlx5_network,
#endif
	NULL,
};

const struct verbs_ext_ops *verbs_ext_of(struct ibv_context *ctx)
{
	for (unsigned i = 0; vendors[i] != NULL; i++) {
		if (vendors[i]->probe(ctx) != 0)
			return vendors[i];
	}
	return NULL;
}

uint32_t verbs_ext_probe(struct ibv_context *ctx)
{
	const struct verbs_ext_ops *ext = verbs_ext_of(ctx);

	return ext != NULL ? ext->probe(ctx) : 0;
}
