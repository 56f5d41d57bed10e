# SPDX-License-Identifier: Apache-2.0
"""Calls that end later: each does what its C function does, and harms nobody whatever becomes of it."""

import ctypes
import gc
import os
import select
import subprocess
import sys
import time
import unittest
import warnings
from unittest import mock

import verbena
from verbena import Mode
from world import LONG_NS, in_child, in_thread, interrupted, quiet, small

lib = verbena._api.lib
MS = 1_000_000


class World(unittest.TestCase):
    """Somebody holds lock 5."""

    def setUp(self):
        self.fabric = self.enter(small())
        self.space = self.enter(self.fabric.lock_space("mcs", 10))
        self.holder = self.enter(self.space.client())
        self.me = self.enter(self.space.client())
        self.other = self.enter(self.space.client())
        self.ring = self.enter(verbena.Ring())
        self.held = self.holder.acquire(5)

    def enter(self, manager):
        entered = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return entered

    def next(self, ring=None):
        ring = ring or self.ring
        ring.wait(LONG_NS)
        return ring.reap(1)[0]

    def free(self, lock=5):
        """Nobody has it; a place in its queue may be handed on by the keeper just now."""
        with self.other.acquire(lock, timeout_ns=LONG_NS):
            pass
        self.assertEqual(self.ring._calls, {})
        self.assertEqual((self.me._uses, self.other._uses), (set(), set()))


