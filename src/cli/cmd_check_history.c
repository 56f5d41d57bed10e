/* SPDX-License-Identifier: Apache-2.0 */
/* verbena check history: reads the histories of a run and says whether it kept the level of
 * isolation that it claims, or, of locks, whether they were locks. */
#define VB_LOG_ROOM "check"
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/opt.h"
#include "check/txn/serial.h"
#include "cli/history_locks.h"
#include "lab/json.h"

struct history_opts {
	const char *json, *edn, *text;
	bool strict;
	int level; /* enum vb_level; NONE: what is claimed */
};

static struct history_opts opts;

static const struct vb_opt table[] = {
	VB_OPT_CHOICE(struct history_opts, level, "level",
		      "claimed|read-committed|repeatable-read|snapshot|serializable|"
		      "strict-serializable",
		      "claimed",
		      "judge at this level; 'claimed' is what the files and their transactions "
		      "claim, and serializable where they claim nothing"),
	VB_OPT_FLAG(struct history_opts, strict, "strict",
		    "the same as --level strict-serializable"),
	VB_OPT_STRING(struct history_opts, json, "json", "FILE", NULL,
		      "write the result as JSON; - is stdout"),
	VB_OPT_STRING(struct history_opts, edn, "edn", "FILE", NULL,
		      "write the history for Elle; - is stdout"),
	VB_OPT_STRING(struct history_opts, text, "text", "FILE", NULL,
		      "write the history for PolySI and IsoVista; - is stdout"),
	VB_OPT_END};

static const struct vb_opt_group *groups(unsigned *n)
{
	static const struct vb_opt_group all[] = {{"Checking", table, &opts}};

	*n = VB_ARRAY_SIZE(all);
	return all;
}

struct session {
	char **names;
	struct vb_history **parts;
	struct vb_cli_locks locks;
	bool of_locks; /* those lie in `locks`, and not in `parts` */
	unsigned n;
	FILE *out; /* stdout, or stderr where stdout carries a file */
	enum vb_level level;
	struct vb_json_out edn, text; /* whole or not there, as the JSON */
	struct vb_serial_result result;
};

static bool is_stdout(const char *path)
{
	return path != NULL && strcmp(path, "-") == 0;
}

static const struct vb_history *const *parts_of(const struct session *s)
{
	return (const struct vb_history *const *)s->parts;
}

/* ---- files ---- */

/* What the first file is, all must be. */
static int read_part(struct session *s, unsigned i, struct vb_lines *lines)
{
	bool locks, fencing;
	int err = vb_lines_next(lines);

	if (err < 0)
		return err;
	locks = vb_lock_history_is_next(lines);
	vb_lines_again(lines);
	if (i == 0)
		s->of_locks = locks;
	if (locks != s->of_locks)
		return vb_fail(-EINVAL, "%s is a history of %s, and %s is one of %s", s->names[0],
			       s->of_locks ? "locks" : "transactions", s->names[i],
			       locks ? "locks" : "transactions");
	if (!locks)
		return vb_history_read_lines(lines, &s->parts[i]);
	err = vb_lock_history_read(lines, &s->locks.parts[i], &fencing);
	s->locks.fencing |= err == 0 && fencing;
	return err;
}

static int read_file(struct session *s, unsigned i)
{
	const bool standard = strcmp(s->names[i], "-") == 0;
	FILE *from = standard ? stdin : fopen(s->names[i], "re");
	struct vb_lines lines;
	int err;

	if (from == NULL)
		return vb_fail(-EINVAL, "cannot read %s: %s", s->names[i], strerror(errno));
	vb_lines_open(&lines, from, standard ? "standard input" : s->names[i]);
	err = read_part(s, i, &lines);
	vb_lines_close(&lines);
	if (!standard)
		fclose(from);
	return err;
}

static int read_all(struct session *s)
{
	int err = 0;

	for (unsigned i = 0; i < s->n && err == 0; i++)
		err = read_file(s, i);
	return err;
}

static int write_for_others(const struct session *s, struct vb_json_out *out,
			    int (*write)(const struct vb_history *const *parts, unsigned n,
					 FILE *to))
{
	FILE *to;
	int err;

	if (out->path == NULL)
		return 0;
	err = vb_json_out_stream(out, &to);
	return err != 0 ? err : vb_json_out_end(out, to, write(parts_of(s), s->n, to));
}

/* What was asked for, or what all files that claim something claim. */
static int settle_level(struct session *s)
{
	unsigned by = 0;

	s->level = opts.strict ? VB_LEVEL_STRICT : (enum vb_level)opts.level;
	if (s->level != VB_LEVEL_NONE)
		return 0;
	for (unsigned i = 0; i < s->n; i++) {
		const enum vb_level level = vb_history_claimed(s->parts[i]);

		if (level == VB_LEVEL_NONE)
			continue;
		if (s->level != VB_LEVEL_NONE && s->level != level)
			return vb_fail(-EINVAL,
				       "%s claims %s, and %s claims %s: say --level, or check each "
				       "on its own",
				       s->names[by], vb_level_names[s->level], s->names[i],
				       vb_level_names[level]);
		s->level = level;
		by = i;
	}
	if (s->level == VB_LEVEL_NONE)
		s->level = VB_LEVEL_SERIALIZABLE;
	return 0;
}

