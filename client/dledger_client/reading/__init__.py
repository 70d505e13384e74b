"""Reading the committed log in bulk: plans frozen once, ranges as Arrow batches. Extra `arrow`."""

from dledger_client.reading.holds import Hold, HoldRequest, KeptHolds
from dledger_client.reading.keeper import Keeper
from dledger_client.reading.plan import (
    EARLIEST,
    LATEST,
    Edge,
    Frozen,
    Gap,
    Range,
    partitions,
)
from dledger_client.reading.planner import Planner, ReadPlan
from dledger_client.reading.reader import Origin, RangeReader

__all__ = [
    "EARLIEST",
    "LATEST",
    "Edge",
    "Frozen",
    "Gap",
    "Hold",
    "HoldRequest",
    "Keeper",
    "KeptHolds",
    "Origin",
    "Planner",
    "Range",
    "RangeReader",
    "ReadPlan",
    "partitions",
]