class Calls(World):
    def test_at_once(self):
        call = self.ring.start_acquire(self.me, 3, Mode.EXCLUSIVE, LONG_NS)
        self.assertTrue(call.done)
        grant = call.result()
        self.assertEqual((grant.lock, grant.client), (3, self.me))
        self.assertTrue(grant.valid())
        call = self.ring.start_release(grant)
        self.assertTrue(call.done)
        self.assertIsNone(call.result())
        self.assertFalse(grant.valid())
        self.assertIn("released", repr(grant))
        self.assertEqual(self.ring.reap(), [])
        with self.assertRaises(verbena.NotFound):
            self.ring.wait(0)
        self.free(3)

    def test_under_way(self):
        call = self.ring.start_acquire(self.me, 5, tag="mine")
        self.assertEqual((call.done, call.tag, call.client), (False, "mine", self.me))
        self.assertIn("under way", repr(call))
        with self.assertRaises(verbena.Busy):
            call.result()
        self.assertEqual(self.ring.reap(), [])
        with self.assertRaises(verbena.TimedOut):
            self.ring.wait(MS)
        self.held.release()
        self.assertIs(self.next(), call)
        with call.result() as grant:
            self.assertTrue(grant.valid())
            self.assertIsNone(self.other.try_acquire(5))
        self.free()

    def test_many(self):
        clients = [self.enter(self.space.client()) for _ in range(20)]
        # The ring comes to its end before they do.
        with verbena.Ring() as ring:
            calls = [ring.start_acquire(client, 5) for client in clients]
            self.held.release()
            ended = []
            while len(ended) < len(calls):
                ended.append(self.next(ring))
                ended[-1].result().release()
            self.assertEqual(ended, calls)

    def test_some_at_a_time(self):
        clients = [self.enter(self.space.client()) for _ in range(5)]
        with verbena.Ring() as ring:
            calls = [ring.start_acquire(client, 5, timeout_ns=MS) for client in clients]
            ended = []
            while len(ended) < len(calls):
                ring.wait(LONG_NS)
                found = ring.reap(2)
                self.assertIn(len(found), (1, 2))
                ended += found
            self.assertEqual(set(ended), set(calls))
            for call in calls:
                with self.assertRaises(verbena.TimedOut) as raised:
                    call.result()
                self.assertEqual(verbena.outcome(raised.exception), verbena.Outcome.NOT_GRANTED)

    def test_cancel(self):
        call = self.ring.start_acquire(self.me, 5)
        later = self.ring.start_acquire(self.other, 5)
        self.assertTrue(self.ring.cancel(call))
        self.assertIs(self.next(), call)
        with self.assertRaises(verbena.Cancelled):
            call.result()
        self.assertFalse(self.ring.cancel(call))
        self.held.release()
        self.assertIs(self.next(), later)
        self.assertFalse(self.ring.cancel(later))
        later.result().release()
        self.assertFalse(self.ring.cancel(self.ring.start_release(self.me.acquire(5))))
        with verbena.Ring() as ring, self.assertRaises(verbena.Invalid):
            ring.cancel(call)

    def test_one_call_at_a_time(self):
        mine = self.me.acquire(7)
        call = self.ring.start_acquire(self.me, 5)
        with quiet():
            for refused in (
                lambda: self.me.acquire(8),
                lambda: self.ring.start_acquire(self.me, 8),
                lambda: self.ring.start_release(mine),
                mine.release,
                lambda: self.me.release_all([mine]),
                self.me.close,
                self.ring.close,
            ):
                with self.assertRaises(verbena.Busy):
                    refused()
        # Nothing has been done.
        self.assertTrue(mine.valid())
        self.assertNotIn("released", repr(mine))
        self.held.release()
        self.assertIs(self.next(), call)
        call.result().release()
        mine.release()
        self.free()

    def test_depth(self):
        with verbena.Ring(depth=1) as ring:
            call = ring.start_acquire(self.me, 5)
            with quiet(), self.assertRaises(verbena.NoRoom):
                ring.start_acquire(self.other, 5)
            self.assertEqual(self.other._uses, set())
            ring.cancel(call)
            self.assertIs(self.next(ring), call)
        for bad in {"depth": 2**21}, {"depth": 2**32}, {"stack_bytes": 5}:
            with quiet(), self.assertRaises(verbena.Invalid):
                verbena.Ring(**bad)

    def test_refused_at_once(self):
        with quiet():
            for call in (
                lambda: self.ring.start_acquire(self.me, 10),
                lambda: self.ring.start_acquire(self.me, 2**64),
                lambda: self.ring.start_acquire(self.me, 1, 99),
                lambda: self.ring.reap(-1),
                lambda: self.ring.wait(-1),
            ):
                with self.assertRaises(verbena.Invalid):
                    call()
            grant = self.me.acquire(1)
            grant.release()
            with self.assertRaises(verbena.Invalid):
                self.ring.start_release(grant)
        self.assertEqual(verbena._ring._lent, {})
        self.free(1)

    def test_descriptor(self):
        ring = self.ring
        self.assertTrue(ring.arm())
        call = ring.start_acquire(self.me, 5)
        self.assertTrue(ring.arm())
        self.assertEqual(select.select([ring], [], [], 0)[0], [])
        self.held.release()
        self.assertEqual(select.select([ring], [], [], 60)[0], [ring])
        self.assertFalse(ring.arm())
        self.assertEqual(ring.reap(), [call])
        self.assertTrue(ring.arm())
        # The bell for what has been reaped may ring behind that, once.
        until = time.monotonic() + 60
        while select.select([ring.fd], [], [], 0)[0] and time.monotonic() < until:
            self.assertTrue(ring.arm())
        self.assertEqual(select.select([ring.fd], [], [], 0)[0], [])
        call.result().release()

    def test_end(self):
        """What is under way when the block is left is cancelled, and what nobody has been told is given
        back."""
        with verbena.Ring() as ring:
            call = ring.start_acquire(self.me, 5)
        with self.assertRaises(verbena.Cancelled):
            call.result()
        with self.assertRaises(KeyError):
            with verbena.Ring() as ring:
                taken = ring.start_acquire(self.me, 5)
                self.held.release()
                ring.wait(LONG_NS)
                raise KeyError
        self.assertTrue(taken.done)
        with self.assertRaises(verbena.Cancelled):
            taken.result()
        self.free()
        # Who was told has it.
        with verbena.Ring() as ring:
            call = ring.start_acquire(self.me, 5)
        self.assertTrue(call.result().valid())
        call.result().release()

    def test_end_of_some(self):
        with verbena.Ring() as ring:
            calls = [ring.start_acquire(client, 5) for client in (self.me, self.other)]
            self.held.release()
            ring.wait(LONG_NS)
            self.assertEqual(ring.reap(1), calls[:1])
        self.assertTrue(calls[0].result().valid())
        with self.assertRaises(verbena.Cancelled):
            calls[1].result()
        calls[0].result().release()
        self.free()


