"""What became of one record: commands of the log in, lines for people out. Pure.

Owns: which commands touch a record, and whether each was taken. Not: reading the log
(`explain.py`).

The log holds what was asked, not the answers. So a story keeps, for each consumer group, what it
has seen of its claim, and judges commits and failures by that, with the rules of
`dledger/state/progress/fence.py`. A claim that is older than the record is learnt from the first
commit that names it. Settings of a group, for leases and retries, are those of today.

A record that failed goes on as a reference in `%RETRY%` or `%DLQ%`. The story follows it there: the
place comes from the state (`World.reference`), the index of its entry from the log.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeVar, get_type_hints

from dledger.state.commands.command import Command
from dledger.state.consumers.settings import ConsumeOrder, GroupSettings
from dledger.state.progress.claims import ClaimQueues, ReleaseQueues
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.dead_letters import SettleDeadLetters
from dledger.state.progress.failures import BY_POLICY, DEAD_NOW, FailedRecord, FailRecords
from dledger.state.progress.fence import BY_STAMP, lease_lasts
from dledger.state.queues.trim import Trim
from dledger.state.timers.commands import FireTimers
from dledger.state.values import FoundReference, Origin, Topic

CLAIMS_MAX: Final = 1_000
"""Consumer groups and places that one story follows."""
TOLD: Final = (
    ClaimQueues, ReleaseQueues, CommitOffsets, FailRecords, SettleDeadLetters, Trim, FireTimers,
)  # fmt: skip
"""Commands that a story looks at."""


T = TypeVar("T")


class Moment(NamedTuple):
    """An entry of the log."""

    entry: int
    """Its index."""
    time_ms: int
    position: int


class Line(NamedTuple):
    """One thing that happened to the record."""

    entry: int
    """Index of the log entry."""
    time_ms: int
    event: str
    topic_id: bytes
    queue: int
    offset: int
    text: str
    group: str = ""
    member: str = ""
    epoch: int = 0


class World(Protocol):
    """What a story asks of the state, as it is today."""

    def group_by_name(self, name: str) -> tuple[Topic, GroupSettings] | None:
        """Return the retry topic and the settings of a consumer group."""
        ...

    def reference(self, topic_id: bytes, origin: Origin, from_ms: int) -> FoundReference | None:
        """Return the reference with this origin that was stored at a time or later."""
        ...


@dataclass
class Place:
    """A place where the record is, or was: its own, or a reference's."""

    topic: str
    """The id, hex."""
    queue: int
    offset: int
    opened_by: int
    """Position of the entry that put it there."""
    event: str
    text: str
    origin: tuple[str, int, int]
    """The record's first place: topic, queue, offset."""
    group: str = ""
    """Only this consumer group is followed here; empty: all."""
    attempts: int = 0
    resent: int = 0
    is_told_only: bool = False
    """Nothing is done here: the record waits for its time."""
    is_open: bool = False


@dataclass
class Claim:
    """What a story has seen of one consumer group at one place."""

    epoch: int = 0
    consumer: str = ""
    holding: bool = False
    released: bool = False
    resets: int = -1
    """-1: not known."""
    must_claim: bool = False
    """There was a reset, and nobody can know the number of resets without another claim."""
    lease_until_ms: int = 0
    leased_at: int = 0
    done: bool = False
    attempts: int = 0


