"""The final phase: what fails for a while is tried again, what lasts is written down and judged."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from dledger_client import AsyncAdmin, EntryMark, MemberStatus
from dledger_proto.errors import Code, DledgerError
from jepsen_tests.backends.surface import Backend
from jepsen_tests.checkers.cluster.availability import liveness
from jepsen_tests.checkers.shared.judgement import Valid
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import History
from jepsen_tests.history.history_file import HistoryWriter, read_history
from jepsen_tests.run import final, patience
from jepsen_tests.run.recorder import Process, Recorder
from jepsen_tests.workloads import wire, workload
from jepsen_tests.workloads.workload import Stage
from tests.unit.jepsen.stories import NODES, header

PLACES = ("t/0", "t/1")
END = 5
FOR_EVER = 1_000


@dataclass
class Said:
    """What a member says of itself, as far as it is written down."""

    role: str
    term: int
    leader: str
    commit_index: int
    applied_index: int
    first_index: int
    last_index: int
    incarnation: str = "a"
    digest: bytes = b""


class Cluster:
    """Three members of whom something goes wrong so many times: each thing by its name."""

    tls_folder = ""
    name = "none"
    group = "g"
    nodes = NODES
    parts = ()
    bootstrap = ""

    def __init__(self, failures: dict[str, int]) -> None:
        self._left = Counter(failures)
        self.is_kept = "busy" in failures
        """It is somebody's, who goes on writing."""
        self._commit = 9
        self.bounds = [0, END]
        self.drained: list[tuple[str, int, int]] = []
        """By whom, from where on, up to where."""
        self.is_away = False
        """Until it is brought back n3 does not answer."""
        self.is_looked_after = False
        """Since the last answer somebody looked who had ended."""

    async def revive(self) -> None:
        self.is_away = False
        self.is_looked_after = True

    def meets(self, what: str) -> bool:
        """Tell whether it goes wrong once more."""
        self._left[what] -= 1
        return self._left[what] >= 0

    def fail(self, what: str) -> None:
        if self.meets(what):
            raise DledgerError(Code.UNAVAILABLE, what)

    def inner_address(self, node: str) -> str:
        return node

    def pid(self, node: str) -> int | None:
        del node
        return None

    # As `AsyncAdmin`.

    async def status(self, address: str, group: str) -> MemberStatus:
        assert group == self.group
        self.is_looked_after = False
        self.fail("status")
        role = "leader" if address == "n1" else "follower"
        named = "" if address == "n2" and self.meets("unheard") else "n1"
        behind = address == "n2" and self.meets("behind")
        if self.meets("busy"):
            self._commit += 1
        term = 4 if address == "n1" and self.meets("election") else 3
        applied = commit = 8 if behind else self._commit
        return cast("MemberStatus", Said(role, term, named, commit, applied, 1, commit))

    async def log_entries(self, address: str, group: str) -> list[EntryMark]:
        del address, group
        self.fail("entries")
        if self.meets("long log"):
            raise DledgerError(Code.INVALID_ARGUMENT, "more than 3 entries follow")
        return [EntryMark(index, 3, 0) for index in range(1, 10)]


class FakeWorker:
    """As `Worker`, without clients."""

    cluster: Cluster

    def __init__(
        self, recorder: Recorder, bootstrap: str, random: Random, connection: object, *, name: str
    ) -> None:
        del bootstrap, random, connection, name
        self._process = Process(recorder)
        self._sent = 0
        self._place = ""

    async def _do(self, f: str, k: str, v: Any, result: Any) -> bool:
        async def call() -> None:
            self.cluster.fail(f)

        done, _ = await self._process.do(f, k, v, call, lambda _: result, reads=f != "send")
        return done

    async def send(self, place: str, count: int, size: int) -> bool:
        del count, size
        self._sent += 1
        return await self._do("send", place, [f"1-{self._sent}"], [self._sent, 0])

    async def bounds(self, place: str) -> list[int] | None:
        bounds = list(self.cluster.bounds)
        return bounds if await self._do("bounds", place, None, bounds) else None

    async def assign(self, starts: dict[str, int]) -> bool:
        (self._place,) = starts
        return await self._do("assign", "", starts, None)

    async def poll(self) -> list[Any] | None:
        @dataclass
        class Batch:
            next_offset: int = END

        runs = [[self._place, 0, ["9-1"] * END]]
        return [Batch()] if await self._do("poll", "", None, runs) else None

    async def aclose(self) -> None:
        pass


class FakeWire:
    """As `Wire`, of a member that holds nothing."""

    cluster: Cluster

    def __init__(self, address: str, group: str, keys: object = None) -> None:
        del group, keys
        self._address = address

    async def close(self) -> None:
        pass

    async def read(self, topic: str, queue: int, low: int, high: int) -> AsyncIterator[Any]:
        del topic, queue
        if self.cluster.meets("trim"):
            self.cluster.bounds[0] = 2
        if low < self.cluster.bounds[0]:
            raise DledgerError(Code.OFFSET_OUT_OF_RANGE, "it begins at 2")
        if self._address == "n2" and self.cluster.meets("confirm"):
            self.cluster.bounds[1] = END + 1
        self.cluster.drained.append((self._address, low, high))
        if self._address == "n3" and self.cluster.meets("damage"):
            self.cluster.is_away = True
        if self._address == "n3" and self.cluster.is_away:
            raise DledgerError(Code.UNAVAILABLE, "it ended")
        self.cluster.fail(f"drain of {self._address}")
        frames: tuple[Any, ...] = ()
        for frame in frames:
            yield frame


