/* SPDX-License-Identifier: Apache-2.0 */
/* Who wrote which version, and who saw it: see serial_inner.h. */
#define VB_LOG_ROOM "check"
#include "check/txn/serial_inner.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/log.h"

#define TXNS_MAX    (1u << 28) /* with their ends, nodes of 29 bits */
#define SLOTS_FIRST 1024u

/* ---- finding numbers ---- */

static uint64_t hash_two(uint64_t a, uint64_t b)
{
	uint64_t both[2] = {a, b};

	return XXH3_64bits(both, sizeof(both));
}

static uint64_t hash_of_txn(const struct serial *s, uint32_t i)
{
	return hash_two(s->txns[i].t->id, 0);
}

static uint64_t hash_of_key(const struct serial *s, uint32_t i)
{
	return hash_two(s->keys[i].key, s->keys[i].table);
}

static uint64_t hash_of_version(const struct serial *s, uint32_t i)
{
	return hash_two(s->versions[i].number, s->versions[i].key);
}

static void slots_put(struct serial_slots *t, uint64_t hash, uint32_t number)
{
	uint64_t i = hash & (t->size - 1);

	while (t->at[i] != 0)
		i = (i + 1) & (t->size - 1);
	t->at[i] = number + 1;
}

/* Makes room for one more than `used`, so that at most half of the slots are taken. */
static int slots_reserve(const struct serial *s, struct serial_slots *t, uint64_t used,
			 uint64_t (*hash_of)(const struct serial *s, uint32_t i))
{
	struct serial_slots more = {.size = t->size == 0 ? SLOTS_FIRST : 2 * t->size};

	if (2 * (used + 1) <= t->size)
		return 0;
	more.at = calloc(more.size, sizeof(*more.at));
	if (more.at == NULL)
		return -ENOMEM;
	for (uint64_t i = 0; i < t->size; i++)
		if (t->at[i] != 0)
			slots_put(&more, hash_of(s, t->at[i] - 1), t->at[i] - 1);
	free(t->at);
	*t = more;
	return 0;
}

/* Room for one more than n entries of an array; it doubles. */
static int reserve(void *array, uint64_t n, uint64_t *room, size_t size)
{
	uint64_t more = *room == 0 ? 1024 : 2 * *room;
	void *p, *old;

	if (n < *room)
		return 0;
	memcpy(&old, array, sizeof(old));
	p = realloc(old, more * size);
	if (p == NULL)
		return -ENOMEM;
	memcpy(array, &p, sizeof(p));
	*room = more;
	return 0;
}

uint32_t serial_find_version(const struct serial *s, uint32_t key, uint64_t number)
{
	const struct serial_slots *t = &s->version_slots;
	uint64_t i;

	if (number < VB_HISTORY_FIRST)
		return s->keys[key].loaded;
	if (t->size == 0)
		return SERIAL_NONE;
	for (i = hash_two(number, key) & (t->size - 1); t->at[i] != 0;
	     i = (i + 1) & (t->size - 1)) {
		const struct serial_version *v = &s->versions[t->at[i] - 1];

		if (v->number == number && v->key == key)
			return t->at[i] - 1;
	}
	return SERIAL_NONE;
}

static int new_version(struct serial *s, uint32_t key, uint64_t number, uint32_t *out)
{
	int err = reserve(&s->versions, s->n_versions, &s->room_versions, sizeof(*s->versions));

	if (err)
		return err;
	s->versions[s->n_versions] = (struct serial_version){
		.number = number,
		.key = key,
		.writer = SERIAL_NONE,
		.op = SERIAL_NONE,
		.prev = SERIAL_NONE,
		.child = SERIAL_NONE,
		.sibling = SERIAL_NONE,
	};
	*out = s->n_versions++;
	return 0;
}

static int take_version(struct serial *s, uint32_t key, uint64_t number, uint32_t *out)
{
	int err = 0;

	*out = serial_find_version(s, key, number);
	if (*out != SERIAL_NONE)
		return 0;
	err = slots_reserve(s, &s->version_slots, s->n_versions, hash_of_version);
	if (err == 0)
		err = new_version(s, key, number, out);
	if (err == 0)
		slots_put(&s->version_slots, hash_two(number, key), *out);
	return err;
}

static int take_key(struct serial *s, uint16_t table, uint64_t key, uint32_t *out)
{
	uint64_t hash = hash_two(key, table), i;
	int err = slots_reserve(s, &s->key_slots, s->n_keys, hash_of_key);

	if (err)
		return err;
	for (i = hash & (s->key_slots.size - 1); s->key_slots.at[i] != 0;
	     i = (i + 1) & (s->key_slots.size - 1)) {
		const struct serial_key *k = &s->keys[s->key_slots.at[i] - 1];

		if (k->key == key && k->table == table) {
			*out = s->key_slots.at[i] - 1;
			return 0;
		}
	}
	err = reserve(&s->keys, s->n_keys, &s->room_keys, sizeof(*s->keys));
	if (err)
		return err;
	*out = s->n_keys++;
	s->keys[*out] = (struct serial_key){.key = key, .table = table};
	s->key_slots.at[i] = *out + 1;
	return new_version(s, *out, 0, &s->keys[*out].loaded);
}

