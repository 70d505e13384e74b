"""The virtual network between members: one stream per direction, and all its faults.

Owns: which bytes reach whom, and when. A *link* is one direction between two members. It delays,
loses, repeats, reorders, drops (cut) or keeps back (held) what is sent. On it runs a *stream* that
breaks, losing what is in flight, and is dialled again by its source; a dial is answered, refused
(no process) or never answered (cut, held, paused), so that D17's paths are all taken. Bytes only:
no object is shared between members. Who the members are is behind `Endpoint`.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from tests.sim.world.clock import Scheduler

REDIAL_LIMIT = 0.05
"""An unanswered redial is reported as failed after this (GroupSettings.link_loss_redial)."""
DIAL_BACKOFF_MIN = 0.05
DIAL_BACKOFF_MAX = 1.0
KEEPALIVE_MIN = 1.0
KEEPALIVE_MAX = 11.0
"""The transport notices a silent cut after so long, because no keepalive was answered."""
IN_FLIGHT_MAX = 100_000
"""A member with more messages on the way sends without a bound (I17)."""


class Endpoint(Protocol):
    """What the network knows about a member."""

    @property
    def reachable(self) -> bool:
        """Tell whether a process exists; a paused one does."""
        ...

    @property
    def answering(self) -> bool:
        """Tell whether the process would finish a handshake now."""
        ...

    def deliver(self, sender: str, data: bytes) -> None:
        """Take a message."""
        ...

    def link_up(self, peer: str) -> None:
        """Learn that the stream to a peer is open."""
        ...

    def link_down(self, peer: str) -> None:
        """Learn that the stream to a peer broke; it is dialled again at once."""
        ...

    def dial_failed(self, peer: str) -> None:
        """Learn that a dial was refused, or not answered in time."""
        ...


@dataclass(slots=True)
class Link:
    """One direction and its stream. Probabilities are per message, delays in seconds."""

    delay_min: float
    delay_max: float
    loss: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0
    cut: bool = False
    """Everything sent vanishes."""
    hold: bool = False
    """Everything sent waits, and is delivered when the hold ends: TCP over a stalled path."""
    held: list[tuple[int, bytes]] = field(default_factory=list)
    last_arrival: float = 0.0
    up: bool = False
    known_up: bool = False
    """Whether the source was told last that the stream is open."""
    epoch: int = 0
    """Grows when the stream begins and ends. A dial or message of another epoch has no effect."""
    late_epoch: int = -1
    """An ended stream whose last messages still arrive, as from a dead process's socket."""
    redial: bool = False
    """The next dial is the one right after a break: its failure is reported (D17)."""
    backoff: float = DIAL_BACKOFF_MIN


