"""The consumer's core by itself: fences, bounds, repeated and impossible rows, random breaks."""

import random

import pytest

from dledger_client._core.consumer import actions as fetch
from dledger_client._core.consumer.core import BAD_FRAMES_MAX, ConsumerCore
from dledger_client._core.members import MemberChoice
from dledger_client._core.routes import RefreshRoutes, RouteTable
from dledger_client.errors import CorruptData, NoPermission, error_of
from dledger_proto.batch.codec import Record, encode_batch
from dledger_proto.errors import Code
from dledger_proto.rpc.frames import FetchFrame, FetchRow
from dledger_proto.v1 import routes_pb2
from tests.unit.client.model_cluster import ModelGroup, topic_id, topic_message

PLACE = ("t", 0)
BATCH = 10


def make_core(*, prefer: str = "leader", buffer_bytes: int = 1 << 20) -> ConsumerCore:
    routes = RouteTable()
    group = ModelGroup("a", ["a0", "a1", "a2"])
    routes.apply(
        routes_pb2.RoutesReply(
            full=True,
            cluster="c",
            groups=[group.route()],
            topics=[topic_message("t", [("a", 2)])],
        )
    )
    return ConsumerCore(
        routes, MemberChoice(), random.Random(1), prefer=prefer, buffer_bytes=buffer_bytes
    )


def make_batch(first: int, count: int = BATCH) -> memoryview:
    records = [Record(b"%d" % i) for i in range(first, first + count)]
    return memoryview(
        encode_batch(
            records, topic_id=topic_id("t"), queue=0, stamp=None, base_number=0, base_time_ms=1
        )
    )


def make_frame(
    first: int,
    *,
    assignment: int = 0,
    minimum: int = 0,
    maximum: int = 1_000,
    skip: int = 0,
    batch: memoryview | None = None,
) -> FetchFrame:
    """A frame with the batch of records first .. first + 9, told from first + skip on."""
    data = make_batch(first) if batch is None else batch
    row = FetchRow(first + skip, skip, BATCH - skip, len(data))
    return FetchFrame(assignment, Code.OK, "", minimum, maximum, first + BATCH, [row], [data])


def refusal(code: Code, assignment: int = 0) -> FetchFrame:
    return FetchFrame(assignment, code, "told", 0, 0, 0, [], [])


def opened(core: ConsumerCore) -> fetch.OpenFetch:
    found = [action for action in core.take_actions() if isinstance(action, fetch.OpenFetch)]
    assert len(found) == 1, found
    return found[0]


def start(core: ConsumerCore, offset: int = 0) -> int:
    core.assign(PLACE, topic_id("t"), "a", offset)
    core.pump(0.0)
    action = opened(core)
    assert action.wanted[0].offset == offset
    return action.stream


def bodies(core: ConsumerCore, count: int = 1_000) -> list[int]:
    return [int(record.body) for batch in core.buffer.take(count) for record in batch]


def test_frames_are_handed_out_once_and_in_order() -> None:
    core = make_core()
    stream = start(core)
    core.frame(stream, make_frame(0), 0.0)
    core.frame(stream, make_frame(0), 0.0)
    core.frame(stream, make_frame(10), 0.0)
    assert bodies(core, 7) == list(range(7))
    assert core.read(PLACE).position == 7
    assert bodies(core, 100) == list(range(7, 20))
    assert core.buffer.buffered_bytes == 0
    assert core.read(PLACE).maximum == 1_000


def test_a_frame_is_counted_as_a_whole_until_its_last_run_is_taken() -> None:
    core = make_core()
    stream = start(core)
    data = b"".join([make_batch(0), make_batch(10), bytes(10_000)])
    size = len(make_batch(0))
    view = memoryview(data)
    batches = [view[:size], view[size : size + len(make_batch(10))]]
    rows = [FetchRow(10 * k, 0, BATCH, len(each)) for k, each in enumerate(batches)]
    core.frame(stream, FetchFrame(0, Code.OK, "", 0, 1_000, 20, rows, batches), 0.0)
    core.frame(stream, make_frame(20), 0.0)
    small = len(make_batch(20))
    for taken, kept in ((7, len(data)), (12, len(data)), (1, small), (9, small), (1, 0)):
        bodies(core, taken)
        assert core.buffer.buffered_bytes == kept + (small if kept == len(data) else 0)
    core.frame(stream, make_frame(30), 0.0)
    core.seek(PLACE, 5)
    assert core.buffer.buffered_bytes == 0


