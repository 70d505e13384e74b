"""D7, D21 to D25 on the log: what the queues of a shared topic hold, and how far its groups are.

Owns: a model of what consumer groups share: records, timers, retries, dead letters, floors. It
follows from the entries and from what apply answers, the first time any member applies them. Each
answer is compared with it, each record that a consumer gets (`handling.py`), and in the end what
every member holds.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, cast

from dledger.state.commands.registry import decode
from dledger.state.progress.claims import ClaimQueues
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.dead_letters import SettleDeadLetters
from dledger.state.progress.failures import DEAD_NOW, FailedRecord, FailRecords
from dledger.state.progress.ranges import Range, is_done, settled
from dledger.state.results import (
    DELAYED_OFFSET,
    Appended,
    ConsumerGroupChanged,
    DeadLettersSettled,
    FailuresStored,
    FailureStored,
    OffsetsCommitted,
    QueuesClaimed,
    TimerRecalled,
    TimersFired,
    TopicChanged,
)
from dledger.state.timers.commands import FIRED_AT_ONCE_MAX, FireTimers, RecallTimer
from dledger.state.values import Topic
from dledger.types import Entry, EntryKind
from dledger_proto.batch.codec import BatchView, delivery_time_of, parse_header
from dledger_proto.errors import Code
from dledger_proto.names import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.delivery.queue_contents import Contents, QueueKey
from tests.sim.invariants.violation import Property, Violation

if TYPE_CHECKING:
    from tests.sim.clients.group.plan import SharePlan

TOPIC: Final = "v"
"""The topic that consumer groups share."""


Claim = tuple[int, int]
"""A consumer's claim of a queue: the epoch of its grant, and how many resets it knows."""


class Copy(NamedTuple):
    """One record of a queue: that of its producer, or a reference to it."""

    message: bytes
    key: str
    body: bytes
    due_ms: int
    """Leader time before which nobody may see it; 0: any."""
    origin: tuple[bytes, int, int] | None = None
    attempts: int = 0
    resent: int = 0


@dataclass(slots=True)
class Timer:
    """Records that wait for their time."""

    queue: QueueKey
    copies: list[Copy]


@dataclass(slots=True)
class Floor:
    """How far a consumer group is in a queue."""

    floor: int = -1
    done: list[Range] = field(default_factory=list[Range])
    suspended: dict[int, int] = field(default_factory=dict[int, int])
    """Attempts of records that failed and stay."""
    epoch: int = 0
    """Of the newest claim that was taken."""
    resets: int = 0
    skipped: list[Range] = field(default_factory=list[Range])
    """Over what resets went forward, and none came back since."""
    handled: set[int] = field(default_factory=set[int])
    """Of an ordered group: whose last outcome is that a consumer handled it, since the last reset
    below it."""
    at_claim: dict[Claim, list[tuple[int, list[Range]]]] = field(
        default_factory=dict[Claim, list[tuple[int, list[Range]]]]
    )
    """What was done each time that a claim was answered."""

    def reset(self, offset: int) -> None:
        """Note that an administrator sets the offset."""
        skipped = [(first, min(end, offset)) for first, end in self.skipped if first < offset]
        if self.floor < offset:
            skipped.append((self.floor, offset))
        self.skipped = skipped
        self.handled = {each for each in self.handled if each < offset}
        self.floor, self.done, self.suspended = offset, [], {}
        self.resets += 1

    def answer(self, epoch: int) -> None:
        """Note what a claim is told."""
        answers = self.at_claim.setdefault((epoch, self.resets), [])
        told = self.floor, list(self.done)
        if told not in answers[-1:]:
            answers.append(told)

    def finish(self, floor: int, added: Sequence[Range]) -> None:
        """Note that records are done."""
        self.floor, self.done = settled(max(self.floor, floor), self.done, added)
        for offset in [each for each in self.suspended if self.is_done(each)]:
            del self.suspended[offset]

    def is_done(self, offset: int) -> bool:
        """Tell whether a record is done."""
        return is_done(self.floor, self.done, offset)


class SharedGroup:
    """A consumer group, over all broker groups."""

    def __init__(self, name: str, plan: "SharePlan") -> None:
        self.name = name
        self.plan = plan
        self.id = b""
        self.dead_letters_id = b""
        self.floors: dict[QueueKey, Floor] = {}
        self.failed: Counter[bytes] = Counter()
        """Failures of listeners, by message."""
        self.counted: Counter[bytes] = Counter()
        """Failures that were stored."""
        self.dead: set[bytes] = set()
        """Messages that failed for the last time."""
        self.handled: set[bytes] = set()
        """Messages that a consumer handled, here or as a retry, since the last reset below them."""

    def floor(self, queue: QueueKey) -> Floor:
        """Return how far the group is in a queue."""
        return self.floors.setdefault(queue, Floor())


