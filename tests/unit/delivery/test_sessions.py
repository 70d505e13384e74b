"""Sessions: how long a consumer may be silent or away, by a clock that the test moves."""

from dledger.state.consumers.membership import Session
from dledger.state.consumers.table import Consumer
from dledger_broker.delivery.sessions import GRACE_SECONDS, LATE_SECONDS, Sessions

LIMIT = 10.0
STEP = 0.25


class Stage:
    """Sessions that are looked at in time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.consumers: dict[str, Consumer] = {}
        self.sessions = Sessions(self.now)

    def join(self, name: str, joined: int) -> None:
        self.consumers[name] = Consumer(joined, 0, "", "", "", ())
        self.sessions.opened(name, joined, self.now, LIMIT)

    def close(self, name: str, joined: int, seconds: float = GRACE_SECONDS) -> None:
        self.sessions.closed(name, joined, self.now, seconds)

    def look(self) -> list[str]:
        over = self.sessions.over(self.consumers, self.now, LIMIT)
        assert all(Session(name, self.consumers[name].joined) in over for name, _ in over)
        return [session.consumer for session in over]

    def wait(self, seconds: float) -> list[str]:
        """Look all the time; return whose session is over at the end."""
        until = self.now + seconds
        over = self.look()
        while self.now < until:
            self.now = min(self.now + STEP, until)
            over = self.look()
        return over


def test_a_silent_consumer_is_over_after_its_time() -> None:
    stage = Stage()
    stage.join("c1", 5)
    assert stage.wait(9.9) == []
    assert stage.wait(0.1) == ["c1"]


def test_who_speaks_stays() -> None:
    stage = Stage()
    stage.join("c1", 5)
    for _ in range(5):
        assert stage.wait(9) == []
        stage.sessions.spoke("c1", 5, stage.now, LIMIT)
    assert stage.sessions.status("c1", stage.now + 2) == (True, 2)


def test_a_closed_stream_is_over_after_the_grace() -> None:
    stage = Stage()
    stage.join("c1", 5)
    stage.close("c1", 5)
    assert stage.wait(0.4) == []
    assert stage.wait(0.1) == ["c1"]


def test_a_static_consumer_has_its_whole_time_to_come_back() -> None:
    stage = Stage()
    stage.join("c1", 5)
    stage.close("c1", 5, LIMIT)
    assert stage.wait(9.9) == []
    assert stage.wait(0.1) == ["c1"]


def test_who_comes_back_within_the_grace_goes_on() -> None:
    stage = Stage()
    stage.join("c1", 5)
    stage.close("c1", 5)
    stage.wait(0.4)
    stage.join("c1", 9)
    stage.close("c1", 5)  # the old stream's end is noticed late
    assert stage.wait(9) == []


def test_a_new_leader_gives_everybody_the_whole_time() -> None:
    stage = Stage()
    stage.join("c1", 5)
    stage.wait(9)
    stage.sessions = Sessions(stage.now)
    assert stage.wait(9.9) == []
    assert stage.sessions.status("c1", stage.now)[0] is False
    assert stage.wait(0.1) == ["c1"]


def test_a_join_of_which_no_stream_is_left_has_its_time() -> None:
    stage = Stage()
    stage.join("c1", 5)
    stage.close("c1", 5)
    stage.consumers["c1"] = Consumer(9, 0, "", "", "", ())
    assert stage.wait(9.9) == []
    assert stage.wait(0.1) == ["c1"]


def test_time_in_which_the_process_did_not_run_is_nobodys_silence() -> None:
    stage = Stage()
    stage.join("c1", 5)
    stage.wait(3)
    stage.now += 60
    assert stage.wait(9.9) == []
    assert stage.wait(0.1) == ["c1"]


def test_a_look_that_is_a_little_late_gives_nothing_back() -> None:
    stage = Stage()
    stage.join("c1", 5)
    assert stage.look() == []
    assert stage.sessions.look_by == 110
    stage.now = 110 + LATE_SECONDS
    assert stage.look() == ["c1"]


def test_the_next_look_is_when_the_first_session_may_be_over() -> None:
    stage = Stage()
    stage.join("c1", 5)
    stage.join("c2", 6)
    stage.look()
    stage.sessions.spoke("c1", 5, 104, LIMIT)
    stage.close("c2", 6)
    stage.look()
    assert stage.sessions.look_by == 100 + GRACE_SECONDS
    stage.now = 101
    assert stage.look() == ["c2"]
    assert stage.sessions.look_by == 114


def test_who_is_gone_is_forgotten() -> None:
    stage = Stage()
    stage.join("c1", 5)
    stage.consumers.clear()
    assert stage.look() == []
    assert stage.sessions.status("c1", stage.now) == (False, 0.0)
