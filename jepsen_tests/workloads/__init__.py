"""What the clients do, by name.

clients    the clients of one worker, which a crash throws away
delivery/  W14 and W15: consumer groups, dead letters, delayed messages
fifo       W2: strict order; each ordering key has one producer
groups     W13: two broker groups with topics in both
log        W1 and W8: a log of many queues, which all workers write and read
metadata   W6: topics as registers: does one exist, how many read queues has it?
offsets    W5: offsets of consumer groups as registers
one_way    W7: one-way messages beside the ordered ones of the same producer
retry      W3: each batch is sent again and again; one copy may be visible
stored/    W9 to W12: workloads that ask for what is stored, or keep it
values     messages that a reader recognises: body, tag, keys, properties
wire       a small client of the wire, for what the public clients never do
workload   what a workload is: its queues, its workers, their setup
"""

from collections.abc import Callable, Mapping
from typing import Final

from jepsen_tests.workloads.delivery.consume import ConsumeWorkload
from jepsen_tests.workloads.delivery.delays import DelaysWorkload
from jepsen_tests.workloads.fifo import FifoWorkload
from jepsen_tests.workloads.groups import GroupsWorkload
from jepsen_tests.workloads.log import LogWorkload, RetentionWorkload
from jepsen_tests.workloads.metadata import MetadataWorkload
from jepsen_tests.workloads.offsets import OffsetsWorkload
from jepsen_tests.workloads.one_way import OneWayWorkload
from jepsen_tests.workloads.retry import RetryWorkload
from jepsen_tests.workloads.stored.exports import ExportsWorkload
from jepsen_tests.workloads.stored.holds import HoldsWorkload
from jepsen_tests.workloads.stored.lookups import LookupsWorkload
from jepsen_tests.workloads.stored.times import TimesWorkload
from jepsen_tests.workloads.workload import Workload

WORKLOADS: Final[Mapping[str, Callable[[], Workload]]] = {
    "log": LogWorkload,
    "fifo": FifoWorkload,
    "retry": RetryWorkload,
    "offsets": OffsetsWorkload,
    "metadata": MetadataWorkload,
    "retention": RetentionWorkload,
    "one-way": OneWayWorkload,
    "holds": HoldsWorkload,
    "lookups": LookupsWorkload,
    "times": TimesWorkload,
    "exports": ExportsWorkload,
    "groups": GroupsWorkload,
    "consume": ConsumeWorkload,
    "delays": DelaysWorkload,
}
