"""Messages of a producer whose topic is not known yet, or may be known as it was before. Pure.

Owns: keeping them within their budgets, and when a topic is looked up. Not: the lookup itself
(`_shell/producer.py`), which queue a message goes to once its topic is known (`topics.py`).
"""

import math
import random
from collections.abc import Callable

from dledger_client._core.delivery import fail
from dledger_client._core.producer.topics import Parked, TopicState
from dledger_client._core.retry import backoff
from dledger_client._core.routes import RouteTable
from dledger_client.errors import ClientError, error_of
from dledger_proto.errors import Code


class Parking:
    """All parked messages of one producer. `look_up` asks the driver for a topic."""

    def __init__(
        self, routes: RouteTable, generator: random.Random, look_up: Callable[[str], None]
    ) -> None:
        self.bytes = 0
        self._routes = routes
        self._generator = generator
        self._look_up = look_up
        self.topics: dict[TopicState, None] = {}
        """Topics with parked messages."""

    def park(self, state: TopicState, message: Parked) -> None:
        """Keep a message until its topic is known."""
        self.bytes += message.size
        state.parked.append(message)
        state.expire_at = min(state.expire_at, message.deadline)
        self.topics[state] = None

    def unpark(self, state: TopicState) -> list[Parked]:
        """Return all messages that are kept for a topic, and keep them no more."""
        del self.topics[state]
        parked, state.parked, state.expire_at = state.parked, [], math.inf
        self.bytes -= sum(each.size for each in parked)
        return parked

    def known(self) -> list[TopicState]:
        """Return the topics whose messages can be placed now."""
        return [state for state in self.topics if state.route is not None]

    def messages(self) -> list[Parked]:
        """Return all parked messages. Any thread."""
        return [each for state in list(self.topics) for each in list(state.parked)]

    def ask(self, now: float) -> None:
        """Look up every topic that is due."""
        for state in self.topics:
            # Only the routes' first answer says whether there is anything to ask.
            is_due = state.route is None and not state.is_asked and now >= state.ask_at
            if is_due and self._routes.is_loaded:
                state.is_asked = True
                self._look_up(state.name)

    def lookup_failed(self, state: TopicState, error: ClientError, now: float) -> None:
        """Look a topic up again after a pause; fail its messages if no repeat can help."""
        state.is_asked = False
        state.tries += 1
        state.ask_at = now + backoff(state.tries, self._generator)
        if state.parked and error.definite and not error.retriable:
            self._fail(state, error)

    def _fail(self, state: TopicState, error: ClientError) -> None:
        for each in self.unpark(state):
            fail(each.future, state.name, error)

    def expire(self, now: float) -> None:
        """Fail the messages whose budget is over."""
        for state in [each for each in self.topics if now >= each.expire_at]:
            error = error_of(
                Code.NOT_PROPOSED, f"topic {state.name}: no route to it came within the budget"
            )
            for each in self.unpark(state):
                if each.deadline <= now:
                    fail(each.future, state.name, error)
                else:
                    self.park(state, each)

    def fail_all(self, error: ClientError) -> None:
        """Give up all messages: nothing of them was sent."""
        for state in list(self.topics):
            self._fail(state, error)

    def deadlines(self) -> list[float]:
        """Return when `expire` or `ask` has to be called."""
        times = [state.expire_at for state in self.topics]
        if self._routes.is_loaded:
            times += [state.ask_at for state in self.topics if not state.is_asked]
        return times
