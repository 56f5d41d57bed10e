#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bank.c in Python, in several processes: money moves between accounts, and audits look whether any
of it is lost.

    bank.py [PROTOCOL]              makes the bank, starts two tellers, looks at their books
    bank.py PROTOCOL SEGMENT NODE   a teller of the bank in that segment of shared memory

The accounts lie on two nodes, so most transfers write to both. An audit reads every account in one
transaction: its sum is the same each time, however many transfers are under way.
"""

import collections
import os
import random
import struct
import subprocess
import sys

import verbena

NODES = 2
TELLERS = 2
ACCOUNTS = 60
EACH = 1000  # in each account, to begin with
ROUNDS = 150  # of each teller
AUDITS = 20  # one round in so many is an audit
LOW = 900  # no account is to have less: transfers that would are given up
LEASE_NS = 5_000_000_000  # long: on a busy machine a server may not get its turn for a while

ACCOUNT = struct.Struct("=qQ")  # balance, transfers


class TooLittle(Exception):
    """There is not enough on the account."""


def open_bank(fabric, protocol):
    """The same in every process."""
    db = fabric.database(protocol, lease_ns=LEASE_NS)
    return db, db.table("account", ACCOUNT.size, ACCOUNTS)


# ---- what a transaction does ----


def transfer(me, accounts, source, target, amount):
    source, target = me.update(accounts, source), me.update(accounts, target)
    balance, transfers = ACCOUNT.unpack(source)
    if balance - amount < LOW:
        raise TooLittle
    ACCOUNT.pack_into(source, 0, balance - amount, transfers + 1)
    balance, transfers = ACCOUNT.unpack(target)
    ACCOUNT.pack_into(target, 0, balance + amount, transfers + 1)


def audit(me, accounts):
    # Everything at once: one round of verbs for each node, not one for each account.
    me.declare((accounts, i) for i in range(ACCOUNTS))
    return sum(ACCOUNT.unpack(me.get(accounts, i))[0] for i in range(ACCOUNTS))


def count_entries(me, accounts):
    return sum(ACCOUNT.unpack(me.get(accounts, i))[1] for i in range(ACCOUNTS))


# ---- a teller ----


def until_done(me, books, body, *arguments):
    """As Coordinator.run, in short; here each abort is counted by its cause."""
    while True:
        try:
            result = me.run(body, *arguments, tries=1)
        except verbena.Aborted as aborted:
            books[str(aborted.cause)] += 1
            continue
        books["commits"] += 1
        return result


def work(protocol, segment, node):
    books = collections.Counter()
    with verbena.Fabric(name=segment, attach=True) as fabric:
        db, accounts = open_bank(fabric, protocol)
        with db, db.coordinator(node) as me:
            for i in range(ROUNDS):
                if i % AUDITS == 0:
                    total = until_done(me, books, audit, accounts)
                    if total != ACCOUNTS * EACH:
                        sys.exit(f"an audit found {total} instead of {ACCOUNTS * EACH}")
                    continue
                source, target = random.sample(range(ACCOUNTS), 2)
                try:
                    until_done(me, books, transfer, accounts, source, target, random.randrange(50))
                except TooLittle:
                    books["given up"] += 1
    for what, n in books.items():
        print(n, what)


# ---- the bank ----


def manage(protocol):
    segment = f"example-bank-py-{os.getpid()}"
    with verbena.Fabric(name=segment, nodes=NODES) as fabric:
        db, accounts = open_bank(fabric, protocol)
        for i in range(ACCOUNTS):
            accounts.load(i, ACCOUNT.pack(EACH, 0))
        with db, db.server_thread(0), db.server_thread(1), db.coordinator() as me:
            tellers = [
                subprocess.Popen(
                    [sys.executable, __file__, protocol, segment, str(i % NODES)],
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for i in range(TELLERS)
            ]
            books = collections.Counter()
            for teller in tellers:
                for line in teller.communicate()[0].splitlines():
                    n, what = line.split(" ", 1)
                    books[what] += int(n)
            if any(teller.returncode != 0 for teller in tellers):
                sys.exit("a teller has failed")
            total = me.run(audit, accounts)
            entries = me.run(count_entries, accounts)
    audits = TELLERS * len(range(0, ROUNDS, AUDITS))
    if total != ACCOUNTS * EACH or entries != 2 * (books["commits"] - audits):
        sys.exit(f"{total} in all, and {entries} entries for {dict(books)}")
    print(f"{protocol}: " + ", ".join(f"{n} {what}" for what, n in books.items()))


if __name__ == "__main__":
    if len(sys.argv) == 4:
        work(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    elif len(sys.argv) <= 2:
        manage(sys.argv[1] if len(sys.argv) > 1 else "silo")
    else:
        sys.exit("usage: bank.py [PROTOCOL]")
