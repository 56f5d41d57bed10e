# SPDX-License-Identifier: Apache-2.0
"""Calls that are started now and end later: verbena/async.h.

While a call is under way the library writes to its grant, on the thread's keeper, too: whatever
Python throws away, and until the process ends. So those structs stand in _lent, which nobody frees.

What a signal's handler raises may come behind any line. What has been reaped stands in the ring until
each completion has found its call; doing that again does no harm.
"""

import ctypes
import errno
import itertools
import os

from . import _api
from ._errors import Busy, Invalid, error, refused, run
from ._handle import Handle, byref, lib, params, u32, u64
from ._lock import FOREVER_NS, Grant, LockClient, Mode, _grant, _mode

_completion = _api.structs["vb_completion"]
_STARTED = _api.CONSTANTS["VB_STARTED"]
# How many completions are taken at a time.
_ROOM = 64
_keys = itertools.count(1)

# {key: struct} of what is under way. At the interpreter's end nobody asks any more what has ended,
# and keepers still run: it has one reference too many, and so is never freed.
_lent = {}
_keep = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))
_keep(_lent)
# The keepers are the parent's.
os.register_at_fork(after_in_child=_lent.clear)


class Call:
    """What was started on a ring. `tag` is the caller's."""

    __slots__ = ("ring", "client", "tag", "_name", "_given", "_key", "_id", "_result", "_forsaken")

    def __init__(self, ring, name, grant, tag):
        self.ring = ring
        self.client = grant.client
        self.tag = tag
        self._name = name
        self._given = grant
        self._key = next(_keys)
        self._id = ctypes.c_uint64()
        self._result = None
        self._forsaken = False

    def __repr__(self):
        state = "under way" if self._result is None else "ended"
        return f"<verbena.Call {self._name}, {state}>"

    @property
    def done(self):
        """It has ended, and the ring has been asked since (Ring.reap)."""
        return self._result is not None

    @property
    def _took(self):
        return self._result == 0 and self._name == "vb_lock_acquire_start"

    def result(self):
        """What the call would have returned: an acquire's Grant, else None; or raises what it would
        have raised. Busy: it is under way."""
        if self._result is None:
            raise refused(Busy, "the call is under way: reap it first")
        if self._result != 0:
            raise error(self._result, self._name)
        if self._forsaken and self._took:
            raise error(errno.ECANCELED, self._name)
        return self._given if self._took else None

    # Once more does no harm.
    def _end(self, result):
        self._result = result
        if self._name == "vb_lock_release_start":
            LockClient._has_released([self._given], result)
        if self._forsaken and self._took and not self._given._over:
            self.client._call(lib.vb_lock_release, byref(self._given._struct))
            self._given._over = True


