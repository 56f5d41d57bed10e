#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""epoll.c in Python, with asyncio: one thread serves a hundred sessions, which wait for their locks at
a time, and its loop stands still for none of them. The locks have names, and what the library has to
say goes to Python's logging.
"""

import asyncio
import collections
import contextlib
import logging
import sys

import verbena
import verbena.aio

SESSIONS = 100
ORDERS = 10
ROUNDS = 3

held_now = collections.Counter()


async def session(ring, client, lock):
    for _ in range(ROUNDS):
        async with ring.hold(client, lock):
            held_now[lock] += 1
            if held_now[lock] != 1:
                sys.exit(f"lock {lock} has two holders")
            # Others run meanwhile, as they would while this one awaits a disk or a peer.
            await asyncio.sleep(0.001)
            held_now[lock] -= 1


async def serve(clients, locks, open_doors):
    async with verbena.aio.Ring() as ring:
        sessions = [
            asyncio.create_task(session(ring, client, locks[i % ORDERS]))
            for i, client in enumerate(clients)
        ]
        # Until each has had its turn: all wait.
        await asyncio.sleep(0)
        held_by_sessions = sum(held_now.values())
        waiting = sum(not task.done() for task in sessions) - held_by_sessions
        open_doors()
        await asyncio.gather(*sessions)
    return waiting


def main():
    logging.basicConfig()
    with contextlib.ExitStack() as stack:
        stack.enter_context(verbena.Log(verbena.to_logging))
        fabric = stack.enter_context(verbena.Fabric())
        space = stack.enter_context(fabric.lock_space("mcs", 1000))
        names = stack.enter_context(space.names())
        first, *clients = (stack.enter_context(space.client()) for _ in range(1 + SESSIONS))
        locks = [names.lock(first, f"orders/{i}") for i in range(ORDERS)]
        # The doors are closed: nobody has his lock before all have come.
        doors = [first.acquire(lock) for lock in locks]
        waiting = asyncio.run(serve(clients, locks, lambda: first.release_all(doors)))
    if waiting != SESSIONS:
        sys.exit(f"{waiting} sessions waited, instead of {SESSIONS}")
    print(
        f"{waiting} sessions of one thread waited at a time, and had their locks {ROUNDS} times each"
    )


if __name__ == "__main__":
    main()
