"""Benchmarks: each figure stands beside its floor or its peer, measured in the same run.

`prototype/` keeps the speed prototype as it was measured. It is the peer of some benchmarks.

    effort     how long and how often everything is measured
    figures    the figures: medians, what they must reach, JSON lines, the table
    bulk/      decoding, exports and Spark
    cluster/   failover, restart, idling and the state
    delivery/  delayed messages, push consumers and rebalances
    log/       sending and reading
    peers/     other systems on the same work, in turn: `make bench-peers`
    scale/     how cost grows with queues, producers, consumers, groups and bodies
    setup/     what benchmarks run against: clusters, floors, peers, load
"""

import dledger_proto  # noqa: F401  # before gRPC, whose fork handlers it turns off
