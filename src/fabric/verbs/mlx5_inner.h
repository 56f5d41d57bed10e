/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by mlx5*.c. */
#ifndef VB_FABRIC_VERBS_MLX5_INNER_H
#define VB_FABRIC_VERBS_MLX5_INNER_H

#include "fabric/verbs/mlx5.h"

/* NULL: not on this machine. */
const struct verbs_mlx5_lib *verbs_mlx5_lib(void);

#endif