class SharedRecords:
    """What all broker groups of a world hold of the shared topic."""

    def __init__(self, groups: Sequence[SharedGroup], contents: Contents) -> None:
        self.groups = {group.name: group for group in groups}
        self.contents = contents
        self.topic_id = b""
        self.counts: Counter[str] = Counter()
        self.queues: dict[QueueKey, list[Copy]] = {}
        self.home: dict[QueueKey, str] = {}
        """The broker group that holds a queue."""
        self.known: dict[bytes, Copy] = {}
        """Every message that was stored, by its id."""
        self.recalled: set[bytes] = set()
        self.waiting: dict[str, dict[tuple[int, int, int], Timer]] = {}
        """Timers of each broker group, by due time, number and first record."""
        self.topics: dict[str, Topic] = {}

    def changed(self, topic: Topic) -> None:
        """Learn of a topic as it is now."""
        if topic.name == TOPIC:
            self.topic_id = topic.topic_id
            self.contents.modelled.add(topic.topic_id)
        name = topic.name.removeprefix(RETRY_TOPIC_PREFIX).removeprefix(DEAD_LETTER_TOPIC_PREFIX)
        group = self.groups.get(name)
        if topic.name == TOPIC or group is not None:
            self.topics[topic.name] = topic
            number = 0
            for part in topic.layout:
                for _ in range(part.queues):
                    self.home[topic.topic_id, number] = part.group
                    number += 1
        if group is not None and topic.name.startswith(RETRY_TOPIC_PREFIX):
            group.id = topic.topic_id
        elif group is not None:
            group.dead_letters_id = topic.topic_id

    def first_queue(self, topic_id: bytes, broker_group: str) -> QueueKey:
        """Return the queue of a group's own topic in a broker group."""
        return next(
            queue
            for queue, home in self.home.items()
            if queue[0] == topic_id and home == broker_group
        )

    def queue_of(self, topic: str, number: int) -> QueueKey:
        """Return the key of a queue that a consumer names."""
        return self.topics[topic].topic_id, number

    def is_waiting(self, message: bytes, topic_id: bytes | None = None) -> bool:
        """Tell whether a timer holds a message for a topic, by default the shared one."""
        topic_id = topic_id or self.topic_id
        return any(
            timer.queue[0] == topic_id and any(copy.message == message for copy in timer.copies)
            for timers in self.waiting.values()
            for timer in timers.values()
        )

    def why_not_done(self, times_ms: Mapping[str, int]) -> str:
        """Tell what a group has not finished; empty: all is done.

        `times_ms`: in a broker group whose time stands still, timers that are due later may wait.
        """
        for home, timers in self.waiting.items():
            due = sorted(at for at in timers if at[0] <= times_ms.get(home, at[0]))
            if due:
                return f"{len(due)} timers wait in {home}, the first {due[0]}"
        for group in self.groups.values():
            for queue, copies in self.queues.items():
                if queue[0] not in (self.topic_id, group.id):
                    continue
                floor = group.floor(queue)
                if floor.floor < len(copies):
                    return (
                        f"{group.name} has done {queue[0].hex()[:4]}/{queue[1]} to {floor.floor} "
                        f"of {len(copies)}, and {floor.done}, suspended {floor.suspended}"
                    )
        return ""


