# SPDX-License-Identifier: Apache-2.0
"""What a program may do wrong: each is an exception, and harms nobody."""

import gc
import os
import threading
import time
import unittest
import warnings

import verbena
from world import LONG_NS, in_child, in_thread, interrupted, quiet, small


class World(unittest.TestCase):
    """One of each, open."""

    def setUp(self):
        self.open = []
        # A name for each test, for one that has failed leaves its fabric open.
        self.name = f"python-misuse-{os.getpid()}-{self._testMethodName}"
        self.fabric = self.enter(small(name=self.name))
        self.space = self.enter(self.fabric.lock_space("mcs", 10))
        self.served = self.enter(self.fabric.lock_space("rpc", 10, name="served"))
        self.server = self.enter(self.served.server())
        self.names = self.enter(self.space.names())
        self.me = self.enter(self.space.client())
        self.grant = self.me.acquire(5)
        self.unserved = self.enter(self.fabric.lock_space("rpc", 10, name="unserved"))
        self.db = self.enter(self.fabric.database("silo", coordinators=4, lease_ns=LONG_NS))
        self.table = self.db.table("t", 8, 100)
        self.table.load(1, bytes(8))
        self.values = self.enter(self.db.values("v", 200, 10))
        self.enter(self.db.server_thread())
        self.co = self.enter(self.db.coordinator())
        verbena.log_levels("off")

    def tearDown(self):
        verbena.log_levels("warn")
        self.unharmed()
        self.grant.release()
        while self.open:
            self.open.pop().close()

    def enter(self, thing):
        self.open.append(thing)
        return thing

    def unharmed(self):
        self.assertTrue(self.grant.valid())
        with self.me.acquire(6, timeout_ns=LONG_NS):
            pass
        self.assertEqual(self.co.run(lambda me: me.get(self.table, 1)), bytes(8))

    # Every way to call what belongs to somebody.
    def bound(self):
        me, co, table, values = self.me, self.co, self.table, self.values
        return [
            lambda: me.acquire(1),
            lambda: me.acquire(1, hold_ns=1),
            lambda: me.try_acquire(1),
            lambda: me.acquire_path([1, 2]),
            lambda: me.renew(self.grant),
            lambda: me.convert(self.grant, verbena.SHARED),
            lambda: me.valid(self.grant),
            lambda: me.release_all([self.grant]),
            self.grant.release,
            me.now,
            me.age,
            me.peer,
            lambda: me.holder(1),
            lambda: self.names.lock(me, "a"),
            lambda: self.names.find(me, "a"),
            lambda: self.names.of(me, 1),
            lambda: next(self.names.each(me)),
            lambda: self.names.acquire(me, "a"),
            lambda: self.names.try_acquire(me, "a"),
            me.begin,
            me.hold_max_ns,
            me.close,
            self.server.stop,
            co.begin,
            lambda: co.get(table, 1),
            lambda: co.read_into(table, 1, bytearray(8)),
            lambda: co.update(table, 1),
            lambda: co.write(table, 1, bytes(8)),
            lambda: co.insert(table, 9, bytes(8)),
            lambda: co.delete(table, 1),
            lambda: co.scan(table),
            lambda: co.declare([(table, 1)]),
            lambda: values.get(co, 1),
            lambda: values.put(co, 1, b""),
            lambda: values.remove(co, 1),
            co.commit,
            co.abort,
            lambda: co.cause,
            lambda: co.error,
            lambda: co.run(lambda me: None),
            lambda: co.recover(0),
            co.close,
        ]

    def shared(self):
        return [
            self.space.client,
            self.space.names,
            self.names.close,
            self.served.server_thread,
            self.space.close,
            lambda: self.fabric.lock_space("cas", 10, name="new"),
            lambda: self.fabric.database("silo", name="new"),
            lambda: self.db.table("new", 8, 10),
            lambda: self.db.values("new", 8, 10),
            lambda: self.table.load(2, bytes(8)),
            lambda: self.table.node(1),
            self.db.coordinator,
            self.values.close,
            self.db.close,
            self.fabric.close,
        ]

    def refuse(self, kind, calls):
        for i, call in enumerate(calls):
            with self.assertRaises(kind, msg=f"call {i} of {len(calls)}"):
                call()

    def test_other_thread(self):
        in_thread(self.refuse, verbena.Foreign, self.bound())
        # A thread that has what the first one's name was is not the first one.
        names = []

        def own():
            # Nobody can close what a thread has left open: a fabric that stays until the process ends.
            fabric = small()
            client = fabric.lock_space("cas", 10).client()
            names.append((threading.get_ident(), client))

        in_thread(own)
        for _ in range(20):
            in_thread(lambda: self.refuse(verbena.Foreign, [names[0][1].now]))
        left = names[0][1]
        with self.assertRaises(verbena.Busy):
            left.parent.close()
        for thing in (left, left.parent, left.parent.parent):
            thing._pointer = None

    def test_untold_child(self):
        def child():
            self.refuse(verbena.Foreign, self.bound() + self.shared())
            # Leaving the blocks of the parent leaves alone what is the parent's.
            for thing in reversed(self.open):
                thing.__exit__(None, None, None)
            self.grant.__exit__(None, None, None)

        self.assertEqual(in_child(child), 0)
        self.unharmed()
        with verbena.Fabric(name=self.name, attach=True):
            pass

    def test_told_child(self):
        def child():
            self.fabric.after_fork()
            self.fabric.after_fork()
            self.refuse(verbena.Foreign, self.bound())
            with self.space.client() as mine:
                self.assertIsNone(mine.try_acquire(5))
                with mine.acquire(self.names.lock(mine, "a")):
                    self.refuse(verbena.Busy, [self.fabric.close, self.space.close])
            with self.db.coordinator() as mine:
                self.assertEqual(mine.run(lambda me: me.get(self.table, 1)), bytes(8))
            self.names.close()
            self.space.close()

        lock = self.names.lock(self.me, "a")
        self.assertEqual(in_child(child), 0)
        self.assertEqual(self.names.find(self.me, "a"), lock)
        self.unharmed()

    def test_fork_while_another_thread_calls(self):
        """What the other thread was about is not the child's."""
        ready, ended = threading.Event(), []

        def wait():
            with self.space.client() as client:
                ready.set()
                try:
                    client.acquire(5, timeout_ns=300_000_000)
                except verbena.TimedOut as error:
                    ended.append(error)

        def child():
            self.fabric.after_fork()
            with self.space.client():
                pass
            self.space.close()

        thread = threading.Thread(target=wait)
        thread.start()
        ready.wait(60)
        self.assertEqual(in_child(child), 0)
        thread.join()
        self.assertEqual(len(ended), 1)

    def test_close_in_use(self):
        self.refuse(verbena.Busy, [self.fabric.close, self.space.close, self.served.close])
        self.refuse(verbena.Busy, [self.db.close])
        self.unharmed()

    def test_close_under_a_call(self):
        """Another thread is in a call of the space, which waits: it is not closed under it."""
        use = object()
        self.space._begin(use)
        self.refuse(verbena.Busy, [self.space.close])
        self.space._uses.discard(use)
        # Closing and calling at the same time: one of them is refused, and says so.
        stop, wrong = threading.Event(), []

        def open_and_close():
            while not stop.is_set():
                try:
                    with self.space.client():
                        pass
                except verbena.Error as error:
                    wrong.append(error)

        threads = [threading.Thread(target=open_and_close) for _ in range(2)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 0.1
        while time.monotonic() < until:
            self.refuse(verbena.Busy, [self.space.close])
        stop.set()
        for thread in threads:
            thread.join()
        self.assertTrue(all(type(error) is verbena.Busy for error in wrong), wrong)

    def test_close_under_a_close(self):
        """Another thread is about to close the space, and will be refused: what is open on it waits for that,
        and is closed, before anybody tries again."""
        client, begun, tried = self.space.client(), threading.Event(), []

        def closer():
            turn = [verbena._handle.here()]
            self.space._begin_close(turn)
            begun.set()
            until = time.monotonic() + 60
            while not self.space._uses and time.monotonic() < until:
                time.sleep(0.001)
            self.space._closing = None
            try:
                self.space._begin_close(turn)
            except verbena.Busy as error:
                tried.append(error.strerror)

        thread = threading.Thread(target=closer)
        thread.start()
        begun.wait(60)
        client.close()
        thread.join()
        self.assertEqual(tried, [f"a call on this {self.space.what} is under way"])
        self.assertEqual(self.space._uses, set())
        # Who would wait for itself is refused.
        client = self.space.client()
        self.space._begin_close([verbena._handle.here()])
        self.refuse(verbena.Busy, [client.close])
        self.space._closing = None
        client.close()

    def test_interrupted(self):
        """Ctrl-C that comes while the library is in a call is heard when it returns: what has been closed is
        closed, and what has been taken, opened or begun, and nobody will have, is given back."""
        lib = verbena._api.lib

        def ctrl_c_in(function, call):
            with interrupted(function), self.assertRaises(KeyboardInterrupt):
                call()

        for opened, closed, make in (
            (lib.vb_lock_space_open, lib.vb_lock_space_close, lambda: self.fabric.lock_space("cas", 9, name="i")),
            (lib.vb_names_open, lib.vb_names_close, self.space.names),
            (lib.vb_lock_client_open, lib.vb_lock_client_close, self.space.client),
            (lib.vb_lock_server_thread_start, lib.vb_lock_server_stop, self.unserved.server_thread),
            (lib.vb_db_open, lib.vb_db_close, lambda: self.fabric.database("silo", name="i")),
            (lib.vb_coordinator_open, lib.vb_coordinator_close, self.db.coordinator),
            (lib.vb_fabric_open, lib.vb_fabric_close, small),
        ):
            ctrl_c_in(opened, make)
            thing = make()
            self.assertIsNotNone(thing._pointer)
            ctrl_c_in(closed, thing.close)
            self.assertIsNone(thing._pointer, closed.__name__)
            thing.close()
        self.assertEqual((self.fabric._uses, self.space._uses, self.db._uses), (set(), set(), set()))
        me, co, table = self.me, self.co, self.table
        ctrl_c_in(lib.vb_lock_acquire, lambda: me.acquire(1))
        ctrl_c_in(lib.vb_lock_try, lambda: me.try_acquire(1))
        with self.space.client() as other, other.try_acquire(1):
            # Refused, and not closed.
            ctrl_c_in(lib.vb_lock_space_close, self.space.close)
            self.refuse(verbena.Busy, [self.space.close])
        ctrl_c_in(lib.vb_txn_begin, co.begin)
        ctrl_c_in(lib.vb_txn_begin, lambda: co.run(lambda me: None))
        co.begin()
        ctrl_c_in(lib.vb_txn_update, lambda: co.update(table, 1))
        co.abort()
        ctrl_c_in(lib.vb_txn_commit, lambda: co.run(lambda me: me.write(table, 1, bytes([1] * 8))))
        self.assertEqual(co.cause, verbena.Cause.COMMITTED)
        self.assertEqual(co.run(lambda me: me.get(table, 1)), bytes([1] * 8))
        co.run(lambda me: me.write(table, 1, bytes(8)))

    def test_closed(self):
        with self.space.client() as client:
            grant = client.acquire(1)
        self.refuse(verbena.Closed, [grant.release, grant.valid, client.now])
        self.refuse(verbena.Closed, [lambda: client.acquire(1)])
        client.close()
        self.assertIn("closed", repr(client))
        with self.db.coordinator() as co:
            pass
        self.refuse(verbena.Closed, [co.begin, lambda: co.get(self.table, 1), lambda: co.cause])
        with small() as fabric:
            with fabric.database("silo") as db:
                table = db.table("t", 8, 10)
                with db.values("v", 8, 10) as values:
                    pass
        self.refuse(verbena.Closed, [lambda: fabric.lock_space("cas", 1)])
        self.refuse(verbena.Closed, [lambda: table.load(1, bytes(8)), lambda: table.node(1)])
        self.refuse(verbena.Closed, [db.coordinator, lambda: db.table("u", 8, 1)])
        # Before the library looks at them, whose memory they no longer are.
        for call in (
            lambda: self.co.get(table, 1),
            lambda: self.co.declare([(table, 1)]),
            lambda: values.get(self.co, 1),
        ):
            with self.assertRaises(verbena.Invalid) as raised:
                call()
            self.assertIn("another database", str(raised.exception))

    def test_close_in_a_body(self):
        with self.db.coordinator() as co:
            self.refuse(verbena.Closed, [lambda: co.run(lambda me: me.close())])

        def nested(me):
            record = me.update(self.table, 2)
            self.refuse(verbena.Busy, [lambda: me.run(lambda me: None)])
            return record

        self.co.run(lambda me: me.insert(self.table, 2, bytes(8)))
        self.co.run(nested)

    def test_grants(self):
        with self.space.client() as other:
            self.refuse(verbena.Invalid, [lambda: other.release(self.grant)])
            self.assertFalse(other.valid(self.grant))
            grant = other.acquire(1)
            grant.release()
            self.refuse(verbena.Invalid, [grant.release, lambda: other.release_all([grant])])
            with other.acquire(2) as grant:
                grant.release()

    def test_numbers(self):
        """C would take what is left of them when they are cut to size."""
        me, co = self.me, self.co
        self.refuse(
            verbena.Invalid,
            [
                lambda: self.space.client(65536),
                lambda: self.space.client(-1),
                lambda: me.acquire(2**64),
                lambda: me.acquire(-1),
                lambda: me.acquire(1, mode=6),
                lambda: me.acquire(1, mode=2**32 + 1),
                lambda: me.acquire(1, timeout_ns=-1),
                lambda: me.acquire(10),
                lambda: verbena.Fabric(nodes=65537),
                lambda: verbena.Fabric(node_bytes=-1),
                lambda: verbena.Fabric(name="a\0b"),
                lambda: verbena.Fabric("nonsense"),
                lambda: co.begin(7),
                lambda: co.get(self.table, 2**64),
                lambda: me.acquire_path([]),
                lambda: me.acquire_path([1] * 65),
                lambda: verbena.log_levels("loud"),
                lambda: verbena.log_levels(None),
                lambda: verbena.prefix(-1, 3),
            ],
        )
        self.assertTrue(issubclass(verbena.Invalid, ValueError))
        for call in (
            lambda: me.acquire(1.5),
            lambda: me.acquire("1"),
            lambda: verbena.Fabric(nods=2),
            lambda: me.release(None),
            lambda: co.get(None, 1),
            lambda: co.write(self.table, 1, "12345678"),
        ):
            with self.assertRaises((TypeError, AttributeError)):
                call()

    def test_sizes_of_records(self):
        co, table = self.co, self.table
        self.refuse(
            verbena.Invalid,
            [
                lambda: table.load(3, bytes(7)),
                lambda: co.write(table, 1, bytes(9)),
                lambda: co.insert(table, 9, b""),
                lambda: co.read_into(table, 1, bytearray(7)),
                lambda: co.get(table, 1),  # no transaction is under way
            ],
        )
        co.begin()
        with self.assertRaises(TypeError):
            co.read_into(table, 1, bytes(8))
        co.abort()

    def test_what_nobody_keeps(self):
        """The library has what it needs, whatever Python throws away; and the other way round."""
        with small(name="%s-%d" % (self.name, 2)) as fabric:
            space = fabric.lock_space("d" + "slr", 10, name="sp" + "ace", lease_ns=LONG_NS)
            client = space.client()
            del space
            gc.collect()
            with client.acquire(1):
                gc.collect()
            space = client.parent
            self.assertIs(space.parent, fabric)
            client.close()
            space.close()
        self.co.begin()
        record = self.co.update(self.table, 1)
        kept = [self.co.get(self.table, 1) for _ in range(3)]
        self.co.abort()
        gc.collect()
        record[0] = 9
        self.assertEqual(kept, [bytes(8)] * 3)
        self.assertEqual(record[0], 9)

    def test_not_closed_is_said(self):
        with small() as fabric:
            space = fabric.lock_space("cas", 10)
            pointer = space._pointer
            # Not what a test before this one has left.
            gc.collect()
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                del space
                gc.collect()
            self.assertEqual([one.category for one in said], [ResourceWarning])
            # It is open all the same, and the fabric knows.
            self.refuse(verbena.Busy, [fabric.close])
            verbena._api.lib.vb_lock_space_close(pointer)

    def test_cluster(self):
        # A thread that waits as shm does cannot wait as a network does.
        in_thread(self.cluster)

    def cluster(self):
        with verbena.Cluster(1, meet="127.0.0.1:0") as cluster:
            with small(fabric="tcp", cluster=cluster) as fabric:
                self.refuse(verbena.Busy, [cluster.close])

                def child():
                    self.refuse(verbena.Foreign, [cluster.barrier, cluster.close])
                    # The library would end the process.
                    self.refuse(verbena.Unsupported, [fabric.after_fork])
                    self.refuse(verbena.Foreign, [lambda: fabric.lock_space("cas", 1)])

                self.assertEqual(in_child(child), 0)
                cluster.barrier()
        self.refuse(verbena.Closed, [cluster.barrier, lambda: cluster.rank])
        self.refuse(verbena.Closed, [lambda: verbena.Fabric("tcp", cluster=cluster)])
