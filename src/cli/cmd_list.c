/* SPDX-License-Identifier: Apache-2.0 */
/* verbena list: what there is, what it can do and, where it cannot run, why. */
#include "cli/cli.h"
#include "cli/list_txn.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include <verbena/verbena.h>

#include "base/opt.h"
#include "check/litmus/litmus.h"
#include "check/planted/planted.h"
#include "fabric/sim/sim.h"
#include "lab/json.h"
#include "lock/lock.h"
#include "lock/protocols.h"

struct flag_name {
	uint32_t flag;
	const char *word, *name;
};

static const struct flag_name lock_caps[] = {
	{VB_LOCK_SHARED, "shared", "shared"},
	{VB_LOCK_EXCLUSIVE, "exclusive", "exclusive"},
	{VB_LOCK_FIFO, "bounded bypass", "fifo"},
	{VB_LOCK_SURVIVES, "survives its holder", "survives"},
	{VB_LOCK_TOKEN, "own fencing token", "token"},
	{VB_LOCK_SERVER, "needs a server", "server"},
	{VB_LOCK_MESSAGES, "messages between clients", "messages"},
	{VB_LOCK_READ_LEASE, "shared grants end with their lease", "read_lease"},
	{VB_LOCK_UPDATE, "update locks", "update"},
	{VB_LOCK_INTENT, "intention modes", "intent"},
	{VB_LOCK_DENIES, "deadlock policy", "denies"},
	{VB_LOCK_LEAVE_RACES, "readers race to leave", "leave_races"},
	{0, NULL, NULL},
};

static const struct flag_name fabric_caps[] = {
	{VB_CAP_MASKED64, "masked 64-bit atomics", "masked64"},
	{VB_CAP_MASKED128, "masked 128-bit atomics", "masked128"},
	{VB_CAP_SEND, "SEND/RECV", "send"},
	{VB_CAP_NOTIFY, "notified WRITE", "notify"},
	{VB_CAP_INLINE, "verbs complete inline", "inline"},
	{VB_CAP_CPU_ATOMICS, "CPU atomics allowed", "cpu_atomics"},
	{VB_CAP_TARGET_CPU, "the target's CPU takes part", "target_cpu"},
	{VB_CAP_VIRTUAL, "virtual time", "virtual"},
	{VB_CAP_PROCESSES, "between processes", "processes"},
	{0, NULL, NULL},
};

static void put_flags(const struct flag_name *names, uint32_t flags)
{
	const char *comma = "";

	for (; names->word != NULL; names++) {
		if ((flags & names->flag) == 0)
			continue;
		printf("%s%s", comma, names->word);
		comma = ", ";
	}
	putchar('\n');
}

static void put_line(const char *what, const char *text)
{
	if (text != NULL && text[0] != '\0')
		printf("    %-13s%s\n", what, text);
}

/* Where a lock cannot run, or only in another way. */
static void put_where(const struct vb_lock_ops *l)
{
	for (const struct vb_fabric_ops *const *f = vb_fabrics; *f != NULL; f++) {
		uint32_t missing = l->needs & ~(*f)->caps.flags;
		uint32_t wished = l->wishes & ~(*f)->caps.flags;

		if (missing != 0) {
			printf("    %-13snot on %s, which lacks: ", "absent", (*f)->name);
			put_flags(fabric_caps, missing);
		} else if (wished != 0) {
			printf("    %-13son %s, which lacks: ", "variant", (*f)->name);
			put_flags(fabric_caps, wished);
		}
	}
	if (l->wishes != 0) {
		printf("    %-13s%s\n", "portable", l->portable);
		printf("    %-13s", "without");
		put_flags(fabric_caps, l->wishes);
	}
}

static void put_options(const struct vb_opt *o)
{
	for (; o != NULL && o->kind != VB_OPT_KIND_END; o++)
		printf("    %-13s%s%s%s: %s%s%s%s\n", "option", o->name, o->value ? "=" : "",
		       o->value ? o->value : "", o->help, o->init ? " (" : "",
		       o->init ? o->init : "", o->init ? ")" : "");
}

/* What a lock takes of its node's memory: more with more nodes, for some. */
static void put_entry(const struct vb_lock_ops *l)
{
	uint32_t six = vb_lock_entry_bytes(l, NULL, 6);

	printf("    %-13s", "entry");
	if (l->entry_bytes == 0)
		printf("none: the server keeps the locks in its own memory\n");
	else if (six != l->entry_bytes)
		printf("%u bytes on 1 node, %u on 6\n", l->entry_bytes, six);
	else
		printf("%u bytes\n", l->entry_bytes);
}

