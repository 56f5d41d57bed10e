# SPDX-License-Identifier: Apache-2.0
"""The library's messages, which Python reads where it likes."""

import contextlib
import logging
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import verbena
from verbena import LogLevel
from world import LONG_NS, in_child, in_thread, interrupted, small


def say(word="loud"):
    """Has the library say one message."""
    try:
        verbena.log_levels(word)
    except verbena.Invalid:
        pass


def said(word="loud"):
    text = f"vb_log_levels: '{word}' is no level; off, error, warn, info, debug and trace are"
    return verbena.LogMessage(LogLevel.ERROR, "options", text)


@contextlib.contextmanager
def standard_error():
    """What is written there meanwhile: a list with one text."""
    text, was = [], os.dup(2)
    with tempfile.TemporaryFile("w+") as file:
        sys.stderr.flush()
        os.dup2(file.fileno(), 2)
        try:
            yield text
        finally:
            sys.stderr.flush()
            os.dup2(was, 2)
            os.close(was)
            file.seek(0)
            text.append(file.read())


class Logs(unittest.TestCase):
    def wait_for(self, what):
        until = time.monotonic() + 60
        while not what() and time.monotonic() < until:
            time.sleep(0.001)
        self.assertTrue(what())

    def test_take(self):
        with standard_error() as text, verbena.Log() as log:
            self.assertEqual(log.take(), [])
            say()
            say("louder")
            self.assertEqual(log.take(), [said(), said("louder")])
            self.assertEqual(log.take(), [])
        self.assertEqual(text, [""])
        self.assertEqual(str(said()), "verbena: options: error: " + said().text)
        with standard_error() as text:
            say()
        self.assertEqual(text, [f"{said()}\n"])

    def test_descriptor(self):
        with verbena.Log() as log:
            self.assertEqual(select.select([log], [], [], 0)[0], [])
            say()
            self.assertEqual(select.select([log], [], [], 60)[0], [log])
            log.take()
            self.assertEqual(select.select([log], [], [], 0)[0], [])

    def test_levels(self):
        for level in list(LogLevel)[1:]:
            packet = b"%dlock\0what\nis\xff" % level
            message = verbena.LogMessage(level, "lock", "what\nis\ufffd")
            self.assertEqual(verbena.Log._message(packet), message)
            with self.assertLogs("verbena.lock", 1) as logs:
                verbena.to_logging(message)
            self.assertEqual(logs.records[0].getMessage(), message.text)
        with verbena.Log() as log:
            verbena.log_levels("off")
            say()
            verbena.log_levels("warn")
            self.assertEqual(log.take(), [])

    def test_told(self):
        """A thread tells them, in their order, and those that were said before the end too."""
        heard, threads = [], set()

        def hear(message):
            heard.append(message)
            threads.add(threading.current_thread())
            if message == said("bad"):
                raise KeyError("of the function")

        with standard_error() as text, verbena.Log(hear) as log:
            say("bad")
            for i in range(50):
                say(str(i))
            with self.assertRaises(verbena.Busy):
                log.take()
        self.assertEqual(heard, [said("bad")] + [said(str(i)) for i in range(50)])
        self.assertEqual(log.lost, 0)
        self.assertNotIn(threading.current_thread(), threads)
        self.assertRegex(text[0], r"(?s)^Traceback.*KeyError: 'of the function'\n$")

    def test_closes_itself(self):
        logs, closed = [], threading.Event()

        def hear(_):
            logs[0].close()
            closed.set()

        logs.append(verbena.Log(hear))
        say()
        self.assertTrue(closed.wait(60))
        logs[0]._thread.join(60)
        self.assertIn("closed", repr(logs[0]))
        self.assertEqual([end.fileno() for end in logs[0]._ends], [-1, -1])

    def test_no_room(self):
        """Nobody waits for the reader; what is gone is counted."""
        with verbena.Log() as log:
            n = 0
            while log.lost < 3 and n < 100_000:
                say()
                n += 1
            self.assertEqual(log.lost, 3)
            self.assertGreater(n, 100)
            self.assertEqual(log.take(), [said()] * (n - 3))
            say("louder")
            self.assertEqual(log.take(), [said("louder")])

    def test_of_a_coroutine(self):
        """A call on a ring says what it says on its own small stack."""
        with small() as fabric, fabric.lock_space("table", 10, lease_ns=LONG_NS) as space:
            with space.server_thread(), space.client() as me, verbena.Ring(stack_bytes=16384) as ring:
                with verbena.Log() as log:
                    with self.assertRaises(verbena.Invalid):
                        call = ring.start_acquire(me, 99)
                        ring.wait(LONG_NS)
                        call, = ring.reap()
                        call.result()
                    found = log.take()
        self.assertEqual([m.part for m in found], ["lock"])
        self.assertIn("99", found[0].text)

    def test_other_threads(self):
        with verbena.Log() as log:
            in_thread(say)
            self.assertEqual(in_thread(log.take), [said()])
            in_thread(log.close)
            with self.assertRaises(verbena.Closed):
                log.take()

    def test_logging(self):
        with self.assertLogs("verbena", logging.DEBUG) as logs:
            with verbena.Log(verbena.to_logging):
                say()
        self.assertEqual(logs.output, [f"ERROR:verbena.options:{said().text}"])

    def test_one_at_a_time(self):
        with verbena.Log() as log:
            with self.assertRaises(verbena.Busy):
                verbena.Log()
            with self.assertRaises(verbena.Busy):
                verbena.Log(print)
            say()
            self.assertEqual(log.take(), [said()])
        log.close()
        with self.assertRaises(verbena.Closed):
            log.fileno()
        with verbena.Log() as log:
            say()
            self.assertEqual(log.take(), [said()])

    def test_forked(self):
        """A child says it on standard error, until it opens a log of its own."""
        for to in None, lambda message: None:
            with verbena.Log(to) as log:

                def child():
                    with self.assertRaises(verbena.Foreign):
                        log.take()
                    with log:
                        say("of the child")
                    with verbena.Log() as own:
                        say()
                        self.assertEqual(own.take(), [said()])

                with standard_error() as text:
                    self.assertEqual(in_child(child), 0)
                self.assertEqual(text, [f"{said('of the child')}\n"])
                if to is None:
                    say("of the parent")
                    self.assertEqual(log.take(), [said("of the parent")])

    def test_interrupted(self):
        function = verbena._api.lib.vb_log_set
        for to in None, lambda message: None:
            with interrupted(function), self.assertRaises(KeyboardInterrupt):
                verbena.Log(to)
            log = verbena.Log(to)
            with interrupted(function), self.assertRaises(KeyboardInterrupt):
                log.close()
            log.close()
            self.assertEqual([end.fileno() for end in log._ends], [-1, -1])
            with standard_error() as text:
                say()
            self.assertEqual(text, [f"{said()}\n"])
        self.wait_for(lambda: not any(t.name == "verbena log" for t in threading.enumerate()))

    def test_at_the_end(self):
        """Of the interpreter: what was said comes, and what is said later goes to standard error."""
        program = (
            "import atexit, verbena\n"
            "def say(word):\n"
            "    try: verbena.log_levels(word)\n"
            "    except verbena.Invalid: pass\n"
            "class Last:\n"
            "    def __init__(self, say): self.say = say\n"
            "    def __del__(self): self.say('last')\n"
            "last = Last(say)\n"
            "verbena.Log(lambda message: print(message.text.split(\"'\")[1], flush=True))\n"
            "atexit.register(say, 'later')\n"
            "say('soon')\n"
        )
        package = os.path.dirname(os.path.dirname(verbena.__file__))
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-c", program],
            env={**os.environ, "PYTHONPATH": package},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        self.assertEqual((done.returncode, done.stdout), (0, "soon\nlater\n"))
        self.assertEqual(done.stderr, f"{said('last')}\n")
