/* SPDX-License-Identifier: Apache-2.0 */
/* Error texts and the version. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include <verbena/verbena.h>

#include "base/compiler.h"
#include "vb_commit.h"
#include "vb_config.h"

/* Every value of errno that the headers name, in the words of this library.  The words also fit where
 * the system has said it. */
static const char *plain(int err)
{
	switch (err) {
	case 0:
		return "done";
	case ETIMEDOUT:
		return "not done within the time allowed";
	case EAGAIN:
		return "not possible now; it may be later";
	case EINVAL:
		return "an argument is wrong, or the call is not allowed now";
	case ENOENT:
		return "it does not exist";
	case EEXIST:
		return "it exists already";
	case E2BIG:
		return "more than was provided for";
	case EOVERFLOW:
		return "a number has become too large for its place";
	case EBUSY:
		return "it is in use";
	case EDEADLK:
		return "it would wait for itself";
	case ECANCELED:
		return "it was cancelled";
	case EOPNOTSUPP:
		return "it is not offered here";
	case EXDEV:
		return "it is another process's";
	case EROFS:
		return "it may only be read";
	case EPROTO:
		return "the two sides do not agree";
	case ENOMEM:
		return "memory has run out";
	case ENOSPC:
		return "there is no room for it";
	case EPERM:
		return "it is another user's, or not allowed to this one";
	case EACCES:
		return "access to it is refused";
	case EADDRINUSE:
		return "the address is in use";
	case EADDRNOTAVAIL:
		return "the address is none of this machine's";
	case ESTALE:
		return "it is not what it was: a part of it has been made anew";
	case ENODEV:
		return "there is no such device, or no library for it";
	default:
		/* strerrordesc_np returns a static string and needs no buffer. */
		return strerrordesc_np(err);
	}
}

const char *vb_strerror(int err)
{
	if (err < 0 && err != INT_MIN)
		err = -err;
	switch (err) {
	case VB_EUNKNOWN:
		return "it may or may not have happened: the answer was lost";
	case VB_ELOST:
		return "it was lost: the lease of a grant ran out and others may hold the lock, or "
		       "a "
		       "committed write is gone";
	case VB_EPEERGONE:
		return "the peer or the server is gone";
	case VB_EACCESS:
		return "the address lies outside the node's segment";
	case VB_ETOOLATE:
		return "the verb was not posted: its time had passed";
	case VB_EFOREIGN:
		return "it belongs to another thread, or to the process that this one was forked "
		       "from";
	default:
		return plain(err) ? plain(err) : "unknown error";
	}
}

const char *vb_version(void)
{
	return VB_VERSION;
}

const char *vb_commit(void)
{
	return VB_COMMIT;
}