class Ring(Handle):
    """Calls that are under way while their thread does something else (vb_ring_open). Parameters are
    those of struct vb_ring_params. It belongs to the thread that opened it.

    Leaving the `with` block ends what is under way: end(). So open it behind the clients whose calls
    are started on it."""

    bound = True
    what = "ring"
    close_call = lib.vb_ring_close

    def __init__(self, **others):
        # By their keys: under way; and ended, but not told by reap() yet.
        self._calls, self._ended = {}, {}
        self._room = (_completion * _ROOM)()
        # How many of them have been reaped and not looked at yet.
        self._reaped = []
        self._open(None, run, lib.vb_ring_open, byref(params("vb_ring_params", **others)))

    def __exit__(self, *exc):
        if self._pointer is not None and not self._inherited():
            self.end()
            self.close()

    # ---- starting ----

    def _start(self, function, grant, tag, *arguments):
        call = Call(self, function.__name__, grant, tag)
        done = []
        try:
            # The client is in use until the call has been reaped.
            call.client._begin(call)
            self._calls[call._key] = call
            _lent[call._key] = grant._struct
            given = (call.client._pointer, *arguments, byref(grant._struct))
            self._call_into(done, function, *given, call._key, byref(call._id))
            if done[0] != _STARTED:
                self._end(call, done[0])
                if done[0] != 0:
                    raise error(done[0], function.__name__)
            return call
        except BaseException:
            # Nobody knows what has become of it.
            if done == [_STARTED]:
                self._forsake(call)
            elif done:
                call._forsaken = True
                self._end(call, done[0])
            else:
                self._forget(call)
            raise

    def start_acquire(self, client, lock, mode=Mode.EXCLUSIVE, timeout_ns=FOREVER_NS, *, tag=None):
        """Starts LockClient.acquire (vb_lock_acquire_start): a Call. It may have ended already
        (`done`), and then is not told by reap(); an error that comes at once is raised here."""
        wanted = u64(lock, "lock"), _mode(mode), u64(timeout_ns, "timeout_ns")
        grant = Grant(client, _grant())
        return self._start(lib.vb_lock_acquire_start, grant, tag, *wanted)

    def start_release(self, grant, *, tag=None):
        """Starts the grant's release (vb_lock_release_start)."""
        return self._start(lib.vb_lock_release_start, grant, tag)

    def start_keep(self, grant, *, tag=None):
        """Has the grant's lease renewed until that is cancelled or fails (vb_lock_keep_start). As long
        as it is under way the grant cannot be released; Cancelled and most other errors leave it held,
        Lost does not. It has ended at once where there is no lease."""
        return self._start(lib.vb_lock_keep_start, grant, tag)

    # ---- ending ----

    def _forget(self, call):
        call.client._uses.discard(call)
        _lent.pop(call._key, None)
        self._calls.pop(call._key, None)

    def _end(self, call, result):
        call._end(result)
        self._forget(call)

    # Nobody will ask for it.
    def _forsake(self, call):
        call._forsaken = True
        if call.done:
            call._end(call._result)
        elif call._name != "vb_lock_release_start":
            self._cancel(call)

    def _cancel(self, call):
        return self._call(lib.vb_ring_cancel, call._id)

    def cancel(self, call):
        """Cancels a call: it ends with Cancelled, or otherwise if it was ending just then. False: it
        has ended (vb_ring_cancel)."""
        if call.ring is not self:
            raise refused(Invalid, "the call is on another ring")
        result = self._cancel(call)
        if result not in (0, -errno.ENOENT):
            raise error(result, "vb_ring_cancel")
        return result == 0

    def _take(self):
        """Takes some of what has ended from the library; it does not wait."""
        if not self._reaped:
            self._call_into(self._reaped, lib.vb_ring_reap, self._room, _ROOM)
        n = self._reaped[0]
        for one in self._room[: max(n, 0)]:
            call = self._calls.get(one.tag)
            if call is not None:
                if not call._forsaken:
                    self._ended[one.tag] = call
                self._end(call, one.result)
        self._reaped.clear()
        if n < 0:
            raise error(n, "vb_ring_reap")

    def reap(self, most=_ROOM):
        """The calls that have ended since, in that order, `most` at most: a list; it does not wait
        (vb_ring_reap)."""
        most = max(u32(most, "most"), 1)
        self._check()
        if not self._ended:
            self._take()
        told = list(itertools.islice(self._ended.items(), most))
        for key, _ in told:
            self._ended.pop(key, None)
        return [call for _, call in told]

    def wait(self, timeout_ns=FOREVER_NS):
        """Waits until there is something to reap. TimedOut; NotFound: nothing is under way
        (vb_ring_wait)."""
        timeout_ns = u64(timeout_ns, "timeout_ns")
        self._check()
        if not self._ended and not self._reaped:
            self._do(lib.vb_ring_wait, timeout_ns)

    def end(self):
        """Comes to an end with all that is under way: releases are waited for, the rest is cancelled. A
        lock that was taken meanwhile, or whose call was not told by reap(), is given back."""
        self._check()
        for call in [*self._ended.values(), *self._calls.values()]:
            self._forsake(call)
        while self._calls:
            if not self._reaped:
                self._do(lib.vb_ring_wait, FOREVER_NS)
            self._take()
        self._ended.clear()

    # ---- sleeping elsewhere ----

    @property
    def fd(self):
        """A descriptor that becomes readable when something ends while the ring is armed
        (vb_ring_fd)."""
        return self._call(lib.vb_ring_fd)

    def fileno(self):
        """The same, for select and its like."""
        return self.fd

    def arm(self):
        """Before the thread sleeps elsewhere. False: something has ended already, reap it first
        (vb_ring_arm)."""
        self._check()
        if self._ended or self._reaped:
            return False
        result = self._call(lib.vb_ring_arm)
        if result not in (0, -errno.EAGAIN):
            raise error(result, "vb_ring_arm")
        return result == 0
