/* SPDX-License-Identifier: Apache-2.0 */
#define LOCK vb_lock_table
#include "lock_suite.h"