/* ---- telling ---- */

static void tell_found(FILE *to, const struct vb_serial_result *r)
{
	const char *comma = " ";

	for (int i = VB_ANOMALY_NONE + 1; i < VB_ANOMALIES; i++) {
		if (r->found[i] == 0)
			continue;
		fprintf(to, "%s%s (%" PRIu64 ")", comma, vb_anomaly_names[i], r->found[i]);
		comma = ", ";
	}
	fputc('\n', to);
}

static bool only_not_strict(const struct vb_serial_result *r)
{
	uint64_t other = 0;

	for (int i = VB_ANOMALY_NONE + 1; i < VB_ANOMALIES; i++)
		other += i == VB_ANOMALY_REAL_TIME ? 0 : r->found[i];
	return other == 0;
}

static const char *const held[VB_LEVELS] = {
	[VB_LEVEL_READ_COMMITTED] = "read committed",
	[VB_LEVEL_REPEATABLE_READ] = "repeatable read",
	[VB_LEVEL_SNAPSHOT] = "snapshot isolated",
	[VB_LEVEL_SERIALIZABLE] = "serializable",
	[VB_LEVEL_STRICT] = "strictly serializable",
};

/* Does each transaction keep its own level, and not all the same? */
static bool is_mixed(const struct vb_serial_result *r)
{
	return r->at[r->level] != r->txns;
}

static void tell_levels(FILE *to, const struct vb_serial_result *r)
{
	const char *comma = "";

	for (unsigned l = VB_LEVELS - 1; l > VB_LEVEL_NONE; l--) {
		if (r->at[l] == 0)
			continue;
		fprintf(to, "%s%" PRIu64 " %s", comma, r->at[l], held[l]);
		comma = ", ";
	}
	fputc('\n', to);
}

static void tell(const struct session *s)
{
	const struct vb_serial_result *r = &s->result;

	fprintf(s->out, "%12s %10s %10s %10s %12s %10s %12s %8s\n", "transactions", "committed",
		"aborted", "unknown", "operations", "keys", "edges", "seconds");
	fprintf(s->out,
		"%12" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %12" PRIu64 " %10" PRIu64
		" %12" PRIu64 " %8.2f\n",
		r->txns, r->committed, r->aborted, r->unknown, r->reads + r->writes, r->keys,
		r->edges, r->seconds);
	if (is_mixed(r)) {
		fprintf(s->out, "each transaction at its own level: ");
		tell_levels(s->out, r);
	}
	if (r->first == VB_ANOMALY_NONE) {
		fprintf(s->out, "%s\n", is_mixed(r) ? "each keeps it" : held[s->level]);
		return;
	}
	if (is_mixed(r))
		fprintf(s->out, "not so:");
	else if (only_not_strict(r))
		fprintf(s->out, "serializable, but not strictly:");
	else
		fprintf(s->out, "not %s:",
			held[s->level == VB_LEVEL_STRICT ? VB_LEVEL_SERIALIZABLE : s->level]);
	tell_found(s->out, r);
	fprintf(s->out, "%s", r->story);
}

static int write_json(struct vb_json_out *out, const struct session *s)
{
	const struct vb_serial_result *r = &s->result;
	json_t *root, *run, *files, *anomalies, *levels;
	int err;

	if (out->path == NULL)
		return 0;
	root = vb_json_head(0);
	run = json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s}", "kind",
			"check-history", "level", vb_level_names[s->level], "strict",
			s->level == VB_LEVEL_STRICT, "transactions", (json_int_t)r->txns,
			"committed", (json_int_t)r->committed, "aborted", (json_int_t)r->aborted,
			"unknown", (json_int_t)r->unknown, "reads", (json_int_t)r->reads, "writes",
			(json_int_t)r->writes, "keys", (json_int_t)r->keys, "edges",
			(json_int_t)r->edges, "seconds", r->seconds, "first",
			vb_anomaly_names[r->first]);
	files = json_array();
	for (unsigned i = 0; i < s->n; i++)
		json_array_append_new(files, vb_json_text(s->names[i]));
	json_object_set_new(run, "files", files);
	anomalies = json_object();
	for (int i = VB_ANOMALY_NONE + 1; i < VB_ANOMALIES; i++)
		json_object_set_new(anomalies, vb_anomaly_names[i],
				    json_integer((json_int_t)r->found[i]));
	json_object_set_new(run, "anomalies", anomalies);
	levels = json_object();
	for (unsigned l = VB_LEVEL_NONE + 1; l < VB_LEVELS; l++)
		json_object_set_new(levels, vb_level_names[l], json_integer((json_int_t)r->at[l]));
	json_object_set_new(run, "levels", levels);
	if (r->story != NULL)
		json_object_set_new(run, "story", vb_json_text(r->story));
	json_object_set_new(root, "runs", json_pack("[o]", run));
	err = vb_json_out_commit(out, root);
	json_decref(root);
	return err;
}