class Served(unittest.TestCase):
    """Where a lock is a message to a server nothing ends at once; in virtual time."""

    def test_simulated(self):
        with verbena.Fabric("sim", seed=1) as fabric, fabric.lock_space("table", 10) as space:
            with space.server(), space.client() as me, space.client() as holder:
                with verbena.Ring() as ring:
                    self.served(ring, me, holder)

    def served(self, ring, me, holder):
        held = holder.acquire(5)
        call = ring.start_acquire(me, 5, timeout_ns=MS)
        self.assertEqual(self.ended(ring), call)
        with self.assertRaises(verbena.TimedOut):
            call.result()
        # The lease is 10 ms.
        kept = ring.start_keep(held)
        with self.assertRaises(verbena.TimedOut):
            ring.wait(100 * MS)
        self.assertTrue(held.valid())
        with quiet(), self.assertRaises(verbena.Busy):
            held.release()
        self.assertTrue(ring.cancel(kept))
        self.assertEqual(self.ended(ring), kept)
        with self.assertRaises(verbena.Cancelled):
            kept.result()
        self.assertTrue(held.valid())
        call = ring.start_release(held)
        self.assertFalse(call.done)
        self.assertNotIn("released", repr(held))
        self.assertEqual(self.ended(ring), call)
        self.assertIn("released", repr(held))
        self.assertIsNone(call.result())
        with quiet(), self.assertRaises(verbena.Invalid):
            ring.start_keep(held)

    def ended(self, ring):
        ring.wait()
        call, = ring.reap()
        return call

    def test_end_waits_for_releases(self):
        with verbena.Fabric("sim", seed=1) as fabric, fabric.lock_space("table", 10) as space:
            with space.server(), space.client() as me:
                with verbena.Ring() as ring, mock.patch.object(ring, "_cancel") as cancel:
                    call = ring.start_release(me.acquire(5))
                    ring.end()
                cancel.assert_not_called()
                self.assertIsNone(call.result())
                with me.try_acquire(5):
                    pass

    def test_keep(self):
        for lock, kind in ("mcs", None), ("dslr", verbena.Unsupported):
            with verbena.Fabric("sim", seed=1) as fabric, fabric.lock_space(lock, 10) as space:
                with space.client() as me, me.acquire(1) as grant, verbena.Ring() as ring:
                    if kind is None:
                        self.assertIsNone(ring.start_keep(grant).result())
                        continue
                    with quiet(), self.assertRaises(kind):
                        ring.start_keep(grant)


