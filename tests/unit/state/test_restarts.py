"""Members that save, lose power and start again at other moments have the same digest all the same.

Every command and batch that the state knows, drawn; tables with small blocks; a member that never
stops beside two that do. What is in memory only (caches, where deleting goes on, names) must never
show in what is written.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from random import Random

import pytest

from dledger.state.commands.command import Command
from dledger.state.commands.registry import encode
from dledger.state.machine import StateFlush, StateMachine
from dledger.state.offsets import CommitOffset
from dledger.state.producers.expiry import ExpireProducers
from dledger.state.producers.registration import RegisterProducer
from dledger.state.progress.commits import CommitOffsets
from dledger.state.queues.expire import Bound, ExpireRecords, Expiring
from dledger.state.queues.holds import Hold, ReleaseHold
from dledger.state.queues.trim import Trim
from dledger.state.results import Appended
from dledger.state.topics.commands import (
    CreateTopic,
    DeleteTopic,
    ForgetTopics,
    ImportTopic,
    UpdateTopic,
)
from dledger.state.values import LayoutPart, Retention, Topic, TopicType
from dledger.types import Entry, EntryKind
from dledger_proto.errors import DledgerError
from tests.sim.member.small_tables import small_tables
from tests.unit.state.kit import LogWriter, batch
from tests.unit.state.memory_store import MemoryStore

GROUP = "g2"
LAYOUT = (LayoutPart("g1", 1), LayoutPart(GROUP, 3))
ENTRIES = 500
TOPICS = [letter.encode() * 16 for letter in "ABCDEFGH"]
NAMES = ["orders", "returns", "audits", "bills", "claims"]
PRODUCERS = [letter.encode() * 16 for letter in "PQRS"]
LIVES = [bytes([life]) * 16 for life in (1, 2, 3)]
KEYS = ["k1", "k2", "k3"]
Sender = tuple[bytes, int, bytes, int]
"""Producer, epoch, topic, queue."""


@pytest.fixture(autouse=True)
def small() -> Generator[None]:
    with small_tables():
        yield


class Member:
    """One member's state."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._store = MemoryStore()
        self.machine = StateMachine(self._store, GROUP)
        self._flush: StateFlush | None = None
        self._flushed = False

    def apply(self, entry: Entry) -> Sequence[object]:
        """Apply; sometimes begin, do or end a save. Returns the results."""
        random = self._random
        results = self.machine.apply(entry)
        if self._flush is None:
            if random.random() < 0.2:
                self._flush, self._flushed = self.machine.freeze(), False
        elif not self._flushed:
            self._flush.execute()
            self._flushed = True
        elif random.random() < 0.5:
            self.machine.flush_finished(self._flush)
            self._flush = None
        return results

    def lose_power(self, log: list[Entry]) -> None:
        """Begin anew from what was saved, or from the save before; apply what the log has."""
        self._store = self._store.power_cut(lose_last=self._random.random() < 0.5)
        self._flush = None
        self.machine = StateMachine(self._store, GROUP)
        for entry in log[self.machine.applied_index :]:
            self.machine.apply(entry)


