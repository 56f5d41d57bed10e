/* SPDX-License-Identifier: Apache-2.0 */
/* Histories as JSON lines: doc/histories.md has the fields. */
#define VB_LOG_ROOM "check"
#include "check/txn/serial.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Address space only; what does not fit is moved to a larger one. */
#define ROOM_FIRST ((size_t)1 << 20)

static const char *const outcomes[] = {
	[VB_HISTORY_COMMITTED] = "committed",
	[VB_HISTORY_ABORTED] = "aborted",
	[VB_HISTORY_UNKNOWN] = "unknown",
};
static const char *const kinds[] = {[VB_HISTORY_READ] = "r", [VB_HISTORY_WRITE] = "w"};

/* ---- writing ---- */

static void put_op(FILE *to, const struct vb_history_op *op)
{
	fprintf(to, "{\"op\":\"%s\",\"table\":%u,", kinds[op->kind], op->table);
	vb_lines_put_number(to, "key", op->key);
	fputc(',', to);
	vb_lines_put_number(to, "version", op->version);
	if (op->kind == VB_HISTORY_WRITE) {
		fputc(',', to);
		vb_lines_put_number(to, "prev", op->prev);
	}
	fprintf(to, "%s}", op->absent ? ",\"absent\":true" : "");
}

static void put_txn(FILE *to, const struct vb_history_txn *t, const struct vb_history_op *ops)
{
	fputc('{', to);
	vb_lines_put_number(to, "id", t->id);
	fprintf(to, ",\"client\":%u,\"type\":%u,\"outcome\":\"%s\",", t->client, t->type,
		outcomes[t->outcome]);
	if (t->level != VB_LEVEL_NONE)
		fprintf(to, "\"level\":\"%s\",", vb_level_names[t->level]);
	vb_lines_put_number(to, "begin_ns", t->begin_ns);
	fputc(',', to);
	vb_lines_put_number(to, "end_ns", t->end_ns);
	fprintf(to, ",\"ops\":[");
	for (uint32_t i = 0; i < t->n_ops; i++) {
		if (i > 0)
			fputc(',', to);
		put_op(to, &ops[i]);
	}
	fprintf(to, "]}\n");
}

int vb_history_write_jsonl(const struct vb_history *const *parts, unsigned n, enum vb_level claim,
			   FILE *to)
{
	const struct vb_history_op *ops;
	const struct vb_history_txn *t;

	if (claim != VB_LEVEL_NONE)
		fprintf(to, "{\"history\":\"transactions\",\"level\":\"%s\"}\n",
			vb_level_names[claim]);
	for (unsigned i = 0; i < n; i++) {
		uint64_t at = 0;

		while (!ferror(to) && vb_history_next(parts[i], &at, &t, &ops))
			put_txn(to, t, ops);
	}
	if (fflush(to) != 0 || ferror(to))
		return vb_fail(errno != 0 ? -errno : -EIO, "cannot write the history: %s",
			       strerror(errno != 0 ? errno : EIO));
	return 0;
}

/* ---- reading ---- */

struct reader {
	struct vb_lines *l;
	struct vb_history *h;
	size_t room;
	struct vb_history_op *ops;
};

static int read_op(const struct vb_lines *l, json_t *o, struct vb_history_op *op)
{
	static const char *const of_read[] = {"op", "table", "key", "version", "absent", NULL};
	static const char *const of_write[] = {"op",     "table", "key", "version",
					       "absent", "prev",  NULL};
	static const uint64_t zero;
	uint64_t table = 0;
	bool absent = false;
	int err;

	*op = (struct vb_history_op){0};
	if (!json_is_object(o))
		return vb_fail(-EINVAL, "%s, line %" PRIu64 ": operation %u is no object", l->name,
			       l->line, l->op);
	err = vb_lines_word(l, o, "op", kinds, VB_ARRAY_SIZE(kinds), &op->kind);
	if (err == 0)
		err = vb_lines_known(l, o, op->kind == VB_HISTORY_WRITE ? of_write : of_read);
	if (err == 0)
		err = vb_lines_number(l, o, "table", UINT16_MAX, &zero, &table);
	if (err == 0)
		err = vb_lines_number(l, o, "key", UINT64_MAX, NULL, &op->key);
	if (err == 0)
		err = vb_lines_number(l, o, "version", UINT64_MAX, NULL, &op->version);
	if (err == 0 && op->kind == VB_HISTORY_WRITE)
		err = vb_lines_number(l, o, "prev", UINT64_MAX, NULL, &op->prev);
	if (err == 0)
		err = vb_lines_truth(l, o, "absent", &absent);
	op->table = (uint16_t)table;
	op->absent = absent;
	return err;
}

static int read_level(const struct vb_lines *l, uint8_t *level)
{
	int err = vb_lines_word(l, l->object, "level", &vb_level_names[VB_LEVEL_NONE + 1],
				VB_LEVELS - 1, level);

	*level = (uint8_t)(*level + 1);
	return err;
}

