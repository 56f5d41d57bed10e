/* SPDX-License-Identifier: Apache-2.0 */
#define VB_LOG_ROOM "check"
#include "cli/check_named.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/opt.h"
#include "check/planted/planted.h"

#define NAMES_MAX 64u

int vb_check_names(const char *list, int (*add)(void *ctx, const char *name), void *ctx)
{
	char *text = strdup(list), *save = NULL;
	int err = 0;

	if (text == NULL)
		return vb_fail(-ENOMEM, "no memory for the list of protocols");
	for (char *name = strtok_r(text, ",", &save); name != NULL && err == 0;
	     name = strtok_r(NULL, ",", &save))
		err = add(ctx, name);
	free(text);
	return err;
}

int vb_check_locks(const char *name, int (*add)(void *ctx, const struct vb_lock_ops *ops),
		   void *ctx)
{
	const struct vb_lock_ops *const *const lists[] = {vb_locks, vb_planted_locks};
	const struct vb_lock_ops *one[] = {vb_lock_find(name), NULL};
	const struct vb_lock_ops *const *meant = one;
	const char *names[NAMES_MAX];
	char hint[VB_HINT_BYTES];
	size_t n = 0;
	int err = 0;

	if (!strcmp(name, "all"))
		meant = vb_locks;
	if (!strcmp(name, "planted"))
		meant = vb_planted_locks;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(lists) && *meant == NULL; i++)
		for (const struct vb_lock_ops *const *l = lists[i]; *l != NULL && n < NAMES_MAX;
		     l++)
			names[n++] = (*l)->name;
	if (*meant == NULL)
		return vb_fail(-EINVAL, "no lock is called '%s'%s; `verbena list` shows them all",
			       name, vb_did_you_mean(hint, name, names, n));
	for (; *meant != NULL && err == 0; meant++)
		err = add(ctx, *meant);
	return err;
}

int vb_check_write(struct vb_json_out *out, uint64_t seed, json_t *runs)
{
	json_t *root = vb_json_head(seed);
	int err;

	json_object_set_new(root, "runs", runs);
	if (vb_interrupted)
		json_object_set_new(root, "interrupted", json_true());
	err = vb_json_out_commit(out, root);
	json_decref(root);
	return err;
}