static bool has_leases(const struct vb_lock_ops *l)
{
	return (l->caps & (VB_LOCK_SURVIVES | VB_LOCK_READ_LEASE)) != 0;
}

static void put_lock(const struct vb_lock_ops *l)
{
	printf("\n  %s\n    %s\n", l->name, l->summary);
	printf("    %-13s", "caps");
	put_flags(lock_caps, l->caps);
	if (l->caps & VB_LOCK_SURVIVES)
		printf("    %-13swithin %u leases\n", "recovery", l->recovery_leases);
	if (has_leases(l))
		put_line("lease", l->renew != NULL ? "can be renewed" : "cannot be renewed");
	put_line("holder", l->holder != NULL ? "can be asked for" : "cannot be asked for");
	put_line("alone", l->verbs_uncontended);
	put_line("contended", l->verbs_contended);
	put_entry(l);
	put_where(l);
	put_options(l->options);
	put_line("caught as", l->planted);
	put_line("source", l->source);
}

static void put_locks(const char *title, const struct vb_lock_ops *const *list)
{
	printf("%s\n", title);
	for (; *list != NULL; list++)
		put_lock(*list);
	putchar('\n');
}

static void put_fabrics(void)
{
	printf("Fabrics\n");
	for (const struct vb_fabric_ops *const *f = vb_fabrics; *f != NULL; f++) {
		const char *absent = (*f)->absent != NULL ? (*f)->absent() : NULL;

		printf("\n  %s\n    %s\n", (*f)->name, (*f)->summary);
		if (absent != NULL)
			printf("    %-13s%s\n", "absent", absent);
		printf("    %-13s", "caps");
		put_flags(fabric_caps, (*f)->caps.flags);
		put_line("atomics", (*f)->caps.atomics);
		put_line("order", (*f)->caps.order);
		put_options((*f)->options);
	}
	putchar('\n');
}

static void put_effects(const struct vb_sim_profile *p)
{
	const char *head = "effects";

	for (unsigned i = 0; i < vb_sim_param_count; i++) {
		const struct vb_sim_param *param = &vb_sim_params[i];
		uint64_t value = vb_sim_value(p, param);

		if (param->effect == NULL || value == 0)
			continue;
		printf("    %-13s%s: %s (%s %" PRIu64 ", %s)\n", head, param->effect, param->what,
		       param->name, value,
		       vb_sim_ground_names[vb_sim_source_of(p, param->name)->ground]);
		head = "";
	}
}

static void put_profiles(void)
{
	printf("Profiles of the simulated network\n");
	for (unsigned i = 0; i < vb_sim_profile_count; i++) {
		const struct vb_sim_profile *p = &vb_sim_profiles[i];

		printf("\n  %s\n    %s\n", p->name, p->summary);
		printf("    %-13sone way %" PRIu64 ", read %" PRIu64 ", write %" PRIu64
		       ", atomic 64/128 bit %" PRIu64 "/%" PRIu64 ", same word %" PRIu64 "/%" PRIu64
		       "\n",
		       "ns", p->one_way_ns, p->read_ns, p->write_ns, p->atomic64_ns,
		       p->atomic128_ns, p->word64_busy_ns, p->word128_busy_ns);
		printf("    %-13sinbound %" PRIu64 ", outbound %" PRIu64 ", post %" PRIu64
		       ", poll %" PRIu64 ", two-sided handler %" PRIu64 "\n",
		       "", p->inbound_ns, p->outbound_ns, p->post_ns, p->poll_ns, p->handler_ns);
		if (!p->masked64 || !p->masked128)
			printf("    %-13s%s%s%s\n", "absent",
			       p->masked64 ? "" : "masked 64-bit atomics",
			       !p->masked64 && !p->masked128 ? ", " : "",
			       p->masked128 ? "" : "masked 128-bit atomics");
		put_effects(p);
		put_line("sources", p->sources);
	}
}

/* ---- JSON ---- */

static json_t *flags_json(const struct flag_name *names, uint32_t flags)
{
	json_t *a = json_array();

	for (; names->word != NULL; names++)
		if (flags & names->flag)
			json_array_append_new(a, json_string(names->name));
	return a;
}