class RecordHistory(Invariant):
    """Keeps the model of one broker group as its log says."""

    broken = Property.DELIVERED

    def __init__(self, facts: Facts, home: str, records: SharedRecords) -> None:
        super().__init__(facts)
        self._home = home
        self._records = records
        self._timers = records.waiting.setdefault(home, {})
        self._number = 0
        self._applied = 0

    def on_apply(
        self, member: MemberFacts, entry: Entry, results: Sequence[object], digest: bytes
    ) -> None:
        """See `Invariant.on_apply`."""
        if entry.ref.index <= self._applied:
            return
        self._applied = int(entry.ref.index)
        if entry.kind is EntryKind.BATCHES:
            for payload, result in zip(entry.payloads, results, strict=True):
                if isinstance(result, Appended) and not result.duplicate:
                    self._appended(payload, result, entry.time_ms)
        elif entry.kind is EntryKind.COMMANDS:
            for payload, result in zip(entry.payloads, results, strict=True):
                self._command(payload, result, entry.time_ms)

    def _command(self, payload: memoryview, result: object, time_ms: int) -> None:
        match result:
            case TopicChanged(topic):
                self._records.changed(topic)
            case ConsumerGroupChanged(retry, dead_letters):
                self._records.changed(retry)
                self._records.changed(dead_letters)
            case TimersFired():
                self._fired(cast("FireTimers", decode(bytes(payload))), result, time_ms)
            case TimerRecalled():
                self._recalled(cast("RecallTimer", decode(bytes(payload))))
            case QueuesClaimed():
                self._claimed(cast("ClaimQueues", decode(bytes(payload))), result)
            case OffsetsCommitted():
                self._committed(cast("CommitOffsets", decode(bytes(payload))), result)
            case FailuresStored():
                self._failures(cast("FailRecords", decode(bytes(payload))), result)
            case DeadLettersSettled():
                self._settled(cast("SettleDeadLetters", decode(bytes(payload))), result)
            case _:
                return

    # Records and timers.

    def _appended(self, payload: memoryview, result: Appended, time_ms: int) -> None:
        header = parse_header(payload)
        records = self._records
        if header.topic_id != records.topic_id:
            return
        view = BatchView(payload)
        due_ms = delivery_time_of(payload, header)
        copies = [Copy(*content_of(view, place), due_ms) for place in range(header.record_count)]
        for copy in copies:
            if records.known.setdefault(copy.message, copy) is not copy:
                _fail(Property.TIMERS, f"{copy} is stored again, as {result}")
        queue = header.topic_id, header.queue
        if (due_ms > time_ms) != (result.base_offset == DELAYED_OFFSET):
            _fail(Property.TIMERS, f"{result} at {time_ms} of {copies}")
        if due_ms > time_ms:
            self._set_timer(due_ms, queue, copies)
            return
        self._append(queue, copies)
        if result.base_offset != len(records.queues[queue]) - len(copies):
            self.fail(f"{result} of {copies} in a queue of {len(records.queues[queue])}")

    def _append(self, queue: QueueKey, copies: Sequence[Copy]) -> None:
        self._records.queues.setdefault(queue, []).extend(copies)

    def _set_timer(self, due_ms: int, queue: QueueKey, copies: list[Copy]) -> None:
        self._number += 1
        self._timers[due_ms, self._number, 0] = Timer(queue, copies)

    def _fired(self, command: FireTimers, result: TimersFired, time_ms: int) -> None:
        up_to_ms = min(command.up_to_ms, time_ms)
        due = sorted(at for at in self._timers if at[0] <= up_to_ms)
        due = due[: min(max(command.at_most, 1), FIRED_AT_ONCE_MAX)]
        if len(due) != result.count:
            _fail(Property.TIMERS, f"{result} by {command} at {time_ms}, due are {due}")
        for at in due:
            timer = self._timers.pop(at)
            self._append(timer.queue, timer.copies)
            name = "timers fired" if timer.copies[0].origin is None else "retries delivered"
            self._records.counts[name] += 1

    def _recalled(self, command: RecallTimer) -> None:
        message = command.producer_id + command.number.to_bytes(8, "big")
        holds = [
            (at, place)
            for at, timer in self._timers.items()
            for place, copy in enumerate(timer.copies)
            if copy.message == message and copy.origin is None
        ]
        if len(holds) != 1:
            _fail(Property.TIMERS, f"{message.hex()} is recalled, timers with it are {holds}")
        ((at, place),) = holds
        timer = self._timers.pop(at)
        for start, stop in ((0, place), (place + 1, len(timer.copies))):
            if start < stop:
                part = timer.copies[start:stop]
                self._timers[at[0], at[1], at[2] + start] = Timer(timer.queue, part)
        self._records.recalled.add(message)
        self._records.counts["delayed records recalled"] += 1

    # Consumer groups.

    def _claimed(self, command: ClaimQueues, result: QueuesClaimed) -> None:
        group = self._records.groups.get(command.consumer_group)
        if group is None:
            return
        for item, row in zip(command.queues, result.rows, strict=True):
            if row.code is not Code.OK or row.row is None:
                self._records.counts[f"claims {row.code.name}"] += 1
                continue
            known = group.floor((item.topic_id, item.queue))
            known.floor = max(known.floor, 0)  # all queues are younger than the group
            if (row.row.floor, row.row.done) != (known.floor, known.done):
                _fail(
                    Property.NOT_AGAIN, f"{group.name} {item}: {row.row} is told, done are {known}"
                )
            known.epoch = item.epoch
            if row.row.resets != known.resets:
                _fail(Property.NOT_AGAIN, f"{group.name} {item}: {row.row}, known are {known}")
            known.answer(item.epoch)

    def _committed(self, command: CommitOffsets, result: OffsetsCommitted) -> None:
        group = self._records.groups.get(command.consumer_group)
        if group is None:
            return
        rows = zip(command.offsets, result.codes, result.stored_offsets, strict=True)
        for item, code, stored in rows:
            if code is Code.FENCED:
                self._records.counts["commits fenced"] += 1
            if code is Code.OFFSET_RESET:
                self._records.counts["commits refused over a reset"] += 1
            if code is not Code.OK:
                continue
            known = group.floor((item.topic_id, item.queue))
            if command.reset:
                self._records.counts["resets"] += 1
                known.reset(item.offset)
                copies = self._records.queues.get((item.topic_id, item.queue), [])
                again = {copy.message for copy in copies[item.offset :]}
                group.handled -= again
                group.dead -= again
            else:
                known.finish(item.offset, item.done)
            if stored != known.floor:
                _fail(
                    Property.NOT_AGAIN, f"{group.name} {item}: {stored} is stored, done are {known}"
                )

    def _failures(self, command: FailRecords, result: FailuresStored) -> None:
        group = self._records.groups.get(command.consumer_group)
        if group is None:
            return
        for item, row in zip(command.records, result.rows, strict=True):
            if row.code is Code.OK:
                self._failure(group, item, row)
            elif row.code is Code.FENCED:
                self._records.counts["failures fenced"] += 1

    def _failure(self, group: SharedGroup, item: FailedRecord, row: FailureStored) -> None:
        queue, offset = (item.topic_id, item.queue), item.offset
        known = group.floor(queue)
        if known.is_done(offset):
            return
        copy = self._records.queues[queue][offset]
        before = copy.attempts if queue[0] == group.id else 0
        before = known.suspended.get(offset, before)
        if offset in known.suspended and item.attempts < before:
            return
        group.counted[copy.message] += 1
        if row.attempts != before + 1 or group.counted[copy.message] > group.failed[copy.message]:
            _fail(
                Property.ATTEMPTS,
                f"{group.name} {item}: {row} after {before} attempts, "
                f"listeners failed {group.failed[copy.message]} times",
            )
        is_dead = item.delay_ms == DEAD_NOW or row.attempts > group.plan.retries_max
        if row.is_dead != is_dead:
            _fail(
                Property.DEAD_LETTERS,
                f"{group.name} {item}: {row}, retries are {group.plan.retries_max}",
            )
        self._records.counts["failures stored"] += 1
        if group.plan.is_ordered and not is_dead:
            known.suspended[offset] = row.attempts
            return
        again = copy._replace(
            origin=copy.origin or (*queue, offset), attempts=row.attempts, due_ms=row.due_ms
        )
        if is_dead:
            self._append(self._own(group.dead_letters_id), [again])
            group.dead.add(copy.message)
            self._records.counts["dead letters"] += 1
        else:
            self._set_timer(row.due_ms, self._own(group.id), [again])
        known.finish(0, [(offset, offset + 1)])

    def _own(self, topic_id: bytes) -> QueueKey:
        return self._records.first_queue(topic_id, self._home)

    def _settled(self, command: SettleDeadLetters, result: DeadLettersSettled) -> None:
        group = self._records.groups.get(command.consumer_group)
        if group is None:
            return
        dead = group.dead_letters_id, command.queue
        known = group.floor(dead)
        known.floor = max(known.floor, 0)
        for offset, code in zip(command.offsets, result.codes, strict=True):
            if code is not Code.OK:
                continue
            if known.is_done(offset):
                _fail(Property.DEAD_LETTERS, f"{group.name}: dead letter {offset} is settled twice")
            known.finish(0, [(offset, offset + 1)])
            if command.resend:
                copy = self._records.queues[dead][offset]
                again = copy._replace(attempts=0, resent=copy.resent + 1)
                self._append(self._own(group.id), [again])
                group.dead.discard(copy.message)
                self._records.counts["dead letters sent again"] += 1


def content_of(view: BatchView, place: int) -> tuple[bytes, str, bytes]:
    """Return a record's id, its first key and its body."""
    record = view.record(place)
    return view.message_id(place), next(iter(record.keys), ""), record.body


def _fail(broken: Property, detail: str) -> NoReturn:
    raise Violation(broken, detail)
