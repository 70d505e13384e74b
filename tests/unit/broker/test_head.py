"""What a member says about why the oldest segment of its log stays."""

from types import SimpleNamespace
from typing import Any, cast

from dledger.raft.api import Role
from dledger.state.queues.holds import Hold
from dledger.state.queues.trim import Trim
from dledger.types import LogIndex, Position
from dledger_broker.rpc.head import what_keeps_head
from tests.unit.state.carry_kit import carry
from tests.unit.state.kit import OTHER_TOPIC, TOPIC, Driven, batch, create, started
from tests.unit.state.test_failures import fail, ready


def said(
    driven: Driven, oldest: tuple[int, int] | None, *peers: tuple[str, int, bool],
    role: Role = Role.LEADER, time_ms: int = 0,
) -> list[str]:  # fmt: skip
    """Return what a member says whose oldest segment has this end and last index."""
    segment = None if oldest is None else (Position(oldest[0]), LogIndex(oldest[1]))
    view = SimpleNamespace(
        log=SimpleNamespace(oldest_segment=segment),
        machine=driven.machine,
        host=SimpleNamespace(time_ms=time_ms),
    )
    status = SimpleNamespace(
        role=role,
        peers=[
            SimpleNamespace(member=name, match_index=match, quarantined=quarantined)
            for name, match, quarantined in peers
        ],
    )
    return what_keeps_head(cast("Any", view), cast("Any", status))


def saved(driven: Driven) -> Driven:
    """Save the state."""
    flush = driven.machine.freeze()
    assert flush is not None
    flush.execute()
    driven.machine.flush_finished(flush)
    return driven


def two_topics() -> Driven:
    """Return a state with five records in a queue of each topic, the second trimmed by three."""
    driven = started()
    driven.one(create(OTHER_TOPIC, "bills"))
    driven.append(batch(5))
    driven.append(batch(5, topic=OTHER_TOPIC))
    driven.one(Trim(OTHER_TOPIC, 0, 3))
    return saved(driven)


def test_the_newest_segment_needs_no_reason() -> None:
    assert said(two_topics(), None) == []


def test_a_log_of_which_nothing_was_freed_stays() -> None:
    driven = started()
    driven.append(batch(5))
    assert said(driven, (1_000, 2)) == [
        "nothing was trimmed, expired or deleted yet: the whole log stays"
    ]


def test_the_queue_and_the_member_that_keep_it_are_named() -> None:
    driven = two_topics()
    everything = driven.log.position, len(driven.log.entries) - 1
    peers = ("b", everything[1] + 1, False), ("c", 1, True)
    assert said(driven, everything, *peers) == [
        "queue orders/0 begins in it, at offset 0",
        "member c has entries up to 1 only, it is quarantined",
    ]
    assert said(driven, everything, *peers, role=Role.FOLLOWER) == [
        "queue orders/0 begins in it, at offset 0"
    ]
    driven.one(Hold("export", TOPIC, 0, 0, 90_000))
    assert said(saved(driven), everything) == [
        "queue orders/0 begins in it, at offset 0",
        "export holds orders/0 from offset 0 on",
    ]
    assert said(driven, everything, time_ms=90_000) == ["queue orders/0 begins in it, at offset 0"]
    driven.one(Trim(TOPIC, 0, 5), time_ms=90_000)
    driven.one(Trim(OTHER_TOPIC, 0, 5))
    assert said(driven, (driven.log.position, len(driven.log.entries))) == [
        "no saved state covers it yet"
    ]
    assert said(saved(driven), everything) == []


def test_a_reference_keeps_it() -> None:
    driven = ready()
    fail(driven, 0)
    driven.one(Trim(TOPIC, 0, 10))
    assert said(saved(driven), (driven.log.position, len(driven.log.entries) - 1)) == [
        "a timer, a retry or a dead letter refers to a message in it"
    ]


def test_records_that_were_carried_forward_are_said() -> None:
    driven = two_topics()
    target = driven.log.position
    carry(driven, target)
    saved(driven)
    assert said(driven, (target, driven.machine.applied_index - 1)) == []
    assert said(driven, (target + 1, driven.machine.applied_index - 1)) == [
        "old records were carried forward up to it, and the next pass goes on there"
    ]