class Misuse(World):
    def all(self):
        ring, call = self.ring, self.ring.start_acquire(self.me, 4)
        grant = call.result()
        self.addCleanup(grant.release)
        return [
            lambda: ring.start_acquire(self.me, 1),
            lambda: ring.start_release(grant),
            lambda: ring.start_keep(grant),
            lambda: ring.cancel(call),
            ring.reap,
            lambda: ring.wait(0),
            ring.arm,
            ring.fileno,
            lambda: ring.fd,
            ring.end,
            ring.close,
        ]

    def refuse(self, kind, calls):
        for i, call in enumerate(calls):
            with self.assertRaises(kind, msg=f"call {i} of {len(calls)}"):
                call()

    def test_other_thread(self):
        waits = self.ring.start_acquire(self.other, 5)
        in_thread(self.refuse, verbena.Foreign, self.all())
        self.held.release()
        self.assertIs(self.next(), waits)
        waits.result().release()

        def elsewhere():
            with verbena.Ring() as ring:
                self.refuse(verbena.Foreign, [lambda: ring.start_acquire(self.me, 1)])
                self.assertEqual(ring._calls, {})

        in_thread(elsewhere)

    def test_child(self):
        waits, calls = self.ring.start_acquire(self.other, 5), self.all()

        def child():
            self.refuse(verbena.Foreign, calls)
            self.ring.__exit__(None, None, None)
            self.assertEqual(verbena._ring._lent, {})
            self.fabric.after_fork()
            self.refuse(verbena.Foreign, calls)
            with self.space.client() as mine, verbena.Ring() as ring:
                ring.start_release(ring.start_acquire(mine, 1).result())
                call = ring.start_acquire(mine, 5)
                self.assertFalse(call.done)

        self.assertEqual(in_child(child), 0)
        self.held.release()
        self.assertIs(self.next(), waits)
        waits.result().release()

    def test_closed(self):
        calls = self.all()
        self.ring.close()
        self.ring.close()
        self.refuse(verbena.Closed, calls[:-1])
        with self.space.client() as client:
            pass
        with verbena.Ring() as ring:
            self.refuse(verbena.Closed, [lambda: ring.start_acquire(client, 1)])

    def test_thrown_away(self):
        """The library goes on writing to what a call has lent it, and has said who was not closed."""
        me, ring = self.space.client(), verbena.Ring()
        pointers = me._pointer, ring._pointer
        key = ring.start_acquire(me, 5)._key
        gc.collect()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            del me, ring
            gc.collect()
        self.assertEqual([one.category for one in said], [ResourceWarning] * 2)
        grant = verbena._ring._lent[key]
        self.held.release()
        self.assertEqual(lib.vb_ring_wait(pointers[1], LONG_NS), 0)
        done = verbena._api.structs["vb_completion"]()
        self.assertEqual(lib.vb_ring_reap(pointers[1], done, 1), 1)
        self.assertEqual((done.tag, done.result, grant.lock), (key, 0, 5))
        self.assertEqual(lib.vb_lock_release(pointers[0], ctypes.byref(grant)), 0)
        self.assertEqual(lib.vb_ring_close(pointers[1]), 0)
        lib.vb_lock_client_close(pointers[0])
        del verbena._ring._lent[key]

    def test_interrupted(self):
        """Ctrl-C that comes while the library is in a call: what nobody will know of is cancelled, or
        given back; what has ended is not forgotten."""
        ring, me = self.ring, self.me

        def ctrl_c_in(function, call):
            with interrupted(function), self.assertRaises(KeyboardInterrupt):
                call()

        ctrl_c_in(lib.vb_ring_open, verbena.Ring)
        ctrl_c_in(lib.vb_lock_acquire_start, lambda: ring.start_acquire(me, 1))
        self.free(1)
        grant = me.acquire(1)
        ctrl_c_in(lib.vb_lock_release_start, lambda: ring.start_release(grant))
        self.assertIn("released", repr(grant))
        self.free(1)
        ctrl_c_in(lib.vb_lock_acquire_start, lambda: ring.start_acquire(me, 5))
        ring.wait(LONG_NS)
        self.assertEqual(ring.reap(), [])
        self.assertEqual(ring._calls, {})
        call = ring.start_acquire(me, 5)
        ctrl_c_in(lib.vb_ring_wait, lambda: ring.wait(MS))
        ctrl_c_in(lib.vb_ring_arm, ring.arm)
        self.held.release()
        ring.wait(LONG_NS)
        ctrl_c_in(lib.vb_ring_reap, ring.reap)
        self.assertFalse(ring.arm())
        ring.wait(0)
        self.assertEqual(ring.reap(), [call])
        call.result().release()
        self.held = self.holder.acquire(5)
        call = ring.start_acquire(me, 5)
        ctrl_c_in(lib.vb_ring_cancel, lambda: ring.cancel(call))
        self.assertIs(self.next(), call)
        with verbena.Ring() as second:
            call = second.start_acquire(me, 5)
            ctrl_c_in(lib.vb_ring_wait, second.end)
        self.assertTrue(call.done)
        ctrl_c_in(lib.vb_ring_close, ring.close)
        self.assertIn("closed", repr(ring))
        self.held.release()
        self.free()

    def test_at_the_end(self):
        """Of the interpreter: the keeper grants what nobody asks for any more, and what it writes to is
        there as long as the process."""
        program = (
            "import os, verbena\n"
            # Each with globals of its own, so that one does not hold the other.
            "def told(word):\n"
            "    own = {'write': os.write}\n"
            "    exec('class Told:\\n def __del__(self, write=write): write(1, self.word)', own)\n"
            "    made = own['Told']()\n"
            "    made.word = word\n"
            "    return made\n"
            "fabric = verbena.Fabric(node_bytes=1 << 20)\n"
            "space = fabric.lock_space('mcs', 10)\n"
            "holder, me = space.client(), space.client()\n"
            "ring = verbena.Ring()\n"
            "held = holder.acquire(5)\n"
            "call = ring.start_acquire(me, 5)\n"
            "assert not call.done and ring.arm()\n"
            "other = told(b'gone ')\n"
            "verbena._ring._lent[0] = told(b'lent ')\n"
            "held.release()\n"
        )
        package = os.path.dirname(os.path.dirname(verbena.__file__))
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": package, "PYTHONMALLOC": "debug"},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "gone ", ""))
