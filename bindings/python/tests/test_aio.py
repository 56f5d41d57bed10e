# SPDX-License-Identifier: Apache-2.0
"""Locks in a loop of asyncio."""

import asyncio
import signal
import unittest
from unittest import mock

import verbena
from verbena import aio
from world import LONG_NS, in_thread, quiet, small

MS = 1_000_000


class Loops(unittest.TestCase):
    def setUp(self):
        self.fabric = self.enter(small())
        self.space = self.enter(self.fabric.lock_space("mcs", 10))
        self.holder = self.enter(self.space.client())
        self.clients = [self.enter(self.space.client()) for _ in range(20)]
        self.me = self.clients[0]
        self.held = self.holder.acquire(5)

    def enter(self, manager):
        entered = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return entered

    def run_in_loop(self, body):
        async def main():
            async with aio.Ring() as ring:
                return await asyncio.wait_for(body(ring), 60)

        return asyncio.run(main())

    def free(self, lock=5):
        for client in self.clients:
            self.assertEqual(client._uses, set())
            with client.acquire(lock, timeout_ns=LONG_NS):
                pass

    async def waiting(self, ring, calls=1):
        """Until so many are under way."""
        while len(ring._waiting) < calls:
            await asyncio.sleep(0)

    def test_at_once(self):
        async def body(ring):
            async with ring.hold(self.me, 1, verbena.EXCLUSIVE, LONG_NS) as held:
                self.assertTrue(held.valid())
                self.assertEqual(held.lock, 1)
            self.assertFalse(held.valid())
            grant = await ring.acquire(self.me, 2)
            await ring.release(grant)
            async with ring.hold(self.me, 3) as held:
                held.release()
            with quiet():
                with self.assertRaises(verbena.Invalid):
                    await ring.acquire(self.me, 10)
                with self.assertRaises(verbena.Invalid):
                    await ring.release(grant)

        self.run_in_loop(body)
        self.free(1)

    def test_many_wait(self):
        """Each in its turn, and the loop stands still for none of them."""
        order, ticks = [], []

        async def work(ring, i):
            async with ring.hold(self.clients[i], 5):
                order.append(i)
                await asyncio.sleep(0)
                self.assertEqual(order[-1], i)

        async def tick():
            while True:
                ticks.append(len(order))
                await asyncio.sleep(0)

        async def body(ring):
            ticking = asyncio.create_task(tick())
            tasks = [asyncio.create_task(work(ring, i)) for i in range(20)]
            await self.waiting(ring, 20)
            self.held.release()
            await asyncio.gather(*tasks)
            ticking.cancel()

        self.run_in_loop(body)
        self.assertEqual(order, list(range(20)))
        self.assertGreater(ticks.count(0), 1)
        self.free()

    def test_loop_that_sleeps(self):
        """Nothing but the descriptor wakes it."""

        async def work(ring):
            async with ring.hold(self.me, 5, timeout_ns=20 * MS):
                pass

        async def body(ring):
            for _ in range(3):
                with self.assertRaises(verbena.TimedOut):
                    await work(ring)

        self.run_in_loop(body)
        self.held.release()
        self.free()

    def test_cancelled(self):
        async def body(ring):
            first, second = (asyncio.create_task(ring.acquire(c, 5)) for c in self.clients[:2])
            await self.waiting(ring, 2)
            first.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await first
            # The client is free, and the other one waits.
            self.assertEqual(self.me._uses, set())
            async with ring.hold(self.me, 1):
                self.assertFalse(second.done())
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(ring.acquire(self.me, 5), 0.01)
            self.held.release()
            await ring.release(await second)

        self.run_in_loop(body)
        self.free()

    def test_cancelled_too_late(self):
        """What is granted at that moment is given back, also if the task would just have been told."""

        async def body(ring, told):
            held = self.holder.acquire(6)
            task = asyncio.create_task(ring.acquire(self.me, 6))
            await self.waiting(ring)
            held.release()
            ring._ring.wait(LONG_NS)
            if told:
                ring._go_on()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        for told in False, True:
            self.run_in_loop(lambda ring: body(ring, told))
            self.free(6)

    def test_release_is_done(self):
        """Also if its task is cancelled meanwhile."""
        call = mock.Mock(done=False)

        async def body(ring):
            with mock.patch.multiple(ring._ring, start_release=lambda _: call, cancel=mock.DEFAULT) as no:
                task = asyncio.create_task(ring.release(None))
                for _ in range(3):
                    await self.waiting(ring)
                    task.cancel()
                    await asyncio.sleep(0)
                    self.assertFalse(task.done())
                await self.waiting(ring)
                call.done = True
                ring._tell([call])
                await asyncio.wait([task])
                self.assertTrue(task.cancelled())
                no["cancel"].assert_not_called()

        self.run_in_loop(body)
        with self.fabric.lock_space("table", 10, name="t", lease_ns=LONG_NS) as space:
            with space.server_thread(), space.client() as me, space.client() as other:

                async def hand_over(ring):
                    await ring.release(await ring.acquire(me, 1))
                    async with ring.hold(other, 1):
                        pass

                self.run_in_loop(hand_over)

    def test_block_that_fails(self):
        async def body(ring):
            with self.assertRaises(KeyError):
                async with ring.hold(self.me, 1):
                    raise KeyError

        self.run_in_loop(body)
        self.free(1)

    def test_lost(self):
        space = self.enter(self.fabric.lock_space("dslr", 10, name="short", lease_ns=5 * MS))
        me, other = (self.enter(space.client()) for _ in range(2))

        async def body(ring):
            with self.assertRaises(verbena.Lost):
                async with ring.hold(me, 1):
                    async with ring.hold(other, 1):
                        pass

        with quiet():
            self.run_in_loop(body)

    def test_keep(self):
        with self.fabric.lock_space("table", 10, name="t", lease_ns=LONG_NS) as space:
            with space.server_thread(), space.client() as me:

                async def body(ring):
                    async with ring.hold(me, 1) as held:
                        task = asyncio.create_task(ring.keep(held))
                        await self.waiting(ring)
                        with quiet(), self.assertRaises(verbena.Busy):
                            await ring.release(held)
                        task.cancel()
                        with self.assertRaises(asyncio.CancelledError):
                            await task
                        self.assertTrue(held.valid())
                    # Without a lease there is nothing to keep.
                    await ring.keep(self.held)
                    with quiet(), self.assertRaises(verbena.Invalid):
                        await ring.keep(held)

                self.run_in_loop(body)

    def test_closed_while_tasks_wait(self):
        async def main():
            async with aio.Ring() as ring:
                tasks = [asyncio.create_task(ring.acquire(c, 5)) for c in self.clients]
                await self.waiting(ring, 20)
                self.held.release()
            ring.close()
            return await asyncio.gather(*tasks, return_exceptions=True)

        results = asyncio.run(main())
        self.assertEqual({type(result) for result in results}, {verbena.Cancelled})
        self.free()

    def test_closed_while_a_task_holds(self):
        """Its block gives the lock back all the same."""

        async def work(ring, leave):
            async with ring.hold(self.me, 1):
                await leave.wait()

        async def main():
            leave = asyncio.Event()
            async with aio.Ring() as ring:
                task = asyncio.create_task(work(ring, leave))
                await asyncio.sleep(0)
            self.assertIsNone(self.clients[1].try_acquire(1))
            leave.set()
            await task

        asyncio.run(main())
        self.free(1)

    def test_interrupted(self):
        """Ctrl-C ends the loop: who waited waits no more, and what was held is given back."""

        async def work(ring):
            async with ring.hold(self.clients[1], 1):
                await ring.acquire(self.me, 5)

        async def main():
            async with aio.Ring() as ring:
                task = asyncio.create_task(work(ring))
                tasks.append(task)
                await self.waiting(ring)
                signal.raise_signal(signal.SIGINT)
                await task

        tasks = []
        with self.assertRaises(KeyboardInterrupt):
            asyncio.run(main())
        self.assertTrue(tasks[0].cancelled())
        self.free(1)
        self.held.release()
        self.free(5)

    def test_cannot_be_armed(self):
        """Who waits is told, and what is under way comes to its end with the ring."""
        no = mock.Mock(side_effect=verbena.NoMemory(12, "no thread"))

        async def body(ring):
            with mock.patch.object(ring._ring, "arm", no), self.assertRaises(verbena.NoMemory):
                await ring.acquire(self.me, 5)

        self.run_in_loop(body)
        self.held.release()
        self.free()

    def test_whose(self):
        async def body(ring):
            call = ring.acquire(self.me, 1)
            with self.assertRaises(verbena.Foreign):
                in_thread(asyncio.run, call)

        self.run_in_loop(body)
        with self.assertRaises(RuntimeError):
            aio.Ring()
        self.free(1)