def test_a_batch_is_entered_in_the_middle() -> None:
    core = make_core()
    stream = start(core, 13)
    core.frame(stream, make_frame(10), 0.0)
    assert bodies(core) == list(range(13, 20))
    core.seek(PLACE, 24)
    core.pump(0.0)
    core.frame(opened(core).stream, make_frame(20, skip=4), 0.0)
    assert bodies(core) == list(range(24, 30))


def test_a_seek_fences_what_is_on_its_way() -> None:
    core = make_core()
    old = start(core)
    core.frame(old, make_frame(0), 0.0)
    core.seek(PLACE, 50)
    core.frame(old, make_frame(10), 0.0)
    assert not core.buffer.has_news
    core.pump(0.0)
    actions = core.take_actions()
    assert fetch.CloseFetch(old) in actions
    core.frame(old, make_frame(50), 0.0)
    assert not core.buffer.has_news
    new = next(action for action in actions if isinstance(action, fetch.OpenFetch))
    core.frame(new.stream, make_frame(50), 0.0)
    assert bodies(core) == list(range(50, 60))


def test_a_break_is_resumed_elsewhere_at_the_next_offset() -> None:
    core = make_core()
    stream = start(core)
    core.frame(stream, make_frame(0), 0.0)
    core.stream_down(stream, error_of(Code.UNAVAILABLE), 0.0)
    action = opened(core)
    assert action.address != "a0:1", "the leader just failed"
    assert action.wanted[0].offset == 10
    core.frame(action.stream, make_frame(10), 0.0)
    assert bodies(core) == list(range(20))


def test_all_members_failing_backs_off() -> None:
    core = make_core()
    stream = start(core)
    for _ in range(2):
        core.stream_down(stream, error_of(Code.UNAVAILABLE), 0.0)
        stream = opened(core).stream
    core.stream_down(stream, error_of(Code.UNAVAILABLE), 0.0)
    assert core.take_actions() == [RefreshRoutes()]
    wake = core.next_deadline(0.0)
    assert wake is not None
    core.tick(wake)
    assert opened(core)


def test_damage_is_given_up_after_some_members() -> None:
    core = make_core()
    stream = start(core)
    core.frame(stream, make_frame(0), 0.0)
    damaged = bytearray(make_batch(10))
    damaged[-1] ^= 1
    for _ in range(BAD_FRAMES_MAX):
        core.frame(stream, make_frame(10, batch=memoryview(damaged)), 0.0)
        core.tick(10.0)
        streams = [a for a in core.take_actions() if isinstance(a, fetch.OpenFetch)]
        stream = streams[0].stream if streams else -1
    assert stream == -1
    assert bodies(core) == list(range(10)), "what is sound comes first"
    with pytest.raises(CorruptData):
        core.buffer.take(1)
    with pytest.raises(CorruptData):
        core.buffer.take(1)


def test_impossible_rows_are_damage() -> None:
    for frame in (
        make_frame(20),  # a gap inside what the queue holds
        make_frame(0, assignment=7),
        FetchFrame(
            0, Code.OK, "", 0, 99, 0, [FetchRow(0, 5, 10, len(make_batch(0)))], [make_batch(0)]
        ),
    ):
        core = make_core()
        stream = start(core)
        core.frame(stream, frame, 0.0)
        assert not core.buffer.has_news
        assert opened(core).address != "a0:1"


def test_out_of_range_asks_for_an_offset() -> None:
    for frame in (
        refusal(Code.OFFSET_OUT_OF_RANGE),
        refusal(Code.HEAD_TRIMMED),
        make_frame(30, minimum=30),
    ):
        core = make_core()
        stream = start(core)
        core.frame(stream, make_frame(0), 0.0)
        core.frame(stream, frame, 0.0)
        core.frame(stream, frame, 0.0)
        found = [a for a in core.take_actions() if isinstance(a, fetch.FindOffset)]
        assert [(each.place, each.offset) for each in found] == [(PLACE, 10)]
        core.continue_at(PLACE, 30)
        core.pump(0.0)
        core.frame(opened(core).stream, make_frame(30), 0.0)
        assert bodies(core) == [*range(10), *range(30, 40)]


