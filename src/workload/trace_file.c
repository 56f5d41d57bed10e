/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and writing traces as text, and running one: see trace_file.h.
 *
 * A text may come from anybody: every field is looked at, an error names file and line, and what is
 * allocated is bounded by the text's length.  Client i of n runs the transactions i, i + n, i + 2
 * n, ...  and begins again at the end (as ShiftLock's benchmark does).
 */
#define VB_LOG_ROOM "trace"
#include "workload/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/log.h"

#define LOCK_MAX (1ull << 40)
#define FIELDS   5u

/* Numbers are what public traces have; a lock of another mode is written with its letters. */
static const char *const letters[VB_MODES] = {
	[VB_SHARED] = "S",
	[VB_EXCLUSIVE] = "X",
	[VB_UPDATE] = "U",
	[VB_INTENT_SHARED] = "IS",
	[VB_INTENT_EXCLUSIVE] = "IX",
	[VB_SHARED_INTENT_EXCLUSIVE] = "SIX",
};

/* ---- reading ---- */

struct reader {
	const char *name;
	uint64_t line;
	struct vb_trace_book *b;
	uint64_t id; /* of the transaction that is being read */
};

/* A piece of the text, without an end of its own. */
struct piece {
	const char *at;
	size_t len;
};

static int bad(const struct reader *r, const struct piece *p, const char *what)
{
	return vb_fail(-EINVAL, "%s, line %" PRIu64 ": '%.*s' %s", r->name, r->line,
		       (int)(p->len < 40 ? p->len : 40), p->at, what);
}

static bool number_of(const struct piece *p, uint64_t *out)
{
	uint64_t v = 0;

	if (p->len == 0 || p->len > 19)
		return false;
	for (size_t i = 0; i < p->len; i++) {
		if (p->at[i] < '0' || p->at[i] > '9')
			return false;
		v = 10 * v + (uint64_t)(p->at[i] - '0');
	}
	*out = v;
	return true;
}

static bool is(const struct piece *p, const char *word)
{
	return p->len == strlen(word) && memcmp(p->at, word, p->len) == 0;
}

static bool mode_of(const struct piece *p, enum vb_mode *out)
{
	for (unsigned mode = 0; mode < VB_MODES; mode++) {
		if (is(p, letters[mode])) {
			*out = (enum vb_mode)mode;
			return true;
		}
	}
	*out = is(p, "1") ? VB_SHARED : VB_EXCLUSIVE;
	return is(p, "1") || is(p, "2");
}

/* Up to the next `end`, which is taken, too; spaces around it are not part of it. */
static struct piece take(struct piece *from, char end)
{
	const char *stop = memchr(from->at, end, from->len);
	struct piece p = {from->at, stop != NULL ? (size_t)(stop - from->at) : from->len};

	from->at += p.len + (stop != NULL);
	from->len -= p.len + (stop != NULL);
	while (p.len > 0 && (p.at[p.len - 1] == ' ' || p.at[p.len - 1] == '\r'))
		p.len--;
	while (p.len > 0 && p.at[0] == ' ') {
		p.at++;
		p.len--;
	}
	return p;
}

/* The type's index, a new one if need be; -EINVAL: there are too many. */
static int type_of(struct vb_trace_book *b, uint64_t number)
{
	for (unsigned i = 0; i < b->n_types; i++)
		if (b->number[i] == number)
			return (int)i;
	if (b->n_types == VB_TRACE_TYPES_MAX)
		return -EINVAL;
	b->number[b->n_types] = number;
	snprintf(b->names[b->n_types], VB_TRACE_NAME_MAX, "type-%" PRIu64, number);
	b->types[b->n_types] = b->names[b->n_types];
	return (int)b->n_types++;
}

/* A name that can stand in a file's name and in JSON. */
static bool is_name(const struct piece *p)
{
	if (p->len == 0 || p->len >= VB_TRACE_NAME_MAX)
		return false;
	for (size_t i = 0; i < p->len; i++) {
		char c = p->at[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-')
			return false;
	}
	return true;
}

/* "# type 1 new-order" and "# think_ns 7000" say something; other comments do not ("# type of lock" is
 * one: what follows is no number). */
static int read_comment(struct reader *r, struct piece line)
{
	struct piece word, number, name;
	uint64_t v;
	int type;

	line.at++;
	line.len--;
	while (line.len > 0 && line.at[0] == ' ') {
		line.at++;
		line.len--;
	}
	word = take(&line, ' ');
	number = take(&line, ' ');
	if (is(&word, "think_ns") && number_of(&number, &v)) {
		if (v > VB_TRACE_THINK_MAX_NS)
			return bad(r, &number, "ns of thinking are more than an hour");
		r->b->think_ns = v;
		return 0;
	}
	if (!is(&word, "type") || !number_of(&number, &v))
		return 0;
	name = take(&line, ' ');
	if (!is_name(&name))
		return bad(r, &name, "is no name of a type: 1 to 31 of a-z, 0-9 and '-'");
	type = type_of(r->b, v);
	if (type < 0)
		return bad(r, &number,
			   "is one type of transactions too many: at most 8 are possible");
	memcpy(r->b->names[type], name.at, name.len);
	r->b->names[type][name.len] = '\0';
	return 0;
}

/* The line belongs to the transaction before, or begins one. */
static int begin_txn(struct reader *r, uint64_t id, unsigned type, const struct piece *at)
{
	struct vb_trace_book *b = r->b;

	if (b->n_txns > 0 && id == r->id) {
		if (b->type[b->n_txns - 1] != type)
			return bad(r, at, "is another type than the transaction has had so far");
		return 0;
	}
	r->id = id;
	b->type[b->n_txns] = (uint8_t)type;
	b->first[b->n_txns++] = b->n_locks;
	return 0;
}

static int add_lock(struct reader *r, uint64_t lock, enum vb_mode mode, const struct piece *at)
{
	struct vb_trace_book *b = r->b;
	uint64_t n = b->n_locks + 1 - b->first[b->n_txns - 1];

	if (n > VB_TRACE_LOCKS_MAX)
		return bad(r, at, "is one lock too many: a transaction has at most 4096");
	if (n > b->locks_max)
		b->locks_max = (unsigned)n;
	if (lock >= b->locks)
		b->locks = lock + 1;
	b->modes |= 1u << mode;
	b->lock[b->n_locks++] = lock << 3 | mode;
	return 0;
}

static int read_line(struct reader *r, struct piece line)
{
	struct piece f[FIELDS], whole = line;
	uint64_t id, task, number, lock;
	enum vb_mode mode;
	int type, err;

	for (unsigned i = 0; i < FIELDS; i++) {
		if (i > 0 && line.at == whole.at + whole.len && line.at[-1] != ',')
			return bad(r, &whole,
				   "has fewer than 5 fields: transaction,0,type,lock,mode");
		f[i] = take(&line, ',');
	}
	if (line.len > 0)
		return bad(r, &whole, "has more than 5 fields: transaction,0,type,lock,mode");
	if (!number_of(&f[0], &id))
		return bad(r, &f[0], "is no number of a transaction");
	if (!number_of(&f[1], &task) || task != 0)
		return bad(r, &f[1], "is no task that is known: only 0, which takes a lock, is");
	if (!number_of(&f[2], &number))
		return bad(r, &f[2], "is no number of a type");
	if (!number_of(&f[3], &lock) || lock >= LOCK_MAX)
		return bad(r, &f[3], "is no number of a lock: 0 to 2^40 - 1 are possible");
	if (!mode_of(&f[4], &mode))
		return bad(r, &f[4], "is no mode: 1 or S, 2 or X, U, IS, IX and SIX are");
	type = type_of(r->b, number);
	if (type < 0)
		return bad(r, &f[2],
			   "is one type of transactions too many: at most 8 are possible");
	err = begin_txn(r, id, (unsigned)type, &f[2]);
	return err != 0 ? err : add_lock(r, lock, mode, &f[3]);
}

static int read_lines(struct reader *r, struct piece text)
{
	int err = 0;

	while (text.len > 0 && err == 0) {
		const char *end = memchr(text.at, '\n', text.len);
		struct piece line = {text.at, end != NULL ? (size_t)(end - text.at) : text.len};

		text.at += line.len + (end != NULL);
		text.len -= line.len + (end != NULL);
		r->line++;
		if (line.len > 0 && line.at[line.len - 1] == '\r')
			line.len--;
		if (line.len == 0)
			continue;
		err = line.at[0] == '#' ? read_comment(r, line) : read_line(r, line);
	}
	return err;
}

static uint64_t count_lines(const char *text, size_t size)
{
	uint64_t n = 1;

	for (const char *at = text; (at = memchr(at, '\n', size - (size_t)(at - text))) != NULL;
	     at++)
		n++;
	return n;
}

static struct vb_trace_book *book_new(uint64_t lines)
{
	struct vb_trace_book *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return NULL;
	b->first = malloc((lines + 1) * sizeof(*b->first));
	b->type = malloc(lines);
	b->lock = malloc(lines * sizeof(*b->lock));
	if (b->first != NULL && b->type != NULL && b->lock != NULL)
		return b;
	vb_trace_book_close(b);
	return NULL;
}

/* Types in the order of their numbers, whatever was met first. */
static void sort_types(struct vb_trace_book *b)
{
	struct vb_trace_book was = *b;
	uint8_t place[VB_TRACE_TYPES_MAX];

	for (unsigned i = 0; i < b->n_types; i++) {
		place[i] = 0;
		for (unsigned k = 0; k < b->n_types; k++)
			place[i] += was.number[k] < was.number[i];
		b->number[place[i]] = was.number[i];
		memcpy(b->names[place[i]], was.names[i], VB_TRACE_NAME_MAX);
	}
	for (uint64_t i = 0; i < b->n_txns; i++)
		b->type[i] = place[b->type[i]];
}

int vb_trace_book_read(const char *name, const char *text, size_t size, struct vb_trace_book **out)
{
	struct reader r = {.name = name, .b = book_new(count_lines(text, size))};
	int err;

	if (r.b == NULL)
		return vb_fail(-ENOMEM, "no memory for the transactions of %s", name);
	err = read_lines(&r, (struct piece){text, size});
	if (err == 0 && r.b->n_txns == 0)
		err = vb_fail(-EINVAL, "%s has no transaction", name);
	if (err) {
		vb_trace_book_close(r.b);
		return err;
	}
	r.b->first[r.b->n_txns] = r.b->n_locks;
	sort_types(r.b);
	*out = r.b;
	return 0;
}

void vb_trace_book_close(struct vb_trace_book *b)
{
	if (b == NULL)
		return;
	free(b->first);
	free(b->type);
	free(b->lock);
	free(b);
}

/* ---- writing ---- */

void vb_trace_write(FILE *to, uint64_t id, const struct vb_trace_txn *txn)
{
	for (unsigned i = 0; i < txn->n; i++) {
		enum vb_mode mode = txn->lock[i].mode;

		fprintf(to, "%" PRIu64 ",0,%u,%" PRIu64 ",%s\n", id, txn->type + 1,
			txn->lock[i].lock,
			mode == VB_SHARED      ? "1"
			: mode == VB_EXCLUSIVE ? "2"
					       : letters[mode]);
	}
}

void vb_trace_write_head(FILE *to, const struct vb_trace *t)
{
	fprintf(to, "# think_ns %" PRIu64 "\n", t->think_ns);
	for (unsigned i = 0; i < t->n_types; i++)
		fprintf(to, "# type %u %s\n", i + 1, t->types[i]);
}

/* ---- running ---- */

static int map(const char *path, const char **text, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err = 0;
	struct stat st;

	*text = NULL;
	if (fd < 0)
		return vb_fail(-EINVAL, "cannot read the trace %s: %s", path, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		err = vb_fail(-EINVAL, "cannot read the trace %s: it is no regular file", path);
	else if (st.st_size == 0)
		err = vb_fail(-EINVAL, "%s has no transaction", path);
	if (err == 0) {
		*size = (size_t)st.st_size;
		*text = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (*text == MAP_FAILED)
			err = vb_fail(-EINVAL, "cannot read the trace %s: %s", path,
				      strerror(errno));
	}
	close(fd);
	return err;
}

static int init(struct vb_trace *t)
{
	struct vb_trace_book *b = NULL;
	const char *text;
	size_t size = 0;
	int err = map(t->file, &text, &size);

	if (err)
		return err;
	err = vb_trace_book_read(t->file, text, size, &b);
	t->digest = XXH64(text, size, 0);
	munmap((void *)(uintptr_t)text, size);
	if (err)
		return err;
	t->own = b;
	t->locks = b->locks;
	t->locks_max = b->locks_max;
	t->types = b->types;
	t->n_types = b->n_types;
	t->modes = b->modes;
	t->think_ns = b->think_ns;
	return 0;
}

static void fini(struct vb_trace *t)
{
	vb_trace_book_close(t->own);
}

static void next(struct vb_trace_client *c)
{
	const struct vb_trace_book *b = c->t->own;
	uint64_t i = (c->number + (c->drawn - 1) * c->t->p.clients) % b->n_txns;

	c->txn.type = b->type[i];
	for (uint64_t at = b->first[i]; at < b->first[i + 1]; at++)
		vb_trace_add(c, b->lock[at] >> 3, (enum vb_mode)(b->lock[at] & 7));
}

const struct vb_trace_ops vb_trace_file = {
	.name = "file",
	.summary = "transactions that a file has",
	.init = init,
	.fini = fini,
	.next = next,
};
