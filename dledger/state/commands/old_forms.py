"""Commands in the form in which an older dledger wrote them: read from a log, never written.

Owns: the old forms, and what they mean now. A form is kept while a log may hold it.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from dledger.state.commands.codec import Int64, UInt8, UInt32, UInt64
from dledger.state.commands.command import Command
from dledger.state.consumers.settings import GroupSettings
from dledger.state.offsets import CommitOffset
from dledger.state.producers.registration import RegisterProducer
from dledger.state.progress.claims import ClaimQueues, GrantedQueue, WantedQueue
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.fence import BY_STAMP
from dledger.state.topics.commands import CreateTopic, ForgetTopics, ImportTopic, UpdateTopic
from dledger.state.values import LayoutPart, Topic, TopicType


class OldForm(Protocol):
    """A command as it was written."""

    def now(self) -> Command[object]:
        """Return the command of today that does the same."""
        ...


class PlainOffset(NamedTuple):
    """An offset without a claim and done ranges."""

    topic_id: bytes
    queue: UInt32
    offset: Int64
    metadata: str


@dataclass(frozen=True, slots=True)
class PlainCommit:
    """CommitOffsets before consumer groups had claims: nobody looked at member and generation."""

    consumer_group: str
    reset: bool
    member_id: str
    generation: UInt64
    offsets: tuple[PlainOffset, ...]

    def now(self) -> Command[object]:
        """See `OldForm.now`."""
        offsets = tuple(CommitOffset(*each) for each in self.offsets)
        return CommitOffsets(self.consumer_group, offsets, self.reset)


@dataclass(frozen=True, slots=True)
class PlainTopic:
    """A topic before topics had settings of consumer groups."""

    topic_id: bytes
    name: str
    type: TopicType
    layout_version: UInt32
    layout: tuple[LayoutPart, ...]
    write_queues: UInt32
    read_queues: UInt32
    permission: UInt8
    control_index: UInt64
    deleted: bool


@dataclass(frozen=True, slots=True)
class PlainImport:
    """ImportTopic of such a topic."""

    topic: PlainTopic
    control_id: bytes

    def now(self) -> Command[object]:
        """See `OldForm.now`."""
        return ImportTopic(_topic(self.topic), self.control_id)


def _topic(old: PlainTopic, settings: tuple[GroupSettings, ...] = ()) -> Topic:
    return Topic(
        old.topic_id, old.name, old.type, old.layout_version, old.layout, old.write_queues,
        old.read_queues, old.permission, old.control_index, old.deleted, settings,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopicWithSettings(PlainTopic):
    """A topic before topics had a retention."""

    settings: tuple[GroupSettings, ...]


@dataclass(frozen=True, slots=True)
class ImportWithSettings:
    """ImportTopic of such a topic."""

    topic: TopicWithSettings
    control_id: bytes

    def now(self) -> Command[object]:
        """See `OldForm.now`."""
        return ImportTopic(_topic(self.topic, self.topic.settings), self.control_id)


@dataclass(frozen=True, slots=True)
class EarlyCreation:
    """CreateTopic before topics had a retention."""

    topic_id: bytes
    name: str
    type: TopicType
    layout: tuple[LayoutPart, ...]
    read_queues: UInt32
    permission: UInt8
    known_index: UInt64

    def now(self) -> Command[object]:
        """See `OldForm.now`."""
        return CreateTopic(
            self.topic_id, self.name, self.type, self.layout, self.read_queues, self.permission,
            self.known_index,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class EarlyUpdate:
    """UpdateTopic before topics had a retention."""

    topic_id: bytes
    layout: tuple[LayoutPart, ...]
    read_queues: UInt32
    permission: UInt8

    def now(self) -> Command[object]:
        """See `OldForm.now`."""
        return UpdateTopic(self.topic_id, self.layout, self.read_queues, self.permission)


@dataclass(frozen=True, slots=True)
class EarlyRegistration:
    """RegisterProducer before producers had owners."""

    producer_id: bytes
    life_id: bytes
    epoch: UInt32

    def now(self) -> Command[object]:
        """See `OldForm.now`."""
        return RegisterProducer(self.producer_id, self.life_id, self.epoch)


@dataclass(frozen=True, slots=True)
class StampedClaim:
    """ClaimQueues when stamps ended leases."""

    consumer_group: str
    member_id: str
    queues: tuple[GrantedQueue, ...]

    def now(self) -> Command[object]:
        """See `OldForm.now`."""
        queues = tuple(WantedQueue(*each, over=BY_STAMP) for each in self.queues)
        return ClaimQueues(self.consumer_group, self.member_id, queues)


@dataclass(frozen=True, slots=True)
class EarlyForget:
    """ForgetTopics when it did not wait for the sweeps of producers and progress."""

    kept_ms: Int64
    known_index: UInt64

    def now(self) -> Command[object]:
        """See `OldForm.now`."""
        return ForgetTopics(self.kept_ms, self.known_index, waits_for_all=False)


OLD_FORMS: Final[dict[int, type[OldForm]]] = {
    7: PlainCommit, 12: EarlyRegistration, 13: EarlyCreation, 15: EarlyUpdate, 16: EarlyForget,
    17: PlainImport, 49: ImportWithSettings, 51: StampedClaim,
}  # fmt: skip
"""By the number of the command."""
