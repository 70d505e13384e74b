"""The clients of a simulated world do their work, and their checks notice a wrong answer.

Method: worlds without faults. In each but the first one something is falsified on its way from the
product to a check; the world must end with the violation that this check raises.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from dledger_client import AsyncConsumer
from dledger_client._core.delivery import Delivery
from dledger_client._core.producer.batch import Batch
from dledger_client._core.producer.core import ProducerCore
from dledger_client._core.routes import TopicRoute
from dledger_client._shell.queries import Queries
from dledger_client.errors import error_of
from dledger_client.model import SendResult
from dledger_client.records import RecordBatch
from dledger_proto.batch.codec import Record
from dledger_proto.errors import Code
from dledger_proto.rpc.frames import parse_append
from tests.sim.clients.lookups import Found, Judge, LookupId, LookupKey, LookupTime, Span
from tests.sim.clients.oracle import Oracle
from tests.sim.clients.real import admin as real_admin
from tests.sim.clients.real.producer import RealProducer
from tests.sim.invariants.delivery.group_history import (
    CreateGroup,
    DeleteGroup,
    GroupHistory,
    GroupState,
    UpdateGroup,
)
from tests.sim.invariants.delivery.queue_contents import Contents, QueueKey, StoredBatch
from tests.sim.invariants.delivery.topic_history import (
    ANY_ID,
    Create,
    Delete,
    TopicHistory,
    TopicState,
    Update,
)
from tests.sim.invariants.violation import Property, Violation
from tests.sim.story.story import Story
from tests.sim.world.clock import Scheduler
from tests.sim.world.plan import WorldPlan, draw_plan
from tests.sim.world.world import Report, World

NEVER = 1e6
SECONDS = 20.0


def quiet_plan(seed: int = 1) -> WorldPlan:
    """Return a world of one group without faults, in which every kind of client works."""
    return replace(
        draw_plan(seed, members=3),
        safety_seconds=SECONDS,
        faults_from=NEVER,
        early_strikes=0.0,
        producers=3,
        stamped_share=1.0,
        send_interval=0.3,
        consumers=1,
        lookup_interval=0.5,
        trims=False,
        retention_ms=0,
        name_servers=("ns1", "ns2"),
        real_share=1.0,
        real_consumers=2,
        administers=True,
        admin_interval=0.3,
    )


def run(plan: WorldPlan, crashes: Iterable[tuple[float, str]] = ()) -> Report:
    """Run a world; end the present lives of its producers in some ways at some times."""
    world = World(plan)
    for at, how in crashes:
        for producer in world.clients.producers:
            if isinstance(producer, RealProducer):
                world.scheduler.after(at, producer.crash, how)
    return world.run()


def test_every_client_of_a_quiet_world_makes_progress() -> None:
    report = run(quiet_plan(), [(5.0, "zombie"), (10.0, "close"), (15.0, "kill")])
    for what in (
        "send ok",
        "one-way batches",
        "fail STALE_EPOCH",
        "producers ended by zombie",
        "records consumed",
        "commits ok",
        "offsets read",
        "seeks to a time",
        "topics: create",
        "topics: update",
        "topics: delete",
        "lists of topics",
        "administrator's lookups",
        "looked up by key",
        "looked up by id",
        "looked up by time",
        "looked up by offset",
        "event leader",
    ):
        assert report.counts.get(what, 0) > 0, f"no {what}: {report.counts}"


def test_the_clients_of_two_groups_reach_all_queues() -> None:
    topic_id = quiet_plan().topic_id
    report = run(
        replace(
            quiet_plan(),
            groups={name: tuple(f"{name}{number}" for number in range(3)) for name in "gh"},
            queues=tuple((topic_id, queue) for queue in range(4)),
            queues_per_group=2,
        )
    )
    assert report.counts["records consumed"] > 0
    assert report.counts["topics: create"] > 0


def test_clients_go_on_while_all_name_servers_are_away_and_learn_from_new_ones() -> None:
    world = World(quiet_plan())
    for server in world.name_servers.values():
        world.scheduler.after(3.0, server.stop)
        world.scheduler.after(9.0, server.start)
        world.scheduler.after(11.0, server.pause)
        world.scheduler.after(14.0, server.resume)
    for producer in world.clients.producers:
        if isinstance(producer, RealProducer):
            world.scheduler.after(10.0, producer.crash, "kill")
    report = world.run()
    assert report.counts["producers ended by kill"] == 2
    assert report.counts["event leader"] >= 4, "each name server has heard of the leader twice"


# Falsified answers.


def found(plan: WorldPlan) -> Property:
    """Return what ends a world."""
    with pytest.raises(Violation) as caught:
        run(plan)
    return caught.value.broken


@pytest.mark.parametrize(
    "falsify",
    [
        lambda result: replace(result, offset=result.offset + 1),
        lambda result: replace(result, queue=1 - result.queue),
        lambda result: replace(result, group="h"),
        lambda result: replace(result, index=result.index + 1),
        lambda result: replace(result, message_id=bytes(24)),
    ],
)
def test_a_wrong_result_of_a_send_is_noticed(
    falsify: Callable[[SendResult], SendResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    result_of = Batch.result_of
    monkeypatch.setattr(Batch, "result_of", lambda *place: falsify(result_of(*place)))
    assert found(quiet_plan()) is Property.OUTCOME


@pytest.mark.parametrize(
    ("code", "broken"),
    [(Code.NO_LEADER, Property.OUTCOME), (Code.STALE_EPOCH, Property.PRODUCER_VERDICTS)],
)
def test_a_refusal_of_what_is_stored_or_by_nobody_is_noticed(
    code: Code, broken: Property, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Delivery, "exception", lambda _future: error_of(code))
    if code is Code.STALE_EPOCH:  # else the same check as of the other code comes first
        monkeypatch.setattr(Oracle, "check_failed", lambda *_: None)
    assert found(quiet_plan()) is broken


def test_a_one_way_message_that_leaves_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    next_frame = ProducerCore.next_frame
    again: list[bytes] = []

    def twice(core: ProducerCore, link: int, now: float, wall_ms: int) -> bytes | None:
        if again:
            return again.pop()
        frame = next_frame(core, link, now, wall_ms)
        if frame is not None and parse_append(frame)[0].one_way:
            again.append(frame)
        return frame

    monkeypatch.setattr(ProducerCore, "next_frame", twice)
    assert found(replace(quiet_plan(), safety_seconds=8.0)) is Property.OUTCOME


@pytest.mark.parametrize("step", [1, -1])
def test_a_record_that_is_left_out_or_comes_again_is_noticed(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = AsyncConsumer.poll_batches

    async def moved(*arguments: Any) -> list[RecordBatch]:
        batches = await poll(*arguments)
        return [replace(batch, base_offset=batch.base_offset + step) for batch in batches]

    monkeypatch.setattr(AsyncConsumer, "poll_batches", moved)
    assert found(quiet_plan()) is Property.COMMITTED_READS


def test_a_batch_that_is_passed_over_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = AsyncConsumer.poll_batches

    async def thinned(*arguments: Any) -> list[RecordBatch]:
        return (await poll(*arguments))[1:]

    monkeypatch.setattr(AsyncConsumer, "poll_batches", thinned)
    assert found(quiet_plan()) is Property.COMMITTED_READS


def test_a_wrong_offset_of_a_time_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    find = Queries.offset_by_time

    async def wrong(*arguments: Any) -> int:
        return await find(*arguments) + 1

    monkeypatch.setattr(Queries, "offset_by_time", wrong)
    assert found(quiet_plan()) is Property.LOOKUP


def test_a_group_offset_that_nobody_stored_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wrong(*_: Any) -> dict[int, int]:
        return {0: 123_456, 1: 123_456}

    monkeypatch.setattr(AsyncConsumer, "committed", wrong)
    assert found(quiet_plan()) is Property.OFFSETS_NEVER_BACK


def test_a_wrong_answer_about_a_topic_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    state_of = real_admin._state

    def wrong(route: TopicRoute) -> TopicState:
        return replace(state_of(route), read_queues=route.read_queues + 1)

    monkeypatch.setattr(real_admin, "_state", wrong)
    assert found(quiet_plan()) is Property.TOPICS


def test_a_body_at_another_place_is_noticed() -> None:
    oracle, queue = Oracle(Contents(), Story(Scheduler())), (b"t" * 16, 0)
    send = oracle.invoke_send("p", queue, 1, 0.0, idempotent=True)
    send.offset = 7
    oracle.bodies[b"body"] = send
    oracle.read_body("reader", queue, 7, b"body")
    for place, body in ((8, b"body"), (7, b"other")):
        with pytest.raises(Violation):
            oracle.read_body("reader", queue, place, body)


# What a topic may be.

MADE = TopicState(b"i" * 16, ("g", "g"), 2, 2, 6)
CREATE = Create(("g",), 2)


def made() -> TopicHistory:
    """Return the history of a name whose topic was created."""
    history = TopicHistory("u1")
    history.answered(CREATE, MADE)
    return history


def test_answers_that_fit_the_history_of_a_topic_are_accepted() -> None:
    history = made()
    history.seen(MADE)
    history.answered(CREATE, MADE)  # the same again
    history.refused(Create(("g",), 3), Code.TOPIC_EXISTS)
    grown = replace(MADE, owners=("g", "g", "h"), write_queues=3, read_queues=3)
    history.answered(Update(owners=("g", "g", "h")), grown)
    shrunk = replace(grown, write_queues=1)
    history.answered(Update(owners=("g",)), shrunk)
    history.answered(Update(read_queues=2), replace(shrunk, read_queues=2))
    history.refused(Update(read_queues=4), Code.INVALID_ARGUMENT)
    history.refused(Update(owners=("h",)), Code.INVALID_ARGUMENT)
    history.answered(Delete(), replace(shrunk, read_queues=2))
    history.seen(None)
    history.refused(Delete(), Code.TOPIC_NOT_FOUND)


@pytest.mark.parametrize(
    "answer",
    [
        lambda history: history.seen(None),
        lambda history: history.seen(replace(MADE, topic_id=b"j" * 16)),
        lambda history: history.seen(replace(MADE, read_queues=1)),
        lambda history: history.refused(Delete(), Code.TOPIC_NOT_FOUND),
        lambda history: history.refused(CREATE, Code.TOPIC_EXISTS),
        lambda history: history.answered(Delete(), replace(MADE, topic_id=b"j" * 16)),
        lambda history: history.answered(Update(permission=4), MADE),
        lambda history: history.answered(Create(("h",), 2), MADE),
    ],
)
def test_an_answer_that_does_not_fit_the_history_is_noticed(
    answer: Callable[[TopicHistory], None],
) -> None:
    with pytest.raises(Violation):
        answer(made())


def test_a_change_of_unknown_outcome_may_have_happened_or_not_or_happen_later() -> None:
    history = made()
    history.unknown(Update(permission=4))
    history.seen(MADE)
    history.seen(replace(MADE, permission=4))
    with pytest.raises(Violation):
        history.seen(None)
    history.unknown(Delete())
    history.seen(replace(MADE, permission=4))
    history.seen(None)


def test_a_creation_of_unknown_outcome_may_have_any_id() -> None:
    history = TopicHistory("u1")
    history.unknown(CREATE)
    assert TopicState(ANY_ID, ("g", "g"), 2, 2, 6) in history.possible()
    history.seen(MADE)
    with pytest.raises(Violation):
        history.seen(replace(MADE, topic_id=b"j" * 16))


# What a lookup may find.

QUEUE: QueueKey = (b"t" * 16, 0)


def stored() -> Contents:
    """Return three batches of a record each, of entries 1 to 3, all with the key "k"."""
    contents = Contents()
    for number in range(3):
        row = StoredBatch(
            QUEUE, number, 1, number + 1, (number, number, 1), b"p" * 16, number, 10 * number
        )
        contents.queues.setdefault(QUEUE, {})[number] = row
        contents.rows[b"p" * 16, number] = row
        contents.keyed.setdefault("k", []).append((row, 0))
    return contents


def span(floor: int, ceiling: int, lowest: int = 0, highest: int = 0) -> Span:
    return Span(floor, ceiling, {QUEUE: lowest}, {QUEUE: highest})


def hits(*offsets: int) -> tuple[Found, ...]:
    return tuple(Found(QUEUE, offset, Record(b"", keys=("k",))) for offset in offsets)


@pytest.mark.parametrize(
    ("between", "right", "wrong"),
    [
        (span(3, 3), [(2, 1, 0)], [(2, 1), (0, 1, 2), (2, 1, 0, 0), ()]),
        (span(1, 2), [(0,), (1, 0)], [(2, 1, 0), (1,), ()]),
        (span(3, 3, 0, 2), [(2,), (2, 1), (2, 1, 0)], [(1, 0), ()]),
        (span(3, 3, 1, 1), [(2, 1)], [(2, 1, 0), (2,)]),
    ],
)
def test_a_lookup_by_key_finds_what_is_stored_at_some_moment_between(
    between: Span, right: list[tuple[int, ...]], wrong: list[tuple[int, ...]]
) -> None:
    judge, wanted = Judge(stored()), LookupKey(QUEUE[0], "k")
    for offsets in right:
        judge.check("reader", wanted, hits(*offsets), between)
    for offsets in wrong:
        with pytest.raises(Violation):
            judge.check("reader", wanted, hits(*offsets), between)


@pytest.mark.parametrize(
    ("between", "right", "wrong"),
    [
        (span(3, 3), [(1,)], [(), (0,)]),
        (span(1, 3), [(), (1,)], [(2,)]),
        (span(1, 1), [()], [(1,)]),
        (span(3, 3, 0, 2), [(), (1,)], [(2,)]),
        (span(3, 3, 2, 2), [(), (1,)], [(2,)]),
    ],
)
def test_a_lookup_by_id_finds_the_one_place(
    between: Span, right: list[tuple[int, ...]], wrong: list[tuple[int, ...]]
) -> None:
    judge, wanted = Judge(stored()), LookupId(b"p" * 16, 1)
    for offsets in right:
        judge.check("reader", wanted, hits(*offsets), between)
    for offsets in wrong:
        with pytest.raises(Violation):
            judge.check("reader", wanted, hits(*offsets), between)


@pytest.mark.parametrize(
    ("between", "time_ms", "right", "wrong"),
    [
        (span(3, 3), 10, [1], [0, 2, 3]),
        (span(3, 3), 21, [3], [2, 4]),
        (span(1, 3), 10, [1], [0, 2]),
        (span(1, 3), 21, [1, 2, 3], [0, 4]),
        (span(3, 3, 0, 2), 0, [0, 1, 2], [3]),
    ],
)
def test_a_lookup_by_time_finds_the_first(
    between: Span, time_ms: int, right: list[int], wrong: list[int]
) -> None:
    judge, wanted = Judge(stored()), LookupTime(QUEUE, time_ms)
    for offset in right:
        judge.check("reader", wanted, offset, between)
    for offset in wrong:
        with pytest.raises(Violation):
            judge.check("reader", wanted, offset, between)


def test_a_drawn_lookup_is_of_what_is_stored() -> None:
    judge = Judge(stored())
    drawn = {type(judge.draw(Random(seed), (QUEUE,), 5)) for seed in range(40)}
    assert len(drawn) == 4


def test_a_consumer_group_is_judged_by_its_history() -> None:
    history = GroupHistory("w1")
    made = GroupState(b"w" * 16, 1, paused=False)
    history.answered(CreateGroup(1), made)
    history.refused(CreateGroup(2), Code.CONSUMER_GROUP_EXISTS)
    history.unknown(UpdateGroup(paused=True))
    history.seen(replace(made, paused=True))
    history.answered(DeleteGroup(), replace(made, paused=True))
    history.seen(None)
    for wrong in (made, replace(made, group_id=b"x" * 16)):
        with pytest.raises(Violation):
            history.seen(wrong)
