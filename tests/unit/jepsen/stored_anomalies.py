"""Every anomaly of lookups, times, holds and exports by hand."""

from typing import Any

from jepsen_tests.history.events import Kind
from tests.unit.jepsen.anomalies import shows
from tests.unit.jepsen.stories import Story

FOUND = ["t/0", 0, "1-1", 1_000]


def two_sent() -> Story:
    return Story().send(1, "1-1", 0).send(1, "1-2", 1)


# Lookups: C22.


@shows("not-found")
def an_acknowledged_message_is_not_found_by_id() -> Story:
    return two_sent().op(2, "lookup-id", "t", "1-1", []).final("1-1 1-2")


@shows("not-found")
def an_acknowledged_message_is_not_found_by_key() -> Story:
    return two_sent().op(2, "lookup-key", "t", "1-1/0", []).final("1-1 1-2")


@shows("not-found")
def an_acknowledged_message_is_not_found_at_its_offset() -> Story:
    return two_sent().op(2, "lookup", "t/0", 1, []).final("1-1 1-2")


@shows("not-found")
def what_was_found_once_is_found_no_more() -> Story:
    story = Story().lose(1, "1-1").op(2, "lookup-key", "t", "1-1/0", [FOUND])
    return story.op(2, "lookup-id", "t", "1-1", []).final("1-1")


@shows("found-other")
def another_message_is_found() -> Story:
    return two_sent().op(2, "lookup-id", "t", "1-2", [FOUND]).final("1-1 1-2")


@shows("found-other")
def another_offset_is_found() -> Story:
    return two_sent().op(2, "lookup", "t/0", 1, [FOUND]).final("1-1 1-2")


@shows("found-twice", "duplicate")
def a_message_is_found_twice() -> Story:
    # It is stored twice as well (C5).
    story = Story().send(1, "1-1", 0)
    story.op(2, "lookup-key", "t", "1-1/0", [FOUND, ["t/0", 1, "1-1", 1_000]])
    return story.final("1-1 1-1")


@shows("phantom")
def a_message_is_found_that_nobody_sent() -> Story:
    story = Story().send(1, "1-1", 0)
    return story.op(2, "lookup", "t/0", 1, [["t/0", 1, "7-7", 1_000]]).final("1-1")


# Times: C23.


def stamped(*times: int) -> Story:
    """Messages in a queue that were stored at these times."""
    story = Story()
    for number, _ in enumerate(times):
        story.send(1, f"1-{number}", number)
    return story.op(3, "stamps", "t/0", None, [[at, 1, ms] for at, ms in enumerate(times)])


def ended(story: Story, count: int) -> Story:
    return story.final(" ".join(f"1-{number}" for number in range(count)))


@shows("stamp-differs")
def a_record_has_two_store_times() -> Story:
    return ended(stamped(1_000, 2_000).op(4, "lookup", "t/0", 0, [["t/0", 0, "1-0", 999]]), 2)


@shows("stamp-back")
def store_times_fall() -> Story:
    return ended(stamped(1_000, 999), 2)


@shows("passed-over")
def a_record_of_that_time_is_passed_over() -> Story:
    return ended(stamped(1_000, 2_000, 3_000).op(4, "by-time", "t/0", 2_000, 2), 3)


@shows("too-early")
def a_record_is_told_that_was_stored_before() -> Story:
    return ended(stamped(1_000, 2_000, 3_000).op(4, "by-time", "t/0", 2_001, 1), 3)


@shows("beyond-end")
def an_offset_beyond_the_end_is_told() -> Story:
    return ended(stamped(1_000, 2_000).op(4, "by-time", "t/0", 5_000, 3), 2)


@shows("time-back")
def a_later_time_has_a_lower_offset() -> Story:
    story = Story().send(1, "1-0", 0).send(1, "1-1", 1).send(1, "1-2", 2)
    return ended(story.op(4, "by-time", "t/0", 50, 2).op(4, "by-time", "t/0", 60, 1), 3)


