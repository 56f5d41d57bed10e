/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories as the text of registers that PolySI (Huang et al., 2023) and IsoVista (Gu et al.,
 * 2024) read: doc/histories.md says how to use it.  A line is an operation:
 *
 *	r(KEY,VALUE,SESSION,TRANSACTION)		w(KEY,VALUE,SESSION,TRANSACTION)
 *
 * Their numbers are signed, ours are not: keys and versions get numbers of their own, from 1.
 */
#define VB_LOG_ROOM "check"
#include "check/txn/serial_inner.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"

static void put(FILE *to, bool write, uint32_t key, uint32_t version, uint32_t txn)
{
	fprintf(to, "%c(%u,%u,%u,%u)\n", write ? 'w' : 'r', key + 1, version + 1, txn, txn);
}

/* Each in a session of its own, since sessions are orders; the loader is transaction 0. */
static void put_txn(FILE *to, const struct serial *s, uint32_t txn)
{
	const struct serial_txn *x = &s->txns[txn];

	for (uint32_t i = 0; i < x->t->n_ops; i++) {
		const struct vb_history_op *op = &x->ops[i];
		const uint32_t saw = s->saw[x->first + i], key = s->versions[saw].key;

		if (op->kind == VB_HISTORY_READ)
			put(to, false, key, saw, txn + 1);
		else if (!serial_is_told(x, i))
			put(to, true, key, serial_find_version(s, key, op->version), txn + 1);
	}
}

int vb_history_write_text(const struct vb_history *const *parts, unsigned n, FILE *to)
{
	struct serial s = {0};
	int err = serial_load(&s, parts, n);

	if (err == 0 && s.malformed != 0)
		err = vb_fail(-EINVAL, "a history with a malformed version is none for PolySI");
	if (err == 0)
		err = serial_settle(&s);
	for (uint32_t i = 0; i < s.n_keys && err == 0; i++)
		put(to, true, i, s.keys[i].loaded, 0);
	for (uint32_t i = 0; i < s.n_txns && err == 0 && !ferror(to); i++)
		if (s.txns[i].counts)
			put_txn(to, &s, i);
	if (err == 0 && (fflush(to) != 0 || ferror(to)))
		err = vb_fail(errno != 0 ? -errno : -EIO, "cannot write the history: %s",
			      strerror(errno != 0 ? errno : EIO));
	serial_unload(&s);
	return err;
}
