"""Delayed records in whole members: once, never early, whatever befalls the leader (D23)."""

import pytest

from tests.scenarios.stage import Put, Stage


def in_two_seconds(stage: Stage) -> int:
    """Return a time two seconds behind the last stamp, which is half a second old."""
    process = stage.members["a"].process
    assert process is not None
    return process.machine.applied_time_ms + 2_000


def put_delayed(stage: Stage, name: str, due_ms: int, count: int) -> list[Put]:
    """Propose records that are due one after the other, a tenth of a second apart."""
    puts = [stage.put(name, f"v{at}", due_ms=due_ms + 100 * at) for at in range(count)]
    stage.run_until(lambda: all(put.stored for put in puts), 5.0, "the records are stored")
    return puts


def check_delivered(stage: Stage, due_ms: int, count: int) -> None:
    """All members hold each record once, in the order of their times, and none came early."""
    topic_id, queue = stage.plan.queues[0]
    for name in stage.names:
        assert stage.stored_values(name) == [f"v{at}" for at in range(count)], name
        process = stage.members[name].process
        assert process is not None
        spans = process.machine.queries.spans(topic_id, queue, 0, 1 << 20)
        for at, span in enumerate(spans):
            assert span.is_reference
            assert span.store_time_ms >= due_ms + 100 * at, f"v{at} came early on {name}"


def delivered(stage: Stage, name: str) -> int:
    process = stage.members[name].process
    topic_id, queue = stage.plan.queues[0]
    if process is None or process.machine.queries.topic_by_id(topic_id) is None:
        return 0  # it has not applied its log again
    return process.machine.queries.queue_bounds(topic_id, queue)[1]


def test_delayed_records_are_delivered_at_their_time() -> None:
    stage = Stage("abc").formed()
    due_ms = in_two_seconds(stage)
    put_delayed(stage, "a", due_ms, 10)
    assert delivered(stage, "a") == 0
    stage.run_until(lambda: delivered(stage, "a") == 10, 6.0, "all are delivered")
    stage.finish()
    check_delivered(stage, due_ms, 10)


@pytest.mark.parametrize("already", [0, 1, 5, 9])
@pytest.mark.parametrize("how", ["power", "kill", "cut off"])
def test_a_leader_that_dies_while_it_fires_delivers_each_once(how: str, already: int) -> None:
    stage = Stage("abc", seed=already + 1).formed()
    due_ms = in_two_seconds(stage)
    put_delayed(stage, "a", due_ms, 10)
    stage.run_until(lambda: delivered(stage, "a") >= already, 6.0, "some are delivered")
    if how == "power":
        stage.members["a"].power_cut()
    elif how == "kill":
        stage.members["a"].kill()
    else:
        stage.isolate("a")
    stage.run_until(lambda: delivered(stage, "b") == 10, 30.0, "another leader delivers the rest")
    stage.finish()
    check_delivered(stage, due_ms, 10)


def test_timers_outlive_a_power_cut_of_all() -> None:
    stage = Stage("abc").formed()
    due_ms = in_two_seconds(stage)
    put_delayed(stage, "a", due_ms, 10)
    for name in stage.names:
        stage.members[name].power_cut()
    for name in stage.names:
        stage.start_member(name)
    stage.run_until(lambda: delivered(stage, "b") == 10, 30.0, "all are delivered")
    stage.finish()
    check_delivered(stage, due_ms, 10)
