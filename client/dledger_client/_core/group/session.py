"""The session of one consumer with the coordinator of its group (D20). Pure.

Owns: the stream to the coordinator's leader, joining again with the same member id, signs of life,
giving queues back. Not: what becomes of granted queues (`core.py`).

A break of the stream ends nothing: the consumer joins again, and keeps what it holds. Only the
coordinator ends a session, and tells so. What was to be given back while no stream stood is asked
for again: an assignment is complete, and marks what is revoked.
"""

import enum
import random
from collections.abc import Iterable
from typing import Final

from dledger_client._core.group.actions import Action, CloseSession, OpenSession, TellSession
from dledger_client._core.group.queues import HeldQueue
from dledger_client._core.members import MemberChoice
from dledger_client._core.retry import backoff
from dledger_client._core.routes import RefreshRoutes, RouteChange, RouteTable
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import QUEUES_PER_CALL_MAX
from dledger_proto.v1 import delivery_pb2 as pb

ALIVE_SHARE: Final = 3
"""Signs of life in each time that the coordinator waits for one."""
SPREAD_SECONDS: Final = 10.0
"""So long a group that was just created may be unknown to its coordinator."""
ANSWER_SECONDS: Final = 3.0
"""Of a coordinator to answer a `Join`, before another member is asked."""


class SessionState(enum.Enum):
    """How far a session is."""

    IDLE = "idle"
    WAITING = "waiting"
    """For the next try."""
    JOINING = "joining"
    JOINED = "joined"
    OVER = "over"


class Session:
    """Streams to the coordinator, one after the other."""

    def __init__(
        self,
        join: pb.Join,
        routes: RouteTable,
        members: MemberChoice,
        generator: random.Random,
        actions: list[Action],
    ) -> None:
        self.state = SessionState.IDLE
        self._join = join
        self._routes = routes
        self._members = members
        self._random = generator
        self._actions = actions
        self._coordinator = ""
        self._stream = 0
        self._address = ""
        self._failures = 0
        self._begun_at = 0.0
        self._at = 0.0
        """When to do what comes next: try, give up, show life."""
        self._session_seconds = 10.0

    @property
    def stream(self) -> int:
        """The number of the newest stream."""
        return self._stream

    def begin(self, coordinator: str, now: float) -> None:
        """Join the group, at the broker group that coordinates it."""
        self._coordinator = coordinator
        self.state, self._at = SessionState.WAITING, now
        self._begun_at = now
        self.pump(now)

    def is_early(self, code: Code, now: float) -> bool:
        """Return whether the coordinator may not have heard yet of the group, or of its topics."""
        if code is Code.CONSUMER_GROUP_NOT_FOUND:
            return now < self._begun_at + SPREAD_SECONDS
        return code is Code.TOPIC_NOT_FOUND and all(
            not each.pattern and self._routes.topic(each.topic) is not None
            for each in self._join.subscriptions
        )

    def pump(self, now: float) -> None:
        """Do what is due."""
        if now < self._at:
            return
        if self.state is SessionState.WAITING:
            self._open(now)
        elif self.state is SessionState.JOINING:
            self._close()
            self._members.failed(self._address, now)
            self._try_later(now)
        elif self.state is SessionState.JOINED:
            self._tell(pb.SessionRequest(alive=pb.Alive()))
            self._at = now + self._session_seconds / ALIVE_SHARE

    def _open(self, now: float) -> None:
        route = self._routes.group(self._coordinator)
        self._address = "" if route is None else self._members.choose(route, now)
        if not self._address:
            self._try_later(now)
            return
        self._stream += 1
        self.state, self._at = SessionState.JOINING, now + ANSWER_SECONDS
        request = pb.SessionRequest(join=self._join)
        self._actions.append(OpenSession(self._stream, self._coordinator, self._address, request))

    def _try_later(self, now: float) -> None:
        self._failures += 1
        self.state = SessionState.WAITING
        self._at = now + backoff(self._failures, self._random)
        self._actions.append(RefreshRoutes())

    def _tell(self, request: pb.SessionRequest) -> None:
        self._actions.append(TellSession(self._stream, request))

    def _close(self) -> None:
        self._actions.append(CloseSession(self._stream))

    def joined(self, session_ms: int, now: float) -> None:
        """Take in that the coordinator knows this consumer, or how its group is set now.

        Changes of the group that follow each other do not put off the next sign of life.
        """
        self._session_seconds = session_ms / 1_000
        alive_at = now + self._session_seconds / ALIVE_SHARE
        self._at = min(self._at, alive_at) if self.state is SessionState.JOINED else alive_at
        self.state = SessionState.JOINED
        self._failures = 0
        self._members.worked(self._address)

    def down(self, error: DledgerError, now: float) -> None:
        """Take in that the newest stream ended, without an end of the session."""
        if self.state not in (SessionState.JOINING, SessionState.JOINED):
            return
        if error.code is not Code.NOT_LEADER or self.state is SessionState.JOINED:
            self._members.failed(self._address, now)
        self._try_later(now)

    def leader_changed(self, change: RouteChange, now: float) -> None:
        """Go to a new leader of the coordinator, without waiting for the end of the old stream."""
        if self._coordinator not in change.new_leaders:
            return
        route = self._routes.group(self._coordinator)
        if route is None:
            return
        if self.state is SessionState.WAITING:
            self._at = now
        elif (
            self.state in (SessionState.JOINING, SessionState.JOINED)
            and self._address != route.leader_address
        ):
            self._close()
            self._members.worked(route.leader_address)
            self.state, self._at = SessionState.WAITING, now

    def rejoin(self, now: float) -> None:
        """Join anew after the coordinator ended the session."""
        self._close()
        self._try_later(now)

    def give_back(self, queues: Iterable[HeldQueue]) -> None:
        """Give queues back; without a stream they are asked for again by the next assignment."""
        granted = [held.granted() for held in queues]
        if self.state is SessionState.JOINED:
            for at in range(0, len(granted), QUEUES_PER_CALL_MAX):
                portion = granted[at : at + QUEUES_PER_CALL_MAX]
                self._tell(pb.SessionRequest(give_back=pb.GiveBack(queues=portion)))

    def leave(self) -> None:
        """Leave the group: its queues are free at once."""
        if self.state in (SessionState.JOINING, SessionState.JOINED):
            self._tell(pb.SessionRequest(leave=pb.Leave()))
        self.end()

    def end(self) -> None:
        """Try no more."""
        self.state = SessionState.OVER

    def next_deadline(self) -> float | None:
        """Return when `pump` has to be called next."""
        return None if self.state in (SessionState.IDLE, SessionState.OVER) else self._at
