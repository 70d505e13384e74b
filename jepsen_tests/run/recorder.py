"""Writes down what clients and the nemesis do while they do it.

Owns process numbers, the clock of the run, and how exceptions become outcomes. An error that the
shared table calls definite is `fail`, and so is a read that failed. Everything else is `info`,
above all an exception that nobody expected.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from dledger_proto.errors import DledgerError
from jepsen_tests.history.events import NEMESIS, STOOD_STILL, Kind, Row
from jepsen_tests.history.history_file import HistoryWriter
from jepsen_tests.run.standstill import Standstill

DETAIL_LENGTH: Final = 160
T = TypeVar("T")


class Recorder:
    """Writes the history of one run."""

    def __init__(self, writer: HistoryWriter) -> None:
        self._writer = writer
        self.began = time.monotonic_ns()
        """By the clock that all processes of this machine share."""
        self._next_process = 0
        self.counts: Counter[tuple[str, Kind]] = Counter()
        """Operations that ended, by function and outcome."""

    def now(self) -> int:
        """Return ns since the run began."""
        return time.monotonic_ns() - self.began

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return self.now() / 1e9

    def new_process(self) -> int:
        """Return a number that no process had before."""
        self._next_process += 1
        return self._next_process - 1

    def nemesis(self, fault: str, targets: str, kind: Kind, error: str = "") -> None:
        """Note what was done to the cluster."""
        self._append(NEMESIS, kind, fault, targets, err=error)

    def stood_still(self, still: Standstill) -> None:
        """Note that a member applied nothing while others did, and what was compared."""
        compared = {"applied": still.applied, "others": still.others}
        lasted = f"{still.ns / 1e9:.3f} s"
        self._append(NEMESIS, Kind.OK, STOOD_STILL, still.node, compared, err=lasted)

    def phase(self, name: str) -> None:
        """Note that a phase begins."""
        self.nemesis("phase", name, Kind.OK)

    def invoke(
        self,
        p: int,
        f: str,
        k: str = "",
        v: Any = None,
        *,
        key: str = "",
        node: str = "",
        before: int = -1,
    ) -> None:
        """Note that a process begins an operation."""
        self._append(p, Kind.INVOKE, f, k, v, key=key, node=node, before=before)

    def end(self, p: int, kind: Kind, f: str, k: str = "", v: Any = None, err: str = "") -> None:
        """Note how an operation ended."""
        self.counts[f, kind] += 1
        self._append(p, kind, f, k, v, err=err)

    def _append(self, p: int, kind: Kind, f: str, k: str, v: Any = None, **more: Any) -> None:
        self._writer.append(Row(0, self.now(), p, kind, f, k, v, **more))


def describe(error: BaseException) -> tuple[bool, str]:
    """Return whether an error is definite, and its text for the history."""
    if isinstance(error, DledgerError):
        return error.definite, f"{error.code.name}: {error.detail[:DETAIL_LENGTH]}"
    return False, f"UNEXPECTED: {type(error).__name__}: {str(error)[:DETAIL_LENGTH]}"


class Process:
    """A client process: one operation at a time, and a new number after an unknown outcome."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.number = recorder.new_process()
        self._before = -1
        """The number that the next operation names as its earlier one."""
        self._is_known = False

    def renew(self) -> None:
        """Take a new process number."""
        if self._is_known:
            self._before, self._is_known = self.number, False
        self.number = self.recorder.new_process()

    async def do(
        self,
        f: str,
        k: str,
        v: Any,
        call: Callable[[], Awaitable[T]],
        shown: Callable[[T], Any],
        *,
        key: str = "",
        node: str = "",
        reads: bool = False,
    ) -> tuple[bool, T | None]:
        """Run one operation; return whether it certainly happened, and its result.

        `shown` makes the value for the history. If it refuses the result, because no sound cluster
        answers so, the outcome is unknown. Only CancelledError passes through.
        """
        recorder, p = self.recorder, self.number
        recorder.invoke(p, f, k, v, key=key, node=node, before=self._before)
        self._before, self._is_known = -1, True
        try:
            result = await call()
            written = shown(result)
        except asyncio.CancelledError:
            recorder.end(p, Kind.INFO, f, k, err="CANCELLED: the run is over")
            self.renew()
            raise
        except Exception as error:  # noqa: BLE001 - the history gets every outcome
            definite, said = describe(error)
            if definite or (reads and not said.startswith("UNEXPECTED")):
                recorder.end(p, Kind.FAIL, f, k, err=said)
            else:
                recorder.end(p, Kind.INFO, f, k, err=said)
                self.renew()
            return False, None
        recorder.end(p, Kind.OK, f, k, written)
        return True, result
