/* SPDX-License-Identifier: Apache-2.0 */
/* verbena report: files in, a page out. */
#define VB_LOG_ROOM "report"
#include "lab/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/json.h"
#include "lab/run.h"

#define O struct vb_report_opts
static const struct vb_opt table[] = {
	VB_OPT_STRING(O, out, "out", "FILE", "report.html", "write the page here; - is stdout"),
	VB_OPT_STRING(O, title, "title", "TEXT", "Verbena: results", "title of the page"),
	VB_OPT_END};
#undef O

VB_OPT_GROUPS(vb_report_groups, struct vb_report_opts, {"Options", table, NULL})

/* What can be shown; only reproduce's kind stands at the top of the file, others' with their runs. */
static const struct kind {
	const char *name;
	void (*put)(FILE *to, const json_t *root);
} kinds[] = {
	{"reproduce", vb_report_reproduce}, {"lock", vb_report_locks}, {"txn", vb_report_txns}};

/* NULL: nothing of ours. */
static const struct kind *kind_of(const json_t *root)
{
	const json_t *first = json_array_get(json_object_get(root, "runs"), 0);

	for (unsigned i = 0; i < VB_ARRAY_SIZE(kinds); i++)
		if (strcmp(vb_report_string(i == 0 ? root : first, "kind"), kinds[i].name) == 0)
			return &kinds[i];
	return NULL;
}

/* Only what is a result of ours; the rest is refused with its name. */
static int load(const char *path, json_t **out)
{
	json_error_t why;
	json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);

	if (root == NULL && why.line <= 0)
		return vb_fail(-EINVAL, "cannot read %s: %s", path, why.text);
	if (root == NULL)
		return vb_fail(-EINVAL, "%s, line %d, column %d is no JSON: %s", path, why.line,
			       why.column, why.text);
	if (strcmp(vb_report_string(root, "tool"), "verbena") != 0 || kind_of(root) == NULL) {
		json_decref(root);
		return vb_fail(-EINVAL,
			       "%s has no runs of `bench lock`, `bench txn` or `reproduce`; only "
			       "their JSON can be shown",
			       path);
	}
	if (json_integer_value(json_object_get(root, "schema")) != 1) {
		json_decref(root);
		return vb_fail(-EINVAL, "%s: its schema is not 1, the only one known here", path);
	}
	*out = root;
	return 0;
}

/* Where it comes from: the command, the commit, the machine. */
static void put_origin(FILE *to, const json_t *root)
{
	const json_t *host = json_object_get(root, "host");
	size_t i;
	json_t *word;
	char text[512];

	fputs("<p><code>verbena", to);
	json_array_foreach(json_object_get(root, "argv"), i, word)
	{
		if (i == 0 || json_string_value(word) == NULL)
			continue;
		fputc(' ', to);
		vb_html_text(to, json_string_value(word));
	}
	fputs("</code></p>\n", to);
	snprintf(text, sizeof(text),
		 "commit %.60s, seed %.0f, %.0f cores, load %.1f, %.120s, kernel %.80s",
		 vb_report_string(root, "commit"), vb_report_number(root, "seed"),
		 vb_report_number(host, "cores"), vb_report_number(host, "load_1min"),
		 vb_report_string(host, "cpu"), vb_report_string(host, "kernel"));
	vb_html_paragraph(to, "dim", text);
	if (json_is_true(json_object_get(root, "interrupted")))
		vb_html_paragraph(to, "failed", "Interrupted: this is what there was by then.");
}

static void put_section(FILE *to, const char *path, const json_t *root)
{
	const char *slash = strrchr(path, '/');
	const char *name = vb_report_string(root, "experiment");

	vb_html_heading(to, 2, name[0] != '\0' ? name : slash != NULL ? slash + 1 : path);
	put_origin(to, root);
	kind_of(root)->put(to, root);
}

static int write_page(const struct vb_report_opts *o, char *const *files, json_t *const *roots,
		      unsigned n)
{
	struct vb_json_out out;
	FILE *to;
	int err = vb_json_out_begin(&out, o->out, &to);

	if (err != 0)
		return err;
	vb_html_page_begin(to, o->title);
	for (unsigned i = 0; i < n; i++)
		put_section(to, files[i], roots[i]);
	vb_html_page_end(to);
	return vb_json_out_end(&out, to, 0);
}

int vb_report(const struct vb_report_opts *o, char *const *files, unsigned n)
{
	json_t **roots = calloc(n + 1, sizeof(json_t *));
	int err = roots != NULL ? 0 : vb_fail(-ENOMEM, "no memory for %u results", n);

	if (n == 0)
		err = vb_fail(-EINVAL, "which results? Give the JSON files of `bench lock`, `bench "
				       "txn` or `reproduce`");
	for (unsigned i = 0; i < n && err == 0; i++)
		err = load(files[i], &roots[i]);
	if (err == 0)
		err = write_page(o, files, roots, n);
	for (unsigned i = 0; i < n && roots != NULL; i++)
		json_decref(roots[i]);
	free(roots);
	return err ? vb_exit_of(err) : VB_EXIT_OK;
}
