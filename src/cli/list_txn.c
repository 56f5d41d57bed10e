/* SPDX-License-Identifier: Apache-2.0 */
/* The part of verbena list that is about transactions: protocols and workloads. */
#include "cli/list_txn.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/opt.h"
#include "check/planted/planted.h"
#include "lab/json.h"
#include "txn/protocol.h"
#include "workload/load.h"
#include "workload/trace.h"

struct cap_name {
	uint32_t flag;
	const char *word, *name;
};

static const struct cap_name cc_caps[] = {
	{VB_CC_STRICT, "strictly serializable", "strict"},
	{VB_CC_SHARED, "readers hold together", "shared"},
	{VB_CC_AGE, "a transaction that is tried again keeps its age", "age"},
	{VB_CC_STATUS, "needs a status word", "status"},
	{VB_CC_SHORT_READS, "offers repeatable read and read committed", "levels"},
	{VB_CC_SNAPSHOTS, "offers snapshots", "snapshots"},
	{VB_CC_BOUNDED, "waits for a bounded time", "bounded"},
	{VB_CC_BLIND_WAIT, "who waits does not look at his own status", "blind_wait"},
	{VB_CC_AT_HOME, "its logs have no copies", "at_home"},
	{VB_CC_SEQUENCED, "all that is touched is declared first", "declared"},
	{0, NULL, NULL},
};

static void put_cc(const struct vb_cc_ops *cc)
{
	const char *comma = cc->caps & VB_CC_STRICT ? "" : ", ";

	printf("\n  %s\n    %s\n    %-13s%s", cc->name, cc->summary, "caps",
	       cc->caps & VB_CC_STRICT ? "" : "serializable");
	for (const struct cap_name *c = cc_caps; c->word != NULL; c++) {
		if ((cc->caps & c->flag) == 0)
			continue;
		printf("%s%s", comma, c->word);
		comma = ", ";
	}
	printf("\n    %-13s", "stages");
	for (unsigned i = 0; i < cc->n_stages; i++)
		printf("%s%s", i > 0 ? ", " : "", cc->stages[i].name);
	if (cc->code != NULL)
		printf(" (%s with the hybrid code %s)\n", cc->code_of, cc->code);
	else
		printf(" (a hybrid code has %u digits)\n", cc->n_stages);
	if (cc->source != NULL)
		printf("    %-13s%s\n", "source", cc->source);
}

static void put_ccs(const char *title, const struct vb_cc_ops *const *list)
{
	printf("%s\n", title);
	for (; *list != NULL; list++)
		put_cc(*list);
	putchar('\n');
}

static void put_traces(void)
{
	printf("Lock traces of transactions (bench lock --workload, trace export)\n");
	for (const struct vb_trace_ops *const *t = vb_traces; *t != NULL; t++) {
		printf("\n  %s\n    %s\n    %-13s%s\n", (*t)->name, (*t)->summary, "source",
		       (*t)->source);
		for (const struct vb_opt *o = (*t)->options; o->kind != VB_OPT_KIND_END; o++)
			printf("    %-13s%s: %s%s%s%s\n", "option", o->name, o->help,
			       o->init != NULL ? " (" : "", o->init != NULL ? o->init : "",
			       o->init != NULL ? ")" : "");
	}
	putchar('\n');
}

void vb_list_put_txn(void)
{
	put_ccs("Concurrency control of transactions", vb_ccs);
	put_ccs("The same of transactions that declare all they touch", vb_ccs_declared);
	put_ccs("The same as their papers print them, holes included (for comparison only)",
		vb_ccs_published);
	printf("Workloads of transactions\n");
	for (const struct vb_load_ops *const *l = vb_loads; *l != NULL; l++) {
		printf("\n  %s\n    %s\n    %-13s", (*l)->name, (*l)->summary, "types");
		for (unsigned i = 0; i < (*l)->n_types; i++)
			printf("%s%s", i > 0 ? ", " : "", (*l)->types[i]);
		putchar('\n');
		for (const struct vb_opt *o = (*l)->options; o->kind != VB_OPT_KIND_END; o++)
			printf("    %-13s--%s: %s\n", "option", o->name, o->help);
	}
	putchar('\n');
	put_traces();
}

static json_t *cc_json(const struct vb_cc_ops *cc)
{
	json_t *o = json_object(), *caps = json_array(), *stages = json_array();

	for (const struct cap_name *c = cc_caps; c->word != NULL; c++)
		if (cc->caps & c->flag)
			json_array_append_new(caps, json_string(c->name));
	for (unsigned i = 0; i < cc->n_stages; i++)
		json_array_append_new(stages, json_string(cc->stages[i].name));
	json_object_set_new(o, "name", json_string(cc->name));
	json_object_set_new(o, "summary", json_string(cc->summary));
	json_object_set_new(o, "source", cc->source ? vb_json_text(cc->source) : json_null());
	json_object_set_new(o, "caps", caps);
	json_object_set_new(o, "stages", stages);
	if (cc->code != NULL) {
		json_object_set_new(o, "hybrid", json_string(cc->code));
		json_object_set_new(o, "hybrid_of", json_string(cc->code_of));
	}
	return o;
}

static json_t *ccs_json(const struct vb_cc_ops *const *list)
{
	json_t *a = json_array();

	for (; *list != NULL; list++)
		json_array_append_new(a, cc_json(*list));
	return a;
}

static json_t *loads_json(void)
{
	json_t *a = json_array();

	for (const struct vb_load_ops *const *l = vb_loads; *l != NULL; l++) {
		json_t *o = json_object(), *types = json_array(), *options = json_array();

		for (unsigned i = 0; i < (*l)->n_types; i++)
			json_array_append_new(types, json_string((*l)->types[i]));
		for (const struct vb_opt *opt = (*l)->options; opt->kind != VB_OPT_KIND_END; opt++)
			json_array_append_new(options, json_string(opt->name));
		json_object_set_new(o, "name", json_string((*l)->name));
		json_object_set_new(o, "summary", json_string((*l)->summary));
		json_object_set_new(o, "types", types);
		json_object_set_new(o, "options", options);
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *traces_json(void)
{
	json_t *a = json_array();

	for (const struct vb_trace_ops *const *t = vb_traces; *t != NULL; t++) {
		json_t *o = json_object(), *options = json_array();

		for (const struct vb_opt *opt = (*t)->options; opt->kind != VB_OPT_KIND_END; opt++)
			json_array_append_new(options, json_string(opt->name));
		json_object_set_new(o, "name", json_string((*t)->name));
		json_object_set_new(o, "summary", json_string((*t)->summary));
		json_object_set_new(o, "source", vb_json_text((*t)->source));
		json_object_set_new(o, "options", options);
		json_array_append_new(a, o);
	}
	return a;
}

void vb_list_txn_json(json_t *root)
{
	json_object_set_new(root, "cc", ccs_json(vb_ccs));
	json_object_set_new(root, "cc_declared", ccs_json(vb_ccs_declared));
	json_object_set_new(root, "cc_as_published", ccs_json(vb_ccs_published));
	json_object_set_new(root, "cc_planted", ccs_json(vb_planted_ccs));
	json_object_set_new(root, "workloads", loads_json());
	json_object_set_new(root, "traces", traces_json());
}
