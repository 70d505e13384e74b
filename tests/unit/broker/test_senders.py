"""What a user may not send: told on confirmed state, once for a frame, and in time."""

from collections.abc import Iterable

import pytest

from dledger_broker.append.stream import AppendSession
from dledger_broker.group.group_view import ANSWER_BY
from dledger_broker.security.gate import Everybody, Need
from dledger_proto.batch.codec import NO_ID
from dledger_proto.errors import Code, DledgerError
from tests.unit.broker.fakes import batch
from tests.unit.broker.stream_stage import END, Stage, run


class Denied(Everybody):
    """May nothing."""

    def allows(self, _needs: Iterable[Need]) -> bool:
        return False

    def check(self, _needs: Iterable[Need]) -> None:
        raise DledgerError(Code.TOPIC_NOT_FOUND, "no such topic")


def test_a_member_catches_up_for_no_longer_than_a_caller_without_a_right_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a frame of many such batches would keep the room of others while nobody leads."""

    async def scenario() -> None:
        stage = Stage()
        seen: list[float] = []

        async def confirm() -> None:
            seen.append(ANSWER_BY.get())

        monkeypatch.setattr(stage.rule, "confirm", confirm)
        stage.session = AppendSession(stage.intake, stage.admission, Denied())
        serving = stage.start()
        stage.put(1, batch(b"a"))
        stage.inbox.put_nowait(END)
        await serving
        assert [row.code for row in stage.rows()] == [Code.TOPIC_NOT_FOUND]
        assert seen == [stage.clock.now + 1.0]

    run(scenario)


class Named(Everybody):
    """A user that may send to every topic."""

    name = "bob"

    def __init__(self) -> None:
        self.noted: list[str] = []

    def was_refused(self, error: DledgerError, wished: str) -> None:
        self.noted.append(f"{wished} {error.code.name}")


def test_nobody_sends_as_the_producer_of_another_user() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.rule.anothers = NO_ID
        bob = Named()
        stage.session = AppendSession(stage.intake, stage.admission, bob)
        serving = stage.start()
        stage.put(1, batch(b"a"), batch(b"b"))
        await stage.settled(lambda: bool(stage.rows() or stage.router.items))
        assert not stage.router.items
        stage.inbox.put_nowait(END)
        await serving
        assert [row.code for row in stage.rows()] == [Code.NO_PERMISSION] * 2
        assert bob.noted == ["Append NO_PERMISSION"] * 2

    run(scenario)


def told_by_one_that_lags(*, has_leader: bool = True, is_unknown: bool = False) -> list[int]:
    """Return what bob hears who sends as another's producer, which the member does not know yet."""
    told: list[int] = []

    async def scenario() -> None:
        stage = Stage()
        stage.rule.anothers = NO_ID
        stage.rule.lags, stage.rule.has_leader, stage.rule.is_unknown = True, has_leader, is_unknown
        stage.session = AppendSession(stage.intake, stage.admission, Named())
        serving = stage.start()
        stage.put(1, batch(b"a"))
        await stage.settled(lambda: bool(stage.rows() or stage.router.items))
        assert not stage.router.items
        stage.inbox.put_nowait(END)
        await serving
        told.extend(row.code for row in stage.rows())

    run(scenario)
    return told


def test_a_member_that_lags_asks_whose_an_unknown_producer_is() -> None:
    """Its owner may have registered it already: then the leader would take the batch for its."""
    assert told_by_one_that_lags() == [Code.NO_PERMISSION]


def test_a_batch_of_a_producer_that_nobody_registered_is_not_proposed() -> None:
    """Its owner could register it, under an epoch that can be guessed, before the batch applies."""
    assert told_by_one_that_lags(is_unknown=True) == [Code.UNKNOWN_PRODUCER]


def test_a_member_that_can_ask_nobody_takes_nothing_of_an_unknown_producer() -> None:
    assert told_by_one_that_lags(has_leader=False) == [Code.NO_LEADER]


def test_a_member_catches_up_once_for_a_frame_however_much_of_it_is_refused() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.session = AppendSession(stage.intake, stage.admission, Denied())
        serving = stage.start()
        stage.put(1, *(batch(b"%d" % number) for number in range(9)))
        stage.inbox.put_nowait(END)
        await serving
        assert len(stage.rows()) == 9
        assert stage.rule.asked == 1

    run(scenario)
