# SPDX-License-Identifier: Apache-2.0
"""Verbena: distributed locks and transactions over one-sided RDMA.

    import verbena

    with verbena.Fabric("shm") as fabric, \\
            fabric.lock_space("dslr", 1000, fencing=True, lease_ns=10_000_000_000) as space, \\
            space.client() as me, \\
            me.acquire(42, timeout_ns=1_000_000_000) as held:
        print("lock 42 is ours; its fencing token is", held.token)

verbena.aio has rings for asyncio. Names, parameters and units are those of the headers, which are the manual; errors are exceptions
(Error). doc/python.md says what is different.
"""

from ._errors import (
    AccessRefused,
    Aborted,
    AddressInUse,
    AddressNotHere,
    Busy,
    Cancelled,
    Closed,
    Disagreement,
    Elsewhere,
    Error,
    Exists,
    Foreign,
    Invalid,
    Lost,
    NoDevice,
    NoMemory,
    NoRoom,
    NotFound,
    NotPermitted,
    OutOfBounds,
    Overflow,
    PeerGone,
    ReadOnly,
    Stale,
    TimedOut,
    TooBig,
    TooLate,
    TryAgain,
    Unknown,
    Unsupported,
    WouldDeadlock,
)
from ._fabric import Cluster, Fabric, Role, Seal, commit, poll, strerror, version
from ._lock import (
    FOREVER_NS,
    Grant,
    Grants,
    Holder,
    LockClient,
    LockServer,
    LockSpace,
    Mode,
    Outcome,
    outcome,
)
from ._log import Log, LogLevel, LogMessage, log_levels, to_logging
from ._names import NAME_MAX, Names
from ._ring import Call, Ring
from ._txn import (
    Cause,
    Coordinator,
    Database,
    DatabaseServer,
    Isolation,
    Partition,
    Table,
    Values,
    db_node_bytes,
    prefix,
    table_node_bytes,
)

EXCLUSIVE = Mode.EXCLUSIVE
SHARED = Mode.SHARED
# The version of this package: its first two numbers are the library's.
__version__ = "0.1.0"
__all__ = [name for name in dir() if not name.startswith("_")]
