# SPDX-License-Identifier: Apache-2.0
"""Locks for asyncio: a loop that waits for many, in one thread.

    async with verbena.aio.Ring() as ring:
        async with ring.hold(client, 42, timeout_ns=1_000_000_000) as held:
            ...

A client that waits is that wait's, so a program with n tasks that may wait has n clients. They are
the loop's thread's, as the ring is.
"""

import asyncio
import contextlib

from . import _ring
from ._errors import Error
from ._lock import FOREVER_NS, Mode


class Ring:
    """verbena.Ring for the loop that is running; parameters are those of struct vb_ring_params. Not on
    `sim`, whose time does not go on while the loop sleeps.

    What ends at once suspends nobody. A task that is cancelled while it waits goes on when the call has
    come to its end, which an acquire does soon and a release does by itself: the client is free then,
    and what was acquired all the same has been given back."""

    def __init__(self, **others):
        self._loop = asyncio.get_running_loop()
        self._waiting = {}
        self._is_arming = False
        self._ring = _ring.Ring(**others)
        try:
            self._loop.add_reader(self._ring.fd, self._go_on)
        except BaseException:
            self._ring.close()
            raise

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        self.close()

    def close(self):
        """Comes to an end with all that is under way, as verbena.Ring.end, and closes. Tasks that still
        wait have Cancelled."""
        if self._ring._pointer is None or self._ring._inherited():
            return
        self._loop.remove_reader(self._ring.fd)
        self._ring.end()
        self._tell(list(self._waiting))
        self._ring.close()

    # ---- what ends ----

    def _tell(self, calls, problem=None):
        for call in calls:
            future = self._waiting.get(call)
            if future is None or future.done():
                continue
            if problem is None:
                future.set_result(None)
            else:
                future.set_exception(problem)

    # The descriptor is readable, or something was started: before the loop sleeps again the ring is
    # armed.
    def _go_on(self):
        self._is_arming = False
        if self._ring._pointer is None:
            return
        try:
            while not self._ring.arm():
                self._tell(self._ring.reap())
        except Error as problem:
            self._tell(list(self._waiting), problem)

    def _arm_soon(self):
        if not self._is_arming:
            self._is_arming = True
            self._loop.call_soon(self._go_on)

    # What comes of an acquire that is cancelled is not wanted; a release is to be done.
    async def _until_done(self, call, cancels=True):
        cancelled = None
        while not call.done:
            self._waiting[call] = self._loop.create_future()
            self._arm_soon()
            try:
                await self._waiting[call]
            except asyncio.CancelledError as error:
                cancelled = error
                if cancels and not call.done:
                    self._ring.cancel(call)
            finally:
                self._waiting.pop(call, None)
        if cancelled is not None:
            raise cancelled

    # ---- calls ----

    async def acquire(self, client, lock, mode=Mode.EXCLUSIVE, timeout_ns=FOREVER_NS):
        """LockClient.acquire: a Grant."""
        call = self._ring.start_acquire(client, lock, mode, timeout_ns)
        try:
            await self._until_done(call)
        except asyncio.CancelledError:
            if call._took:
                with contextlib.suppress(Error):
                    await self.release(call.result())
            raise
        return call.result()

    async def release(self, grant):
        """Grant.release; when the ring is closed, without awaiting."""
        if self._ring._pointer is None:
            grant.release()
            return
        call = self._ring.start_release(grant)
        await self._until_done(call, cancels=False)
        call.result()

    @contextlib.asynccontextmanager
    async def hold(self, client, lock, mode=Mode.EXCLUSIVE, timeout_ns=FOREVER_NS):
        """Takes a lock for a block, and gives it back behind it as a Grant's block does."""
        grant = await self.acquire(client, lock, mode, timeout_ns)
        try:
            yield grant
        except BaseException:
            if not grant._over:
                with contextlib.suppress(Error):
                    await self.release(grant)
            raise
        if not grant._over:
            await self.release(grant)

    async def keep(self, grant):
        """Has the grant's lease renewed until the task is cancelled, and then the grant is the client's
        again; or raises why that can go on no longer (vb_lock_keep_start). Without a lease it returns."""
        call = self._ring.start_keep(grant)
        await self._until_done(call)
        call.result()
