# SPDX-License-Identifier: Apache-2.0
"""Locks: each call does what its C function does."""

import threading
import time
import unittest

import verbena
from verbena import FOREVER_NS, Mode
from world import LONG_NS, in_thread, quiet, small

MS = 1_000_000


class Locks(unittest.TestCase):
    def setUp(self):
        self.fabric = self.enter(small())

    # As enterContext, which unittest has from 3.11 on.
    def enter(self, manager):
        entered = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return entered

    def space(self, lock, **others):
        space = self.enter(
            self.fabric.lock_space(lock, 100, lease_ns=LONG_NS, fencing=True, **others)
        )
        self.enter(space.server())
        return space

    def clients(self, lock, **others):
        space = self.space(lock, **others)
        return self.enter(space.client()), self.enter(space.client())

    def test_acquire_and_release(self):
        me, other = self.clients("dslr")
        grant = me.acquire(42)
        self.assertEqual((grant.lock, grant.mode, grant.own), (42, Mode.EXCLUSIVE, True))
        self.assertTrue(grant.valid())
        self.assertGreater(grant.valid_until_ns, me.now())
        self.assertIsNone(other.try_acquire(42))
        with self.assertRaises(verbena.TimedOut) as raised:
            other.acquire(42, timeout_ns=MS)
        self.assertEqual(verbena.outcome(raised.exception), verbena.Outcome.NOT_GRANTED)
        with self.assertRaises(TimeoutError):
            other.acquire(42, timeout_ns=MS)
        grant.release()
        self.assertFalse(grant.valid())
        with other.acquire(42) as later:
            self.assertGreater(later.token, grant.token)
        with me.try_acquire(42), quiet(), self.assertRaises(verbena.WouldDeadlock):
            me.acquire(42)
        self.assertIn("released", repr(later))

    def test_shared(self):
        me, other = self.clients("dslr")
        with me.acquire(1, Mode.SHARED) as a, other.acquire(1, verbena.SHARED) as b:
            self.assertTrue(a.valid() and b.valid())
            self.assertEqual(a.token, 0)

    def test_acquire_for(self):
        me, _ = self.clients("dslr", options="slots=4")
        most = me.hold_max_ns()
        self.assertGreater(most, LONG_NS)
        with me.acquire(1, hold_ns=2 * LONG_NS) as grant:
            self.assertGreater(grant.valid_until_ns - me.now(), LONG_NS)
        with quiet(), self.assertRaises(verbena.Invalid):
            me.acquire(1, hold_ns=most + LONG_NS)

    def test_renew_and_convert(self):
        me, other = self.clients("table")
        with me.acquire(1) as grant:
            before = grant.valid_until_ns
            grant.renew()
            self.assertGreater(grant.valid_until_ns, before)
            grant.convert(Mode.SHARED)
            self.assertEqual(grant.mode, Mode.SHARED)
            with other.acquire(1, Mode.SHARED):
                with self.assertRaises(verbena.TimedOut):
                    grant.convert(Mode.EXCLUSIVE, timeout_ns=MS)
                self.assertTrue(grant.valid())

    def test_what_cannot_be_renewed(self):
        me, _ = self.clients("dslr")
        with me.acquire(1) as grant, quiet(), self.assertRaises(verbena.Unsupported):
            grant.renew()

    def test_holder(self):
        me, other = self.clients("cas")
        self.assertNotEqual(me.peer(), other.peer())
        self.assertEqual(other.holder(1), (False, False, Mode.SHARED, 0, 0, 0))
        with me.acquire(1):
            said = other.holder(1)
            self.assertEqual(said, (True, False, Mode.EXCLUSIVE, 0, 0, me.peer()))
            self.assertIs(said.mode, Mode.EXCLUSIVE)
        self.assertFalse(me.holder(1).held)
        with quiet(), self.assertRaises(verbena.Invalid):
            me.holder(100)

    def test_holder_that_no_word_names(self):
        me, _ = self.clients("dslr")
        with me.acquire(1), quiet(), self.assertRaises(verbena.Unsupported):
            me.holder(1)

    def test_path(self):
        me, other = self.clients("table")
        with me.acquire(1, Mode.INTENT_SHARED) as root:
            with me.acquire_path([1, 2, 3], Mode.EXCLUSIVE, LONG_NS) as path:
                self.assertEqual([grant.lock for grant in path], [1, 2, 3])
                self.assertEqual([grant.own for grant in path], [False, True, True])
                self.assertEqual(path[1].mode, Mode.INTENT_EXCLUSIVE)
                self.assertTrue(all(grant.valid() for grant in path))
                self.assertIsNone(other.try_acquire(3))
            self.assertFalse(path[2].valid())
            self.assertTrue(root.valid())
            with other.try_acquire(3):
                pass

    def test_release_all(self):
        me, other = self.clients("table")
        grants = [me.acquire(lock) for lock in range(5)]
        me.release_all(grants)
        self.assertFalse(any(grant.valid() for grant in grants))
        me.release_all([])
        with other.acquire(4, timeout_ns=LONG_NS):
            pass

    def test_age(self):
        me, _ = self.clients("table")
        me.begin(12345)
        with me.acquire(1):
            self.assertEqual(me.age(), 12345)

    def test_lost(self):
        """The holder is told that others may have had the lock; the block's own error goes first."""
        space = self.enter(self.fabric.lock_space("dslr", 10, name="short", lease_ns=5 * MS))
        me, other = (self.enter(space.client()) for _ in range(2))

        def hold_too_long(error):
            with me.acquire(1):
                with other.acquire(1):
                    if error:
                        raise error

        with quiet():
            with self.assertRaises(verbena.Lost):
                hold_too_long(None)
            with self.assertRaises(KeyError):
                hold_too_long(KeyError("x"))

    def test_threads(self):
        """A thread waits without the GIL for what another one gives back."""
        space = self.space("mcs")
        order = []

        def hold(ready, leave):
            with space.client() as me, me.acquire(1) as grant:
                self.assertEqual(grant.valid_until_ns, FOREVER_NS)
                ready.set()
                leave.wait(60)
                order.append("first")

        ready, leave = threading.Event(), threading.Event()
        holder = threading.Thread(target=hold, args=(ready, leave))
        holder.start()
        ready.wait(60)
        timer = threading.Timer(0.02, leave.set)
        timer.start()
        with space.client() as me, me.acquire(1):
            order.append("second")
        holder.join()
        timer.join()
        self.assertEqual(order, ["first", "second"])

    def test_server_thread(self):
        with self.fabric.lock_space("rpc", 10, name="served", lease_ns=LONG_NS) as space:
            with quiet(), self.assertRaises(verbena.PeerGone):
                space.client()
            with space.server_thread() as server, space.client() as me, me.acquire(1):
                with quiet(), self.assertRaises(verbena.Busy):
                    space.server_thread()
            server.stop()
        # Of a protocol without servers there is none, and nothing is left to be stopped.
        with self.fabric.lock_space("cas", 10, name="bare") as space, space.server() as server:
            server.stop()

    def test_simulated(self):
        with verbena.Fabric("sim", nodes=3, seed=1) as fabric:
            with fabric.lock_space("dslr", 10) as space, space.client(2) as me:
                with me.acquire(3):
                    self.assertGreater(me.now(), 0)


class Clusters(unittest.TestCase):
    def test_alone(self):
        # A thread that waits as shm does cannot wait as a network does.
        in_thread(self.alone)

    def alone(self):
        with verbena.Cluster(1, meet="127.0.0.1:0") as cluster:
            self.assertEqual((cluster.rank, cluster.hosts), (0, 1))
            self.assertIn("rank 0", cluster.name(0))
            self.assertTrue(cluster.alive(0))
            self.assertFalse(cluster.alive(1))
            cluster.barrier()
            in_thread(cluster.barrier)
            with small(fabric="tcp", cluster=cluster) as fabric:
                with fabric.lock_space("cas", 10) as space, space.client() as me, me.acquire(1):
                    pass


class Rest(unittest.TestCase):
    def test_poll(self):
        verbena.poll()
        in_thread(verbena.poll)

    def test_segment_is_found_by_name(self):
        name = f"python-{time.time_ns()}"
        with quiet(), self.assertRaises(verbena.NotFound) as raised:
            small(name=name, attach=True)
        self.assertIsInstance(raised.exception, OSError)
        with small(name=name, attach_or_create=True):
            with verbena.Fabric(name=name, attach=True):
                pass