def test_an_error_of_one_queue_leaves_the_others() -> None:
    core = make_core()
    core.assign(PLACE, topic_id("t"), "a", 0)
    core.assign(("t", 1), topic_id("t"), "a", 0)
    core.pump(0.0)
    stream = opened(core).stream
    core.frame(stream, refusal(Code.NO_PERMISSION, 1), 0.0)
    core.frame(stream, make_frame(0), 0.0)
    assert bodies(core) == list(range(10))
    with pytest.raises(NoPermission):
        core.buffer.take(1)
    core.unassign(("t", 1))
    assert core.buffer.take(1) == []
    core.pump(0.0)
    retried = opened(core)
    core.frame(retried.stream, refusal(Code.WRONG_GROUP), 0.0)
    assert core.take_actions() == [RefreshRoutes()]
    core.tick(5.0)
    assert opened(core).wanted[0].offset == 10


def test_pause_keeps_the_buffer_and_asks_for_nothing() -> None:
    core = make_core()
    stream = start(core)
    core.frame(stream, make_frame(0), 0.0)
    core.pause(PLACE)
    core.pump(0.0)
    assert core.take_actions() == [fetch.CloseFetch(stream)]
    assert core.buffer.take(10) == []
    assert not core.buffer.has_news
    core.resume(PLACE)
    core.pump(0.0)
    assert opened(core).wanted[0].offset == 10
    assert bodies(core) == list(range(10))


def test_the_buffer_has_a_bound() -> None:
    core = make_core(buffer_bytes=600)
    stream = start(core)
    core.frame(stream, make_frame(0), 0.0)
    assert core.buffer.wants_more()
    core.frame(stream, make_frame(10), 0.0)
    assert not core.buffer.wants_more()
    core.buffer.take(10)
    assert core.buffer.wants_more()


def test_a_queue_with_enough_is_not_fetched_and_is_handed_out() -> None:
    core = make_core(buffer_bytes=1_000)
    stream = start(core)
    read = core.read(PLACE)
    core.frame(stream, make_frame(0), 0.0)
    assert not core.buffer.has_enough(read)
    core.frame(stream, make_frame(10), 0.0)
    assert core.buffer.has_enough(read)
    core.take_actions()
    core.stop_fetching(PLACE)
    core.pump(0.0)
    assert not [each for each in core.take_actions() if isinstance(each, fetch.OpenFetch)]
    assert bodies(core) == list(range(20))
    assert core.buffer.is_short_of(read)
    core.fetch_again(PLACE)
    core.pump(0.0)
    assert opened(core).wanted[0].offset == 20


def test_members_are_chosen_as_preferred() -> None:
    for prefer, addresses in (
        ("leader", {"a0:1"}),
        ("follower", {"a1:1", "a2:1"}),
        ("a2", {"a2:1"}),
        ("nobody", {"a0:1"}),
    ):
        core = make_core(prefer=prefer)
        core.assign(PLACE, topic_id("t"), "a", 0)
        core.pump(0.0)
        assert opened(core).address in addresses


@pytest.mark.parametrize("seed", range(40))
def test_every_record_once_under_random_breaks_and_polls(seed: int) -> None:
    generator = random.Random(seed)
    core = make_core()
    total = 300
    core.assign(PLACE, topic_id("t"), "a", 0)
    streams: dict[int, int] = {}
    seen: list[int] = []
    now = 0.0
    for _ in range(2_000):
        core.tick(now)
        for action in core.take_actions():
            if isinstance(action, fetch.OpenFetch):
                streams[action.stream] = action.wanted[0].offset
            elif isinstance(action, fetch.CloseFetch):
                # A stream may still deliver what was on its way.
                pass
        choice = generator.choice(["frame", "frame", "frame", "break", "poll", "time", "pause"])
        if choice == "frame" and streams:
            stream = generator.choice(sorted(streams))
            at = streams[stream]
            if at < total:
                first = at - at % BATCH
                core.frame(stream, make_frame(first, skip=at - first, maximum=total), now)
                streams[stream] = first + BATCH
        elif choice == "break" and streams:
            stream = generator.choice(sorted(streams))
            del streams[stream]
            core.stream_down(stream, error_of(Code.UNAVAILABLE), now)
        elif choice == "poll":
            seen += bodies(core, generator.randint(1, 25))
        elif choice == "time":
            now += 0.3
        elif choice == "pause":
            core.pause(PLACE)
            core.resume(PLACE)
        if len(seen) == total:
            break
    assert seen == list(range(total))
