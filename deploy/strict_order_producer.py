"""Send in strict order by one key, for ever or COUNT times, and print every acknowledgement.

    python deploy/strict_order_producer.py [NAME_SERVERS [COUNT]]

Kill the leader's container meanwhile: one line takes longer, and the next has the next offset.
"""

import itertools
import sys
import time

from dledger_client import Producer, ProducerConfig

TOPIC = "strict-order"


def main(name_servers: str = "localhost:9876,localhost:9877", count: str = "") -> None:
    """Send, and stop with Ctrl-C or after `count`."""
    config = ProducerConfig(timeout_ms=60_000)  # for each send, whatever happens meanwhile
    with Producer(name_servers, config) as producer:
        for number in range(int(count)) if count else itertools.count():
            start = time.monotonic()
            result = producer.send(TOPIC, b"step %d" % number, ordering_key="one")
            milliseconds = round(1000 * (time.monotonic() - start))
            print(
                f"step {number}: queue {result.queue}, offset {result.offset}, term {result.term}, "
                f"{result.acknowledgement.value} after {milliseconds} ms",
                flush=True,
            )
            time.sleep(0.2)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
