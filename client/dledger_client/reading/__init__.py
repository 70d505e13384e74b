"""Reading the committed log in bulk: plans frozen once, ranges as Arrow batches. Extra `arrow`.

folders   What can be wrong with a stopped member's folder that is read. Pure
holds     Where holds begin, which are shared, and how many a queue can have
keeper    Renews the holds of a plan while its readers are busy elsewhere
left      Members that readers left, and when: they are asked last for a while. Pure
plan      What a job reads, frozen: edges resolved to offsets, queues cut into ranges by bytes
planner   Freezes a plan against a cluster: bounds that a quorum confirms, and holds. Blocking
reader    Reads a range as Arrow batches, from one member and then the next. Blocking
watchdog  Ends a call whose next answer does not come
"""

from dledger_client.reading.holds import Hold, HoldRequest, KeptHolds
from dledger_client.reading.keeper import Keeper
from dledger_client.reading.plan import (
    EARLIEST,
    LATEST,
    Edge,
    PlannedQueue,
    Range,
    Trimmed,
    partitions,
)
from dledger_client.reading.planner import Planner, ReadPlan
from dledger_client.reading.reader import Origin, RangeReader

__all__ = [
    "EARLIEST",
    "LATEST",
    "Edge",
    "Hold",
    "HoldRequest",
    "Keeper",
    "KeptHolds",
    "Origin",
    "PlannedQueue",
    "Planner",
    "Range",
    "RangeReader",
    "ReadPlan",
    "Trimmed",
    "partitions",
]
