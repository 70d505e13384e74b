"""What the clients did and learned: every operation as invoke, then ok, fail or info.

Owns: the history, and the checks that need only the history and the true contents of the queues:
definite outcomes hold, acknowledged offsets grow in real time (C9 of the harness page), reads
return what was sent, confirmed reads see what was acknowledged before they began, group offsets
never go back. *info* means unknown: it may have happened, and may happen at any later time.
"""

from collections import Counter
from dataclasses import dataclass, field

from dledger_proto.errors import Code
from tests.sim.clients.lookups import Judge
from tests.sim.invariants.delivery.queue_contents import BatchKey, Contents, QueueKey
from tests.sim.invariants.violation import Property, Violation
from tests.sim.story.story import Story


@dataclass(slots=True)
class Send:
    """One batch that a producer wants stored, over all its attempts."""

    client: str
    queue: QueueKey
    record_count: int
    idempotent: bool
    invoked: float
    floor: int
    """End of what was acknowledged in the queue when the send was invoked."""
    open_attempts: int = 0
    """Attempts that were not definitely refused: at most so many copies may be stored."""
    keys: list[BatchKey] = field(default_factory=list)
    """Its bytes; several when it was stamped again under a new epoch."""
    message: tuple[bytes, int] | None = None
    """Producer id and number of a message that the product's own producer sent."""
    state: str = "invoked"
    offset: int = -1


@dataclass(slots=True)
class GroupOffset:
    """What is known about one consumer group's offset in one queue."""

    floor: int = -1
    """A confirmed read returns at least this."""
    known: int = -1
    """What was acknowledged, or read, last."""
    pending: set[int] = field(default_factory=set[int])
    """Commits of unknown outcome: each may take effect at any later time."""
    reset_pending: int = 1 << 62
    """Lowest explicit reset of unknown outcome, of the same kind."""


