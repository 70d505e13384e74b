"""What a call knows of its caller's time."""

from dledger_broker.calls import DEADLINE_MAX_SECONDS, Call
from tests.unit.broker.fakes import ManualClock


class Context:
    """A caller that waits for some seconds."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds

    def invocation_metadata(self) -> object:
        """None was sent."""
        return None

    def time_remaining(self) -> float | None:
        """Return what the caller said."""
        return self.seconds


def test_a_refusal_is_given_before_the_caller_stops_waiting() -> None:
    """Else it would be an unknown outcome, of a call that has done nothing."""
    clock = ManualClock()
    call = Call(Context(1.5), clock)
    assert 1.2 < call.seconds_left() < 1.5
    clock.now += 1.4
    assert call.seconds_left() == 0


def test_no_caller_holds_a_call_for_ever() -> None:
    clock = ManualClock()
    assert Call(Context(None), clock).seconds_left() <= DEADLINE_MAX_SECONDS
    assert Call(Context(1e9), clock).seconds_left() <= DEADLINE_MAX_SECONDS