/* ---- running ---- */

static int judge_txns(struct session *s, struct vb_json_out *json)
{
	struct vb_serial_params p = {.parts = parts_of(s), .n_parts = s->n};
	int err;

	p.each = !opts.strict && opts.level == VB_LEVEL_NONE;
	err = settle_level(s);
	p.level = s->level;
	if (err == 0)
		err = vb_serial_check(&p, &s->result);
	s->level = s->result.level;
	if (err == 0 && s->result.txns == 0)
		err = vb_fail(-EINVAL,
			      "%s: there is no transaction in %s: nothing can be said of it",
			      s->names[0], s->n > 1 ? "it or the others" : "it");
	if (err == 0)
		err = vb_json_out_open(&s->edn, opts.edn);
	if (err == 0)
		err = vb_json_out_open(&s->text, opts.text);
	if (err == 0) {
		tell(s);
		err = write_json(json, s);
	}
	if (err == 0)
		err = write_for_others(s, &s->edn, vb_history_write_edn);
	if (err == 0)
		err = write_for_others(s, &s->text, vb_history_write_text);
	vb_json_out_abandon(&s->edn);
	vb_json_out_abandon(&s->text);
	if (err)
		return vb_exit_of(err);
	return s->result.first == VB_ANOMALY_NONE ? VB_EXIT_OK : VB_EXIT_VIOLATION;
}

static int judge_locks(struct session *s, struct vb_json_out *json)
{
	if (opts.strict || opts.level != VB_LEVEL_NONE || opts.edn != NULL || opts.text != NULL)
		return vb_exit_of(vb_fail(-EINVAL,
					  "%s is a history of locks: --level, --strict, --edn and "
					  "--text are for transactions",
					  s->names[0]));
	return vb_cli_judge_locks(&s->locks, s->n, s->names, s->out, json);
}

static int check(struct session *s)
{
	struct vb_json_out json;
	int end, err = vb_json_out_open(&json, opts.json);

	if (err)
		return vb_exit_of(err);
	err = read_all(s);
	if (err)
		end = vb_exit_of(err);
	else
		end = s->of_locks ? judge_locks(s, &json) : judge_txns(s, &json);
	vb_json_out_abandon(&json);
	return end;
}

/* Stdout carries one file at most, and then nothing else. */
static int settle_stdout(struct session *s)
{
	const int n = is_stdout(opts.json) + is_stdout(opts.edn) + is_stdout(opts.text);

	s->out = n > 0 ? stderr : stdout;
	if (n > 1)
		vb_error("of --json, --edn and --text only one can write to stdout");
	return n > 1 ? VB_EXIT_USAGE : 0;
}

static int run(int argc, char **argv)
{
	struct session s = {.names = argv, .edn.fd = -1, .text.fd = -1};
	int words, end = vb_cli_parse_words(&vb_command_check_history, argc, argv, &words);

	if (end >= 0)
		return end;
	if (words == 0) {
		vb_error("give the files of the history; - is standard input");
		return VB_EXIT_USAGE;
	}
	if (opts.strict && opts.level != VB_LEVEL_NONE && opts.level != VB_LEVEL_STRICT) {
		vb_error("--strict and --level %s are two levels", vb_level_names[opts.level]);
		return VB_EXIT_USAGE;
	}
	if (settle_stdout(&s) != 0)
		return VB_EXIT_USAGE;
	s.n = (unsigned)words;
	s.parts = calloc(s.n, sizeof(struct vb_history *));
	s.locks.parts = calloc(s.n, sizeof(struct vb_lock_history *));
	end = s.parts != NULL && s.locks.parts != NULL
		      ? check(&s)
		      : vb_exit_of(vb_fail(-ENOMEM, "no memory for %u histories", s.n));
	for (unsigned i = 0; i < s.n; i++) {
		if (s.parts != NULL)
			vb_history_close(s.parts[i]);
		if (s.locks.parts != NULL)
			vb_lock_history_close(s.locks.parts[i]);
	}
	free(s.parts);
	free(s.locks.parts);
	vb_serial_result_free(&s.result);
	return end;
}

const struct vb_command vb_command_check_history = {
	.name = "check history",
	.summary = "Check a history of transactions at a level of isolation, or one of locks",
	.about = "Reads the histories that bench and check write with --history, or a program "
		 "of yours in the same form, and judges them: transactions at a level of "
		 "isolation, locks by who had which at the same time. The files of one run "
		 "are given together.\n\n"
		 "With --edn or --text it writes the same history for other checkers.",
	.run = run,
	.groups = groups,
	.example = "verbena check history --strict history.jsonl",
	.words = "FILE...",
	.ends = VB_ENDS(VB_EXIT_VIOLATION) | VB_ENDS(VB_EXIT_RESOURCES),
	.see = "histories.md, checking.md",
};