# Holds: C24. The queue t/1 tells the time: a message there is stored at 1,000 ms, one at 2,000 ms.


def hold(story: Story, offset: int = 1, until: int = 2_500, ttl_ms: int = 1_500) -> Story:
    asked = {"owner": "o", "offset": offset, "ttl_ms": ttl_ms}
    return story.op(5, "hold", "t/0", asked, until)


def clock(story: Story) -> Story:
    """The second message of the clock, the store times of both, and the end."""
    story.send(6, "6-2", 1, "t/1").op(6, "stamps", "t/1", None, [[0, 1, 1_000], [1, 1, 2_000]])
    return story


def held() -> Story:
    return hold(two_sent().send(1, "1-3", 2).send(6, "6-1", 0, "t/1"))


@shows("hold-passed")
def a_trim_passes_a_hold() -> Story:
    return clock(held().op(7, "trim", "t/0", 2, 2)).final("1-3", 2).final("6-1 6-2", 0, "t/1")


@shows("hold-passed")
def a_minimum_above_a_hold_is_told() -> Story:
    story = held().invoke(7, "trim", "t/0", 2).op(8, "bounds", "t/0", None, [2, 3])
    story.end(7, kind=Kind.INFO, err="DEADLINE")
    return clock(story).final("1-3", 2).final("6-1 6-2", 0, "t/1")


@shows("hold-passed")
def a_trim_passes_a_hold_of_ten_minutes() -> Story:
    # Nothing tells a store time: ten minutes last whatever the clocks do.
    story = hold(two_sent().send(1, "1-3", 2), until=10**12, ttl_ms=600_000)
    return story.wait(500_000).op(7, "trim", "t/0", 2, 2).final("1-3", 2)


@shows("held-unreadable")
def what_is_held_cannot_be_read() -> Story:
    # A trim asks for more, so that C22 finds an excuse: the hold leaves none.
    story = held().invoke(7, "trim", "t/0", 3).end(7, kind=Kind.FAIL, err="HELD: o")
    story.op(9, "trim", "t/0", 2, 1).op(8, "lookup", "t/0", 1, [])
    return clock(story).final("1-2 1-3", 1).final("6-1 6-2", 0, "t/1")


@shows("held-by-nobody")
def a_trim_is_refused_long_after_the_hold_ended() -> Story:
    story = held().op(6, "stamps", "t/1", None, [[0, 1, 1_000]]).send(6, "6-2", 1, "t/1")
    story.invoke(7, "trim", "t/0", 2).end(7, kind=Kind.FAIL, err="HELD: o")
    story.op(6, "stamps", "t/1", None, [[1, 1, 99_000]])
    return story.final("1-1 1-2 1-3").final("6-1 6-2", 0, "t/1")


@shows("held-by-nobody")
def a_trim_is_refused_for_one_whose_hold_ended_long_ago() -> Story:
    # Another hold lasts; the refusal does not name it.
    story = hold(held(), 1, 2_500).op(6, "stamps", "t/1", None, [[0, 1, 1_000]])
    story.op(4, "hold", "t/0", {"owner": "p", "offset": 1, "ttl_ms": 600_000}, 600_000)
    story.send(6, "6-2", 1, "t/1").invoke(7, "trim", "t/0", 2)
    story.end(7, kind=Kind.FAIL, err="HELD: o holds the queue from offset 1 on, until then")
    story.op(6, "stamps", "t/1", None, [[1, 1, 99_000]])
    return story.final("1-1 1-2 1-3").final("6-1 6-2", 0, "t/1")


# Exports: C25.


def version(number: int = 0, start: int = 0, words: str = "1-1 1-2", **other: Any) -> Any:
    values = words.split()
    return {
        "version": number, "adopted": False, "start": {"t/0": start},
        "end": {"t/0": start + len(values)}, "gaps": [], "lost": [],
        "rows": [["t/0", start, values]] if values else [],
    } | other  # fmt: skip


