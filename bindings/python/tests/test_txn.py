# SPDX-License-Identifier: Apache-2.0
"""Transactions: each call does what its C function does."""

import struct
import unittest

import verbena
from verbena import Cause, Isolation
from world import LONG_NS, quiet, small

NUMBER = struct.Struct("=q")
RECORDS = 20


class Bank(unittest.TestCase):
    cc = "wound-wait"

    def setUp(self):
        self.fabric = self.enter(small())
        self.db = self.enter(
            self.fabric.database(
                self.cc, name="bank", items_max=200, coordinators=4, lease_ns=LONG_NS
            )
        )
        self.table = self.db.table("account", 8, 100, ordered=True)
        for key in range(RECORDS):
            self.table.load(key, NUMBER.pack(100))
        self.values = self.enter(self.db.values("note", 3000, 10))
        self.enter(self.db.server_thread())
        self.me = self.enter(self.db.coordinator())

    def enter(self, manager):
        entered = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return entered

    def number(self, key):
        return self.me.run(lambda me: NUMBER.unpack(me.get(self.table, key))[0])

    def test_calls(self):
        me, table = self.me, self.table
        me.begin()
        self.assertEqual(me.get(table, 1), NUMBER.pack(100))
        me.write(table, 1, bytearray(NUMBER.pack(7)))
        me.insert(table, 50, NUMBER.pack(8))
        with self.assertRaises(verbena.Exists):
            me.insert(table, 2, NUMBER.pack(8))
        me.delete(table, 3)
        with self.assertRaises(LookupError):
            me.get(table, 3)
        into = bytearray(8)
        me.read_into(table, 50, into)
        self.assertEqual(NUMBER.unpack(into), (8,))
        me.commit()
        self.assertEqual((me.cause, me.error), (Cause.COMMITTED, 0))
        self.assertEqual((self.number(1), self.number(50), self.number(2)), (7, 8, 100))
        with self.assertRaises(verbena.NotFound):
            self.number(3)

    def test_update(self):
        """What is changed in place is what every later call sees, and what is committed."""
        me, table = self.me, self.table
        me.begin()
        record = me.update(table, 1)
        NUMBER.pack_into(record, 0, 5)
        self.assertEqual(me.get(table, 1), NUMBER.pack(5))
        again = me.update(table, 1)
        again.cast("q")[0] += 1
        self.assertEqual(bytes(record), NUMBER.pack(6))
        self.assertEqual(me.scan(table, 1, 1), [(1, NUMBER.pack(6))])
        with self.assertRaises(ValueError):
            record[:] = b"too long for a record"
        me.commit()
        self.assertEqual(self.number(1), 6)
        # Of what is over nothing is written any more, and nothing breaks.
        NUMBER.pack_into(record, 0, 77)
        me.begin()
        self.assertEqual(me.get(table, 1), NUMBER.pack(6))
        me.commit()
        self.assertEqual(self.number(1), 6)

    def test_update_and_write(self):
        me, table = self.me, self.table
        me.begin()
        record = me.update(table, 1)
        me.write(table, 1, NUMBER.pack(9))
        NUMBER.pack_into(record, 0, 77)
        me.commit()
        self.assertEqual(self.number(1), 9)
        me.begin()
        NUMBER.pack_into(me.update(table, 1), 0, 10)
        with self.assertRaises(verbena.Exists):
            me.insert(table, 1, NUMBER.pack(11))
        me.update(table, 2)
        me.abort()
        self.assertEqual(me.cause, Cause.USER)
        self.assertEqual(self.number(1), 9)

    def test_scan(self):
        keys = self.me.run(lambda me: [key for key, _ in me.scan(self.table, 3, 7)])
        self.assertEqual(keys, [3, 4, 5, 6, 7])
        keys = self.me.run(
            lambda me: [key for key, _ in me.scan(self.table, 0, 99, room=3, descending=True)]
        )
        self.assertEqual(keys, [19, 18, 17])
        keys = self.me.run(lambda me: me.scan(self.table, *verbena.prefix(1 << 40, 8)))
        self.assertEqual(keys, [])

    def test_declare(self):
        def body(me):
            me.declare([(self.table, 1, True), (self.table, 2)])
            NUMBER.pack_into(me.update(self.table, 1), 0, 1)
            return NUMBER.unpack(me.get(self.table, 2))[0]

        self.assertEqual(self.me.run(body), 100)
        self.assertEqual(self.number(1), 1)

    def test_values(self):
        long = bytes(range(256)) * 11
        me, values = self.me, self.values
        me.run(lambda me: (values.put(me, 1, long), values.put(me, 2, b"")))
        self.assertEqual(me.run(lambda me: values.get(me, 1)), long)
        self.assertEqual(me.run(lambda me: values.get(me, 2)), b"")
        me.run(lambda me: values.remove(me, 1))
        with self.assertRaises(verbena.NotFound):
            me.run(lambda me: values.get(me, 1))

        def too_big(me):
            NUMBER.pack_into(me.update(self.table, 1), 0, 4)
            with quiet(), self.assertRaises(verbena.TooBig):
                values.put(me, 3, bytes(3001))

        # It goes on, with all that was changed before.
        me.run(too_big)
        self.assertEqual(self.number(1), 4)

    def test_levels(self):
        with quiet(), self.assertRaises(verbena.Unsupported):
            self.me.begin(Isolation.SNAPSHOT)
        self.me.begin(Isolation.READ_COMMITTED, read_only=True)
        with quiet(), self.assertRaises(verbena.ReadOnly):
            self.me.write(self.table, 1, NUMBER.pack(0))
        self.me.commit()

    def test_conflict(self):
        """An abort says why, and run() tries again until the other has gone."""
        db = self.fabric.database("no-wait", name="second", coordinators=4, lease_ns=LONG_NS)
        with db, db.server_thread():
            table = db.table("t", 8, 10)
            for key in 1, 2:
                table.load(key, NUMBER.pack(key))
            with db.coordinator() as a, db.coordinator() as b:
                a.begin()
                a.update(table, 1)
                with self.assertRaises(verbena.Aborted) as raised:
                    b.run(lambda me: me.update(table, 1), tries=2)
                self.assertEqual(raised.exception.cause, Cause.LOCKED)
                # What was changed in a transaction that is over is not of the next one.
                for _ in range(10):
                    b.begin()
                    record = b.update(table, 2)
                    self.assertEqual(record, NUMBER.pack(2))
                    NUMBER.pack_into(record, 0, 22)
                    with self.assertRaises(verbena.Aborted):
                        b.update(table, 1)
                tried = []

                def body(me):
                    tried.append(1)
                    if len(tried) == 3:
                        a.commit()
                    return bytes(me.update(table, 1))

                self.assertEqual(b.run(body), NUMBER.pack(1))
                self.assertEqual(len(tried), 3)
                a.begin()
                a.update(table, 1)
                with self.assertRaises(verbena.TimedOut):
                    b.run(lambda me: me.update(table, 1), timeout_ns=2_000_000)
                a.abort()

    def test_run_passes_on(self):
        """An exception of the body, of whatever kind, aborts, and nothing is committed."""
        for kind in (KeyError, KeyboardInterrupt, SystemExit, StopIteration):

            def body(me):
                NUMBER.pack_into(me.update(self.table, 1), 0, 55)
                raise kind("mine")

            with self.assertRaises(kind):
                self.me.run(body)
            self.assertEqual(self.me.cause, Cause.USER)
        self.assertEqual(self.number(1), 100)

    def test_recover(self):
        # It waits for a lease.
        with self.fabric.database(self.cc, name="short", coordinators=4) as db, db.server_thread():
            with db.coordinator() as me:
                self.assertEqual(me.recover(0), 0)

    def test_sizes(self):
        self.assertEqual(self.table.record_bytes, 8)
        self.assertEqual(self.table.node(5), 0)
        db = {"cc": "silo", "coordinators": 2}
        self.assertGreater(verbena.db_node_bytes(1, **db), 1000)
        table = {"name": "t", "record_bytes": 8, "records": 1000}
        self.assertGreater(verbena.table_node_bytes(1, db, table), 8000)