static json_t *text_or_null(const char *s)
{
	return s != NULL ? vb_json_text(s) : json_null();
}

static json_t *lock_json(const struct vb_lock_ops *l)
{
	json_t *o = json_object(), *where = json_object();

	json_object_set_new(o, "name", json_string(l->name));
	json_object_set_new(o, "summary", text_or_null(l->summary));
	json_object_set_new(o, "source", text_or_null(l->source));
	json_object_set_new(o, "caps", flags_json(lock_caps, l->caps));
	json_object_set_new(o, "entry_bytes", json_integer(l->entry_bytes));
	json_object_set_new(o, "recovery_leases",
			    l->caps & VB_LOCK_SURVIVES ? json_integer(l->recovery_leases)
						       : json_null());
	json_object_set_new(o, "renews",
			    has_leases(l) ? json_boolean(l->renew != NULL) : json_null());
	json_object_set_new(o, "holder", json_boolean(l->holder != NULL));
	json_object_set_new(o, "needs", flags_json(fabric_caps, l->needs));
	json_object_set_new(o, "wishes", flags_json(fabric_caps, l->wishes));
	json_object_set_new(o, "portable", text_or_null(l->portable));
	json_object_set_new(o, "verbs_uncontended", text_or_null(l->verbs_uncontended));
	json_object_set_new(o, "verbs_contended", text_or_null(l->verbs_contended));
	json_object_set_new(o, "planted_for", text_or_null(l->planted));
	for (const struct vb_fabric_ops *const *f = vb_fabrics; *f != NULL; f++) {
		uint32_t flags = (*f)->caps.flags;
		const char *how = l->needs & ~flags    ? "absent"
				  : l->wishes & ~flags ? "portable"
						       : "native";

		json_object_set_new(
			where, (*f)->name,
			json_pack("{s:s,s:o}", "runs", how, "lacks",
				  flags_json(fabric_caps, (l->needs | l->wishes) & ~flags)));
	}
	json_object_set_new(o, "fabrics", where);
	return o;
}

static json_t *locks_json(const struct vb_lock_ops *const *list)
{
	json_t *a = json_array();

	for (; *list != NULL; list++)
		json_array_append_new(a, lock_json(*list));
	return a;
}

static json_t *fabrics_json(void)
{
	json_t *a = json_array();

	for (const struct vb_fabric_ops *const *f = vb_fabrics; *f != NULL; f++) {
		json_t *o = json_object();

		json_object_set_new(o, "name", json_string((*f)->name));
		json_object_set_new(o, "summary", text_or_null((*f)->summary));
		json_object_set_new(o, "absent",
				    text_or_null((*f)->absent != NULL ? (*f)->absent() : NULL));
		json_object_set_new(o, "caps", flags_json(fabric_caps, (*f)->caps.flags));
		/* Of sim: the profile's. */
		json_object_set_new(o, "rtt_ns",
				    (*f)->caps.rtt_ns != 0
					    ? json_integer((json_int_t)(*f)->caps.rtt_ns)
					    : json_null());
		json_object_set_new(o, "atomics", text_or_null((*f)->caps.atomics));
		json_object_set_new(o, "order", text_or_null((*f)->caps.order));
		json_array_append_new(a, o);
	}
	return a;
}

static void put_param(json_t *o, json_t *grounds, const struct vb_sim_profile *p,
		      const struct vb_sim_param *param)
{
	const struct vb_sim_source *s = vb_sim_source_of(p, param->name);
	uint64_t value = vb_sim_value(p, param);

	json_object_set_new(o, param->name,
			    param->bytes == 1 ? json_boolean(value != 0)
					      : json_integer((json_int_t)value));
	if (param->effect != NULL && value == 0)
		return;
	json_object_set_new(grounds, param->name,
			    json_pack("{s:s,s:s,s:s?}", "ground", vb_sim_ground_names[s->ground],
				      "source", s->text, "effect", param->effect));
}

static json_t *profiles_json(void)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < vb_sim_profile_count; i++) {
		const struct vb_sim_profile *p = &vb_sim_profiles[i];
		json_t *o = json_object(), *grounds = json_object();

		json_object_set_new(o, "name", json_string(p->name));
		json_object_set_new(o, "summary", text_or_null(p->summary));
		json_object_set_new(o, "sources", text_or_null(p->sources));
		for (unsigned k = 0; k < vb_sim_param_count; k++)
			put_param(o, grounds, p, &vb_sim_params[k]);
		json_object_set_new(o, "rtt_ns", json_integer((json_int_t)vb_sim_rtt_ns(p)));
		json_object_set_new(o, "grounds", grounds);
		json_array_append_new(a, o);
	}
	return a;
}