def export(story: Story, result: Any, session: int = 1, p: int = 5) -> Story:
    return story.op(p, "export", "t", session, result)


@shows("export-differs")
def a_version_is_shown_in_two_ways() -> Story:
    story = export(two_sent(), version())
    return export(story, version(words="1-1", adopted=True), 2, 6).final("1-1 1-2")


@shows("export-not-next")
def a_version_begins_too_early() -> Story:
    story = export(two_sent(), version())
    return export(story, version(1, 1, "1-2")).final("1-1 1-2")


@shows("export-not-next")
def a_version_begins_too_late() -> Story:
    story = export(two_sent(), version(words="1-1", adopted=True)).send(1, "1-3", 2)
    return export(story, version(1, 2, "1-3")).final("1-1 1-2 1-3")


@shows("export-order")
def rows_are_out_of_order() -> Story:
    rows = [["t/0", 1, ["1-2"]], ["t/0", 0, ["1-1"]]]
    return export(two_sent(), version(rows=rows)).final("1-1 1-2")


@shows("export-twice", "export-order")
def a_row_is_there_twice() -> Story:
    # The second copy is also out of order.
    rows = [["t/0", 0, ["1-1", "1-2"]], ["t/0", 1, ["1-2"]]]
    return export(two_sent(), version(rows=rows)).final("1-1 1-2")


@shows("export-twice")
def a_row_is_above_the_end() -> Story:
    story = two_sent()
    return export(story, version(end={"t/0": 1}, adopted=True)).final("1-1 1-2")


@shows("export-hole")
def a_row_is_missing() -> Story:
    return export(two_sent(), version(rows=[["t/0", 1, ["1-2"]]])).final("1-1 1-2")


@shows("export-gap")
def a_gap_without_a_trim() -> Story:
    found = version(gaps=[["t/0", 0, 1]], rows=[["t/0", 1, ["1-2"]]])
    return export(two_sent(), found).final("1-1 1-2")


@shows("export-held-trimmed")
def what_a_session_held_is_trimmed() -> Story:
    story = export(two_sent(), version()).send(1, "1-3", 2).send(1, "1-4", 3)
    story.op(7, "trim", "t/0", 3, 3)
    found = version(1, 2, "1-3 1-4", gaps=[["t/0", 2, 3]], rows=[["t/0", 3, ["1-4"]]])
    return export(story, found).final("1-4", 3)


@shows("export-held-trimmed")
def what_a_plan_named_is_trimmed() -> Story:
    gap = [["t/0", 0, 1]]
    story = two_sent().op(7, "trim", "t/0", 1, 1)
    found = version(gaps=gap, lost=gap, rows=[["t/0", 1, ["1-2"]]])
    return export(story, found).final("1-2", 1)


@shows("export-short")
def a_version_ends_below_what_was_acknowledged() -> Story:
    return export(two_sent(), version(words="1-1")).final("1-1 1-2")


@shows("inconsistent-offset", "phantom")
def a_file_has_other_rows_than_the_log() -> Story:
    return export(two_sent(), version(words="1-1 7-7")).final("1-1 1-2")


# One-way sends: no checker of their own. A second copy is a duplicate, a damaged order is C12's.


@shows("duplicate")
def a_one_way_message_is_there_twice() -> Story:
    return Story().op(1, "one-way", "t/0", ["1-1"]).final("1-1 1-1")


@shows("lost", "un-read", "poll-skip")
def a_one_way_message_was_read_and_is_lost() -> Story:
    story = Story().op(1, "one-way", "t/0", ["1-1"]).poll(2, (0, "1-1")).send(3, "3-1", 1)
    return story.phase("final").assign(9, t0=0).poll(9, (1, "3-1"))


@shows("key-order")
def one_way_messages_let_an_ordered_one_overtake() -> Story:
    story = Story().lose(1, "1-1", key="k").op(3, "one-way", "t/0", ["3-1"])
    return story.lose(4, "4-1", key="k").final("4-1 3-1 1-1")