@dataclass
class Story:
    """The record's places, and the claims there."""

    places: list[Place]
    claims: dict[str, Claim] = field(default_factory=dict[str, Claim])
    """By place and consumer group."""

    def take(self, world: World, now: Moment, command: Command[Any] | None) -> Iterator[Line]:
        """Yield what an entry, or a command of it, did to the record."""
        for place in self.places:
            if not place.is_open and place.opened_by == now.position:
                yield self._open(place, now)
        match command:
            case ClaimQueues():
                yield from self._claim(world, now, command)
            case ReleaseQueues():
                yield from self._release(now, command)
            case CommitOffsets():
                yield from self._commit(now, command)
            case FailRecords():
                yield from self._fail(world, now, command)
            case SettleDeadLetters():
                yield from self._settle(world, now, command)
            case Trim():
                for item, place in self._named((command,)):
                    if item.offset > place.offset:
                        yield _line(place, now, "trimmed", f"a trim to {item.offset} was asked for")
            case _:
                pass

    def _open(self, place: Place, now: Moment) -> Line:
        place.is_open = True
        return _line(place, now, place.event, place.text, place.group)

    def _named(self, items: Any, group: str = "") -> Iterator[tuple[Any, Place]]:
        """Yield the items of a command that name the queue of a place."""
        for place in list(self.places):
            if (
                place.is_open
                and not place.is_told_only
                and (not group or place.group in ("", group))
            ):
                topic_id = bytes.fromhex(place.topic)
                for item in items:
                    if (item.topic_id, item.queue) == (topic_id, place.queue):
                        yield item, place

    def _claim_of(self, place: Place, group: str) -> Claim | None:
        if place.group not in ("", group):
            return None
        key = f"{place.topic}/{place.queue}@{place.offset} {group}"
        if key not in self.claims and len(self.claims) >= CLAIMS_MAX:
            return None
        return self.claims.setdefault(key, Claim())

    def _claim(self, world: World, now: Moment, command: ClaimQueues) -> Iterator[Line]:
        group = command.consumer_group
        known = world.group_by_name(group)
        is_ordered = known is not None and known[1].order is not ConsumeOrder.CONCURRENT
        lease_ms = known[1].lease_ms if known is not None and is_ordered else 0
        for item, place in self._named(command.queues, group):
            claim = self._claim_of(place, group)
            if claim is None or item.epoch < claim.epoch:
                continue
            is_same = claim.consumer == command.member_id
            if item.epoch == claim.epoch and (not is_same or claim.released):
                continue
            if not is_same and lease_lasts(
                claim.lease_until_ms, claim.leased_at, item.over, now.time_ms
            ):
                continue
            is_renewal = item.epoch == claim.epoch and claim.holding
            claim.epoch, claim.consumer = item.epoch, command.member_id
            claim.holding, claim.released, claim.must_claim = True, False, False
            claim.lease_until_ms = now.time_ms + lease_ms if lease_ms else 0
            claim.leased_at = now.entry if lease_ms and item.over != BY_STAMP else 0
            if not claim.done and not is_renewal:
                lease = f", with a lease of {lease_ms} ms" if lease_ms else ""
                yield _line(place, now, "claimed", f"the queue is claimed{lease}",
                            group, command.member_id, item.epoch)  # fmt: skip

    def _release(self, now: Moment, command: ReleaseQueues) -> Iterator[Line]:
        group, member = command.consumer_group, command.member_id
        for item, place in self._named(command.queues, group):
            claim = self._claim_of(place, group)
            if claim is None or (claim.epoch, claim.consumer) != (item.epoch, member):
                continue
            claim.holding, claim.released = False, True
            claim.lease_until_ms = claim.leased_at = 0
            if not claim.done:
                text = "the queue is given back before the record is done"
                yield _line(place, now, "released", text, group, member, item.epoch)

    def _commit(self, now: Moment, command: CommitOffsets) -> Iterator[Line]:
        group, member = command.consumer_group, command.member_id
        for item, place in self._named(command.offsets, group):
            claim = self._claim_of(place, group)
            if claim is None:
                continue
            if command.reset:
                yield from _reset(claim, place, now, group, item.offset)
                continue
            covers = place.offset < item.offset or any(
                first <= place.offset < end for first, end in item.done
            )
            refusal = _refusal(claim, item.epoch, member, item.resets)
            if not covers or claim.done:
                continue
            if refusal:
                text = f"a commit was refused: {refusal}"
                yield _line(place, now, "refused", text, group, member, item.epoch)
                continue
            claim.done = True
            text = f"done by a commit of offset {item.offset}"
            if place.offset >= item.offset:
                text += ", in a range above it"
            yield _line(place, now, "done", text, group, member, item.epoch)

    def _fail(self, world: World, now: Moment, command: FailRecords) -> Iterator[Line]:
        group, member = command.consumer_group, command.member_id
        known = world.group_by_name(group)
        for item, place in self._named(command.records, group):
            claim = self._claim_of(place, group)
            if item.offset != place.offset or claim is None or claim.done:
                continue
            refusal = _refusal(claim, item.epoch, member, item.resets)
            if refusal:
                text = f"a failure was refused: {refusal}"
                yield _line(place, now, "refused", text, group, member, item.epoch)
            elif known is not None and item.attempts == max(claim.attempts, place.attempts):
                yield from self._failed(world, now, place, claim, item, known, (group, member))

    def _failed(
        self,
        world: World,
        now: Moment,
        place: Place,
        claim: Claim,
        item: FailedRecord,
        known: tuple[Topic, GroupSettings],
        who: tuple[str, str],
    ) -> Iterator[Line]:
        group_id, settings = known[0].topic_id, known[1]
        attempts = item.attempts + 1
        is_dead = item.delay_ms == DEAD_NOW or attempts > settings.retries_max
        delay_ms = item.delay_ms
        if delay_ms == BY_POLICY:
            delay_ms = settings.retry_delay_ms(attempts)
        due_ms = now.time_ms + delay_ms
        said = f"failure {attempts}: {item.error}"
        if is_dead:
            end = "it goes to the dead letters" if settings.dead_letters else "it is dropped"
            yield _line(place, now, "dead", f"{said}; {end}", *who, item.epoch)
        else:
            text = f"{said}; it is due again in {delay_ms} ms"
            yield _line(place, now, "failed", text, *who, item.epoch)
        claim.attempts = attempts
        if settings.order is not ConsumeOrder.CONCURRENT and not is_dead:
            return
        claim.done = True
        if not is_dead:
            told = "retry", f"put into the retry queue, after failure {attempts}"
            self._follow(world, place, group_id, who[0], attempts, place.resent, due_ms, told)
        elif settings.dead_letters:
            dead_id = settings.dead_letter_topic_id
            told = "dead letter", "put into the dead letters"
            if self._follow(
                world, place, dead_id, who[0], attempts, place.resent, now.time_ms, told
            ):
                yield from self.take(world, now, None)
            else:  # it is settled, and gone from the dead letters
                self._resent(world, place, group_id, who[0], now.time_ms)

    def _resent(
        self, world: World, place: Place, group_id: bytes, group: str, from_ms: int
    ) -> None:
        self._follow(world, place, group_id, group, 0, place.resent + 1, from_ms,
                     ("resent", "sent again from the dead letters"))  # fmt: skip

    def _follow(
        self,
        world: World,
        place: Place,
        topic_id: bytes,
        group: str,
        attempts: int,
        resent: int,
        from_ms: int,
        told: tuple[str, str],
    ) -> bool:
        """Look where the record goes on; its place opens with the entry that put it there."""
        topic, queue, offset = place.origin
        origin = Origin(bytes.fromhex(topic), queue, offset, attempts, "", resent)
        found = world.reference(topic_id, origin, from_ms)
        if found is None:
            return False
        self.places.append(
            Place(
                topic_id.hex(), found.queue, found.offset, found.position, *told, place.origin,
                group, attempts, resent,
            )
        )  # fmt: skip
        return True

    def _settle(self, world: World, now: Moment, command: SettleDeadLetters) -> Iterator[Line]:
        known = world.group_by_name(command.consumer_group)
        if known is None:
            return
        group_id, settings = known[0].topic_id, known[1]
        dead = settings.dead_letter_topic_id.hex()
        for place in list(self.places):
            if (place.topic, place.queue) != (dead, command.queue) or not place.is_open:
                continue
            claim = self._claim_of(place, command.consumer_group)
            if place.offset not in command.offsets or claim is None or claim.done:
                continue
            if command.resend and command.resent_max and place.resent >= command.resent_max:
                text = f"not sent again: it was sent {place.resent} times"
                yield _line(place, now, "refused", text, command.consumer_group)
                continue
            claim.done = True
            if command.resend:
                self._resent(world, place, group_id, command.consumer_group, now.time_ms)
                yield from self.take(world, now, None)
            else:
                text = "dropped from the dead letters"
                yield _line(place, now, "dropped", text, command.consumer_group)


