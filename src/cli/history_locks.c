/* SPDX-License-Identifier: Apache-2.0 */
/* Histories of locks, judged and told: see history_locks.h. */
#define VB_LOG_ROOM "check"
#include "cli/history_locks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "cli/cli.h"

/* The rules that a history shows; the auditor's others need to be there while it happens. */
static const enum vb_audit_rule shown[] = {VB_AUDIT_MODE_CONFLICT, VB_AUDIT_EXPIRED_GRANT,
					   VB_AUDIT_FOREIGN_RELEASE, VB_AUDIT_TOKEN_ORDER};

static void tell(FILE *to, const struct vb_lock_verdict *v)
{
	const char *comma = " ";

	fprintf(to, "%12s %10s %10s\n", "events", "grants", "locks");
	fprintf(to, "%12" PRIu64 " %10" PRIu64 " %10" PRIu64 "\n", v->events, v->grants, v->locks);
	if (v->audit.violations == 0) {
		fprintf(to, "linearizable to locks\n");
		return;
	}
	fprintf(to, "not linearizable to locks:");
	for (unsigned i = 0; i < VB_ARRAY_SIZE(shown); i++) {
		if (v->audit.by_rule[shown[i]] == 0)
			continue;
		fprintf(to, "%s%s (%" PRIu64 ")", comma, vb_audit_rule_names[shown[i]],
			v->audit.by_rule[shown[i]]);
		comma = ", ";
	}
	fprintf(to, "\n%s", v->story);
}

static int write_json(struct vb_json_out *out, const struct vb_lock_verdict *v, unsigned n,
		      char *const *names)
{
	json_t *root, *run, *files, *by_rule;
	int err;

	if (out->path == NULL)
		return 0;
	root = vb_json_head(0);
	run = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "kind", "check-history", "history",
			"locks", "events", (json_int_t)v->events, "grants", (json_int_t)v->grants,
			"locks", (json_int_t)v->locks, "violations",
			(json_int_t)v->audit.violations);
	files = json_array();
	for (unsigned i = 0; i < n; i++)
		json_array_append_new(files, vb_json_text(names[i]));
	json_object_set_new(run, "files", files);
	by_rule = json_object();
	for (unsigned i = 0; i < VB_ARRAY_SIZE(shown); i++)
		json_object_set_new(by_rule, vb_audit_rule_names[shown[i]],
				    json_integer((json_int_t)v->audit.by_rule[shown[i]]));
	json_object_set_new(run, "by_rule", by_rule);
	if (v->story != NULL)
		json_object_set_new(run, "story", vb_json_text(v->story));
	json_object_set_new(root, "runs", json_pack("[o]", run));
	err = vb_json_out_commit(out, root);
	json_decref(root);
	return err;
}

int vb_cli_judge_locks(const struct vb_cli_locks *l, unsigned n, char *const *names, FILE *to,
		       struct vb_json_out *json)
{
	struct vb_lock_verdict v;
	int err = vb_lock_history_judge((const struct vb_lock_history *const *)l->parts, n,
					l->fencing, &v);

	if (err == 0 && v.events == 0)
		err = vb_fail(-EINVAL, "%s: there is no call in %s: nothing can be said of it",
			      names[0], n > 1 ? "it or the others" : "it");
	if (err == 0) {
		tell(to, &v);
		err = write_json(json, &v, n, names);
	}
	free(v.story);
	if (err)
		return vb_exit_of(err);
	return v.audit.violations == 0 ? VB_EXIT_OK : VB_EXIT_VIOLATION;
}
