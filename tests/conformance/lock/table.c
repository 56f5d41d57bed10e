/* SPDX-License-Identifier: Apache-2.0 */
#define LOCK vb_lock_table
/* Who converts waits for 100 ms by default, which a reader of a busy machine may stand still. */
#define LOCK_PATIENT "wait=60s"
#include "lock_suite.h"
