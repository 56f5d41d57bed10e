# SPDX-License-Identifier: Apache-2.0
"""Transactions: verbena/txn.h."""

import ctypes
import enum
import errno
import itertools
import random
import time

from . import _api
from ._errors import Aborted, Invalid, TimedOut, TryAgain, error, refused
from ._handle import Handle, Shared, byref, fit, lib, params, u16, u32, u64

_row = _api.structs["vb_txn_row"]
_key = _api.structs["vb_txn_key"]
_range = _api.structs["vb_txn_range"]

# Before the first try again; each further one doubles the most, up to 2^8 times.
PAUSE_NS = 2000
PAUSE_DOUBLES = 8


class Partition(enum.IntEnum):
    """Which node has a key: enum vb_partition."""

    MOD = 0
    HASH = 1
    TOP16 = 2


class Cause(enum.IntEnum):
    """Why a transaction ended: enum vb_txn_cause."""

    COMMITTED = 0
    USER = 1
    LOCKED = 2
    DIED = 3
    WOUNDED = 4
    CHANGED = 5
    LEASE = 6
    SLOTS = 7
    RECOVERED = 8
    TIMEOUT = 9
    FABRIC = 10
    MISUSE = 11
    REFUSED = 12
    CASCADE = 13

    def __str__(self):
        return lib.vb_txn_cause_name(self).decode()


class Isolation(enum.IntEnum):
    """What a transaction is promised of what it reads: enum vb_isolation."""

    SERIALIZABLE = 0
    REPEATABLE_READ = 1
    READ_COMMITTED = 2
    SNAPSHOT = 3


def prefix(key, bits):
    """The least and the most of all keys that differ from this one in their lowest `bits` at most:
    for Coordinator.scan."""
    low = (1 << min(bits, 64)) - 1
    key = u64(key, "key")
    return key & ~low, key | low


def db_node_bytes(nodes, **db):
    """Bytes of each node's segment that a database takes without its tables (vb_db_node_bytes)."""
    return lib.vb_db_node_bytes(byref(params("vb_db_params", **db)), u16(nodes, "nodes"))


def table_node_bytes(nodes, db, table):
    """The same of a table; `db` and `table` are mappings of parameters (vb_table_node_bytes)."""
    return lib.vb_table_node_bytes(
        byref(params("vb_db_params", **db)),
        byref(params("vb_table_params", **table)),
        u16(nodes, "nodes"),
    )


class Database(Shared):
    """A set of tables under one protocol (vb_db_open). Parameters are those of struct vb_db_params.
    Threads may share it and its tables."""

    what = "database"
    close_call = lib.vb_db_close

    def __init__(self, fabric, cc, **others):
        given = params("vb_db_params", cc=cc, **others)
        self._open(fabric, fabric._do, lib.vb_db_open, byref(given))

    def table(self, name, record_bytes, records, **others):
        """Opens a table; every process opens them in the same order (vb_table_open)."""
        return Table(self, name, record_bytes, records, **others)

    def values(self, name, bytes_max, records, **others):
        """Opens a table of values of any size up to a bound (vb_values_open)."""
        return Values(self, name, bytes_max, records, **others)

    def server(self, node=0):
        """Starts a node's server on this thread (vb_db_server_start)."""
        return DatabaseServer(self, node, True)

    def server_thread(self, node=0):
        """Starts a node's server on a thread of its own (vb_db_server_thread_start)."""
        return DatabaseServer(self, node, False)

    def coordinator(self, node=0):
        """Opens a coordinator for this thread."""
        return Coordinator(self, node)


class DatabaseServer(Handle):
    """A node's server. One that a thread started as its task is that thread's."""

    what = "database server"
    close_call = lib.vb_db_server_stop

    def __init__(self, db, node, task):
        self.bound = task
        start = lib.vb_db_server_start if task else lib.vb_db_server_thread_start
        self._open(db, db._do, start, u16(node, "node"))

    stop = Handle.close


class Table:
    """Records of one size with 64-bit keys. It is open as long as its database."""

    def __init__(self, db, name, record_bytes, records, **others):
        given = params(
            "vb_table_params", name=name, record_bytes=record_bytes, records=records, **others
        )
        self._pointer = lib.vb_table_open.argtypes[-1]._type_()
        db._do(lib.vb_table_open, byref(given), byref(self._pointer))
        self._address = ctypes.cast(self._pointer, ctypes.c_void_p).value
        self.db = db
        self.name = name
        self.record_bytes = self._call(lib.vb_table_record_bytes)

    def __repr__(self):
        return f"<verbena.Table {self.name!r}>"

    def _call(self, function, *arguments):
        return self.db._call(lambda _, *rest: function(self._pointer, *rest), *arguments)

    def _record(self, record):
        """A record's bytes; the library copies as many as it has."""
        record = bytes(memoryview(record))
        if len(record) != self.record_bytes:
            raise refused(
                Invalid,
                f"a record of {len(record)} bytes, and those of {self.name!r} have"
                f" {self.record_bytes}",
            )
        return record

    def node(self, key):
        """The node that has a key."""
        return self._call(lib.vb_table_node, u64(key, "key"))

    def load(self, key, record):
        """Puts a record in place without a transaction, before there are any (vb_table_load)."""
        result = self._call(lib.vb_table_load, u64(key, "key"), self._record(record))
        if result != 0:
            raise error(result, "vb_table_load")


