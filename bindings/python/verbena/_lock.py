# SPDX-License-Identifier: Apache-2.0
"""Locks: verbena/lock.h."""

import collections
import ctypes
import enum
import errno

from . import _api
from ._errors import Error, error
from ._handle import Handle, Shared, byref, fit, lib, params, u16, u32, u64

FOREVER_NS = _api.FOREVER_NS
_grant = _api.structs["vb_grant"]
_holder = _api.structs["vb_holder"]


class Mode(enum.IntEnum):
    """How a lock is held: enum vb_mode."""

    SHARED = 0
    EXCLUSIVE = 1
    UPDATE = 2
    INTENT_SHARED = 3
    INTENT_EXCLUSIVE = 4
    SHARED_INTENT_EXCLUSIVE = 5

    def __str__(self):
        return lib.vb_lock_mode_name(self).decode()


class Outcome(enum.IntEnum):
    """What an acquire says about the lock: enum vb_outcome."""

    GRANTED = 0
    NOT_GRANTED = 1
    UNKNOWN = 2


def outcome(problem=None):
    """Granted (None), not granted or unknown, by the exception of an acquire (vb_lock_outcome)."""
    return Outcome(lib.vb_lock_outcome(-problem.errno if problem is not None else 0))


# Of a release: nothing has been done.
_REFUSALS = (
    -errno.EINVAL,
    -errno.EBUSY,
    -errno.ENOSPC,
    -errno.ENOMEM,
    -_api.CONSTANTS["VB_EFOREIGN"],
)


def _mode(mode):
    return fit(ctypes.c_uint, mode, "mode")


class Grant:
    """A held lock, of the client that took it. Leaving its `with` block releases it; the release
    says with Lost that others may have had the lock meanwhile, if the block has not said anything
    worse itself."""

    __slots__ = ("client", "_struct", "_over")

    def __init__(self, client, struct):
        self.client = client
        self._struct = struct
        self._over = False

    lock = property(lambda self: self._struct.lock)
    mode = property(lambda self: Mode(self._struct.mode))
    token = property(lambda self: self._struct.token, doc="The fencing token; 0: none.")
    valid_until_ns = property(
        lambda self: self._struct.valid_until_ns,
        doc="On the client's clock, Client.now(); FOREVER_NS: no lease.",
    )
    own = property(
        lambda self: bool(self._struct.claim),
        doc="False: a lock of a path that another grant holds. It is not released by this one.",
    )

    def __repr__(self):
        return f"<verbena.Grant of lock {self.lock}, {self.mode}{', released' * self._over}>"

    def valid(self):
        """Whether the client has the lock now, by its clock (vb_lock_valid)."""
        return self.client.valid(self)

    def renew(self, timeout_ns=FOREVER_NS):
        """Has the lease begin anew (vb_lock_renew)."""
        self.client.renew(self, timeout_ns)

    def convert(self, mode, timeout_ns=FOREVER_NS):
        """Holds the lock in another mode from now on (vb_lock_convert)."""
        self.client.convert(self, mode, timeout_ns)

    def release(self):
        """Gives the lock back (vb_lock_release)."""
        self.client.release(self)

    def __enter__(self):
        return self

    def __exit__(self, kind, *exc):
        if self._over or not self.own or self.client._inherited():
            return
        try:
            self.release()
        except Error:
            if kind is None:
                raise


class Grants(list):
    """The grants of a path, from the root to the leaf; leaving the `with` block releases those that
    the call took."""

    def __enter__(self):
        return self

    def __exit__(self, kind, *exc):
        held = [grant for grant in reversed(self) if grant.own and not grant._over]
        if not held or held[0].client._inherited():
            return
        try:
            held[0].client.release_all(held)
        except Error:
            if kind is None:
                raise


class Holder(collections.namedtuple("Holder", [name for name, _ in _holder._fields_])):
    """Who has a lock, as its word says: struct vb_holder. `client` is 0 for nobody, for readers, and
    where the word has no room for a name."""

    __slots__ = ()


class LockSpace(Shared):
    """K locks of one protocol (vb_lock_space_open). Parameters are those of struct
    vb_lock_space_params. Threads may share it."""

    what = "lock space"
    close_call = lib.vb_lock_space_close

    def __init__(self, fabric, lock, locks, **others):
        given = params("vb_lock_space_params", lock=lock, locks=locks, **others)
        self.locks = given.locks
        self._open(fabric, fabric._do, lib.vb_lock_space_open, byref(given))

    def client(self, node=0):
        """Opens a client for this thread."""
        return LockClient(self, node)

    def names(self, **others):
        """Opens its directory of names: Names."""
        from ._names import Names

        return Names(self, **others)

    def server(self, node=0, worker=0, workers=1):
        """Starts a worker of a node's server on this thread (vb_lock_server_start)."""
        return LockServer(self, node, worker, workers)

    def server_thread(self, node=0):
        """Starts worker 0 of 1 on a thread of its own (vb_lock_server_thread_start)."""
        return LockServer(self, node)


class LockServer(Handle):
    """A worker of a node's lock server; of protocols without one it is closed from the beginning.
    One that a thread started as its task is that thread's."""

    what = "lock server"
    close_call = lib.vb_lock_server_stop

    def __init__(self, space, node, worker=None, workers=None):
        node = u16(node, "node")
        if worker is None:
            self._open(space, space._do, lib.vb_lock_server_thread_start, node)
        else:
            self.bound = True
            place = node, u32(worker, "worker"), u32(workers, "workers")
            self._open(space, space._do, lib.vb_lock_server_start, *place)

    stop = Handle.close


