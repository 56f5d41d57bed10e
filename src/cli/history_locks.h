/* SPDX-License-Identifier: Apache-2.0 */
/* What `verbena check history` says of histories of locks. */
#ifndef VB_CLI_HISTORY_LOCKS_H
#define VB_CLI_HISTORY_LOCKS_H

#include "check/lock/history.h"
#include "lab/json.h"

struct vb_cli_locks {
	struct vb_lock_history **parts;
	bool fencing; /* one of them says that every exclusive grant has a token */
};

/* Judges them and tells it: an enum vb_exit. */
int vb_cli_judge_locks(const struct vb_cli_locks *l, unsigned n, char *const *names, FILE *to,
		       struct vb_json_out *json);

#endif
