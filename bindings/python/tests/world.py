# SPDX-License-Identifier: Apache-2.0
"""What the tests share."""

import contextlib
import ctypes
import functools
import os
import signal
import sys
import threading
import unittest

import verbena

# For what must not take for ever, and may take as long as a busy machine likes.
LONG_NS = 60_000_000_000


def in_thread(function, *arguments):
    """What a call on a thread of its own returns or raises."""
    said = []

    def run():
        try:
            said.append((function(*arguments), None))
        except BaseException as error:
            said.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    result, error = said[0]
    if error is not None:
        raise error
    return result


def in_child(function):
    """The exit status of a forked child that does this: 0 if nothing is raised."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException as error:
            os.write(2, f"# child: {error!r}\n".encode())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class quiet:
    """What is refused says so in the log; here that is wanted."""

    def __enter__(self):
        verbena.log_levels("off")

    def __exit__(self, *exc):
        verbena.log_levels("warn")


@contextlib.contextmanager
def interrupted(function):
    """Ctrl-C comes while the library is in this function of its own, and before it returns to Python."""
    # ctypes asks errcheck for the result: max has the first of what it is given, for all have the same key.  There
    # is no line of Python in it, behind which Ctrl-C would be heard.
    if not hasattr(ctypes.pythonapi, "PyErr_SetInterruptEx"):
        raise unittest.SkipTest("Python has no PyErr_SetInterruptEx before 3.10")
    prototype = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.py_object)
    interrupt = prototype(("PyErr_SetInterruptEx", ctypes.pythonapi))
    function.errcheck = functools.partial(max, key=functools.partial(interrupt, signal.SIGINT))
    try:
        yield
    finally:
        del function.errcheck


def small(**others):
    return verbena.Fabric(node_bytes=16 << 20, **others)
