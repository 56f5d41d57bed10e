# SPDX-License-Identifier: Apache-2.0
"""The log: verbena/verbena.h.

The library says what it says on whatever stack it is on, coroutines' of 16 KiB and its own threads'
among them, with locks held. No Python runs there: vb_log_send puts each message into a socket, which
has bounded room, and Python reads the other end where and when it likes.
"""

import atexit
import collections
import contextlib
import ctypes
import enum
import os
import socket
import threading
import traceback

from . import _api
from ._errors import Busy, Closed, Foreign, refused, run
from ._handle import byref, lib, text

_socket = _api.structs["vb_log_socket"]
_send = ctypes.cast(lib.vb_log_send, ctypes.c_void_p)
_mutex = threading.RLock()
# The one that is open, with its struct: the library's as long as it has its address.
_open = None
# More than a message has; and what is asked for as room for them: the system gives less.
_BYTES = 2048
_ROOM_BYTES = 1 << 20


class LogLevel(enum.IntEnum):
    """How grave a message is: enum vb_log_level."""

    OFF = 0
    ERROR = 1
    WARN = 2
    INFO = 3
    DEBUG = 4
    TRACE = 5


# Those of Python's logging.
_LOGGING = {"ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}


class LogMessage(collections.namedtuple("LogMessage", "level part text")):
    """What the library has to say: struct vb_log_message."""

    __slots__ = ()

    def __str__(self):
        return f"verbena: {self.part}: {self.level.name.lower()}: {self.text}"


def to_logging(message):
    """For Log: gives a message to Python's logging, of whose loggers each part of the library is one,
    "verbena.lock", "verbena.shm", ..."""
    import logging

    logger = logging.getLogger(f"verbena.{message.part}")
    logger.log(_LOGGING[message.level.name], "%s", message.text)


def log_levels(levels):
    """Says which messages there are: "warn", "off", "error,lock:debug" (vb_log_levels)."""
    run(lib.vb_log_levels, text(levels, "levels"))


class Log:
    """The library's messages, which come here as long as it is open, and not to standard error
    (vb_log_set). There is one at a time in a process; any thread may call it.

    With `to` a thread of this package's calls to(message) for each, in their order, until it is
    closed: at the interpreter's end at the latest. What that raises is printed, and the next one
    comes. Without, take() gives those that are there. What is not read in time is gone, and `lost`
    says how many were."""

    def __init__(self, to=None):
        global _open
        self._to = to
        self._pid = os.getpid()
        self._ends = self._thread = None
        with _mutex:
            if _open is not None:
                raise refused(Busy, "the log goes to another Log already: close that first")
            try:
                self._ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self._ends[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM_BYTES)
                self._ends[1].setblocking(to is not None)
                self._where = _socket(fd=self._ends[0].fileno())
                if to is not None:
                    self._thread = threading.Thread(
                        target=self._tell, name="verbena log", daemon=True
                    )
                    self._thread.start()
                _open = self
                run(lib.vb_log_set, _send, byref(self._where))
            except BaseException:
                self._stop()
                raise

    def __repr__(self):
        return f"<verbena.Log{'' if _open is self else ', closed'}>"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    # ---- reading ----

    # None: there is none. b"": and none will come.
    def _receive(self):
        try:
            return self._ends[1].recv(_BYTES)
        except BlockingIOError:
            return None

    @staticmethod
    def _message(packet):
        part, said = packet[1:].split(b"\0", 1)
        level = LogLevel(packet[0] - ord("0"))
        return LogMessage(level, part.decode(), said.decode(errors="replace"))

    def _tell(self):
        for packet in iter(self._receive, b""):
            try:
                self._to(self._message(packet))
            except Exception:
                traceback.print_exc()
        self._shut()

    def _check(self):
        if self._pid != os.getpid():
            raise refused(Foreign, "this log is of the process from which this one was forked")
        if _open is not self:
            raise refused(Closed, "this log is closed")

    def take(self):
        """The messages that have come since: a list; it does not wait."""
        with _mutex:
            self._check()
            if self._to is not None:
                raise refused(Busy, "a thread reads this log")
            return [self._message(packet) for packet in iter(self._receive, None)]

    def fileno(self):
        """A descriptor that is readable when there is something to take, for select and its like."""
        with _mutex:
            self._check()
            return self._ends[1].fileno()

    @property
    def lost(self):
        """How many messages found no room."""
        return self._where.lost

    # ---- its end ----

    def _shut(self):
        for end in self._ends:
            end.close()

    # Whatever is raised, the library has the socket or it has not, and then nobody sends any more.
    def _unset(self):
        global _open
        done = []
        try:
            done.extend(map(lib.vb_log_set, (None,), (None,)))
        finally:
            if done:
                _open = None

    def _stop(self):
        try:
            if _open is self:
                self._unset()
        finally:
            if _open is not self and self._ends is not None:
                if self._thread is None:
                    self._shut()
                else:
                    # The reader comes to an end behind the last message.
                    with contextlib.suppress(OSError):
                        self._ends[0].shutdown(socket.SHUT_WR)

    def close(self):
        """Has messages go to standard error again; those that were said before come to `to` first, if
        it is not that itself that closes. Closing what is closed, or the parent's, does nothing."""
        if self._pid != os.getpid():
            return
        with _mutex:
            self._stop()
        if self._thread not in (None, threading.current_thread()):
            self._thread.join()


def _close():
    if _open is not None:
        _open.close()


# A child has no reader: it says what it has to say on standard error, until it opens a log of its own.
def _forked():
    global _mutex, _open
    _mutex = threading.RLock()
    if _open is not None:
        lib.vb_log_set(None, None)
        _open._shut()
        _open = None


atexit.register(_close)
os.register_at_fork(after_in_child=_forked)