class Values(Shared):
    """A table of values. Calls are part of a coordinator's transaction."""

    what = "table of values"
    close_call = lib.vb_values_close

    def __init__(self, db, name, bytes_max, records, **others):
        given = params(
            "vb_values_params", name=name, bytes_max=bytes_max, records=records, **others
        )
        self.bytes_max = bytes_max
        self._open(db, db._do, lib.vb_values_open, byref(given))

    def _in(self, me, function, *arguments):
        if me.parent is not self.parent:
            raise refused(Invalid, "the values are of another database than the coordinator")
        use = object()
        try:
            self._begin(use)
            me._step(function, self._pointer, *arguments)
        finally:
            self._uses.discard(use)

    def get(self, me, key):
        """The value of a key, as bytes (vb_values_get)."""
        room = ctypes.create_string_buffer(max(self.bytes_max, 1))
        n = ctypes.c_uint32()
        self._in(me, lib.vb_values_get, u64(key, "key"), room, self.bytes_max, byref(n))
        return room[: n.value]

    def put(self, me, key, value):
        """Inserts or replaces a value (vb_values_put)."""
        value = bytes(memoryview(value))
        self._in(me, lib.vb_values_put, u64(key, "key"), value, u32(len(value), "bytes"))

    def remove(self, me, key):
        """Deletes a value (vb_values_remove)."""
        self._in(me, lib.vb_values_remove, u64(key, "key"))