static int read_head(const struct vb_lines *l, struct vb_history_txn *t)
{
	static const char *const known[] = {"id",       "client", "type", "outcome", "level",
					    "begin_ns", "end_ns", "ops",  NULL};
	static const uint64_t zero;
	uint64_t client, type;
	json_t *o = l->object;
	int err = vb_lines_known(l, o, known);

	*t = (struct vb_history_txn){0};
	if (err == 0)
		err = vb_lines_number(l, o, "id", UINT64_MAX, NULL, &t->id);
	if (err == 0)
		err = vb_lines_number(l, o, "client", UINT16_MAX, &zero, &client);
	if (err == 0)
		err = vb_lines_number(l, o, "type", UINT8_MAX, &zero, &type);
	if (err == 0)
		err = vb_lines_word(l, o, "outcome", outcomes, VB_ARRAY_SIZE(outcomes),
				    &t->outcome);
	if (err == 0 && json_object_get(o, "level") != NULL)
		err = read_level(l, &t->level);
	if (err == 0)
		err = vb_lines_number(l, o, "begin_ns", UINT64_MAX, &zero, &t->begin_ns);
	if (err == 0)
		err = vb_lines_number(l, o, "end_ns", UINT64_MAX, &t->begin_ns, &t->end_ns);
	if (err)
		return err;
	if (t->end_ns < t->begin_ns)
		return vb_lines_bad(l, "end_ns", "must not be below 'begin_ns'");
	t->client = (uint16_t)client;
	t->type = (uint8_t)type;
	return 0;
}

/* Appends, to a history twice as large if it must be. */
static int append(struct reader *r, const struct vb_history_txn *t)
{
	const struct vb_history_op *old_ops;
	const struct vb_history_txn *old;
	struct vb_history *more;
	uint64_t at = 0;
	int err;

	while (!vb_history_add(r->h, t, r->ops)) {
		err = vb_history_open(2 * r->room, &more);
		if (err)
			return err;
		for (at = 0; vb_history_next(r->h, &at, &old, &old_ops);)
			(void)vb_history_add(more, old, old_ops);
		vb_history_claim(more, vb_history_claimed(r->h));
		vb_history_close(r->h);
		r->h = more;
		r->room *= 2;
	}
	return 0;
}

/* The line that says what follows, and at which level; in files that were put together there are
 * several. */
static int read_claim(struct reader *r)
{
	static const char *const known[] = {"history", "level", NULL};
	static const char *const what[] = {"transactions"};
	const struct vb_lines *l = r->l;
	const enum vb_level before = vb_history_claimed(r->h);
	uint8_t word, level;
	int err = vb_lines_known(l, l->object, known);

	if (err == 0)
		err = vb_lines_word(l, l->object, "history", what, 1, &word);
	if (err || json_object_get(l->object, "level") == NULL)
		return err;
	err = read_level(l, &level);
	if (err)
		return err;
	if (before != VB_LEVEL_NONE && before != (enum vb_level)level)
		return vb_lines_bad(l, "level", "is not what was claimed before");
	vb_history_claim(r->h, (enum vb_level)level);
	return 0;
}

static int read_txn(struct reader *r)
{
	struct vb_lines *l = r->l;
	struct vb_history_txn t;
	json_t *ops, *op;
	size_t i;
	int err = read_head(l, &t);

	if (err)
		return err;
	ops = json_object_get(l->object, "ops");
	if (!json_is_array(ops))
		return vb_lines_bad(l, "ops", ops == NULL ? "is missing" : "must be an array");
	if (json_array_size(ops) > VB_HISTORY_OPS_MAX)
		return vb_lines_bad(l, "ops", "has more than 4096 operations");
	t.n_ops = (uint32_t)json_array_size(ops);
	json_array_foreach(ops, i, op)
	{
		l->op = (uint32_t)i + 1;
		err = read_op(l, op, &r->ops[i]);
		if (err)
			return err;
	}
	return append(r, &t);
}

int vb_history_read_lines(struct vb_lines *lines, struct vb_history **out)
{
	struct reader r = {.l = lines, .room = ROOM_FIRST};
	int err = vb_history_open(r.room, &r.h);

	if (err)
		return err;
	r.ops = malloc(VB_HISTORY_OPS_MAX * sizeof(*r.ops));
	if (r.ops == NULL)
		err = vb_fail(-ENOMEM, "no memory for reading %s", lines->name);
	while (err == 0 && (err = vb_lines_next(lines)) == 1)
		err = json_object_get(lines->object, "history") != NULL ? read_claim(&r)
									: read_txn(&r);
	free(r.ops);
	if (err)
		vb_history_close(r.h);
	else
		*out = r.h;
	return err;
}

int vb_history_read_jsonl(FILE *from, const char *name, struct vb_history **out)
{
	struct vb_lines lines;
	int err;

	vb_lines_open(&lines, from, name);
	err = vb_history_read_lines(&lines, out);
	vb_lines_close(&lines);
	return err;
}
