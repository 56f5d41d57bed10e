/* SPDX-License-Identifier: Apache-2.0 */
#define LOCK vb_lock_cas_backoff
#include "lock_suite.h"
