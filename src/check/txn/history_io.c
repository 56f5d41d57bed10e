/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories as JSON lines: doc/histories.md has the fields.
 *
 * What is read may come from anybody, so that every field is looked at, and an error names its
 * line.  Fields that we do not know are refused: one that is misspelt would otherwise be taken for
 * absent.
 */
#define VB_LOG_ROOM "check"
#include "check/txn/serial.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/log.h"

/* Readers of JSON that hold numbers as doubles have them exactly up to here; larger ones are
 * strings. */
#define EXACT_MAX ((1ull << 53) - 1)
/* Address space only; what does not fit is moved to a larger one. */
#define ROOM_FIRST ((size_t)1 << 20)

static const char *const outcomes[] = {
	[VB_HISTORY_COMMITTED] = "committed",
	[VB_HISTORY_ABORTED] = "aborted",
	[VB_HISTORY_UNKNOWN] = "unknown",
};
static const char *const kinds[] = {[VB_HISTORY_READ] = "r", [VB_HISTORY_WRITE] = "w"};

/* ---- writing ---- */

static void put_number(FILE *to, const char *name, uint64_t n)
{
	const char *quote = n > EXACT_MAX ? "\"" : "";

	fprintf(to, "\"%s\":%s%" PRIu64 "%s", name, quote, n, quote);
}

static void put_op(FILE *to, const struct vb_history_op *op)
{
	fprintf(to, "{\"op\":\"%s\",\"table\":%u,", kinds[op->kind], op->table);
	put_number(to, "key", op->key);
	fputc(',', to);
	put_number(to, "version", op->version);
	if (op->kind == VB_HISTORY_WRITE) {
		fputc(',', to);
		put_number(to, "prev", op->prev);
	}
	fprintf(to, "%s}", op->absent ? ",\"absent\":true" : "");
}

static void put_txn(FILE *to, const struct vb_history_txn *t, const struct vb_history_op *ops)
{
	fputc('{', to);
	put_number(to, "id", t->id);
	fprintf(to, ",\"client\":%u,\"type\":%u,\"outcome\":\"%s\",", t->client, t->type,
		outcomes[t->outcome]);
	put_number(to, "begin_ns", t->begin_ns);
	fputc(',', to);
	put_number(to, "end_ns", t->end_ns);
	fprintf(to, ",\"ops\":[");
	for (uint32_t i = 0; i < t->n_ops; i++) {
		if (i > 0)
			fputc(',', to);
		put_op(to, &ops[i]);
	}
	fprintf(to, "]}\n");
}

int vb_history_write_jsonl(const struct vb_history *const *parts, unsigned n, FILE *to)
{
	const struct vb_history_op *ops;
	const struct vb_history_txn *t;

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
	const char *name;
	uint64_t line;
	uint32_t op; /* that is looked at, from 1; 0: the transaction */
	struct vb_history *h;
	size_t room;
	struct vb_history_op *ops;
};

static int bad(const struct reader *r, const char *field, const char *what)
{
	char op[32] = "";

	if (r->op > 0)
		snprintf(op, sizeof(op), " of operation %u", r->op);
	return vb_fail(-EINVAL, "%s, line %" PRIu64 ": the field '%s'%s %s", r->name, r->line,
		       field, op, what);
}

static bool parse_digits(const char *s, uint64_t *out)
{
	char *end;

	if (*s < '0' || *s > '9')
		return false;
	errno = 0;
	*out = strtoull(s, &end, 10);
	return errno == 0 && *end == '\0';
}

/* A whole number up to `max`.  Without `init`, it must be there. */
static int get_number(const struct reader *r, const json_t *o, const char *field, uint64_t max,
		      const uint64_t *init, uint64_t *out)
{
	const json_t *j = json_object_get(o, field);
	char what[64];

	if (j == NULL && init != NULL) {
		*out = *init;
		return 0;
	}
	if (j == NULL)
		return bad(r, field, "is missing");
	if (json_is_integer(j) && json_integer_value(j) >= 0)
		*out = (uint64_t)json_integer_value(j);
	else if (!json_is_string(j) || !parse_digits(json_string_value(j), out))
		return bad(r, field, "must be a whole number, or a string of digits");
	if (*out <= max)
		return 0;
	snprintf(what, sizeof(what), "must not be above %" PRIu64, max);
	return bad(r, field, what);
}

/* One of these words; *out is its number. */
static int get_word(const struct reader *r, const json_t *o, const char *field,
		    const char *const *words, unsigned n, uint8_t *out)
{
	const json_t *j = json_object_get(o, field);
	char what[96] = "must be one of:";

	if (j == NULL)
		return bad(r, field, "is missing");
	for (unsigned i = 0; i < n; i++) {
		size_t used = strlen(what);

		if (json_is_string(j) && strcmp(json_string_value(j), words[i]) == 0) {
			*out = (uint8_t)i;
			return 0;
		}
		snprintf(what + used, sizeof(what) - used, " \"%s\"", words[i]);
	}
	return bad(r, field, what);
}

static int check_fields(const struct reader *r, json_t *o, const char *const *known)
{
	const char *field;
	json_t *value;

	json_object_foreach(o, field, value)
	{
		const char *const *k = known;

		while (*k != NULL && strcmp(*k, field) != 0)
			k++;
		if (*k == NULL)
			return bad(r, field, "is not known; doc/histories.md has them all");
	}
	return 0;
}