/* ---- small worlds ---- */

static void put_worlds(void)
{
	puts("\nSmall worlds of `verbena check litmus`: locks, then transactions\n");
	for (const struct vb_litmus_lock *const *w = vb_litmus_locks; *w != NULL; w++)
		printf("  %-18s %s\n", vb_litmus_lock_name(*w), vb_litmus_lock_summary(*w));
	for (const struct vb_litmus_txn *const *w = vb_litmus_txns; *w != NULL; w++)
		printf("  %-18s %s\n", vb_litmus_txn_name(*w), vb_litmus_txn_summary(*w));
}

static json_t *worlds_json(void)
{
	json_t *a = json_array();

	for (const struct vb_litmus_lock *const *w = vb_litmus_locks; *w != NULL; w++)
		json_array_append_new(a, json_pack("{s:s, s:s, s:s}", "kind", "lock", "name",
						   vb_litmus_lock_name(*w), "summary",
						   vb_litmus_lock_summary(*w)));
	for (const struct vb_litmus_txn *const *w = vb_litmus_txns; *w != NULL; w++)
		json_array_append_new(a, json_pack("{s:s, s:s, s:s}", "kind", "cc", "name",
						   vb_litmus_txn_name(*w), "summary",
						   vb_litmus_txn_summary(*w)));
	return a;
}

static int print_json(void)
{
	json_t *root = json_object();
	int err;

	json_object_set_new(root, "schema", json_integer(1));
	json_object_set_new(root, "tool", json_string("verbena"));
	json_object_set_new(root, "version", json_string(vb_version()));
	json_object_set_new(root, "commit", json_string(vb_commit()));
	json_object_set_new(root, "locks", locks_json(vb_locks));
	json_object_set_new(root, "as_published", locks_json(vb_locks_published));
	json_object_set_new(root, "planted", locks_json(vb_planted_locks));
	vb_list_txn_json(root);
	json_object_set_new(root, "worlds", worlds_json());
	json_object_set_new(root, "fabrics", fabrics_json());
	json_object_set_new(root, "profiles", profiles_json());
	err = json_dumpf(root, stdout, JSON_INDENT(1));
	putchar('\n');
	json_decref(root);
	return err == 0 ? VB_EXIT_OK : VB_EXIT_FAILED;
}

static struct list_opts {
	bool json;
} opts;

static const struct vb_opt table[] = {
	VB_OPT_FLAG(struct list_opts, json, "json", "print one JSON object instead of text"),
	VB_OPT_END};

static const struct vb_opt_group *groups(unsigned *n)
{
	static const struct vb_opt_group g[] = {{"Options", table, &opts}};

	*n = 1;
	return g;
}

static int run(int argc, char **argv)
{
	int end = vb_cli_parse(&vb_command_list, argc, argv);

	if (end >= 0)
		return end;
	if (opts.json)
		return print_json();
	put_locks("Locks", vb_locks);
	put_locks("Locks as their papers print them, holes included (for comparison only)",
		  vb_locks_published);
	put_locks("Planted locks: each has a bug that `verbena check lock` must find",
		  vb_planted_locks);
	vb_list_put_txn();
	put_worlds();
	put_fabrics();
	put_profiles();
	puts("\nPapers: DSLR (SIGMOD 2018), ShiftLock (FAST 2025), RCC (arXiv 2002.12664), "
	     "Barthels "
	     "et al.\n(PVLDB 2019), RCBench (VLDB Journal 2024); doc/glossary.md has their "
	     "titles.");
	return VB_EXIT_OK;
}

const struct vb_command vb_command_list = {
	.name = "list",
	.summary = "Show the locks, protocols, workloads, fabrics and network profiles",
	.about = "Shows every lock with what it can do (modes, leases, order, options of its "
		 "own), every protocol of transactions with its stages and levels of "
		 "isolation, the workloads, traces and fabrics, and the simulator's models of "
		 "networks. What cannot run on this machine is shown with the reason.",
	.run = run,
	.groups = groups,
	.example = "verbena list --json",
	.ends = VB_ENDS(VB_EXIT_RESOURCES),
	.see = "choosing-a-lock.md, transactions.md",
};
