"""RegisterProducer: which life of a producer holds which epoch (D11).

Owns: the verdict on a registration. Not: rows (`table.py`), forgetting (`expiry.py`).

A life is one run of a producer; it draws `life_id` when it starts. Who registers, and for what:

    who asks                 the epoch it asks for                 answer
    -----------------------  ------------------------------------  ------------------------------
    of an unknown id: any    any                                   its seconds (see below): the id
                                                               may have been forgotten, and what
                                                               it held is far below (see below)
    the life that holds it   0, up to what it holds                what it holds: a repeat
                             the next epoch; or a higher one, up   that one: it fences its past
                             to the seconds (see below)
                             above these                           INVALID_ARGUMENT
    the life before it       any                                   STALE_EPOCH
    another life             0                                     Taken: what is held; no change
                             one above what is held                the next: it takes over
                             any other                             STALE_EPOCH

A life takes over in two steps so that a late copy changes nothing. The first step tells the life
whom it follows. The second step names that epoch, and misses if anybody registered in between. So
an ended life takes the name only from those who held it when it asked, never from a later life, and
repeats of its own registrations find what these gave. Nothing is known about a forgotten id: all
this holds for copies and pauses that are shorter than the expiry.

The first epoch of a forgotten id is the sum of two clocks in seconds: leader time and counted time.
At least one of them always moves on. So the new epoch is above the old ones, as long as the id was
registered less than once a second on average since it was first known.

A half forgotten id (`expiry.py`) begins anew too, at least two epochs above its last. No answer
uses the epoch of the old rows that are left.

An id belongs to the user that registers it first, until it is forgotten: another user gets
NO_PERMISSION. Without users (`user` is empty) nobody is asked, and whose it is stays as it was.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from dledger.state.commands.codec import UInt32
from dledger.state.commands.command import Command
from dledger.state.producers.table import ACTIVITY_STEP_MS, LAST_SEQUENCES_MAX, Producer
from dledger.state.results import Refused, Registered, Taken
from dledger.state.state import State
from dledger.types import Entry
from dledger_proto.batch.codec import NO_ID
from dledger_proto.errors import Code

EPOCH_MAX: Final = (1 << 32) - 2
"""The one above can be asked for, and is refused."""
FIRST_EPOCH_MAX: Final = 3 << 30
"""Seconds of leader and counted time, not before 2048. Up to EPOCH_MAX come later epochs."""


@dataclass(frozen=True, slots=True)
class RegisterProducer(Command[Registered | Taken]):
    """Give a life of a producer an epoch in this group, or find it again (D11)."""

    NUMBER: ClassVar = 27
    ROWS_READ_MAX: ClassVar = LAST_SEQUENCES_MAX

    producer_id: bytes
    life_id: bytes
    """Drawn at random by each run of a producer; not all zero."""
    epoch: UInt32 = 0
    """0: the first of this life; else the one above what it holds, or what it takes over from."""
    user: str = ""
    """Who registers; empty: nobody asks."""

    def apply(self, state: State, entry: Entry) -> Registered | Taken | Refused:
        """Give the life its epoch, by the table above.

        The answer lists the last sequences of the epoch before: under a new epoch nothing more can
        be stored in that one, so its sender learns which unknown batches were stored.
        """
        for name, value in (("producer_id", self.producer_id), ("life_id", self.life_id)):
            if value == NO_ID:
                return Refused(Code.INVALID_ARGUMENT, f"{name} is all zero")
        producers = state.producers
        producer = producers.load(self.producer_id)
        first_epoch = _first_epoch(entry.time_ms + state.time.ms)
        step = state.time.ms // ACTIVITY_STEP_MS
        if producer is None:
            producer = Producer(first_epoch, -1, self.life_id, NO_ID, self.user)
        elif producer.is_half_forgotten:
            # Two above: of the epoch before it, whose last sequences it is told, there is no row.
            producer.epoch = min(max(first_epoch, producer.epoch + 2), EPOCH_MAX)
            producer.life_id = self.life_id
            producer.owner = self.user
            producers.forget_at = b""
        else:
            verdict = self._verdict(producer, first_epoch)
            if verdict is not None:
                return verdict
            if producer.life_id != self.life_id:
                producer.life_id, producer.former_life_id = self.life_id, producer.life_id
                producer.epoch = self.epoch
            elif self.epoch > producer.epoch:
                producer.epoch = self.epoch
            elif producer.active_step == step and (producer.owner or not self.user):
                return producers.registered(self.producer_id, producer.epoch)
            producer.owner = producer.owner or self.user
        producers.store(self.producer_id, producer, step)
        return producers.registered(self.producer_id, producer.epoch)

    def _verdict(self, producer: Producer, now: int) -> Taken | Refused | None:
        """Return why a registration changes nothing; None: it may have what it asks for.

        `now` is the id's first epoch were it new, above all epochs ever held (see above).
        """
        held, wanted = producer.epoch, self.epoch
        if producer.is_anothers(self.user):
            return refusal_of_another(self.producer_id)
        if self.life_id == producer.life_id:
            # Above the next one where `flush: async` lost its newest epochs with their batches.
            if wanted > max(held + 1, now):
                return Refused(
                    Code.INVALID_ARGUMENT,
                    f"epoch {wanted}, this life holds {held}: the next, or up to {now}",
                )
        elif self.life_id == producer.former_life_id:
            return Refused(Code.STALE_EPOCH, f"another life has taken over, with epoch {held}")
        elif not wanted:
            return Taken(held)
        elif wanted != held + 1:
            return Refused(Code.STALE_EPOCH, f"epoch {wanted}, another life holds {held}")
        if wanted > EPOCH_MAX:
            return Refused(Code.INVALID_ARGUMENT, f"epoch {wanted}, {EPOCH_MAX} is the last")
        return None


def refusal_of_another(producer_id: bytes) -> Refused:
    """Return what somebody is told who uses the producer of another user; not who that is."""
    sentence = f"producer {producer_id.hex()} belongs to another user; use an id of your own"
    return Refused(Code.NO_PERMISSION, sentence)


def _first_epoch(time_ms: int) -> int:
    """Return where an unknown id begins: above what it held, should it have been forgotten."""
    return min(max(time_ms // 1_000, 1), FIRST_EPOCH_MAX)
