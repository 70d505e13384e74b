"""An ordered consumer: the messages of one customer one after the other, customers side by side.

    python examples/ordered_consumer.py 127.0.0.1:9876 balances.sqlite

Messages are like `dledger send payments 12.50 --ordering-key customer-4 --key customer-4`, with an
amount as the body. A payment that fails stops its customer, and no other one, until it succeeds or
goes to the dead letters.

The table keeps the highest epoch that has written to a queue. So a consumer that was thought dead,
and wakes up late, cannot write over its successor: the epoch is a fencing number. The table keeps
the offset, too: a message that comes twice counts once.
"""

import asyncio
import sqlite3
import sys

from dledger_client import (
    AsyncPushConsumer,
    ConsumedRecord,
    ConsumeOrder,
    ConsumerConfig,
    Delivery,
    PushConfig,
    StartAt,
)

TABLES = """
create table if not exists balance (customer text primary key, cents integer);
create table if not exists seen (queue integer, customer text, epoch integer, offset integer,
                                 primary key (queue, customer));
"""


class Balances:
    """What customers have paid, in a database of our own."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.executescript(TABLES)

    async def pay(self, payment: ConsumedRecord, delivery: Delivery) -> None:
        """Book one payment, once, unless a newer owner of the queue has written already."""
        customer, cents = payment.keys[0], int(payment.body)
        place = (payment.queue, customer)
        with self._database as database:
            database.execute("begin immediate")
            row = database.execute(
                "select max(epoch), max(offset) from seen where queue = ? and customer = ?", place
            ).fetchone()
            epoch, offset = row[0] or 0, -1 if row[1] is None else row[1]
            if delivery.epoch < epoch:
                raise RuntimeError(f"fenced: epoch {delivery.epoch} is below {epoch}")
            if payment.offset > offset:
                database.execute(
                    "insert into balance values (?, ?)"
                    " on conflict (customer) do update set cents = cents + excluded.cents",
                    (customer, cents),
                )
                database.execute(
                    "insert or replace into seen values (?, ?, ?, ?)",
                    (*place, delivery.epoch, payment.offset),
                )
        print(f"{customer} +{cents}", flush=True)


async def main(bootstrap: str, path: str) -> None:
    """Book payments until the process is ended."""
    balances = Balances(path)
    config = PushConfig(consumer=ConsumerConfig(order=ConsumeOrder.KEY, start_at=StartAt.FIRST))
    async with AsyncPushConsumer(
        bootstrap, "balances", "payments", balances.pay, config
    ) as consumer:
        await consumer.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