class Coordinator(Handle):
    """Runs transactions, one at a time (vb_coordinator_open). It belongs to the thread that opened
    it.

    What it gives are copies, which stay what they are when the transaction has ended: bytes, or
    from update() a memoryview whose contents are written with the commit."""

    bound = True
    what = "coordinator"
    close_call = lib.vb_coordinator_close

    def __init__(self, db, node=0):
        # (Table's address, key): where the library has the record, and the copy that was given.
        self._updated = {}
        self._open(db, db._do, lib.vb_coordinator_open, u16(node, "node"))

    # ---- a call in a transaction ----

    def _step(self, function, *arguments):
        self._judge(function, self._call(function, *arguments))

    def _judge(self, function, result):
        if result == -errno.EAGAIN:
            aborted = error(result, function.__name__, kind=Aborted)
            aborted.cause = self.cause
            raise aborted
        if result != 0:
            raise error(result, function.__name__)

    def _of(self, table):
        # Only a table of this database is sure to be open.
        if table.db is not self.parent:
            raise refused(Invalid, f"{table!r} is of another database than the coordinator")
        return table._pointer

    def _store(self, *names):
        """What was changed in copies goes to where the library has the records."""
        for name in names or list(self._updated):
            if name in self._updated:
                address, copy = self._updated[name]
                ctypes.memmove(address, (ctypes.c_char * len(copy)).from_buffer(copy), len(copy))

    # ---- a transaction ----

    def begin(self, isolation=Isolation.SERIALIZABLE, *, read_only=False, timeout_ns=0):
        """Begins a transaction (vb_txn_begin, vb_txn_begin_with)."""
        function, given, done = lib.vb_txn_begin, (), []
        if isolation != Isolation.SERIALIZABLE or read_only or timeout_ns != 0:
            function = lib.vb_txn_begin_with
            made = params(
                "vb_txn_params",
                isolation=fit(ctypes.c_uint, isolation, "isolation"),
                read_only=read_only,
                timeout_ns=timeout_ns,
            )
            given = (byref(made),)
        try:
            self._call_into(done, function, *given)
            self._judge(function, done[0])
            self._updated.clear()
        except BaseException:
            # Nobody knows that it has begun.
            if done == [0]:
                self.abort()
            raise

    def get(self, table, key):
        """The record as this transaction sees it, as bytes (vb_txn_get)."""
        out = ctypes.c_void_p()
        key = u64(key, "key")
        self._check()
        self._store((table._address, key))
        self._step(lib.vb_txn_get, self._of(table), key, byref(out))
        return ctypes.string_at(out.value, table.record_bytes)

    def read_into(self, table, key, buffer):
        """The same, into a buffer of the record's size (vb_txn_read)."""
        key = u64(key, "key")
        room = memoryview(buffer)
        if room.nbytes != table.record_bytes:
            raise refused(Invalid, f"a buffer of {room.nbytes} bytes for {table.record_bytes}")
        self._check()
        self._store((table._address, key))
        into = (ctypes.c_char * room.nbytes).from_buffer(room)
        self._step(lib.vb_txn_read, self._of(table), key, into)

    def update(self, table, key):
        """The record as this transaction sees it, to be changed in place until the commit
        (vb_txn_update): a memoryview of its bytes, of a fixed size. A write or delete of the key
        ends it."""
        out = ctypes.c_void_p()
        key = u64(key, "key")
        name = (table._address, key)
        self._check()
        self._store(name)
        self._step(lib.vb_txn_update, self._of(table), key, byref(out))
        if self._updated.get(name, (None,))[0] != out.value:
            copy = bytearray(ctypes.string_at(out.value, table.record_bytes))
            self._updated[name] = (out.value, copy)
        return memoryview(self._updated[name][1])

    def write(self, table, key, record):
        """Replaces the record without reading it (vb_txn_write)."""
        key, record = u64(key, "key"), table._record(record)
        self._step(lib.vb_txn_write, self._of(table), key, record)
        self._updated.pop((table._address, key), None)

    def insert(self, table, key, record):
        """Adds a record where there is none (vb_txn_insert)."""
        key, record = u64(key, "key"), table._record(record)
        self._step(lib.vb_txn_insert, self._of(table), key, record)

    def delete(self, table, key):
        """Removes the record (vb_txn_delete)."""
        key = u64(key, "key")
        self._step(lib.vb_txn_delete, self._of(table), key)
        self._updated.pop((table._address, key), None)

    def scan(self, table, least=0, most=2**64 - 1, *, room=64, descending=False):
        """The first `room` of the records whose keys lie in the range, both ends included, in
        order: a list of (key, bytes) (vb_txn_scan)."""
        given = _range(u64(least, "least"), u64(most, "most"), descending)
        rows = (_row * max(u32(room, "room"), 1))()
        n = ctypes.c_uint()
        self._check()
        self._store()
        self._step(lib.vb_txn_scan, self._of(table), byref(given), rows, room, byref(n))
        return [
            (row.key, ctypes.string_at(row.record, table.record_bytes)) for row in rows[: n.value]
        ]

    def declare(self, keys):
        """Says beforehand what will be read and written: (table, key) or (table, key, True)
        (vb_txn_declare)."""
        given = [
            _key(self._of(table), u64(key, "key"), bool(write and write[0]))
            for table, key, *write in keys
        ]
        listed = (_key * max(len(given), 1))(*given)
        self._step(lib.vb_txn_declare, listed, len(given))

    def commit(self):
        """Commits the transaction (vb_txn_commit). Unknown: it has been committed, or it will never
        be."""
        self._check()
        self._store()
        self._updated.clear()
        self._step(lib.vb_txn_commit)

    def abort(self):
        """Aborts the transaction; without one it does nothing (vb_txn_abort)."""
        self._updated.clear()
        self._call(lib.vb_txn_abort)

    @property
    def cause(self):
        """Why the last transaction ended (vb_txn_cause)."""
        return Cause(self._call(lib.vb_txn_cause))

    @property
    def error(self):
        """The error behind that, negative, or 0 (vb_txn_error)."""
        return self._call(lib.vb_txn_error)

    # ---- until it has committed ----

    def run(
        self,
        body,
        *arguments,
        tries=0,
        isolation=Isolation.SERIALIZABLE,
        read_only=False,
        timeout_ns=0,
    ):
        """Runs body(self, *arguments) as a transaction until it commits, and returns what it has
        returned: again and again with growing pauses, at most `tries` times (0: without end), and
        no longer than timeout_ns altogether (0: without end). The body neither begins nor commits;
        an exception of its own aborts the transaction and is passed on. As vb_txn_run_with, but
        the time is that of time.monotonic_ns, on `sim` too."""
        until = time.monotonic_ns() + timeout_ns
        for done in itertools.count(1):
            left = until - time.monotonic_ns() if timeout_ns != 0 else 0
            if timeout_ns != 0 and left <= 0:
                raise error(TimedOut.number, "Coordinator.run")
            self.begin(isolation, read_only=read_only, timeout_ns=left)
            try:
                result = body(self, *arguments)
                self.commit()
                return result
            except TryAgain:
                self._give_up()
                # A body that went on after an error has not seen what went wrong before.
                if self.error != 0:
                    raise error(self.error, "Coordinator.run") from None
                if done == tries:
                    raise
            except BaseException:
                self._give_up()
                raise
            time.sleep(random.random() * (PAUSE_NS << min(done, PAUSE_DOUBLES)) / 1e9)

    def _give_up(self):
        if self._pointer is not None:
            self.abort()

    def recover(self, node):
        """Recovers a node; how many locks came free (vb_db_recover)."""
        freed = ctypes.c_uint64()
        self._step(lib.vb_db_recover, u16(node, "node"), byref(freed))
        return freed.value
