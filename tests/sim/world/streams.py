"""Append streams between clients and members: first in, first out, until they end.

Owns: the two directions of each stream, the order of answers, and how a stream ends: reset with its
process, or silent (power cut, cut network), noticed by keepalive. A frame that is lost takes its
stream with it; nothing later of that stream arrives.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from dledger_proto.rpc.frames import AnswerRow, encode_answers, parse_append
from tests.sim.clients.requests import AppendFrame
from tests.sim.world.calls import Calls, Server
from tests.sim.world.clock import Scheduler

DELAY_MIN = 0.0002
DELAY_MAX = 0.002
KEEPALIVE_MIN = 3.0
KEEPALIVE_MAX = 6.0


class StreamOwner(Protocol):
    """The client's end."""

    def stream_up(self, number: int) -> None:
        """Learn that the member accepted the stream."""
        ...

    def stream_down(self, number: int, *, refused: bool) -> None:
        """Learn that the stream ended, or that the dial found no member."""
        ...

    def stream_answer(self, number: int, frame: bytes) -> None:
        """Take an answer frame."""
        ...


@dataclass(slots=True, eq=False)
class Stream:
    """One stream. `dead`: a part of it was lost, so nothing more arrives at either end."""

    owner: StreamOwner
    number: int
    client: str
    member: str
    boot: int = 0
    dead: bool = False
    told_down: bool = False
    arrival: float = 0.0
    answer_arrival: float = 0.0
    waiting: deque[int] = field(default_factory=deque)
    """Numbers of the batches that are to be answered, in the order in which they arrived."""
    rows: dict[int, AnswerRow] = field(default_factory=dict)


class Streams:
    """All append streams of a world."""

    def __init__(
        self, scheduler: Scheduler, random: Random, servers: Mapping[str, Server], calls: Calls
    ) -> None:
        self._scheduler = scheduler
        self._random = random
        self._servers = servers
        self._calls = calls
        self._open: list[Stream] = []

    def open(self, owner: StreamOwner, number: int, client: str, member: str) -> Stream:
        """Dial; tell the owner how the dial ended."""
        stream = Stream(owner, number, client, member)
        self._open.append(stream)
        self._scheduler.after(2 * self._delay(), self._dialled, stream)
        return stream

    def close(self, stream: Stream) -> None:
        """End a stream from the client's side: what is on its way may still arrive."""
        stream.told_down = True
        if stream in self._open:
            self._open.remove(stream)

    def send(self, stream: Stream, frame: bytes) -> None:
        """Send a frame to the member."""
        if self._is_cut(stream):
            self._silence(stream)
            return
        stream.arrival = max(stream.arrival, self._scheduler.now + self._delay())
        self._scheduler.at(stream.arrival, self._arrive, stream, frame)

    def process_ended(self, member: str, *, silent: bool) -> None:
        """End the streams of a dead process."""
        for stream in [each for each in self._open if each.member == member and each.boot]:
            stream.dead = True
            delay = self._random.uniform(KEEPALIVE_MIN, KEEPALIVE_MAX) if silent else self._delay()
            self._scheduler.after(delay, self._tell_down, stream)

    # Inside.

    def _delay(self) -> float:
        return self._random.uniform(DELAY_MIN, DELAY_MAX)

    def _is_cut(self, stream: Stream) -> bool:
        return (stream.client, stream.member) in self._calls.cut

    def _silence(self, stream: Stream) -> None:
        if not stream.dead:
            stream.dead = True
            delay = self._random.uniform(KEEPALIVE_MIN, KEEPALIVE_MAX)
            self._scheduler.after(delay, self._tell_down, stream)

    def _tell_down(self, stream: Stream) -> None:
        if not stream.told_down:
            self.close(stream)
            stream.owner.stream_down(stream.number, refused=False)

    def _dialled(self, stream: Stream) -> None:
        server = self._servers[stream.member]
        if stream.told_down:
            return
        if self._is_cut(stream):
            self._silence(stream)
        elif not server.reachable:
            self.close(stream)
            stream.owner.stream_down(stream.number, refused=True)
        else:
            stream.boot = server.boot
            stream.owner.stream_up(stream.number)

    def _arrive(self, stream: Stream, frame: bytes) -> None:
        server = self._servers[stream.member]
        if stream.dead or not server.reachable or server.boot != stream.boot:
            return
        if self._is_cut(stream):
            self._silence(stream)
            return
        header, _ = parse_append(frame)
        if not header.one_way:
            first = header.first_number
            stream.waiting += range(first, first + header.batch_count)
        server.serve(AppendFrame(frame, lambda row: self._answer(stream, row)), _unused)

    def _answer(self, stream: Stream, row: AnswerRow) -> None:
        """Let rows leave in the order of their batches."""
        if stream.dead:
            return
        stream.rows[row.number] = row
        ready: list[AnswerRow] = []
        while stream.waiting and stream.waiting[0] in stream.rows:
            ready.append(stream.rows.pop(stream.waiting.popleft()))
        if not ready:
            return
        if self._is_cut(stream):
            self._silence(stream)
            return
        stream.answer_arrival = max(stream.answer_arrival, self._scheduler.now + self._delay())
        self._scheduler.at(stream.answer_arrival, self._answered, stream, encode_answers(ready))

    def _answered(self, stream: Stream, frame: bytes) -> None:
        if not stream.told_down and not stream.dead:
            stream.owner.stream_answer(stream.number, frame)


def _unused(answer: object) -> None:
    raise AssertionError(f"a frame is answered by rows, not by {answer}")
