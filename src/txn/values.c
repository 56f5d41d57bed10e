/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of any size, on two tables.
 *
 *	NAME        key       -> | bytes, 32 bits | 0 | the first inline_bytes of the value |
 *	NAME.more   key * P + i -> the value's piece i behind that, i below P
 *
 * P is how many pieces the largest value has.  A piece's key follows from the record's, so there is
 * nothing to allocate and nothing to lose: RCC (section 3.2) puts an address there, which
 * somebody must allocate before the commit and free after an abort or a death.  Which pieces there
 * are follows from the length, so they are asked for together once it is known.
 */
#define VB_LOG_ROOM "txn"
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "txn/db.h"

#define INLINE_BYTES 56u
#define PIECE_BYTES  1016u
#define BYTES_MOST   (1u << 20)
#define NAME_MOST    26u

struct vb_values {
	struct vb_table *first, *more; /* more: NULL if every value fits into the record */
	uint32_t bytes_max, inline_bytes, piece_bytes;
	uint32_t pieces; /* of the largest value */
	struct vb_opened opened;
};

struct head {
	uint32_t bytes, unused;
};

static uint32_t pieces_of(const struct vb_values *v, uint32_t bytes)
{
	return bytes <= v->inline_bytes
		       ? 0
		       : (bytes - v->inline_bytes + v->piece_bytes - 1) / v->piece_bytes;
}

/* ---- opening ---- */

static int check_params(const struct vb_values_params *p)
{
	if (p->name == NULL || p->name[0] == 0 || strlen(p->name) > NAME_MOST)
		return vb_fail(-EINVAL, "the name of a table of values has 1 to %u characters",
			       NAME_MOST);
	if (p->bytes_max == 0 || p->bytes_max > BYTES_MOST)
		return vb_fail(-EINVAL, "table '%s': values of up to %u bytes; 1 to %u are allowed",
			       p->name, p->bytes_max, BYTES_MOST);
	if (p->partition == VB_PARTITION_TOP16)
		return vb_fail(
			-EINVAL,
			"table '%s': a value's pieces need the upper bits of the key; choose "
			"another partition",
			p->name);
	return 0;
}

/* The largest value is read and written in one transaction. */
static int check_room(const struct vb_db *db, const struct vb_values *v, const char *name)
{
	uint64_t items = 1ull + v->pieces;
	uint64_t bytes =
		sizeof(struct head) + v->inline_bytes + (uint64_t)v->pieces * v->piece_bytes;

	if (items > db->items_max)
		return vb_fail(-EINVAL,
			       "table '%s': a value of %u bytes is %" PRIu64
			       " records, and a transaction touches %u at most; open the database "
			       "with a larger items_max, or the table with larger pieces",
			       name, v->bytes_max, items, db->items_max);
	if (bytes > db->bytes_max)
		return vb_fail(-EINVAL,
			       "table '%s': a value of %u bytes is %" PRIu64
			       " bytes of records, and a transaction touches %u at most; open the "
			       "database with a larger bytes_max",
			       name, v->bytes_max, bytes, db->bytes_max);
	return 0;
}

static int open_tables(struct vb_db *db, const struct vb_values_params *p, struct vb_values *v)
{
	const struct vb_table_params first = {
		.name = p->name,
		.record_bytes = (uint32_t)sizeof(struct head) + v->inline_bytes,
		.records = p->records,
		.partition = p->partition,
	};
	char name[NAME_MOST + 6];
	const struct vb_table_params more = {
		.name = name,
		.record_bytes = v->piece_bytes,
		.records = p->pieces != 0 ? p->pieces : p->records * v->pieces,
		.partition = p->partition,
	};
	int err = vb_store_open_begin(&db->store);

	if (err)
		return err;
	snprintf(name, sizeof(name), "%s.more", p->name);
	/* The memory that a table has got stays with its name and size: nothing is taken for the
	 * first one where the second is refused for what it is. */
	if (v->pieces != 0)
		err = vb_store_table_check(&db->store, &more);
	if (err == 0)
		err = vb_store_table_open(&db->store, &first, 1, 0, p->bytes_max, &v->first);
	if (err == 0 && v->pieces != 0) {
		err = vb_store_table_open(&db->store, &more, v->pieces, 0, p->bytes_max, &v->more);
		if (err != 0)
			vb_store_table_undo(&db->store, v->first);
	}
	vb_store_open_end(&db->store);
	return err;
}