def encode_cursor(index: int, story: Story) -> bytes:
    """Return the entry with which the next page begins, and what the story knows by then."""
    return json.dumps([index, asdict(story)]).encode()


def decode_cursor(cursor: bytes) -> tuple[int, Story]:
    """Return what `encode_cursor` took; ValueError when it is something else."""
    try:
        index, dumped = json.loads(cursor)
        places = [_loaded(Place, row) for row in dumped["places"]]
        claims = {str(key): _loaded(Claim, row) for key, row in dumped["claims"].items()}
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if type(index) is not int:
        raise ValueError(f"index {index!r}")
    for place in places:
        bytes.fromhex(place.topic)
    return index, Story(places, claims)


def _loaded(kind: type[T], row: Mapping[str, Any]) -> T:
    """Return a value of JSON; ValueError for a field of another type: a caller may send anything.

    Fields are numbers, texts and flags, but for `origin`.
    """
    values = dict(row)
    if "origin" in values:
        topic, queue, offset = values["origin"]
        if (type(topic), type(queue), type(offset)) != (str, int, int):
            raise ValueError(f"origin {values['origin']!r}")
        bytes.fromhex(topic)
        values["origin"] = topic, queue, offset
    for name, wanted in get_type_hints(kind).items():
        if name != "origin" and type(values[name]) is not wanted:
            raise ValueError(f"{name} {values[name]!r}")
    return kind(**values)


