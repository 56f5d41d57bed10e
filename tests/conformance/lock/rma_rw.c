/* SPDX-License-Identifier: Apache-2.0 */
#define LOCK vb_lock_rma_rw
#include "lock_suite.h"
