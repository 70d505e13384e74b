"""The workloads by name."""

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