class LockClient(Handle):
    """Takes and gives back locks (vb_lock_client_open). It belongs to the thread that opened it."""

    bound = True
    what = "lock client"
    close_call = lib.vb_lock_client_close

    def __init__(self, space, node=0):
        self._open(space, space._do, lib.vb_lock_client_open, u16(node, "node"))

    def _take(self, out, run, function, *arguments):
        """Has run(function, ...) take locks: `out` are the grants. What nobody will have is given
        back."""
        try:
            return run(function, *arguments)
        except BaseException:
            for one in out:
                if one.claim:
                    self._call(lib.vb_lock_release, byref(one))
            raise

    def acquire(self, lock, mode=Mode.EXCLUSIVE, timeout_ns=FOREVER_NS, *, hold_ns=None):
        """Takes a lock, waiting at most timeout_ns; with hold_ns for so long (vb_lock_acquire,
        vb_lock_acquire_for)."""
        out = _grant()
        lock, mode, timeout_ns = u64(lock, "lock"), _mode(mode), u64(timeout_ns, "timeout_ns")
        if hold_ns is None:
            function, wanted = lib.vb_lock_acquire, (lock, mode, timeout_ns)
        else:
            function = lib.vb_lock_acquire_for
            wanted = lock, mode, u64(hold_ns, "hold_ns"), timeout_ns
        self._take([out], self._do, function, *wanted, byref(out))
        return Grant(self, out)

    def try_acquire(self, lock, mode=Mode.EXCLUSIVE):
        """Takes a lock if that needs no waiting, else returns None (vb_lock_try)."""
        out = _grant()
        wanted = u64(lock, "lock"), _mode(mode)
        result = self._take([out], self._call, lib.vb_lock_try, *wanted, byref(out))
        if result == -errno.EAGAIN:
            return None
        if result != 0:
            raise error(result, "vb_lock_try")
        return Grant(self, out)

    def acquire_path(self, path, mode=Mode.EXCLUSIVE, timeout_ns=FOREVER_NS):
        """Takes a lock and its ancestors, the root first: Grants (vb_lock_acquire_path)."""
        locks = [u64(lock, "lock") for lock in path]
        out = (_grant * max(len(locks), 1))()
        numbers = (ctypes.c_uint64 * max(len(locks), 1))(*locks)
        wanted = numbers, len(locks), _mode(mode), u64(timeout_ns, "timeout_ns")
        self._take(out, self._do, lib.vb_lock_acquire_path, *wanted, out)
        return Grants(Grant(self, _grant.from_buffer_copy(one)) for one in out[: len(locks)])

    def release(self, grant):
        """Gives a lock back (vb_lock_release). Lost: others may have had it meanwhile."""
        result = self._call(lib.vb_lock_release, byref(grant._struct))
        self._has_released([grant], result)
        if result != 0:
            raise error(result, "vb_lock_release")

    def release_all(self, grants):
        """Gives several locks back together (vb_lock_release_all)."""
        grants = list(grants)
        listed = (_grant * max(len(grants), 1))(*(grant._struct for grant in grants))
        result = self._call(lib.vb_lock_release_all, listed, len(grants))
        self._has_released(grants, result)
        if result != 0:
            raise error(result, "vb_lock_release_all")

    # Lost and unknown ones are over, too; a refusal has released nothing.
    @staticmethod
    def _has_released(grants, result):
        if result in _REFUSALS:
            return
        for grant in grants:
            grant._over = True

    def renew(self, grant, timeout_ns=FOREVER_NS):
        """Has the grant's lease begin anew (vb_lock_renew)."""
        self._do(lib.vb_lock_renew, byref(grant._struct), u64(timeout_ns, "timeout_ns"))

    def convert(self, grant, mode, timeout_ns=FOREVER_NS):
        """Holds the lock in another mode from now on (vb_lock_convert)."""
        timeout_ns = u64(timeout_ns, "timeout_ns")
        self._do(lib.vb_lock_convert, byref(grant._struct), _mode(mode), timeout_ns)

    def valid(self, grant):
        """Whether the client has the lock as the grant says, by its clock (vb_lock_valid)."""
        return self._call(lib.vb_lock_valid, byref(grant._struct))

    def now(self):
        """The client's clock, in ns (vb_lock_now)."""
        return self._call(lib.vb_lock_now)

    def hold_max_ns(self, mode=Mode.EXCLUSIVE):
        """The longest hold_ns that acquire takes (vb_lock_hold_max_ns)."""
        return self._call(lib.vb_lock_hold_max_ns, _mode(mode))

    def begin(self, age_ns=0):
        """How old the next transaction is (vb_lock_client_begin)."""
        self._call(lib.vb_lock_client_begin, u64(age_ns, "age_ns"))

    def age(self):
        """The age of the client's transaction (vb_lock_client_age)."""
        return self._call(lib.vb_lock_client_age)

    def holder(self, lock):
        """Who has a lock at this moment, as its word says: a Holder (vb_lock_holder)."""
        out = _holder()
        self._do(lib.vb_lock_holder, u64(lock, "lock"), byref(out))
        said = Holder(*(getattr(out, name) for name in Holder._fields))
        return said._replace(mode=Mode(said.mode))

    def peer(self):
        """The client's name, as Holder.client has it (vb_lock_client_peer)."""
        return self._call(lib.vb_lock_client_peer)