int vb_values_open(struct vb_db *db, const struct vb_values_params *p, struct vb_values **out)
{
	struct vb_values *v;
	int err;

	if (vb_any_null(db, p, out))
		return -EINVAL;
	err = vb_fabric_check(db->fabric);
	if (err == 0)
		err = check_params(p);
	if (err == 0 && vb_cc_sequenced(db->cc))
		err = vb_fail(
			-EINVAL,
			"how many pieces a value has is not known before it is read, and '%s' "
			"wants all that is touched to be declared",
			db->cc->name);
	if (err)
		return err;
	v = calloc(1, sizeof(*v));
	if (v == NULL)
		return vb_fail(-ENOMEM, "no memory for a table of values");
	v->bytes_max = p->bytes_max;
	v->inline_bytes = p->inline_bytes != 0 ? p->inline_bytes : INLINE_BYTES;
	if (v->inline_bytes > p->bytes_max)
		v->inline_bytes = p->bytes_max;
	v->piece_bytes = p->piece_bytes != 0 ? p->piece_bytes : PIECE_BYTES;
	if (v->piece_bytes > p->bytes_max - v->inline_bytes && p->bytes_max > v->inline_bytes)
		v->piece_bytes = p->bytes_max - v->inline_bytes;
	v->pieces = pieces_of(v, p->bytes_max);
	err = check_room(db, v, p->name);
	if (err == 0)
		err = open_tables(db, p, v);
	if (err) {
		free(v);
		return err;
	}
	v->opened = (struct vb_opened){.kind = "table of values", .of = db, .name = db->name};
	vb_opened_note(db->fabric, &v->opened);
	*out = v;
	return 0;
}

void vb_values_close(struct vb_values *values)
{
	if (values == NULL)
		return;
	vb_opened_drop(&values->opened);
	free(values);
}

/* ---- in a transaction ---- */

static int check_key(const struct vb_values *v, uint64_t key)
{
	if (v->pieces > 0 && key > (UINT64_MAX - v->pieces) / v->pieces)
		return vb_fail(-EINVAL,
			       "key %" PRIu64 " is too large for a table of values with %u "
			       "pieces each",
			       key, v->pieces);
	return 0;
}