class Network:
    """All links between the members of one group."""

    def __init__(
        self,
        scheduler: Scheduler,
        random: Random,
        endpoints: Mapping[str, Endpoint],
        delay: tuple[float, float],
        trace: Callable[[str], None],
    ) -> None:
        self._scheduler = scheduler
        self._random = random
        self._endpoints = endpoints
        self._trace = trace
        self.in_flight = 0
        self.delivered = 0
        self.counts: Counter[str] = Counter()
        self._names = sorted(endpoints)
        self.links = {
            (source, target): Link(*delay)
            for source in self._names
            for target in self._names
            if source != target
        }

    # Sending.

    def send(self, source: str, target: str, data: bytes) -> None:
        """Put a message on the stream, if it is open."""
        link = self.links[source, target]
        if not link.up:
            return
        if link.hold:
            self.counts["held"] += 1
            link.held.append((link.epoch, data))
            return
        if link.cut:
            self.counts["cut"] += 1
            return
        if link.loss and self._random.random() < link.loss:
            self.counts["lost"] += 1
            return
        self._put(source, target, link, link.epoch, data)
        if link.repeat and self._random.random() < link.repeat:
            self.counts["repeated"] += 1
            self._put(source, target, link, link.epoch, data, late=True)

    def _put(
        self, source: str, target: str, link: Link, epoch: int, data: bytes, *, late: bool = False
    ) -> None:
        arrival = self._scheduler.now + self._random.uniform(link.delay_min, link.delay_max)
        if late or (link.reorder and self._random.random() < link.reorder):
            self.counts["reordered"] += 1
            arrival += self._random.uniform(0.0, 0.3)
        else:
            arrival = link.last_arrival = max(arrival, link.last_arrival)
        self.in_flight += 1
        assert self.in_flight < IN_FLIGHT_MAX, f"{source} sends without bound: {self.in_flight}"
        self._scheduler.at(arrival, self._arrive, source, target, epoch, data)

    def _arrive(self, source: str, target: str, epoch: int, data: bytes) -> None:
        self.in_flight -= 1
        link = self.links[source, target]
        endpoint = self._endpoints[target]
        if (epoch not in (link.epoch, link.late_epoch)) or not endpoint.reachable:
            return
        if link.cut:
            self.counts["cut"] += 1
            return
        self.delivered += 1
        endpoint.deliver(source, data)

    # Faults.

    def cut(self, source: str, target: str) -> None:
        """Let one direction lose everything; keepalive notices after a while."""
        self.links[source, target].cut = True
        self._expect_keepalive(source, target)
        self._expect_keepalive(target, source)

    def heal(self, source: str, target: str) -> None:
        """End a cut."""
        self.links[source, target].cut = False

    def hold(self, source: str, target: str) -> None:
        """Keep back what is sent from now on."""
        self.links[source, target].hold = True

    def release(self, source: str, target: str) -> None:
        """Deliver what was kept back, in order, if its stream is still open."""
        link = self.links[source, target]
        held, link.held, link.hold = link.held, [], False
        for epoch, data in held:
            self._put(source, target, link, epoch, data)

    def break_stream(self, source: str, target: str) -> None:
        """Reset one stream: what is in flight is lost, its source learns it and dials again."""
        link = self.links[source, target]
        if link.up:
            self.counts["broken"] += 1
            self._end(source, target, self._random.uniform(0.0, 0.002))

    def quiet(self) -> None:
        """End loss, repetition and reordering on all links."""
        for link in self.links.values():
            link.loss = link.repeat = link.reorder = 0.0

    def heal_all(self) -> None:
        """End every fault of the network."""
        for (source, target), link in self.links.items():
            link.loss = link.repeat = link.reorder = 0.0
            link.cut = False
            if link.hold:
                self.release(source, target)

    # Processes.

    def process_started(self, member: str) -> None:
        """Let a new process dial everybody."""
        for other in self._names:
            if other != member:
                link = self.links[member, other]
                assert not link.up, f"{member} was not ended before it started"
                link.backoff = DIAL_BACKOFF_MIN
                link.epoch += 1
                self._scheduler.after(
                    self._random.uniform(0.0, 0.01), self._dial, member, other, link.epoch
                )

    def process_ended(self, member: str, *, silent: bool) -> None:
        """End a dead process's streams; `silent` (power cut): the others learn by keepalive."""
        for other in self._names:
            if other == member:
                continue
            own = self.links[member, other]
            if not silent and self._random.random() < 0.5:
                own.late_epoch = own.epoch
            own.up = own.known_up = False
            own.epoch += 1
            own.held.clear()
            if self.links[other, member].up:
                unheard = silent or own.cut
                notice = (
                    self._random.uniform(KEEPALIVE_MIN, KEEPALIVE_MAX)
                    if unheard
                    else self._random.uniform(0.0, 0.004)
                )
                self._end(other, member, notice)

    # Streams.

    def _end(self, source: str, target: str, notice: float) -> None:
        link = self.links[source, target]
        link.up = False
        link.epoch += 1
        link.backoff = DIAL_BACKOFF_MIN
        link.held.clear()
        self._scheduler.after(notice, self._tell_down, source, target, link.epoch)

    def _tell_down(self, source: str, target: str, epoch: int) -> None:
        link = self.links[source, target]
        if link.epoch != epoch or not link.known_up:
            return
        link.known_up = False
        if self._endpoints[source].reachable:
            link.redial = True
            self._endpoints[source].link_down(target)
            self._dial(source, target, epoch)

    def _expect_keepalive(self, source: str, target: str) -> None:
        self._scheduler.after(
            self._random.uniform(KEEPALIVE_MIN, KEEPALIVE_MAX),
            self._check_keepalive,
            source,
            target,
            self.links[source, target].epoch,
        )

    def _check_keepalive(self, source: str, target: str, epoch: int) -> None:
        link = self.links[source, target]
        broken = link.cut or self.links[target, source].cut
        if link.up and link.epoch == epoch and broken:
            self._trace(f"keepalive {source} {target} missed")
            self._end(source, target, 0.0)

    def _dial(self, source: str, target: str, epoch: int) -> None:
        link = self.links[source, target]
        if link.up or link.epoch != epoch or not self._endpoints[source].reachable:
            return
        back = self.links[target, source]
        end = self._endpoints[target]
        if link.cut or back.cut or link.hold or back.hold or (end.reachable and not end.answering):
            self._scheduler.after(REDIAL_LIMIT, self._dial_failed, source, target, epoch)
            return
        round_trip = 2 * self._random.uniform(link.delay_min, link.delay_max)
        step = self._established if end.reachable else self._dial_failed
        self._scheduler.after(round_trip, step, source, target, epoch)

    def _dial_failed(self, source: str, target: str, epoch: int) -> None:
        link = self.links[source, target]
        if link.up or link.epoch != epoch or not self._endpoints[source].reachable:
            return
        if link.redial:
            link.redial = False
            self._endpoints[source].dial_failed(target)
        delay = link.backoff * self._random.uniform(0.5, 1.0)
        link.backoff = min(2 * link.backoff, DIAL_BACKOFF_MAX)
        self._scheduler.after(delay, self._dial, source, target, epoch)

    def _established(self, source: str, target: str, epoch: int) -> None:
        link = self.links[source, target]
        if link.up or link.epoch != epoch or not self._endpoints[source].reachable:
            return
        if not self._endpoints[target].answering:
            self._dial_failed(source, target, epoch)
            return
        link.up = link.known_up = True
        link.epoch += 1
        link.late_epoch = -1  # the listener drops what an older stream still carries
        link.redial = False
        link.backoff = DIAL_BACKOFF_MIN
        back = self.links[target, source]
        if not back.up:  # being dialled ends the other side's back-off
            back.backoff = DIAL_BACKOFF_MIN
            self._scheduler.after(0.0, self._dial, target, source, back.epoch)
        self._endpoints[source].link_up(target)
        if link.cut or self.links[target, source].cut:
            self._expect_keepalive(source, target)
