# SPDX-License-Identifier: Apache-2.0
"""Locks by name: each call does what its C function does."""

import unittest

import verbena
from world import LONG_NS, in_thread, interrupted, quiet, small


class Naming(unittest.TestCase):
    def setUp(self):
        self.fabric = self.enter(small())
        self.space = self.enter(self.fabric.lock_space("dslr", 100, lease_ns=LONG_NS))
        self.names = self.enter(self.space.names())
        self.me = self.enter(self.space.client())
        self.other = self.enter(self.space.client())

    def enter(self, manager):
        entered = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return entered

    def test_one_lock_for_a_name(self):
        names, me, other = self.names, self.me, self.other
        with self.assertRaises(verbena.NotFound):
            names.find(me, "orders/7")
        lock = names.lock(me, "orders/7")
        self.assertEqual(names.lock(other, b"orders/7"), lock)
        self.assertEqual(names.find(other, bytearray(b"orders/7")), lock)
        self.assertNotEqual(names.lock(me, "orders/8"), lock)
        with self.assertRaises(LookupError):
            names.find(me, "orders/9")

    def test_name_of_a_lock(self):
        names, me = self.names, self.me
        given = ["orders/7", "größer", b"\0\xff\0", "x" * 49]
        locks = {names.lock(me, name): name for name in given}
        wanted = {
            lock: name.encode() if isinstance(name, str) else name for lock, name in locks.items()
        }
        self.assertEqual({lock: names.of(me, lock) for lock in locks}, wanted)
        found = []
        for lock, name in names.each(me):
            # Between two of them the client does what it likes.
            with me.acquire(lock):
                found.append((lock, name))
        self.assertEqual(found, sorted(wanted.items()))
        nameless = next(lock for lock in range(100) if lock not in locks)
        with self.assertRaises(verbena.NotFound):
            names.of(me, nameless)

    def test_acquire(self):
        names, me, other = self.names, self.me, self.other
        with names.acquire(me, "orders/7", timeout_ns=LONG_NS) as held:
            self.assertEqual(held.lock, names.find(other, "orders/7"))
            self.assertIsNone(names.try_acquire(other, "orders/7"))
            with names.try_acquire(other, "orders/8", verbena.SHARED) as shared:
                self.assertEqual(shared.mode, verbena.SHARED)
        with names.acquire(other, "orders/7"):
            pass

    def test_bounds(self):
        with self.fabric.lock_space("cas", 100, name="few") as space, space.client() as me:
            with space.names(names=2, bytes=5, known=8) as names:
                self.assertEqual({names.lock(me, "a"), names.lock(me, "bcdef")}, {0, 1})
                wrong = (
                    (verbena.NoRoom, lambda: names.lock(me, "c")),
                    (verbena.Invalid, lambda: names.lock(me, "")),
                    (verbena.Invalid, lambda: names.lock(me, "abcdef")),
                    (verbena.Invalid, lambda: names.of(me, 2)),
                    (verbena.Invalid, lambda: names.of(me, 2**64)),
                    (verbena.Invalid, lambda: space.names(names=3, bytes=5)),
                    (verbena.Invalid, lambda: space.names(bytes=256)),
                    (TypeError, lambda: space.names(nmes=3)),
                    (TypeError, lambda: names.lock(me, 5)),
                    (TypeError, lambda: names.lock(me, None)),
                )
                for kind, call in wrong:
                    with quiet(), self.assertRaises(kind):
                        call()
                self.assertEqual(list(names.each(me)), [(names.find(me, n), n) for n in
                                                        (names.of(me, 0), names.of(me, 1))])

    def test_whose(self):
        names, me = self.names, self.me
        with self.fabric.lock_space("cas", 10, name="own") as space, space.client() as stranger:
            with self.assertRaises(verbena.Invalid):
                names.lock(stranger, "a")
        self.assertEqual(in_thread(self.elsewhere), names.find(me, "of a thread"))
        with self.assertRaises(verbena.Foreign):
            in_thread(names.lock, me, "a")
        self.assertEqual((me._uses, names._uses), (set(), set()))

    def elsewhere(self):
        with self.space.client() as mine:
            return self.names.lock(mine, "of a thread")

    def test_closed(self):
        """Names stay when the directory is closed."""
        with self.space.names() as again:
            lock = again.lock(self.me, "a")
        with self.assertRaises(verbena.Closed):
            again.lock(self.me, "a")
        with self.assertRaises(verbena.Closed):
            next(again.each(self.me))
        self.assertEqual(self.names.find(self.me, "a"), lock)
        with self.fabric.lock_space("cas", 10, name="second") as space:
            with space.names(), quiet(), self.assertRaises(verbena.Busy):
                space.close()
            with space.client() as me, space.names() as names:
                me.close()
                with self.assertRaises(verbena.Closed):
                    names.lock(me, "a")

    def test_interrupted(self):
        lib = verbena._api.lib
        with interrupted(lib.vb_names_lock), self.assertRaises(KeyboardInterrupt):
            self.names.lock(self.me, "a")
        lock = self.names.find(self.me, "a")
        with interrupted(lib.vb_names_of), self.assertRaises(KeyboardInterrupt):
            list(self.names.each(self.me))
        self.assertEqual((self.me._uses, self.names._uses), (set(), set()))
        self.assertEqual(list(self.names.each(self.me)), [(lock, b"a")])

    def test_simulated(self):
        with verbena.Fabric("sim", nodes=3, seed=1) as fabric:
            with fabric.lock_space("dslr", 10, servers=3) as space, space.names() as names:
                with space.client(2) as me, names.acquire(me, "a") as held:
                    self.assertEqual(list(names.each(me)), [(held.lock, b"a")])