static int read_op(const struct reader *r, json_t *o, struct vb_history_op *op)
{
	static const char *const of_read[] = {"op", "table", "key", "version", "absent", NULL};
	static const char *const of_write[] = {"op",     "table", "key", "version",
					       "absent", "prev",  NULL};
	static const uint64_t zero;
	const json_t *absent;
	uint64_t table;
	int err;

	*op = (struct vb_history_op){0};
	if (!json_is_object(o))
		return vb_fail(-EINVAL, "%s, line %" PRIu64 ": operation %u is no object", r->name,
			       r->line, r->op);
	err = get_word(r, o, "op", kinds, VB_ARRAY_SIZE(kinds), &op->kind);
	if (err == 0)
		err = check_fields(r, o, op->kind == VB_HISTORY_WRITE ? of_write : of_read);
	if (err == 0)
		err = get_number(r, o, "table", UINT16_MAX, &zero, &table);
	if (err == 0)
		err = get_number(r, o, "key", UINT64_MAX, NULL, &op->key);
	if (err == 0)
		err = get_number(r, o, "version", UINT64_MAX, NULL, &op->version);
	if (err == 0 && op->kind == VB_HISTORY_WRITE)
		err = get_number(r, o, "prev", UINT64_MAX, NULL, &op->prev);
	if (err)
		return err;
	absent = json_object_get(o, "absent");
	if (absent != NULL && !json_is_boolean(absent))
		return bad(r, "absent", "must be true or false");
	op->table = (uint16_t)table;
	op->absent = absent != NULL && json_is_true(absent);
	return 0;
}

static int read_head(const struct reader *r, json_t *o, struct vb_history_txn *t)
{
	static const char *const known[] = {"id",       "client", "type", "outcome",
					    "begin_ns", "end_ns", "ops",  NULL};
	static const uint64_t zero;
	uint64_t client, type;
	int err = check_fields(r, o, known);

	*t = (struct vb_history_txn){0};
	if (err == 0)
		err = get_number(r, o, "id", UINT64_MAX, NULL, &t->id);
	if (err == 0)
		err = get_number(r, o, "client", UINT16_MAX, &zero, &client);
	if (err == 0)
		err = get_number(r, o, "type", UINT8_MAX, &zero, &type);
	if (err == 0)
		err = get_word(r, o, "outcome", outcomes, VB_ARRAY_SIZE(outcomes), &t->outcome);
	if (err == 0)
		err = get_number(r, o, "begin_ns", UINT64_MAX, &zero, &t->begin_ns);
	if (err == 0)
		err = get_number(r, o, "end_ns", UINT64_MAX, &t->begin_ns, &t->end_ns);
	if (err)
		return err;
	if (t->end_ns < t->begin_ns)
		return bad(r, "end_ns", "must not be below 'begin_ns'");
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
		vb_history_close(r->h);
		r->h = more;
		r->room *= 2;
	}
	return 0;
}

static int read_txn(struct reader *r, json_t *o)
{
	struct vb_history_txn t;
	json_t *ops, *op;
	size_t i;
	int err;

	r->op = 0;
	if (!json_is_object(o))
		return vb_fail(-EINVAL, "%s, line %" PRIu64 " is no object", r->name, r->line);
	err = read_head(r, o, &t);
	if (err)
		return err;
	ops = json_object_get(o, "ops");
	if (!json_is_array(ops))
		return bad(r, "ops", ops == NULL ? "is missing" : "must be an array");
	if (json_array_size(ops) > VB_HISTORY_OPS_MAX)
		return bad(r, "ops", "has more than 4096 operations");
	t.n_ops = (uint32_t)json_array_size(ops);
	json_array_foreach(ops, i, op)
	{
		r->op = (uint32_t)i + 1;
		err = read_op(r, op, &r->ops[i]);
		if (err)
			return err;
	}
	return append(r, &t);
}

static int read_line(struct reader *r, const char *text, size_t length)
{
	json_error_t why;
	json_t *o;
	int err;

	/* Or a column at the end would be counted in the next line. */
	while (length > 0 && strchr(" \t\r\n", text[length - 1]) != NULL)
		length--;
	if (length == 0)
		return 0;
	o = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);
	if (o == NULL)
		return vb_fail(-EINVAL, "%s, line %" PRIu64 ", column %d is no JSON: %s", r->name,
			       r->line, why.column, why.text);
	err = read_txn(r, o);
	json_decref(o);
	return err;
}

int vb_history_read_jsonl(FILE *from, const char *name, struct vb_history **out)
{
	struct reader r = {.name = name, .room = ROOM_FIRST};
	char *text = NULL;
	size_t room = 0;
	ssize_t length;
	int err = vb_history_open(r.room, &r.h);

	if (err)
		return err;
	r.ops = malloc(VB_HISTORY_OPS_MAX * sizeof(*r.ops));
	if (r.ops == NULL)
		err = vb_fail(-ENOMEM, "no memory for reading %s", name);
	while (err == 0 && (length = getline(&text, &room, from)) >= 0) {
		r.line++;
		err = read_line(&r, text, (size_t)length);
	}
	if (err == 0 && ferror(from))
		err = vb_fail(-EIO, "cannot read %s after line %" PRIu64, name, r.line);
	free(text);
	free(r.ops);
	if (err)
		vb_history_close(r.h);
	else
		*out = r.h;
	return err;
}
