"""Send messages with one ordering key, until Ctrl-C or COUNT times; print each acknowledgement.

    python deploy/strict_order_producer.py [NAME_SERVERS [COUNT]]

Kill the leader's container meanwhile: one line takes longer, and the offsets go on without a hole.
"""

import itertools
import sys
import time

from dledger_client import Producer, ProducerConfig

TOPIC = "strict-order"


def main(name_servers: str = "localhost:9876,localhost:9877", count: str = "") -> None:
    """Send until Ctrl-C, or `count` messages."""
    config = ProducerConfig(timeout_ms=60_000)  # budget of each send, elections included
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
