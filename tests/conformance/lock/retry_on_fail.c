/* SPDX-License-Identifier: Apache-2.0 */
#define LOCK vb_lock_retry_on_fail
#include "lock_suite.h"
