/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of opening databases share: a usual one, and what is refused. */
#ifndef VB_TESTS_TXN_OPEN_H
#define VB_TESTS_TXN_OPEN_H

#include "txn_api.h"

static inline struct vb_db_params usual(void)
{
	const struct kind silo = {.ops = vb_cc_find("silo")};

	return usual_db(&silo, 0);
}

#define refused_db(f, ...)                                                                         \
	do {                                                                                       \
		struct vb_db_params p_ = usual();                                                  \
		struct vb_db *db_ = NULL;                                                          \
                                                                                                   \
		__VA_ARGS__;                                                                       \
		refused(vb_db_open(f, &p_, &db_), -EINVAL);                                        \
		assert_null(db_);                                                                  \
	} while (0)

#define refused_table(db, ...)                                                                     \
	do {                                                                                       \
		struct vb_table_params p_ = usual_table;                                           \
		struct vb_table *t_ = NULL;                                                        \
                                                                                                   \
		p_.name = "other";                                                                 \
		__VA_ARGS__;                                                                       \
		refused(vb_table_open(db, &p_, &t_), -EINVAL);                                     \
		assert_null(t_);                                                                   \
	} while (0)

#endif
