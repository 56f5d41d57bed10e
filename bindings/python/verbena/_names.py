# SPDX-License-Identifier: Apache-2.0
"""Locks by name: verbena/names.h."""

import ctypes
import errno

from . import _api
from ._errors import Invalid, error, refused
from ._handle import Shared, byref, lib, params, u64
from ._lock import FOREVER_NS, Mode

NAME_MAX = _api.CONSTANTS["VB_NAME_MAX"]


def _bytes(name):
    """A name's bytes: of a string those of UTF-8."""
    return name.encode() if isinstance(name, str) else bytes(memoryview(name))


class Names(Shared):
    """The directory of names of a lock space (vb_names_open). Parameters are those of struct
    vb_names_params. Threads may share it; each call is made through a client of the calling thread.

    A name is bytes, any; for a string those of UTF-8 are taken, and what is given are bytes."""

    what = "directory of names"
    close_call = lib.vb_names_close

    def __init__(self, space, **others):
        given = params("vb_names_params", **others)
        self._open(space, space._do, lib.vb_names_open, byref(given))
        # Locks 0 to this one, without it, are given to names.
        self.names = given.names or space.locks

    def _through(self, me, function, *arguments):
        if me.parent is not self.parent:
            raise refused(Invalid, "the client is of another lock space than the names")
        use = object()
        try:
            me._begin(use)
            return self._call(function, me._pointer, *arguments)
        finally:
            me._uses.discard(use)

    def _number(self, me, function, name):
        name, lock = _bytes(name), ctypes.c_uint64()
        result = self._through(me, function, name, len(name), byref(lock))
        if result != 0:
            raise error(result, function.__name__)
        return lock.value

    # None: it has none.
    def _name(self, me, lock):
        room, n = ctypes.create_string_buffer(NAME_MAX), ctypes.c_size_t()
        result = self._through(me, lib.vb_names_of, lock, room, NAME_MAX, byref(n))
        if result not in (0, -errno.ENOENT):
            raise error(result, "vb_names_of")
        return room[: n.value] if result == 0 else None

    def lock(self, me, name):
        """The lock of a name, which it is given if it has none (vb_names_lock)."""
        return self._number(me, lib.vb_names_lock, name)

    def find(self, me, name):
        """The lock of a name that somebody has given one; NotFound: nobody has (vb_names_find)."""
        return self._number(me, lib.vb_names_find, name)

    def of(self, me, lock):
        """The name of a lock, as bytes; NotFound: it has none (vb_names_of)."""
        name = self._name(me, u64(lock, "lock"))
        if name is None:
            raise error(errno.ENOENT, "vb_names_of")
        return name

    def each(self, me):
        """Each lock that has a name, with it: (lock, bytes), in the order of the locks. As vb_names_each,
        but with a READ for each lock, and what belongs to the client may be called meanwhile."""
        for lock in range(self.names):
            name = self._name(me, lock)
            if name is not None:
                yield lock, name

    def acquire(self, me, name, mode=Mode.EXCLUSIVE, timeout_ns=FOREVER_NS, *, hold_ns=None):
        """Takes the lock of a name: its Grant, as LockClient.acquire gives it."""
        return me.acquire(self.lock(me, name), mode, timeout_ns, hold_ns=hold_ns)

    def try_acquire(self, me, name, mode=Mode.EXCLUSIVE):
        """The same if that needs no waiting, else None: LockClient.try_acquire."""
        return me.try_acquire(self.lock(me, name), mode)
