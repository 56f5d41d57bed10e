/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands that check protocols have in common: which are meant, and the file about it. */
#ifndef VB_CLI_CHECK_NAMED_H
#define VB_CLI_CHECK_NAMED_H

#include <jansson.h>

#include "cli/cli.h"
#include "lab/json.h"

struct vb_lock_ops;

/* Calls add for each name of the list, "NAME[,..]", until one fails.  -error, said. */
int vb_check_names(const char *list, int (*add)(void *ctx, const char *name), void *ctx);

/* Calls add for each lock that is meant by a name: "all" real ones, those that are "planted", or the
 * one that is called so.  -error, said. */
int vb_check_locks(const char *name, int (*add)(void *ctx, const struct vb_lock_ops *ops),
		   void *ctx);

/* Writes what there is about these runs, whose first seed this is; takes them. */
int vb_check_write(struct vb_json_out *out, uint64_t seed, json_t *runs);

#endif
