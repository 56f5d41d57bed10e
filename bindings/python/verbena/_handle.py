# SPDX-License-Identifier: Apache-2.0
"""What is open: one object of Python for one of the library, which is never called with a pointer
to what is closed, is being closed, or is another thread's or the parent process's.

A call counts as a use of its object while it lasts, and whoever closes an object that is in use is
refused. Uses of what threads share (fabrics, lock spaces, databases) begin under a lock; what belongs
to a thread (clients, coordinators) is only counted there, against signal handlers.

What a signal's handler raises (Ctrl-C) comes when a call of the library has come back, before its
result stands anywhere in Python. So results go into a list by a single call of Python's own
(_call_into), behind which the exception comes; and uses are sets of objects, from which one is taken
by a single call, whether it is there or not.
"""

import ctypes
import itertools
import operator
import os
import threading
import warnings

from . import _api
from ._errors import Busy, Closed, Foreign, Invalid, error, refused

lib = _api.lib
byref = ctypes.byref

# How often this process and those before it were forked since the first one began; of a lock that a
# thread of the parent had nobody would let go.
_forks = 0
_mutex = threading.RLock()
# Somebody has closed something, or was refused.
_settled = threading.Condition(_mutex)
_of_thread = threading.local()


def _forked():
    global _forks, _mutex, _settled
    _forks += 1
    _mutex = threading.RLock()
    _settled = threading.Condition(_mutex)


os.register_at_fork(after_in_child=_forked)


def here():
    """This thread, as an object that is no other thread's, ever."""
    try:
        return _of_thread.me
    except AttributeError:
        _of_thread.me = object()
        return _of_thread.me


def fit(kind, value, what):
    """A number that its C type can hold, whose own conversion would cut it in silence."""
    number = operator.index(value)
    bits = 8 * ctypes.sizeof(kind)
    if not 0 <= number < 1 << bits:
        raise refused(Invalid, f"{what} is {number}: out of range for {bits} bits")
    return number


def u16(value, what):
    return fit(ctypes.c_uint16, value, what)


def u32(value, what):
    return fit(ctypes.c_uint32, value, what)


def u64(value, what):
    return fit(ctypes.c_uint64, value, what)


def text(value, what):
    """A string of C, or None."""
    if value is None:
        return None
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise refused(Invalid, f"{what} has a zero byte in it")
    return encoded


def params(struct, /, **values):
    """A struct of parameters, each value checked for its place."""
    made = _api.structs[struct]()
    for field, kind in made._fields_:
        value = values.pop(field, None)
        if kind is ctypes.c_char_p:
            setattr(made, field, text(value, field))
        elif kind is ctypes.c_bool:
            setattr(made, field, bool(value))
        elif value is not None and isinstance(value, ctypes._Pointer):
            setattr(made, field, value)
        elif value is not None:
            setattr(made, field, fit(kind, value, field))
    if values:
        raise TypeError(f"struct {struct} has no {', '.join(values)}")
    return made


class Handle:
    """Something open. `parent` is what it is open on."""

    # Of a thread: calls from another one are refused.
    bound = False
    what = "object"
    close_call = None

    _pointer = None
    # The call that is about to close it: a list of its own, with its thread.
    _closing = None
    _used = 0

    def _opened(self, parent, pointer):
        self.parent = parent
        self._forks = self._used = _forks
        self._thread = here() if self.bound else None
        self._uses = set()
        self._pointer = pointer

    def __del__(self):
        if self._pointer is not None and self._forks == _forks:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)

    def __repr__(self):
        return f"<verbena.{type(self).__name__}{'' if self._pointer else ', closed'}>"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        # What is the parent's stays the parent's when a child leaves its blocks.
        if self._pointer is not None and not self._inherited():
            self.close()

    # Whether this is a child that was forked since, and has not told.
    def _inherited(self):
        return self._forks != _forks

    def _check(self):
        if self._pointer is None:
            raise refused(Closed, f"this {self.what} is closed")
        if self._inherited():
            raise refused(
                Foreign,
                f"this {self.what} is of the process from which this one was forked: call"
                " after_fork() on its fabric, and open clients, coordinators and servers anew",
            )
        if self._thread is not None and self._thread is not here():
            raise refused(
                Foreign, f"this {self.what} is another thread's: open one for each thread"
            )
        if self._closing is not None:
            raise refused(Busy, f"this {self.what} is just being closed")

    # A forked child forgets what threads that its parent had were about.
    def _renew(self):
        if self._used != _forks:
            self._uses, self._closing, self._used = set(), None, _forks

    # `use` is taken away again by who has begun, also if that raises.
    def _use(self, use):
        self._renew()
        self._uses.add(use)
        self._check()

    def _begin(self, use):
        if self.bound:
            self._use(use)
            return
        with _mutex:
            self._use(use)

    def _call_into(self, done, function, *arguments):
        """The function of the library, with this object's pointer in front. Its result is appended
        to `done` if it has come back, whatever is raised."""
        use = object()
        try:
            self._begin(use)
            done.extend(itertools.starmap(function, ((self._pointer, *arguments),)))
        finally:
            self._uses.discard(use)

    def _call(self, function, *arguments):
        """The same; returns the result."""
        done = []
        self._call_into(done, function, *arguments)
        return done[0]

    def _do(self, function, *arguments):
        """The same for those that return an error."""
        result = self._call(function, *arguments)
        if result != 0:
            raise error(result, function.__name__)

    def _open(self, parent, run, function, *arguments):
        """Has run(function, ...) open this object on its parent: its pointer, or None where there is
        nothing. What nobody will have is closed again."""
        out = function.argtypes[-1]._type_()
        try:
            run(function, *arguments, byref(out))
            self._opened(parent, out if out else None)
        except BaseException:
            self._pointer = None
            if out:
                self.close_call(out)
            raise

    # False: it is closed.
    def _begin_close(self, turn):
        with _mutex:
            if self._pointer is None:
                return False
            self._renew()
            self._check()
            if self._uses:
                raise refused(Busy, f"a call on this {self.what} is under way")
            self._closing = turn
            return True

    # What is open on it shall be closed, which no try to close it itself at that time may prevent: the one
    # that is under way is refused, because of what is open, and no other begins before it is this one's turn.
    def _begin_child_close(self, use):
        with _settled:
            self._renew()
            self._uses.add(use)
            while self._closing is not None and self._closing[0] is not here():
                # Who was interrupted may not have said so.
                _settled.wait(0.1)
            self._check()

    def _close_into(self, done):
        use = object()
        try:
            if self.parent is not None:
                self.parent._begin_child_close(use)
            done.extend(map(self.close_call, (self._pointer,)))
        finally:
            if self.parent is not None:
                self.parent._uses.discard(use)

    def close(self):
        """Closes it. Closing what is closed does nothing. Busy: something is open on it, or a call
        is under way; it stays open."""
        if self._pointer is None:
            return
        turn, done = [here()], []
        try:
            if self._begin_close(turn):
                self._close_into(done)
        finally:
            if done and not done[0]:
                self._pointer = None
            if self._closing is turn:
                self._closing = None
            with _settled:
                _settled.notify_all()
        if done and done[0]:
            raise error(done[0], self.close_call.__name__)


class Shared(Handle):
    """What a child may go on using, once it has told the fabric."""

    @property
    def fabric(self):
        at = self
        while at.parent is not None and at.what != "fabric":
            at = at.parent
        return at

    def _inherited(self):
        return self.fabric._told != _forks