async def _at_once(*_: object) -> None:
    """All is well."""


@pytest.fixture
def phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the final phase on a cluster with failures; return the history."""

    def run(**failures: int) -> History:
        cluster = Cluster({name.replace("_", " "): times for name, times in failures.items()})
        monkeypatch.setattr(FakeWorker, "cluster", cluster, raising=False)
        monkeypatch.setattr(FakeWire, "cluster", cluster, raising=False)
        monkeypatch.setattr(workload, "Worker", FakeWorker)
        monkeypatch.setattr(wire, "Wire", FakeWire)
        monkeypatch.setattr(final, "wait_until_well", _at_once)
        monkeypatch.setattr(patience, "AGAIN_SECONDS", 0.0)
        if FOR_EVER in failures.values():
            monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.0)
        path = tmp_path / "history.jsonl"

        async def written() -> None:
            with HistoryWriter(path, header(others_write=cluster.is_kept)) as writer:
                recorder = Recorder(writer)
                recorder.phase("final")
                stage = Stage(cast("Backend", cluster), recorder, Random(1), 1, tmp_path)
                await final.final_phase(stage, cast("AsyncAdmin", cluster), PLACES, cluster.revive)
                writer.close(recorder.now())

        asyncio.run(written())
        return read_history(path)

    return run


@pytest.mark.parametrize(
    "what",
    [
        "send", "bounds", "assign", "poll", "drain_of_n1", "drain_of_n3", "entries", "status",
        "election", "behind", "damage",
    ],
)  # fmt: skip
def test_what_fails_for_a_while_is_tried_again(phase: Any, what: str) -> None:
    history = phase(**{what: 7})
    judgement = liveness(View(history))
    assert judgement.valid is Valid.YES, judgement.findings
    done = {(op.f, op.node) for op in history.ops if op.is_ok}
    assert {("drain", node) for node in NODES} | {("entries", node) for node in NODES} <= done


@pytest.mark.parametrize(
    "what",
    [
        "send", "bounds", "assign", "poll", "drain_of_n1", "drain_of_n3", "entries", "status",
        "election", "behind",
    ],
)  # fmt: skip
def test_what_lasts_is_found(phase: Any, what: str) -> None:
    judgement = liveness(View(phase(**{what: FOR_EVER})))
    assert judgement.valid is Valid.NO
    assert {each.kind for each in judgement.findings} <= {"not-live", "not-converged"}


def test_a_trim_that_is_made_meanwhile_is_no_reason_to_wait(phase: Any) -> None:
    judgement = liveness(View(phase(trim=1)))
    assert judgement.valid is Valid.YES, judgement.findings
    assert {low for _, low, _ in FakeWorker.cluster.drained} == {2}


def test_what_is_confirmed_meanwhile_is_read_from_all(phase: Any) -> None:
    judgement = liveness(View(phase(confirm=1)))
    assert judgement.valid is Valid.YES, judgement.findings
    last = {node for node, _, high in FakeWorker.cluster.drained if high == END + 1}
    assert last == set(NODES)


@pytest.mark.parametrize("others", [{}, {"busy": 10_000}])
def test_the_last_look_is_when_all_name_who_leads(phase: Any, others: dict[str, int]) -> None:
    history = phase(unheard=7, **others)
    last = {op.node: op.result["leader"] for op in history.ops if op.f == "status" and op.is_ok}
    assert last == dict.fromkeys(NODES, "n1")


def test_a_log_that_is_too_long_is_asked_for_once(phase: Any) -> None:
    history = phase(long_log=3)
    assert liveness(View(history)).valid is Valid.YES
    asked = Counter((op.node, op.is_ok) for op in history.ops if op.f == "entries")
    assert asked == {(node, False): 1 for node in NODES}


@pytest.mark.parametrize("troubles", [{}, {"behind": 7}, {"election": 7}, {"status": 7}])
def test_a_cluster_that_others_write_to_agrees_on_what_was_committed_before(
    phase: Any, troubles: dict[str, int]
) -> None:
    judgement = liveness(View(phase(busy=10_000, **troubles)))
    assert judgement.valid is Valid.YES, judgement.findings


@pytest.mark.parametrize("what", ["behind", "election"])
def test_and_does_not_when_a_member_stays_behind(phase: Any, what: str) -> None:
    judgement = liveness(View(phase(**{"busy": 10_000, what: FOR_EVER})))
    assert {each.kind for each in judgement.findings} == {"not-converged"}


def test_who_ends_after_the_last_look_is_looked_for(phase: Any) -> None:
    phase()
    assert FakeWorker.cluster.is_looked_after


def test_every_place_is_tried_once_at_least_when_patience_is_over(phase: Any) -> None:
    history = phase(drain_of_n1=FOR_EVER)
    tried = Counter((op.node, op.k) for op in history.ops if op.f == "drain")
    assert tried == dict.fromkeys(((node, place) for node in NODES for place in PLACES), 1)


def test_a_failed_assignment_is_not_read_from(phase: Any) -> None:
    assert not [op for op in phase(assign=FOR_EVER).ops if op.f == "poll"]
