"""Send messages with one ordering key, until Ctrl-C or COUNT times; print each acknowledgement.

    python deploy/strict_order_producer.py [NAME_SERVERS [COUNT]]

DLEDGER_TLS_FOLDER names the folder with its certificate; without it there is no TLS.
Kill the leader's container meanwhile: one line takes longer, and the offsets go on without a hole.
"""

import itertools
import os
import sys
import time

from dledger_client import ConnectionConfig, Producer, ProducerConfig

TOPIC = "strict-order"


def main(name_servers: str = "localhost:9876,localhost:9877", count: str = "") -> None:
    """Send until Ctrl-C, or `count` messages."""
    there = ConnectionConfig(tls_folder=os.environ.get("DLEDGER_TLS_FOLDER", ""))
    # The budget of each send, elections included.
    config = ProducerConfig(timeout_ms=60_000, connection=there)
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
