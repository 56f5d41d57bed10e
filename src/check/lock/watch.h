/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VB_CHECK_LOCK_WATCH_H
#define VB_CHECK_LOCK_WATCH_H

#include "lock/observe.h"

/* A struct vb_lock_watch of who has a function of its own, on_..., for everything. */
#define VB_LOCK_WATCH(me)                                                                          \
	{                                                                                          \
		.called = on_called, .queued = on_queued, .granted = on_granted,                   \
		.not_granted = on_not_granted, .abandoned = on_abandoned,                          \
		.releasing = on_releasing, .converting = on_converting, .converted = on_converted, \
		.released = on_released, .ctx = (me)                                               \
	}

#endif
