"""One direction between two hosts: how long it takes, and what is lost on it.

Everything travels in TCP connections. So a cut only delays: TCP sends again what was lost, until
one end gives the connection up. The exception is the frames of Raft links, from the dialler to the
listener. They may be lost, repeated and reordered within a standing stream: Raft must bear worse
than TCP, and such weather finds more.
"""

from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.network.wire import MESSAGE, MESSAGE_OVERHEAD, StreamEnd

if TYPE_CHECKING:
    from tests.sim.network.network import Network

LATE_MAX: Final = 0.3
"""A frame that is reordered or repeated comes at most so many seconds later."""
SENT_AGAIN_MAX: Final = 0.4
"""After a cut TCP sends again within so many seconds."""

MOMENT: Final = 1e-6


class Path:
    """One direction. Shares are of frames of Raft links; times in seconds."""

    def __init__(
        self, network: "Network", source: str, target: str, delay: tuple[float, float], seed: int
    ) -> None:
        self.source = source
        self.target = target
        self.delay_min, self.delay_max = delay
        self.loss = 0.0
        self.repeat = 0.0
        self.reorder = 0.0
        self.cut = False
        """Everything that arrives is lost."""
        self.hold = False
        """Everything that is sent waits for the release."""
        self._network = network
        self._scheduler = network.scheduler
        self._random = Random(seed)
        self._held: list[tuple[StreamEnd, int, object, int]] = []
        self._lost: list[tuple[StreamEnd, int, object, int]] = []
        """What TCP sends again after the cut."""

    @property
    def is_open(self) -> bool:
        """True when what is sent arrives."""
        return not (self.cut or self.hold)

    def draw_delay(self) -> float:
        """Return how long something takes from end to end."""
        return self._random.uniform(self.delay_min, self.delay_max)

    # Sending.

    def carry(self, to: StreamEnd, kind: int, payload: object, size: int) -> None:
        """Take something to the end of a stream, after all that was sent to that end before."""
        if self.hold:
            self._network.counts["held"] += 1
            self._held.append((to, kind, payload, size))
            return
        delay = self.delay_min + (self.delay_max - self.delay_min) * self._random.random()
        arrival = self._scheduler.now + delay
        if arrival < to.last_arrival:
            arrival = to.last_arrival
        socket = to.socket
        if to is socket.control and arrival < socket.last_arrival:
            arrival = socket.last_arrival
        to.last_arrival = arrival
        if arrival > socket.last_arrival:
            socket.last_arrival = arrival
        self._scheduler.at(arrival, self._arrive, to, kind, payload, size)

    def carry_frame(self, to: StreamEnd, frame: bytes) -> None:
        """Take a frame of a Raft link, in whatever weather there is."""
        counts, random = self._network.counts, self._random
        if self.loss and random.random() < self.loss:
            counts["lost"] += 1
            return
        repeats = bool(self.repeat) and random.random() < self.repeat
        if self.reorder and random.random() < self.reorder:
            self._carry_late(to, frame)
        else:
            size = len(frame) + MESSAGE_OVERHEAD
            to.peer.outstanding += size
            self.carry(to, MESSAGE, frame, size)
        if repeats:
            counts["repeated"] += 1
            self._carry_late(to, frame)

    def _carry_late(self, to: StreamEnd, frame: bytes) -> None:
        if self.hold:
            self.carry(to, MESSAGE, frame, 0)
            return
        self._network.counts["reordered"] += 1
        delay = self.draw_delay() + self._random.uniform(0.0, LATE_MAX)
        self._scheduler.after(delay, self._arrive, to, MESSAGE, frame, 0)

    def _arrive(self, to: StreamEnd, kind: int, payload: object, size: int) -> None:
        socket = to.socket
        if not socket.is_open or socket.is_severed:
            if not socket.is_severed and not self.cut:
                self._network.answer_stranger(socket)
        elif to.blocked_until > self._scheduler.now:
            self._scheduler.at(to.blocked_until, self._arrive, to, kind, payload, size)
        elif self.cut:
            self._lose(to, kind, payload, size)
        else:
            socket.loop.call_soon(to.take, kind, payload, size)

    def _lose(self, to: StreamEnd, kind: int, payload: object, size: int) -> None:
        self._network.counts["cut"] += 1
        if kind == MESSAGE and to.peer.carries_frames:
            to.peer.credit(size)
        else:
            self._lost.append((to, kind, payload, size))

    # Faults.

    def heal(self) -> None:
        """End a cut: TCP sends again what was lost."""
        self.cut = False
        lost, self._lost = self._lost, []
        now = self._scheduler.now
        again = now + self._random.uniform(0.0, SENT_AGAIN_MAX) + self.delay_max
        for to, kind, payload, size in lost:
            if to.blocked_until <= now:
                # After all that is under way, which waits; before all that is sent from now on.
                to.blocked_until = max(again, to.last_arrival + MOMENT)
                to.last_arrival = to.blocked_until + MOMENT
                socket = to.socket
                socket.last_arrival = max(to.last_arrival, socket.last_arrival)
                if to is not socket.control:
                    socket.control.blocked_until = socket.last_arrival
            self._scheduler.at(to.blocked_until, self._arrive, to, kind, payload, size)

    def release(self) -> None:
        """End a hold: send what was kept back, in order."""
        held, self._held, self.hold = self._held, [], False
        for to, kind, payload, size in held:
            self.carry(to, kind, payload, size)

    def calm(self) -> None:
        """End loss, repetition and reordering."""
        self.loss = self.repeat = self.reorder = 0.0