static uint32_t piece_begin(const struct vb_values *v, uint32_t i)
{
	return v->inline_bytes + i * v->piece_bytes;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Says that pieces from..to of the key will be read, or written. */
static int declare(struct vb_coordinator *me, const struct vb_values *v, uint64_t key,
		   uint32_t from, uint32_t to, bool write)
{
	struct vb_txn_key some[VB_STAGE_ITEMS];
	int err = 0;

	while (from < to && err == 0) {
		unsigned n = 0;

		for (; from < to && n < VB_STAGE_ITEMS; from++)
			some[n++] = (struct vb_txn_key){
				.table = v->more, .key = key * v->pieces + from, .write = write};
		err = vb_txn_declare(me, some, n);
	}
	return err;
}

/* What was read does not fit together, so it is of two moments: the transaction could not have
 * committed. */
static int doom_changed(struct vb_coordinator *me)
{
	return vb_txn_end_by(&me->txn, VB_TXN_CHANGED, 0);
}

static int get(struct vb_coordinator *me, struct vb_values *v, uint64_t key, void *buf,
	       uint32_t room_bytes, uint32_t *bytes)
{
	const unsigned char *record;
	struct head head;
	uint32_t n;
	int err = vb_txn_get(me, v->first, key, (const void **)&record);

	if (err)
		return err;
	memcpy(&head, record, sizeof(head));
	/* What two versions have in common may be no value yet (txn.h, "What is promised"). */
	n = least(pieces_of(v, least(head.bytes, room_bytes)), v->pieces);
	if (room_bytes > 0)
		memcpy(buf, record + sizeof(head),
		       least(least(head.bytes, room_bytes), v->inline_bytes));
	err = declare(me, v, key, 0, n, false);
	for (uint32_t i = 0; i < n && err == 0; i++) {
		uint32_t at = piece_begin(v, i);
		const void *piece;

		err = vb_txn_get(me, v->more, key * v->pieces + i, &piece);
		if (err == 0)
			memcpy((unsigned char *)buf + at, piece,
			       least(least(head.bytes, room_bytes) - at, v->piece_bytes));
		else if (err == -ENOENT)
			err = doom_changed(me);
	}
	if (err == 0)
		*bytes = head.bytes;
	return err;
}

int vb_values_get(struct vb_coordinator *me, struct vb_values *v, uint64_t key, void *buf,
		  uint32_t room_bytes, uint32_t *bytes)
{
	uint32_t whole = 0;
	int err, ended;

	if (vb_any_null(me, v, bytes) || (room_bytes > 0 && vb_any_null(buf)))
		return -EINVAL;
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	err = check_key(v, key);
	if (err)
		return err;
	vb_txn_begin_whole(&me->txn);
	err = get(me, v, key, buf, room_bytes, &whole);
	ended = vb_txn_end_whole(&me->txn);
	if (ended != 0)
		return ended;
	if (err == 0)
		*bytes = whole;
	return err;
}

/* How long the value is now; -ENOENT. */
static int length_now(struct vb_coordinator *me, struct vb_values *v, uint64_t key, uint32_t *bytes,
		      unsigned char **record)
{
	struct head head;
	int err = vb_txn_update(me, v->first, key, (void **)record);

	if (err)
		return err;
	memcpy(&head, *record, sizeof(head));
	*bytes = least(head.bytes, v->bytes_max);
	return 0;
}

static int put_piece(struct vb_coordinator *me, struct vb_values *v, uint64_t key, uint32_t i,
		     const unsigned char *value, uint32_t bytes)
{
	uint32_t at = piece_begin(v, i), n = least(bytes - at, v->piece_bytes);
	void *piece;
	int err = vb_txn_update(me, v->more, key * v->pieces + i, &piece);

	if (err == -ENOENT) {
		piece = calloc(1, v->piece_bytes);
		if (piece == NULL)
			return vb_fail(-ENOMEM, "no memory for a piece of a value");
		memcpy(piece, value + at, n);
		err = vb_txn_insert(me, v->more, key * v->pieces + i, piece);
		free(piece);
		return err;
	}
	if (err == 0)
		memcpy(piece, value + at, n);
	return err;
}

static int drop_pieces(struct vb_coordinator *me, struct vb_values *v, uint64_t key, uint32_t from,
		       uint32_t to)
{
	int err = declare(me, v, key, from, to, true);

	for (; from < to && err == 0; from++) {
		err = vb_txn_delete(me, v->more, key * v->pieces + from);
		if (err == -ENOENT)
			err = doom_changed(me);
	}
	return err;
}

static int put_first(struct vb_coordinator *me, struct vb_values *v, uint64_t key,
		     const void *value, uint32_t bytes, uint32_t *was)
{
	const struct head head = {.bytes = bytes};
	unsigned char *record;
	int err = length_now(me, v, key, was, &record);

	if (err == -ENOENT) {
		*was = 0;
		record = calloc(1, sizeof(head) + v->inline_bytes);
		if (record == NULL)
			return vb_fail(-ENOMEM, "no memory for a value");
		memcpy(record, &head, sizeof(head));
		memcpy(record + sizeof(head), value, least(bytes, v->inline_bytes));
		err = vb_txn_insert(me, v->first, key, record);
		free(record);
		return err;
	}
	if (err == 0) {
		memcpy(record, &head, sizeof(head));
		memcpy(record + sizeof(head), value, least(bytes, v->inline_bytes));
	}
	return err;
}

static int put(struct vb_coordinator *me, struct vb_values *v, uint64_t key, const void *value,
	       uint32_t bytes)
{
	uint32_t was, n = pieces_of(v, bytes);
	int err = put_first(me, v, key, value, bytes, &was);

	if (err == 0)
		err = declare(me, v, key, 0, n, true);
	for (uint32_t i = 0; i < n && err == 0; i++)
		err = put_piece(me, v, key, i, value, bytes);
	return err ? err : drop_pieces(me, v, key, n, pieces_of(v, was));
}

/* That there is no record is held until there is one: at no level comes another in between. */
int vb_values_put(struct vb_coordinator *me, struct vb_values *v, uint64_t key, const void *value,
		  uint32_t bytes)
{
	int err, ended;

	if (vb_any_null(me, v) || (bytes > 0 && vb_any_null(value)))
		return -EINVAL;
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	err = check_key(v, key);
	if (err)
		return err;
	if (bytes > v->bytes_max)
		return vb_fail(-E2BIG,
			       "a value of %u bytes: table '%s' was opened for values of up to %u",
			       bytes, v->first->name, v->bytes_max);
	vb_txn_begin_whole(&me->txn);
	err = put(me, v, key, bytes > 0 ? value : "", bytes);
	ended = vb_txn_end_whole(&me->txn);
	return ended != 0 ? ended : err;
}

int vb_values_remove(struct vb_coordinator *me, struct vb_values *v, uint64_t key)
{
	unsigned char *record;
	uint32_t was;
	int err;

	if (vb_any_null(me, v))
		return -EINVAL;
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	err = check_key(v, key);
	if (err == 0)
		err = length_now(me, v, key, &was, &record);
	if (err == 0)
		err = vb_txn_delete(me, v->first, key);
	return err ? err : drop_pieces(me, v, key, 0, pieces_of(v, was));
}
