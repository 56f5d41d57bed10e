# SPDX-License-Identifier: Apache-2.0
"""An exception class for each error that the headers name."""

import errno

from . import _api


class Error(OSError):
    """A call has failed. `errno` is the number, of errno or one of VB_E*; `strerror` says it in
    words; `call` is the function of the library."""

    call = None

    def __str__(self):
        return f"{self.call}: {self.strerror}" if self.call else self.strerror


def _error(name, number, text, *also):
    """A class for one number."""
    return type(name, (Error,) + also, {"__doc__": text, "number": number, "__module__": "verbena"})


Unknown = _error(
    "Unknown", _api.CONSTANTS["VB_EUNKNOWN"], "It may or may not have happened: the answer was lost."
)
Lost = _error(
    "Lost", _api.CONSTANTS["VB_ELOST"], "The lease ran out; others may hold the lock. Or a committed write is gone."
)
PeerGone = _error(
    "PeerGone", _api.CONSTANTS["VB_EPEERGONE"], "The peer or server is gone.", ConnectionError
)
OutOfBounds = _error(
    "OutOfBounds", _api.CONSTANTS["VB_EACCESS"], "The address lies outside the node's segment."
)
TooLate = _error("TooLate", _api.CONSTANTS["VB_ETOOLATE"], "The verb's time had passed.")
Foreign = _error(
    "Foreign",
    _api.CONSTANTS["VB_EFOREIGN"],
    "It is another thread's, or of the process that this one was forked from. Nothing was done.",
)
TryAgain = _error("TryAgain", errno.EAGAIN, "Not possible now; it may be later.")
TimedOut = _error("TimedOut", errno.ETIMEDOUT, "Not done within the time allowed.", TimeoutError)
Busy = _error("Busy", errno.EBUSY, "It is in use.")
WouldDeadlock = _error("WouldDeadlock", errno.EDEADLK, "It would wait for itself.")
Cancelled = _error("Cancelled", errno.ECANCELED, "It was cancelled.")
Invalid = _error("Invalid", errno.EINVAL, "An argument is wrong, or not allowed now.", ValueError)
NotFound = _error("NotFound", errno.ENOENT, "It does not exist.", LookupError)
Exists = _error("Exists", errno.EEXIST, "It exists already.")
TooBig = _error("TooBig", errno.E2BIG, "More than was provided for.")
Overflow = _error("Overflow", errno.EOVERFLOW, "A number has become too large for its place.")
Unsupported = _error("Unsupported", errno.EOPNOTSUPP, "It is not offered here.")
Elsewhere = _error("Elsewhere", errno.EXDEV, "It is another process's.")
ReadOnly = _error("ReadOnly", errno.EROFS, "It may only be read.")
Disagreement = _error("Disagreement", errno.EPROTO, "The two sides do not agree.")
NoMemory = _error("NoMemory", errno.ENOMEM, "Memory has run out.", MemoryError)
NoRoom = _error("NoRoom", errno.ENOSPC, "There is no room for it.")
NotPermitted = _error(
    "NotPermitted", errno.EPERM, "It is another user's, or not allowed to this one.", PermissionError
)
AccessRefused = _error("AccessRefused", errno.EACCES, "Access is refused.", PermissionError)
AddressInUse = _error("AddressInUse", errno.EADDRINUSE, "The address is in use.")
AddressNotHere = _error(
    "AddressNotHere", errno.EADDRNOTAVAIL, "The address is none of this machine's."
)
Stale = _error("Stale", errno.ESTALE, "It is not what it was: a part of it has been made anew.")
NoDevice = _error("NoDevice", errno.ENODEV, "There is no such device, or no library for it.")

CLASSES = {kind.number: kind for kind in Error.__subclasses__()}


class Closed(Invalid):
    """The object was closed before."""


class Aborted(TryAgain):
    """The protocol has aborted the transaction; `cause` says why. Begin it again."""

    cause = None


def error(number, call=None, text=None, kind=None):
    """The exception for an error of either sign; by itself it has vb_strerror's text."""
    number = abs(number)
    kind = kind or CLASSES.get(number, Error)
    made = kind(number, text or _api.lib.vb_strerror(number).decode())
    made.call = call
    return made


def refused(kind, text):
    """What this package refuses by itself."""
    return error(kind.number, text=text, kind=kind)


def run(function, *arguments):
    """Raises what a function of the library returns, if that is an error."""
    result = function(*arguments)
    if result != 0:
        raise error(result, function.__name__)
