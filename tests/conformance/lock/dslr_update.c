/* SPDX-License-Identifier: Apache-2.0 */
#define LOCK vb_lock_dslr_update
#include "lock_suite.h"