def _line(
    place: Place, now: Moment, event: str, text: str, group: str = "", member: str = "",
    epoch: int = 0,
) -> Line:  # fmt: skip
    return Line(
        now.entry, now.time_ms, event, bytes.fromhex(place.topic), place.queue, place.offset, text,
        group, member, epoch,
    )  # fmt: skip


def _refusal(claim: Claim, epoch: int, member: str, resets: int) -> str:
    """Return why a commit or a failure is refused; empty: it is taken, and the claim learnt."""
    if not epoch:
        return f"FENCED, {claim.consumer} has the queue" if claim.holding else ""
    if epoch > claim.epoch:  # its claim is older than the record
        claim.epoch, claim.consumer, claim.holding, claim.released = epoch, member, True, False
        claim.resets, claim.must_claim = resets, False
    if (epoch, member) != (claim.epoch, claim.consumer) or claim.released:
        return f"FENCED, the newest claim is that of {claim.consumer}, epoch {claim.epoch}"
    if claim.resets < 0 and not claim.must_claim:
        claim.resets = resets
    if claim.resets != resets:
        return "OFFSET_RESET, the consumer did not know of a reset"
    return ""


def _reset(claim: Claim, place: Place, now: Moment, group: str, floor: int) -> Iterator[Line]:
    claim.holding = False
    claim.attempts = 0
    if claim.resets >= 0:
        claim.resets += 1
    else:
        claim.must_claim = True
    is_done = place.offset < floor
    if is_done != claim.done:
        claim.done = is_done
        event = "skipped" if is_done else "reset"
        text = "skipped by a reset" if is_done else "to be consumed again after a reset"
        yield _line(place, now, event, f"{text} to offset {floor}", group)
