# SPDX-License-Identifier: Apache-2.0
"""Clusters and fabrics: verbena/cluster.h, verbena/fabric.h."""

import enum

from . import _handle
from ._errors import Busy, Unsupported, refused, run
from ._handle import Handle, Shared, byref, lib, params, u32


class Role(enum.IntEnum):
    """Who listens: enum vb_cluster_role."""

    AUTO = 0
    ROOT = 1
    MEMBER = 2


class Seal(enum.IntEnum):
    """Whether what processes say when they meet is sealed: enum vb_cluster_seal."""

    AUTO = 0
    ALWAYS = 1
    NEVER_ON_A_TRUSTED_NETWORK = 2


class Cluster(Handle):
    """The processes that use one fabric across machines (vb_cluster_open). Parameters are those of
    struct vb_cluster_params. Any thread may call it."""

    what = "cluster"
    close_call = lib.vb_cluster_close

    def __init__(self, hosts, *, role=Role.AUTO, **others):
        given = params("vb_cluster_params", hosts=hosts, role=role, **others)
        # A mark of each fabric that is open on it, also of those that Python has thrown away.
        self._fabrics = set()
        self._open(None, run, lib.vb_cluster_open, byref(given))

    def _begin_close(self, turn):
        begun = super()._begin_close(turn)
        if begun and self._fabrics:
            raise refused(Busy, "a fabric is open on this cluster: close it first")
        return begun

    @property
    def rank(self):
        return self._call(lib.vb_cluster_rank)

    @property
    def hosts(self):
        return self._call(lib.vb_cluster_hosts)

    def name(self, rank):
        """A process in words."""
        return self._call(lib.vb_cluster_name, u32(rank, "rank")).decode()

    def alive(self, rank):
        return self._call(lib.vb_cluster_alive, u32(rank, "rank"))

    def barrier(self):
        """Waits until every living process has made this call."""
        self._do(lib.vb_cluster_barrier)


class Fabric(Shared):
    """How processes reach each other's memory (vb_fabric_open). Parameters are those of struct
    vb_fabric_params. Threads may share it."""

    what = "fabric"
    close_call = lib.vb_fabric_close

    def __init__(self, fabric="shm", *, cluster=None, **others):
        self.kind = fabric
        self._told = _handle._forks
        if cluster is None:
            self._make(None, params("vb_fabric_params", fabric=fabric, **others))
            return
        self._mark = use = object()
        try:
            cluster._begin(use)
            cluster._fabrics.add(self._mark)
            self._make(
                cluster,
                params("vb_fabric_params", fabric=fabric, cluster=cluster._pointer, **others),
            )
        finally:
            if self._pointer is None:
                cluster._fabrics.discard(self._mark)
            cluster._uses.discard(use)

    def _make(self, cluster, given):
        self._open(cluster, run, lib.vb_fabric_open, byref(given))

    def close(self):
        """Closes it; the last user of a shm segment also removes its name. Busy: lock spaces,
        databases, clients ... are open on it."""
        try:
            super().close()
        finally:
            if self._pointer is None and self.parent is not None:
                self.parent._fabrics.discard(self._mark)

    def after_fork(self):
        """In a forked child, before anything else on this fabric (vb_fabric_after_fork)."""
        if self._pointer is None or self._told == _handle._forks:
            return
        if self.kind in ("tcp", "ucx", "verbs"):
            raise refused(
                Unsupported, f"the connections of '{self.kind}' do not survive a fork: open it anew"
            )
        lib.vb_fabric_after_fork(self._pointer)
        self._told = _handle._forks

    def lock_space(self, lock, locks, **others):
        """Opens a lock space on it: LockSpace."""
        from ._lock import LockSpace

        return LockSpace(self, lock, locks, **others)

    def database(self, cc, **others):
        """Opens a database on it: Database."""
        from ._txn import Database

        return Database(self, cc, **others)


def poll():
    """Gives background work of this thread a turn (vb_poll)."""
    lib.vb_poll()


def version():
    """The version of the library that runs."""
    return lib.vb_version().decode()


def commit():
    """The commit that the library was made from."""
    return lib.vb_commit().decode()


def strerror(number):
    """An error in words, of either sign."""
    return lib.vb_strerror(number).decode()
