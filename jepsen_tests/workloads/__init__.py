"""The workloads by name.

clients   The clients of one worker: they are thrown away
fifo      W2: strict order. Each ordering key has one producer
log       W1 and W8: a log of many queues, written and read by everybody at once
metadata  W6: topics as registers: does one exist, and how many read queues has it?
offsets   W5: offsets of consumer groups as registers: committed, reset
retry     W3: every batch repeated as it was; at most one copy may be visible
values    Messages that can be recognised, with all that goes with a body: tag, keys, properties
wire      The wire's smallest client: what the public clients hide
workload  What a workload is: its queues, its workers, their steps
"""

from collections.abc import Callable, Mapping
from typing import Final

from jepsen_tests.workloads.fifo import FifoWorkload
from jepsen_tests.workloads.log import LogWorkload, RetentionWorkload
from jepsen_tests.workloads.metadata import MetadataWorkload
from jepsen_tests.workloads.offsets import OffsetsWorkload
from jepsen_tests.workloads.retry import RetryWorkload
from jepsen_tests.workloads.workload import Workload

WORKLOADS: Final[Mapping[str, Callable[[], Workload]]] = {
    "log": LogWorkload,
    "fifo": FifoWorkload,
    "retry": RetryWorkload,
    "offsets": OffsetsWorkload,
    "metadata": MetadataWorkload,
    "retention": RetentionWorkload,
}
