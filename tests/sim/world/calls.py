"""Calls of clients to members over their own virtual network.

Owns: which of a client's calls reach a member and which answers come back, and what the client may
conclude when none does. A refused connection is definite; a connection that ends after the request
left, and a deadline, are unknown (D11). A late answer reaches a client that gave up: it ignores it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol

from dledger_proto.errors import Code
from tests.sim.world.clock import Scheduler


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call returned. `hint` names the leader when the code says NOT_LEADER."""

    code: Code
    value: object = None
    hint: str = ""
    detail: str = ""


Respond = Callable[[Answer], None]


class Server(Protocol):
    """A member as its clients see it."""

    @property
    def reachable(self) -> bool:
        """Tell whether a process exists."""
        ...

    @property
    def boot(self) -> int:
        """Return the number of the process."""
        ...

    def serve(self, request: object, respond: Respond) -> None:
        """Take a request; `respond` is called once, or never if the process ends."""
        ...


@dataclass(slots=True)
class _Call:
    client: str
    member: str
    boot: int
    done: Respond
    finished: bool = False


class Calls:
    """All client connections of a world."""

    def __init__(self, scheduler: Scheduler, random: Random, servers: Mapping[str, Server]) -> None:
        self._scheduler = scheduler
        self._random = random
        self._servers = servers
        self.cut: set[tuple[str, str]] = set()
        """(client, member) pairs that cannot talk."""
        self._open: dict[str, set[int]] = {name: set() for name in servers}
        self._calls: dict[int, _Call] = {}
        self._number = 0

    def call(
        self, client: str, member: str, request: object, timeout: float, done: Respond
    ) -> None:
        """Send a request; `done` is called exactly once."""
        self._number += 1
        number = self._number
        self._calls[number] = _Call(client, member, 0, done)
        self._scheduler.after(timeout, self._finish, number, Answer(Code.UNKNOWN_OUTCOME))
        if (client, member) not in self.cut:
            self._scheduler.after(self._delay(), self._arrive, number, request)

    def process_ended(self, member: str, *, silent: bool) -> None:
        """Reset the connections of a dead process. After a power cut no client is told."""
        numbers = sorted(self._open[member])
        self._open[member].clear()
        if not silent:
            for number in numbers:
                self._scheduler.after(
                    self._delay(), self._finish, number, Answer(Code.UNKNOWN_OUTCOME)
                )

    def _delay(self) -> float:
        return self._random.uniform(0.0002, 0.002)

    def _arrive(self, number: int, request: object) -> None:
        call = self._calls.get(number)
        if call is None or (call.client, call.member) in self.cut:
            return
        server = self._servers[call.member]
        if not server.reachable:
            self._scheduler.after(self._delay(), self._finish, number, Answer(Code.UNAVAILABLE))
            return
        call.boot = server.boot
        self._open[call.member].add(number)
        server.serve(request, lambda answer: self._respond(number, answer))

    def _respond(self, number: int, answer: Answer) -> None:
        call = self._calls.get(number)
        if call is None:
            return
        open_calls = self._open[call.member]
        if number in open_calls and (call.client, call.member) not in self.cut:
            open_calls.discard(number)
            self._scheduler.after(self._delay(), self._finish, number, answer)

    def _finish(self, number: int, answer: Answer) -> None:
        call = self._calls.pop(number, None)
        if call is not None:
            self._open[call.member].discard(number)
            call.done(answer)
