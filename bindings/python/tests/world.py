# SPDX-License-Identifier: Apache-2.0
"""What the tests share."""

import os
import sys
import threading

import verbena


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


def small(**others):
    return verbena.Fabric(node_bytes=16 << 20, **others)