class Oracle:
    """The history of one world."""

    def __init__(self, contents: Contents, story: Story) -> None:
        self.contents = contents
        self._story = story
        self.judge = Judge(contents)
        self.sends: list[Send] = []
        self.by_key: dict[BatchKey, Send] = {}
        self.counts: Counter[str] = Counter()
        self.acknowledged_ends: dict[QueueKey, int] = {}
        self.minimums = contents.asked
        self.real_producers: set[bytes] = set()
        """Ids of the product's own producers: their messages are known by number and body."""
        self.bodies: dict[bytes, Send | None] = {}
        """Every body that such a producer was given; None: it was sent one-way."""
        self.acknowledged_by: Counter[str] = Counter()
        """Sends of each client."""
        self.acknowledged: set[tuple[QueueKey, int]] = set()
        """Where each acknowledged batch begins: a real producer's messages share them."""
        self.offsets: dict[tuple[str, QueueKey], GroupOffset] = {}

    # Sends.

    def invoke_send(
        self, client: str, queue: QueueKey, record_count: int, now: float, *, idempotent: bool
    ) -> Send:
        """Register a send before its first byte leaves."""
        floor = self.acknowledged_ends.get(queue, 0)
        send = Send(client, queue, record_count, idempotent, now, floor)
        self.sends.append(send)
        self._story.client(client, "send", send)
        return send

    def stamped(self, send: Send, key: BatchKey) -> None:
        """Register bytes under which the send may appear."""
        send.keys.append(key)
        self.by_key[key] = send

    def ok_send(self, send: Send, offset: int) -> None:
        """Take an acknowledgement; `offset` is -1 when the answer knew none (old duplicate)."""
        self._settle(send, "ok", "offset", offset)
        places = [place for key in send.keys for place in self.contents.places.get(key, ())]
        if not places:
            raise Violation(Property.OUTCOME, f"acknowledged, but never applied anywhere: {send}")
        self.acknowledged.add(places[0])
        if offset < 0:
            return
        send.offset = offset
        if (send.queue, offset) not in places:
            raise Violation(
                Property.OUTCOME, f"answered offset {offset}, stored at {places}: {send}"
            )
        if offset < send.floor:
            raise Violation(
                Property.PRODUCER_ORDER, f"offset {offset}, but {send.floor} was reached: {send}"
            )
        end = offset + send.record_count
        self.acknowledged_ends[send.queue] = max(end, self.acknowledged_ends.get(send.queue, 0))

    def ok_message(self, send: Send, offset: int) -> None:
        """Take an acknowledgement of one message of a real producer; `offset` as in `ok_send`."""
        self._settle(send, "ok", "offset", offset)
        place = self.place_of(send)
        if place is None or send.message is None:
            raise Violation(Property.OUTCOME, f"acknowledged, but never applied anywhere: {send}")
        row = self.contents.rows[send.message]
        self.acknowledged.add((row.queue, row.base_offset))
        if offset < 0:
            return
        send.offset = offset
        if place != (send.queue, offset):
            raise Violation(Property.OUTCOME, f"answered {offset}, stored at {place}: {send}")
        if offset < send.floor:
            raise Violation(
                Property.PRODUCER_ORDER, f"offset {offset}, but {send.floor} was reached: {send}"
            )
        end = offset + 1
        self.acknowledged_ends[send.queue] = max(end, self.acknowledged_ends.get(send.queue, 0))

    def place_of(self, send: Send) -> tuple[QueueKey, int] | None:
        """Return where a real producer's message lies; None: nowhere, or it has no number."""
        return None if send.message is None else self.contents.messages.get(send.message)

    def fail_send(self, send: Send, code: Code) -> None:
        """Take a definite failure: no attempt can have stored it."""
        self._settle(send, "fail", code.name)
        self.counts[f"fail {code.name}"] += 1
        self.check_failed(send)

    def info_send(self, send: Send) -> None:
        """Give up on a send whose outcome is unknown."""
        self._settle(send, "info")

    def check_failed(self, send: Send) -> None:
        """Raise when a definite failure is stored after all."""
        places = self.places_of(send)
        if places:
            raise Violation(
                Property.OUTCOME, f"failed definitely, but is stored at {places}: {send}"
            )

    def places_of(self, send: Send) -> list[tuple[QueueKey, int]]:
        """Return every place at which a send is stored."""
        place = self.place_of(send)
        if place is not None:
            return [place]
        return [place for key in send.keys for place in self.contents.places.get(key, ())]

    def check_copies(self, send: Send) -> None:
        """Raise when more copies are stored than attempts may have stored."""
        places = self.places_of(send)
        if send.message is None and len(places) > send.open_attempts:
            raise Violation(
                Property.OUTCOME, f"{send.open_attempts} attempts, stored at {places}: {send}"
            )

    def _settle(self, send: Send, state: str, *how: object) -> None:
        assert send.state == "invoked", f"settled twice: {send}"
        send.state = state
        self._story.sent(send.client, state, send, *how)
        self.counts[f"send {state}"] += 1
        self.acknowledged_by[send.client] += state == "ok"

    # Reads.

    def read_batch(
        self, who: str, queue: QueueKey, base_offset: int, record_count: int, key: BatchKey
    ) -> None:
        """Compare one fetched batch with the true contents."""
        self.counts["batches read"] += 1
        self._story.client(who, "reads", queue, "at", base_offset)
        row = self.contents.queues.get(queue, {}).get(base_offset)
        if row is None:
            raise Violation(
                Property.COMMITTED_READS, f"{who} read {queue} {base_offset}, where nothing begins"
            )
        if row.key != key or row.record_count != record_count:
            raise Violation(
                Property.COMMITTED_READS, f"{who} read {key} at {base_offset}, stored is {row}"
            )
        if key not in self.by_key and row.producer_id not in self.real_producers:
            raise Violation(Property.PHANTOM, f"{who} read {row}, which nobody sent")

    def read_body(self, who: str, queue: QueueKey, offset: int, body: bytes) -> None:
        """Compare one record of a real producer with what it was given."""
        if body not in self.bodies:
            raise Violation(
                Property.PHANTOM, f"{who} read {body!r} at {offset} of {queue}: nobody sent it"
            )
        send = self.bodies[body]
        if send is not None and send.offset >= 0 and (send.queue, send.offset) != (queue, offset):
            raise Violation(
                Property.OUTCOME, f"{who} read {body!r} at {offset} of {queue}, not where {send} is"
            )

    def read_end(self, who: str, queue: QueueKey, floor: int, end: int) -> None:
        """Compare a confirmed maximum offset with what was acknowledged before the read began."""
        self._story.client(who, "is told the end of", queue, end, "and expects at least", floor)
        if end < floor:
            raise Violation(
                Property.REAL_TIME_READS,
                f"{who} was told that {queue} ends at {end}, {floor} was acknowledged before",
            )
        if end > self.contents.ends.get(queue, 0):
            raise Violation(Property.COMMITTED_READS, f"{who}: {queue} ends at {end}, nothing does")
        # Who asks from now on must see what this reader saw.
        self.acknowledged_ends[queue] = max(end, self.acknowledged_ends.get(queue, 0))

    # Group offsets. One client owns a group: its operations follow each other.

    def commit_ok(self, group: str, queue: QueueKey, offset: int, *, reset: bool) -> None:
        """Take an acknowledged commit. An older reset of unknown outcome may yet come after it."""
        self.counts["commits ok"] += 1
        self._story.client(group, "has committed", queue, offset, "by a reset" if reset else "")
        known = self._offset(group, queue)
        if not reset and offset < known.floor:
            raise Violation(
                Property.OFFSETS_NEVER_BACK,
                f"{group} went from {known.floor} back to {offset} in {queue} without a reset",
            )
        known.known = offset
        known.floor = min(offset, known.reset_pending)

    def commit_behind(self, group: str, queue: QueueKey, offset: int, stored: int) -> None:
        """Take a refusal: something at or above the offset was stored."""
        self.counts["commits refused as behind"] += 1
        self._story.client(group, "may not commit", queue, offset, "behind", stored)
        known = self._offset(group, queue)
        if not known.known > offset and not any(other > offset for other in known.pending):
            raise Violation(
                Property.OFFSETS_NEVER_BACK,
                f"{group}: {offset} is behind {stored} in {queue}, as if: {known}",
            )

    def commit_unknown(self, group: str, queue: QueueKey, offset: int, *, reset: bool) -> None:
        """Take a commit of unknown outcome: it may yet take effect."""
        self._story.client(group, "does not know of its commit", queue, offset)
        known = self._offset(group, queue)
        known.pending.add(offset)
        if reset:
            known.reset_pending = min(known.reset_pending, offset)
            known.floor = min(known.floor, offset)

    def read_group_offset(self, who: str, group: str, queue: QueueKey, offset: int) -> None:
        """Compare a confirmed read of a group's offset: what was written last, or may have been."""
        self.counts["offsets read"] += 1
        self._story.client(who, "reads the offset of", queue, offset)
        known = self._offset(group, queue)
        if offset < known.floor or (offset != known.known and offset not in known.pending):
            raise Violation(
                Property.OFFSETS_NEVER_BACK, f"{who} read {offset} for {group} in {queue}: {known}"
            )
        known.known = offset
        known.floor = min(offset, known.reset_pending)

    def may_have_no_offset(self, group: str, queue: QueueKey) -> bool:
        """Tell whether a group may have no offset in a queue yet."""
        return self._offset(group, queue).floor < 0

    def _offset(self, group: str, queue: QueueKey) -> GroupOffset:
        return self.offsets.setdefault((group, queue), GroupOffset())
