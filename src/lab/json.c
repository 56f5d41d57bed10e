/* SPDX-License-Identifier: Apache-2.0 */
/* See json.h. */
#include "lab/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <verbena/verbena.h>

#include "lab/host.h"

#define VB_LOG_ROOM "json"
#include "base/log.h"

static int saved_argc;
static char **saved_argv;

void vb_json_set_argv(int argc, char **argv)
{
	/* A copy: the options parser moves words about in the original. */
	saved_argv = calloc((size_t)argc + 1, sizeof(*saved_argv));
	if (saved_argv == NULL)
		return;
	memcpy(saved_argv, argv, (size_t)argc * sizeof(*saved_argv));
	saved_argc = argc;
}

static int open_in_place(struct vb_json_out *o, const char *path)
{
	o->fd = strcmp(path, "-") == 0 ? dup(STDOUT_FILENO) : open(path, O_WRONLY | O_CLOEXEC);
	if (o->fd < 0)
		return vb_fail(-errno, "cannot write %s: %s", path, strerror(errno));
	o->path = path;
	return 0;
}

int vb_json_out_open(struct vb_json_out *o, const char *path)
{
	struct stat st;
	mode_t mask;
	int err;

	*o = (struct vb_json_out){.fd = -1};
	if (path == NULL)
		return 0;
	if (path[0] == '\0')
		return vb_fail(-EINVAL, "the JSON file needs a name");
	if (strcmp(path, "-") == 0)
		return open_in_place(o, path);
	if (stat(path, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			return vb_fail(-EISDIR, "cannot write %s: it is a directory", path);
		if (!S_ISREG(st.st_mode))
			return open_in_place(o, path);
		if (access(path, W_OK) != 0)
			return vb_fail(-errno, "cannot write %s: %s", path, strerror(errno));
	}
	if (asprintf(&o->temp, "%s.XXXXXX", path) < 0) {
		o->temp = NULL;
		return vb_fail(-ENOMEM, "cannot write %s: out of memory", path);
	}
	o->fd = mkostemp(o->temp, O_CLOEXEC);
	if (o->fd < 0) {
		err = -errno;
		free(o->temp);
		o->temp = NULL;
		return vb_fail(err,
			       "cannot write %s: %s; give a path in a directory that exists "
			       "and can be written",
			       path, strerror(-err));
	}
	/* mkostemp makes private files; a result is an ordinary one. */
	mask = umask(0);
	umask(mask);
	fchmod(o->fd, 0666 & ~mask);
	o->path = path;
	return 0;
}

void vb_json_out_abandon(struct vb_json_out *o)
{
	if (o->fd >= 0)
		close(o->fd);
	if (o->temp != NULL) {
		unlink(o->temp);
		free(o->temp);
	}
	*o = (struct vb_json_out){.fd = -1};
}

static int write_all(int fd, const char *p, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int vb_json_out_finish(struct vb_json_out *o, int err)
{
	if (err == 0 && o->temp != NULL && fsync(o->fd) != 0)
		err = -errno;
	if (err == 0 && o->temp != NULL) {
		if (rename(o->temp, o->path) != 0) {
			err = -errno;
		} else {
			free(o->temp);
			o->temp = NULL;
		}
	}
	if (err != 0)
		vb_error("cannot write %s: %s", o->path, strerror(-err));
	vb_json_out_abandon(o);
	return err;
}

int vb_json_out_stream(struct vb_json_out *o, FILE **to)
{
	int copy = dup(o->fd), err;

	*to = copy >= 0 ? fdopen(copy, "w") : NULL;
	if (*to != NULL)
		return 0;
	err = -errno;
	if (copy >= 0)
		close(copy);
	return vb_json_out_finish(o, err);
}

int vb_json_out_begin(struct vb_json_out *o, const char *path, FILE **to)
{
	int err = vb_json_out_open(o, path);

	return err != 0 ? err : vb_json_out_stream(o, to);
}

int vb_json_out_end(struct vb_json_out *o, FILE *to, int err)
{
	int lost = ferror(to) ? -EIO : 0;

	if (fclose(to) != 0)
		lost = -errno;
	if (err == 0)
		return vb_json_out_finish(o, lost);
	vb_json_out_abandon(o);
	return err;
}

int vb_json_out_commit(struct vb_json_out *o, const json_t *root)
{
	char *text;
	int err = 0;

	if (o->path == NULL)
		return 0;
	text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(10));
	if (text == NULL)
		err = -ENOMEM;
	if (err == 0)
		err = write_all(o->fd, text, strlen(text));
	if (err == 0)
		err = write_all(o->fd, "\n", 1);
	free(text);
	return vb_json_out_finish(o, err);
}

json_t *vb_json_text(const char *s)
{
	json_t *j = json_string(s);
	char *copy;

	if (j != NULL)
		return j;
	copy = s != NULL ? strdup(s) : NULL;
	if (copy == NULL)
		return json_null();
	for (char *p = copy; *p != '\0'; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	j = json_string(copy);
	free(copy);
	return j;
}

json_t *vb_json_word(uint64_t n)
{
	return json_integer((json_int_t)n);
}

json_t *vb_json_bool(bool is)
{
	return json_boolean(is);
}

json_t *vb_json_itself(json_t *value)
{
	return value;
}

json_t *vb_json_us(double ns)
{
	return json_real(isfinite(ns) ? ns / 1000.0 : 0.0);
}

json_t *vb_json_ratio(double num, double den)
{
	return json_real(den > 0 ? num / den : 0.0);
}

static json_t *host_object(void)
{
	struct vb_host h;

	vb_host_probe(&h);
	return json_pack("{s:o,s:i,s:o,s:o,s:o,s:f}", "cpu", vb_json_text(h.cpu), "cores",
			 (int)h.cores, "kernel", vb_json_text(h.kernel), "clocksource",
			 vb_json_text(h.clocksource), "memory_bytes", vb_json_word(h.mem_total),
			 "load_1min", h.load1);
}

json_t *vb_json_head(uint64_t seed)
{
	json_t *args = json_array();

	for (int i = 0; i < saved_argc; i++)
		json_array_append_new(args, vb_json_text(saved_argv[i]));
	return json_pack("{s:i,s:s,s:s,s:s,s:o,s:o,s:o}", "schema", 1, "tool", "verbena", "version",
			 vb_version(), "commit", vb_commit(), "argv", args, "seed",
			 vb_json_word(seed), "host", host_object());
}

json_t *vb_json_hist(const struct vb_hist *h)
{
	static const struct {
		const char *name;
		double p;
	} points[] = {{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99.9", 99.9}};
	json_t *o = json_object();

	json_object_set_new(o, "count", vb_json_word(h->total));
	json_object_set_new(o, "mean", vb_json_us(vb_hist_mean(h)));
	json_object_set_new(o, "min", vb_json_us(h->total ? (double)h->min : 0));
	for (unsigned i = 0; i < VB_ARRAY_SIZE(points); i++)
		json_object_set_new(o, points[i].name,
				    vb_json_us((double)vb_hist_percentile(h, points[i].p)));
	json_object_set_new(o, "max", vb_json_us(h->total ? (double)h->max : 0));
	return o;
}

json_t *vb_json_hist_of(const struct vb_hist *parts, unsigned n)
{
	static struct vb_hist all;

	vb_hist_init(&all);
	for (unsigned i = 0; i < n; i++)
		vb_hist_merge(&all, &parts[i]);
	return vb_json_hist(&all);
}

json_t *vb_json_words(const char *const *names, const uint64_t *words, unsigned from, unsigned to)
{
	json_t *o = json_object();

	for (unsigned i = from; i < to; i++)
		json_object_set_new(o, names[i], vb_json_word(words[i]));
	return o;
}

static json_t *opt_value(const struct vb_opt *o, const void *at)
{
	const char *text;
	uint64_t n;
	int len;

	switch (o->kind) {
	case VB_OPT_KIND_FLAG:
		return json_boolean(*(const bool *)at);
	case VB_OPT_KIND_SIZE:
	case VB_OPT_KIND_TIME:
		n = *(const uint64_t *)at;
		return n == VB_OPT_AUTO ? json_null() : vb_json_word(n);
	case VB_OPT_KIND_REAL:
		return json_real(*(const double *)at);
	case VB_OPT_KIND_STRING:
		text = *(const char *const *)at;
		return vb_json_text(text);
	case VB_OPT_KIND_CHOICE:
		len = vb_opt_chosen(o, at, &text);
		return json_stringn(text, (size_t)len);
	case VB_OPT_KIND_END:
		break;
	}
	return json_null();
}

json_t *vb_json_opts(const struct vb_opt *table, const void *opts)
{
	json_t *all = json_object();
	char name[64];

	for (; table->kind != VB_OPT_KIND_END; table++) {
		snprintf(name, sizeof(name), "%s%s", table->name,
			 table->kind == VB_OPT_KIND_TIME ? "_ns" : "");
		json_object_set_new(all, name,
				    opt_value(table, (const char *)opts + table->offset));
	}
	return all;
}
