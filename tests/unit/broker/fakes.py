"""Stand-ins at the seams of the append and fetch paths: simple, and honest about order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dledger.raft.api import Role
from dledger.raft.driver.host import GroupHost
from dledger.raft.leadership.last_seen import LastSeen
from dledger.state.commands.command import Command
from dledger.state.machine import StateMachine
from dledger.state.queries import Queries
from dledger.types import Buffer, EntryKind, MemberId, OnSettled, Settled, Term
from dledger_broker.append.router import PendingBatch
from dledger_broker.append.write_rule import WriteRule
from dledger_broker.config.sections import AdmissionConfig
from dledger_broker.group.commands import Commands
from dledger_broker.group.group_view import GroupNames
from dledger_broker.rpc.admission import AdmissionControl, Bound
from dledger_proto.batch.codec import BatchHeader, Record, encode_batch
from dledger_proto.errors import Code, DledgerError, Outcome
from dledger_proto.limits import MIB
from dledger_proto.network.tls import Callee
from dledger_proto.rpc.frames import AnswerRow

ME, OTHER = MemberId("n1"), MemberId("n2")
TOPIC = b"t" * 16
NAMES = GroupNames(
    "c",
    "g",
    ME,
    addresses={ME: "n1:1", OTHER: "n2:1"},
    clients={ME: "published-1:1", OTHER: "published-2:1"},
    is_control=True,
)
"""A group whose members are published elsewhere than where their peers reach them."""


class ManualClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return self.now

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`."""
        return int(self.now * 1000)


class FakeHost(GroupHost):
    """Keeps proposals until the test settles them. Not a running host: nothing of it is started."""

    def __init__(
        self,
        role: Role = Role.LEADER,
        leader: MemberId | None = ME,
        kind: EntryKind = EntryKind.BATCHES,
    ) -> None:
        self._kind = kind
        self._last_seen = LastSeen()
        self._last_seen.tell(role, Term(3), leader)
        self.proposals: list[tuple[list[bytes], OnSettled]] = []
        self.frees_space: list[bool] = []
        """Of every proposal so far."""
        self.rows: list[int] = []
        self.unsynced = False
        self.now_ms: int | None = 500_000
        """By which entries would be stamped now."""

    @property
    def time_ms(self) -> int | None:
        """What the test says."""
        return self.now_ms

    def propose_nowait(
        self,
        kind: EntryKind,
        payloads: Sequence[Buffer],
        settled: OnSettled,
        *,
        frees_space: bool = False,
        rows: int = 0,
    ) -> None:
        """Keep."""
        assert kind is self._kind
        self.frees_space.append(frees_space)
        self.rows.append(rows)
        self.proposals.append(([bytes(each) for each in payloads], settled))

    @property
    def counts_unsynced(self) -> bool:
        """What the test says."""
        return self.unsynced

    def become(self, role: Role, leader: MemberId | None) -> None:
        """Change leadership and tell."""
        self._last_seen.tell(role, Term(self.leadership.term + 1), leader)

    def proposed(self) -> list[bytes]:
        """Every payload proposed so far, in order."""
        return [payload for payloads, _ in self.proposals for payload in payloads]

    def settle(self, settled: Settled) -> None:
        """Settle the oldest proposal."""
        self.proposals.pop(0)[1](settled)


class FakeCommands(Commands):
    """Answers each command by itself, as a subclass says, without a host."""

    def __init__(self) -> None:
        pass

    async def propose(self, command: Command[Any]) -> Any:
        """Return the result, or raise the refusal."""
        raise NotImplementedError

    async def propose_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Ask for one after the other."""
        answers: list[Any] = []
        for command in commands:
            try:
                answers.append(await self.propose(command))
            except DledgerError as refusal:
                answers.append(refusal)
        return answers


@dataclass
class FakeForwarder:
    """Keeps what it was given."""

    sent: list[tuple[Callee, list[PendingBatch]]] = field(default_factory=list)

    def send(self, leader: Callee, items: Sequence[PendingBatch]) -> None:
        """Keep."""
        self.sent.append((leader, list(items)))


class AnswerList:
    """Collects answers."""

    def __init__(self) -> None:
        self.rows: list[AnswerRow] = []

    def answered(self, item: PendingBatch) -> None:
        """Keep."""
        assert item.row is not None
        self.rows.append(item.row)


class OpenRule(WriteRule):
    """Admits everything, or asks and refuses by topic."""

    def __init__(self) -> None:
        self.refused: dict[bytes, DledgerError] = {}
        self.anothers = b""
        """The producer of another user."""
        self.lags = False
        """No producer is known here, until the state is confirmed."""
        self.is_unknown = False
        """No producer is registered."""
        self.has_leader = True
        self.asked = 0

    def refusal(self, header: BatchHeader) -> DledgerError | None:
        """Return the refusal of a topic that is to be refused."""
        return self.refused.get(header.topic_id)

    def refusal_of_producer(self, header: BatchHeader, user: str) -> DledgerError | None:
        """Return the refusal of an unknown producer, or of one of another user."""
        if self.lags or self.is_unknown:
            return DledgerError(Code.UNKNOWN_PRODUCER, "not registered")
        is_anothers = user and header.producer_id == self.anothers
        return DledgerError(Code.NO_PERMISSION, "another user's") if is_anothers else None

    async def confirm(self) -> None:
        """Count, and catch up; NO_LEADER."""
        self.asked += 1
        if not self.has_leader:
            raise DledgerError(Code.NO_LEADER, "nobody leads")
        self.lags = False


def admission(**changes: int) -> AdmissionControl:
    """Return wide bounds, some of them changed."""
    values = {
        "append_bytes_max": 64 * MIB,
        "append_batches_max": 10_000,
        "stream_bytes_max": 32 * MIB,
        "append_streams_max": 100,
        "fetch_streams_max": 100,
        "fetch_bytes_max": 64 * MIB,
        "queries_max": 100,
        "lookups_max": 10,
        "admin_calls_max": 10,
        "log_streams_max": 10,
        "route_watchers_max": 10,
    }
    return AdmissionControl(AdmissionConfig(**{**values, **changes}))


def batch(body: bytes, topic_id: bytes = TOPIC, queue: int = 0) -> bytes:
    """Return a batch of one record."""
    return encode_batch(
        [Record(body)],
        topic_id=topic_id,
        queue=queue,
        stamp=None,
        base_number=0,
        base_time_ms=1,
    )


def refusal(code: Code, index: int = 0) -> Settled:
    """Return a definite refusal."""
    from dledger.types import LogIndex

    return Settled(Outcome.NOT_STORED, code, "refused", index=LogIndex(index))


class FakeMachine(StateMachine):
    """A state machine that only answers questions: `queries` does."""

    def __init__(self, queries: Queries, applied_index: int = 0, time_ms: int = 0) -> None:
        self.queries = queries
        self._index = applied_index
        self._time_ms = time_ms


def in_use(admission: AdmissionControl) -> dict[str, int]:
    """Return what is taken of each bound that is not wholly free."""
    bounds = (each for each in vars(admission).values() if isinstance(each, Bound))
    return {bound.name: bound.used for bound in bounds if bound.used}