/* ---- transactions ---- */

static int check_txn(const struct vb_history_txn *t)
{
	if (t->outcome > VB_HISTORY_UNKNOWN)
		return vb_fail(-EINVAL, "T%" PRIu64 " has an outcome that is none: %u", t->id,
			       t->outcome);
	if (t->end_ns < t->begin_ns)
		return vb_fail(-EINVAL, "T%" PRIu64 " ends before it begins", t->id);
	return 0;
}

static int add_id(struct serial *s, uint32_t txn)
{
	uint64_t id = s->txns[txn].t->id, hash = hash_two(id, 0), i;
	int err = slots_reserve(s, &s->ids, txn, hash_of_txn);

	if (err)
		return err;
	for (i = hash & (s->ids.size - 1); s->ids.at[i] != 0; i = (i + 1) & (s->ids.size - 1))
		if (s->txns[s->ids.at[i] - 1].t->id == id)
			return vb_fail(-EINVAL,
				       "two transactions are called T%" PRIu64
				       ": an id must be unique in the run",
				       id);
	s->ids.at[i] = txn + 1;
	return 0;
}

static int count_txns(struct serial *s, const struct vb_history *const *parts, unsigned n)
{
	const struct vb_history_op *ops;
	const struct vb_history_txn *t;
	uint64_t txns = 0, n_ops = 0;

	for (unsigned i = 0; i < n; i++) {
		uint64_t at = 0;

		while (vb_history_next(parts[i], &at, &t, &ops)) {
			txns++;
			n_ops += t->n_ops;
		}
	}
	/* A write adds up to two versions, and the key one more. */
	if (txns > TXNS_MAX || n_ops > UINT32_MAX / 4)
		return vb_fail(-E2BIG,
			       "%" PRIu64 " transactions with %" PRIu64
			       " operations are too many; %u and %u are possible",
			       txns, n_ops, TXNS_MAX, UINT32_MAX / 4);
	s->n_txns = (uint32_t)txns;
	s->n_ops = (uint32_t)n_ops;
	return 0;
}

static int take_txns(struct serial *s, const struct vb_history *const *parts, unsigned n)
{
	uint32_t txn = 0, first = 0;
	int err = 0;

	for (unsigned i = 0; i < n && err == 0; i++) {
		uint64_t at = 0;

		while (err == 0 && txn < s->n_txns) {
			struct serial_txn *x = &s->txns[txn];

			if (!vb_history_next(parts[i], &at, &x->t, &x->ops))
				break;
			x->first = first;
			x->counts = x->t->outcome == VB_HISTORY_COMMITTED;
			first += x->t->n_ops;
			err = check_txn(x->t);
			if (err == 0)
				err = add_id(s, txn++);
		}
	}
	return err;
}

/* ---- operations ---- */

/* A write that no store can have made: it is told, and otherwise as if it were not there. */
static void leave_out(struct serial *s, uint32_t txn, uint32_t i, const char *why)
{
	if (s->malformed++ == 0)
		s->sight[VB_ANOMALY_MALFORMED] =
			(struct serial_sight){.txn = txn, .op = i, .why = why};
}

/* Which of two writes of one number is taken for what readers of the number saw. */
static unsigned rank(const struct serial *s, uint32_t txn)
{
	static const unsigned of[] = {
		[VB_HISTORY_COMMITTED] = 2, [VB_HISTORY_UNKNOWN] = 1, [VB_HISTORY_ABORTED] = 0};

	return of[s->txns[txn].t->outcome];
}

/*
 * Two transactions made the same version.  The store ought not to let that happen, and finding it
 * is what we are for: the second write becomes a version of its own, which no number finds.
 */
static int take_twin(struct serial *s, uint32_t v, struct serial_version *made)
{
	struct serial_version *first, swap;
	uint32_t twin;
	int err = new_version(s, made->key, made->number, &twin);

	if (err == 0)
		err = reserve(&s->twins, s->n_twins, &s->room_twins, sizeof(*s->twins));
	if (err)
		return err;
	s->twins[s->n_twins++] = twin;
	first = &s->versions[v];
	if (rank(s, made->writer) > rank(s, first->writer)) {
		swap = *first;
		*first = *made;
		*made = swap;
	}
	s->versions[twin] = *made;
	return 0;
}

