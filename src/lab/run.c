/* SPDX-License-Identifier: Apache-2.0 */
#include "lab/run.h"

#include <errno.h>

volatile bool vb_interrupted;
const char *volatile vb_interrupt_unlinks;
volatile bool vb_look_wanted;

int vb_exit_of(int err)
{
	switch (err < 0 ? -err : err) {
	case 0:
		return VB_EXIT_OK;
	case EINVAL:
	case EOPNOTSUPP:
	case EPROTO:
	case EACCES:
	case EISDIR:
	case ENOENT:
	case ENOTDIR:
	case EROFS:
		return VB_EXIT_USAGE;
	case EBUSY:
	case EEXIST:
	case EADDRINUSE:
		return VB_EXIT_BUSY;
	case ENOMEM:
	case ENOSPC:
		return VB_EXIT_RESOURCES;
	case ESTALE:
		return VB_EXIT_STALE;
	default:
		return VB_EXIT_FAILED;
	}
}
