"""A consumer of a group: a function that is called for each message. Several of them share a topic.

    python examples/push_consumer.py 127.0.0.1:9876

Start it in two terminals, and send with `dledger send orders ...`: each message comes to one of the
two. End one with Ctrl-C: it finishes what it has, and the other takes over its queues. A message
whose function raises comes again after ten seconds, then after thirty, and at last goes to the dead
letters of the group.
"""

import sys
from contextlib import suppress

from dledger_client import ConsumedRecord, PushConsumer


def bill(order: ConsumedRecord) -> None:
    """Do the work: whatever raises makes the message come again."""
    print(f"{order.topic}/{order.queue}@{order.offset}: {order.body.decode()}", flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt), PushConsumer(sys.argv[1], "billing", "orders", bill) as it:
        it.run()