static int take_write(struct serial *s, uint32_t txn, uint32_t i, uint32_t key)
{
	const struct vb_history_op *op = &s->txns[txn].ops[i];
	struct serial_version made, *v;
	uint32_t at;
	int err;

	if (op->version < VB_HISTORY_FIRST || op->version == op->prev) {
		leave_out(s, txn, i,
			  op->version == op->prev ? "a write makes a new version"
						  : "a version below 8 is the loader's");
		return 0;
	}
	err = take_version(s, key, op->version, &at);
	if (err)
		return err;
	v = &s->versions[at];
	made = *v;
	made.writer = txn;
	made.op = s->txns[txn].first + i;
	made.prev = s->saw[made.op];
	if (v->writer == SERIAL_NONE) {
		*v = made;
		return 0;
	}
	if (v->writer != txn)
		return take_twin(s, at, &made);
	/* A transaction that writes a key again before it commits may make one version of both. */
	if (v->prev != made.prev)
		leave_out(s, txn, i, "it also makes it out of another one");
	return 0;
}

static int take_ops(struct serial *s, uint32_t txn)
{
	const struct serial_txn *x = &s->txns[txn];
	int err = 0;

	for (uint32_t i = 0; i < x->t->n_ops && err == 0; i++) {
		const struct vb_history_op *op = &x->ops[i];
		bool write = op->kind == VB_HISTORY_WRITE;
		uint32_t key;

		if (op->kind > VB_HISTORY_WRITE)
			return vb_fail(-EINVAL,
				       "T%" PRIu64 " has an operation that is no read and no write",
				       x->t->id);
		err = take_key(s, op->table, op->key, &key);
		if (err == 0)
			err = take_version(s, key, write ? op->prev : op->version,
					   &s->saw[x->first + i]);
		if (err == 0 && write)
			err = take_write(s, txn, i, key);
	}
	return err;
}

/* So that no transaction's own writes are a ring, which would be seen nowhere else. */
static void check_own_order(struct serial *s)
{
	for (uint32_t i = 0; i < s->n_versions; i++) {
		struct serial_version *v = &s->versions[i];

		if (v->writer == SERIAL_NONE || s->versions[v->prev].writer != v->writer ||
		    s->versions[v->prev].op < v->op)
			continue;
		leave_out(s, v->writer, v->op - s->txns[v->writer].first,
			  "it makes that one later");
		v->prev = SERIAL_NONE;
	}
}

int serial_load(struct serial *s, const struct vb_history *const *parts, unsigned n)
{
	int err = count_txns(s, parts, n);

	if (err)
		return err;
	s->txns = calloc((size_t)s->n_txns + 1, sizeof(*s->txns));
	s->saw = calloc((size_t)s->n_ops + 1, sizeof(*s->saw));
	if (s->txns == NULL || s->saw == NULL)
		err = -ENOMEM;
	if (err == 0)
		err = take_txns(s, parts, n);
	for (uint32_t i = 0; i < s->n_txns && err == 0; i++)
		err = take_ops(s, i);
	if (err == 0)
		check_own_order(s);
	if (err == -ENOMEM)
		vb_error("no memory for %u transactions with %u operations", s->n_txns, s->n_ops);
	return err;
}

/* ---- who counts ---- */

/* Backwards, so that those that replaced a version are in the order of the history, but for a
 * transaction's own next version, which is the first. */
static void link_children(struct serial *s, bool own)
{
	for (uint32_t i = s->n_versions; i-- > 0;) {
		struct serial_version *v = &s->versions[i], *prev;

		if (!serial_counts(s, v->writer) || v->prev == SERIAL_NONE)
			continue;
		prev = &s->versions[v->prev];
		if ((prev->writer == v->writer) != own)
			continue;
		v->sibling = prev->child;
		prev->child = i;
	}
}

int serial_settle(struct serial *s)
{
	uint32_t *todo = malloc(((size_t)s->n_txns + 1) * sizeof(*todo)), n = 0;

	if (todo == NULL)
		return vb_fail(-ENOMEM, "no memory for %u transactions", s->n_txns);
	for (uint32_t i = 0; i < s->n_txns; i++)
		if (s->txns[i].counts)
			todo[n++] = i;
	while (n > 0) {
		const struct serial_txn *x = &s->txns[todo[--n]];

		for (uint32_t i = 0; i < x->t->n_ops; i++) {
			uint32_t w = s->versions[s->saw[x->first + i]].writer;

			if (w == SERIAL_NONE || s->txns[w].counts ||
			    s->txns[w].t->outcome != VB_HISTORY_UNKNOWN)
				continue;
			s->txns[w].counts = true;
			todo[n++] = w;
		}
	}
	free(todo);
	link_children(s, false);
	link_children(s, true);
	return 0;
}

bool serial_is_told(const struct serial_txn *x, uint32_t i)
{
	for (uint32_t k = 0; k < i; k++)
		if (x->ops[k].kind == VB_HISTORY_WRITE && x->ops[k].key == x->ops[i].key &&
		    x->ops[k].table == x->ops[i].table && x->ops[k].version == x->ops[i].version)
			return true;
	return false;
}

void serial_unload(struct serial *s)
{
	free(s->txns);
	free(s->saw);
	free(s->keys);
	free(s->versions);
	free(s->twins);
	free(s->ids.at);
	free(s->key_slots.at);
	free(s->version_slots.at);
}