class Load:
    """Draws what is proposed, by what the first member's state is."""

    def __init__(self, random: Random, machine: StateMachine) -> None:
        self._random = random
        self._machine = machine
        self._control_index = 10
        self._topics = list(TOPICS)
        self._born = dict.fromkeys(TOPICS, 0)
        """Topic id to what was applied when it was drawn."""
        self._gone: list[Topic] = []
        self._numbers = dict.fromkeys(PRODUCERS, 0)
        self._next: dict[Sender, int] = {}
        self._sent: list[tuple[Sender, int]] = []
        self.stored = self.refused = self.given_anew = 0

    def batches(self) -> list[bytes]:
        """Return some batches: without a producer, of known ones, duplicates, refused ones."""
        self._sent.clear()
        return [self._batch() for _ in range(self._random.randint(1, 6))]

    def note(self, results: Sequence[object]) -> None:
        """See how these batches ended."""
        for (sender, count), result in zip(self._sent, results, strict=True):
            if not isinstance(result, Appended):
                self.refused += 1
            elif not result.duplicate:
                self.stored += 1
                self._next[sender] = self._next.get(sender, 0) + count

    def _batch(self) -> bytes:
        random = self._random
        topic, queue, count = (
            random.choice(self._topics),
            random.randint(1, 3),
            random.randint(1, 4),
        )
        keys = [random.choice(KEYS)] if random.random() < 0.5 else []
        producer = random.choice(PRODUCERS)
        known = self._machine._state.producers.find(producer)
        epoch = 0 if known is None else known.epoch
        sender = producer, epoch, topic, queue
        self._sent.append((sender, count))
        if not epoch or random.random() < 0.3:
            self._sent[-1] = (b"", 0, topic, queue), count
            return batch(count, queue=queue, topic=topic, keys=keys)
        self._numbers[producer] += count
        return batch(
            count, queue=queue, topic=topic, keys=keys, producer=producer, epoch=epoch,
            sequence=self._next.get(sender, 0), number=self._numbers[producer],
        )  # fmt: skip

    def command(self, now_ms: int) -> Command[object]:
        """Return a command; some are refused."""
        random = self._random
        if self._gone and random.random() < 0.05:
            self._give_anew(random.choice(self._gone).topic_id)
        topic, queue = random.choice(self._topics), random.randint(1, 3)
        known = self._machine.queries.topic_by_id(topic)
        if known is not None and known.deleted:
            # Nobody decides anything about it any more; what was sent before may come all the same.
            self._gone.append(known)
            fresh = random.randbytes(16)
            self._topics[self._topics.index(topic)] = topic = fresh
            self._born[topic] = self._machine.applied_index
        if self._gone and random.random() < 0.1:
            return self._late(random.choice(self._gone))
        try:
            low, high = self._machine.queries.queue_bounds(topic, queue)
        except DledgerError:
            low, high = 0, 5
        offset, owner = random.randint(low, high), f"owner {random.randint(0, 3)}"
        commit = CommitOffset(topic, queue, offset)
        drawn: list[tuple[int, Command[object]]] = [
            (12, Trim(topic, queue, offset)),
            (6, self._expiry(topic, queue, offset)),
            (6, ImportTopic(self._topic(topic))),
            (4, self._registration()),
            (4, CommitOffsets("g", (commit,), random.random() < 0.2)),
            (4, Hold(owner, topic, queue, offset, now_ms + random.randint(1, 200_000))),
            (4, ReleaseHold(owner, topic, queue)),
            (2, ExpireProducers(random.randint(0, 700_000), random.choice((0, 10**6)))),
            (1, DeleteTopic(topic)),
            (2, ForgetTopics(0, self._control_index - random.randint(0, 2))),
            (2, UpdateTopic(topic, permission=random.choice((2, 4, 6)))),
            (
                2,
                CreateTopic(topic, self._name(topic), TopicType.NORMAL, LAYOUT, 4, 6, 1 << 40),
            ),
        ]
        weights = [weight for weight, _ in drawn]
        return random.choices([each for _, each in drawn], weights)[0]

    def _expiry(self, topic: bytes, queue: int, offset: int) -> Command[object]:
        why = self._random.choice(list(Bound))
        default = Retention(self._random.choice((1, 100_000)), self._random.choice((0, 1)))
        return ExpireRecords((Expiring(topic, queue, offset, why),), default)

    def _give_anew(self, topic_id: bytes) -> None:
        """Let the id of a topic that is forgotten be another one's: callers draw ids."""
        if self._machine.queries.topic_by_id(topic_id) is None and topic_id not in self._topics:
            self._topics[self._random.randrange(len(self._topics))] = topic_id
            self.given_anew += 1

    def _late(self, topic: Topic) -> Command[object]:
        """Return a copy of what was sent about a topic that is deleted, or forgotten, by now."""
        topic_id, index = topic.topic_id, topic.control_index - self._random.randint(0, 20)
        return self._random.choice(
            (
                CreateTopic(
                    topic_id, topic.name, topic.type, topic.layout, 4, 6, self._born[topic_id]
                ),
                ImportTopic(replace(topic, deleted=False, control_index=max(index, 1))),
                DeleteTopic(topic_id),
            )
        )

    def _registration(self) -> Command[object]:
        """Return a registration: a first one, or one that asks for what is next."""
        random = self._random
        producer_id, life_id = random.choice(PRODUCERS), random.choice(LIVES)
        known = self._machine._state.producers.find(producer_id)
        wanted = 0 if known is None or random.random() < 0.5 else known.epoch + 1
        return RegisterProducer(producer_id, life_id, wanted)

    def _name(self, topic_id: bytes) -> str:
        """Return a name: mostly always the same, which several topics share."""
        usual = NAMES[self._topics.index(topic_id) % len(NAMES)]
        return usual if self._random.random() < 0.8 else self._random.choice(NAMES)

    def _topic(self, topic_id: bytes) -> Topic:
        random = self._random
        self._control_index += random.randint(0, 2)
        self._control_index = max(self._control_index, self._machine.applied_index)
        index = max(1, self._control_index - random.choice((0, 0, 0, 3)))
        return Topic(
            topic_id, self._name(topic_id), TopicType.NORMAL, random.randint(1, 3), LAYOUT, 4, 4,
            6, index, random.random() < 0.05,
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_restarts_do_not_show(seed: int) -> None:
    random, log = Random(seed), LogWriter()
    members = [Member(random) for _ in range(3)]
    load = Load(random, members[0].machine)
    for _ in range(ENTRIES):
        now_ms = log.time_ms + random.choice((1, 1, 1, 100_000))
        drawn = random.random()
        if drawn < 0.55:
            entry = log.add(EntryKind.BATCHES, load.batches(), now_ms)
        elif drawn < 0.95:
            commands = [load.command(now_ms) for _ in range(random.randint(1, 4))]
            payloads = [encode(each) for each in commands]
            entry = log.add(EntryKind.COMMANDS, payloads, now_ms)
        else:
            entry = log.add(EntryKind.NO_OP, [], now_ms)
        for member in members[1:]:
            if random.random() < 0.08:
                member.lose_power(log.entries[:-1])
        results = [member.apply(entry) for member in members]
        assert results[1:] == [results[0]] * 2
        if entry.kind is EntryKind.BATCHES:
            load.note(results[0])
        assert len({member.machine.digest for member in members}) == 1, f"entry {entry.ref.index}"
    assert load.stored > 50
    assert load.refused
    assert load.given_anew
