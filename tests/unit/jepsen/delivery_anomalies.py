"""Every anomaly of delivery by hand."""

from typing import Any

from jepsen_tests.history.events import Kind
from tests.unit.jepsen.anomalies import shows
from tests.unit.jepsen.stories import MS, Story

SENT = "1-1 1-2 1-3"
RETRY = "%RETRY%g/0"
CONCURRENT = {"order": "concurrent"}


def sent(words: str = SENT) -> Story:
    return Story().send(1, words, 0)


def handled(story: Story, offset: int, said: str = "done", **more: Any) -> Story:
    return story.handle(5, "g", "t/0", offset, f"1-{offset + 1}", said, **more)


def floor(story: Story, offset: int, place: str = "t/0") -> Story:
    return story.op(6, "floors", "g", result={place: offset})


def caught_up(story: Story, end: int) -> Story:
    return story.op(6, "caught-up", "g", result={"t/0": end})


def letters(story: Story, *rows: list[Any]) -> Story:
    return story.op(6, "letters", "g", result=list(rows))


# Delivery: C27.


@shows("undelivered")
def a_message_is_left_out() -> Story:
    story = handled(handled(sent(), 0, **CONCURRENT), 2, **CONCURRENT)
    return caught_up(story, 3).final(SENT)


@shows("undelivered")
def a_message_is_neither_done_nor_in_the_dead_letters() -> Story:
    story = handled(sent("1-1"), 0, "dead")
    return caught_up(letters(story), 1).final("1-1")


@shows("unfinished")
def a_floor_passes_a_record_that_a_listener_still_has() -> Story:
    story = sent("1-1").call(5, "g", "t/0", 0, "1-1")
    return caught_up(floor(story, 1).said(5, "done"), 1).final("1-1")


@shows("unfinished", "undelivered")
def a_floor_passes_a_record_that_nobody_got() -> Story:
    story = floor(handled(sent("1-1 1-2"), 0), 2)
    return caught_up(story, 2).final("1-1 1-2")


@shows("unfinished")
def a_floor_passes_a_suspended_record() -> Story:
    story = floor(handled(sent("1-1"), 0, "failed"), 1)
    return caught_up(handled(story, 0, attempts=1, epoch=2, read=["u/0", 0]), 1).final("1-1")


@shows("delivered-again")
def a_record_comes_again_after_its_commit() -> Story:
    story = floor(handled(sent("1-1"), 0), 1)
    return caught_up(handled(story, 0, epoch=2, consumer="d"), 1).final("1-1")


@shows("misdelivered")
def another_message_is_handed_out() -> Story:
    story = sent("1-1 1-2").handle(5, "g", "t/0", 0, "1-2", "done")
    return caught_up(handled(story, 1), 2).final("1-1 1-2")


@shows("misdelivered")
def a_message_that_nobody_sent_is_handed_out() -> Story:
    return caught_up(sent("1-1").handle(5, "g", "t/0", 0, "9-9", "done"), 1).final("1-1")


@shows("stuck")
def a_group_does_not_come_to_the_end() -> Story:
    story = handled(sent("1-1"), 0).invoke(6, "caught-up", "g")
    return story.end(6, kind=Kind.FAIL, err="UNAVAILABLE: not finished").final("1-1")


# Order: C28.


@shows("out-of-order")
def a_record_overtakes_one_that_failed() -> Story:
    story = handled(handled(sent("1-1 1-2"), 0, "failed"), 1)
    return caught_up(handled(story, 0, attempts=1), 2).final("1-1 1-2")


@shows("out-of-order")
def a_record_overtakes_another_one_of_its_key() -> Story:
    story = Story().send(1, "1-1@k", 0).send(1, "1-2", 1).send(1, "1-3@k", 2)
    for offset, value in ((2, "1-3@k"), (0, "1-1@k"), (1, "1-2")):
        story.handle(5, "g", "t/0", offset, value, "done", order="key")
    return caught_up(story, 3).final("1-1@k 1-2 1-3@k")


@shows("at-once")
def two_calls_of_a_queue_go_on_at_once() -> Story:
    # Of the same record: nothing overtakes anything.
    story = sent("1-1").call(5, "g", "t/0", 0, "1-1").call(7, "g", "t/0", 0, "1-1", epoch=2)
    return caught_up(story.said(5, "done").said(7, "done"), 1).final("1-1")


@shows("two-holders")
def a_consumer_goes_on_that_lost_its_queue() -> Story:
    story = handled(sent("1-1 1-2"), 0, epoch=2, consumer="d")
    return caught_up(handled(story, 1, epoch=1), 2).final("1-1 1-2")


# Attempts and dead letters: C29.


@shows("wrong-attempts")
def a_delivery_that_was_not_answered_counts() -> Story:
    return caught_up(handled(sent("1-1"), 0, attempts=1), 1).final("1-1")


@shows("wrong-attempts")
def failures_are_forgotten() -> Story:
    story = handled(handled(sent("1-1"), 0, "failed"), 0, "failed", attempts=1)
    return caught_up(handled(story, 0, attempts=0), 1).final("1-1")


@shows("wrong-attempts")
def a_dead_letter_has_more_failures_than_there_were() -> Story:
    story = letters(handled(sent("1-1"), 0, "dead"), ["t/0", 0, 9, 0])
    return caught_up(story, 1).final("1-1")


@shows("retried-twice")
def one_failure_makes_two_retries() -> Story:
    story = handled(sent("1-1"), 0, "failed", **CONCURRENT)
    for offset in (0, 1):
        handled(story, 0, attempts=1, read=[RETRY, offset], **CONCURRENT)
    return caught_up(story, 1).final("1-1")


@shows("resent-twice")
def a_dead_letter_is_sent_again_twice() -> Story:
    story = letters(handled(sent("1-1"), 0, "dead"), ["t/0", 0, 1, 0])
    story.op(6, "letters-resent", "g", result=1)
    for offset in (0, 1):
        handled(story, 0, read=[RETRY, offset], epoch=1)
    return caught_up(letters(story), 1).final("1-1")


@shows("died-twice")
def a_record_is_in_the_dead_letters_twice() -> Story:
    story = letters(handled(sent("1-1"), 0, "dead"), ["t/0", 0, 1, 0], ["t/0", 0, 1, 0])
    return caught_up(story, 1).final("1-1")


@shows("died-early")
def a_record_dies_before_its_last_failure() -> Story:
    story = letters(handled(sent("1-1"), 0, "failed"), ["t/0", 0, 1, 0])
    return caught_up(story, 1).final("1-1")


# Delays: C30.


def delayed(due_ms: int = 20) -> Story:
    return Story().op(1, "delay", "t/0", ["1-1"], due_ms * MS)


@shows("fired-early")
def a_message_comes_before_its_time() -> Story:
    return delayed(500).poll(2, (0, "1-1")).wait(500).final("1-1")


@shows("not-fired")
def a_message_never_comes() -> Story:
    return delayed().send(3, "3-1", 0).wait(20_000).final("3-1")


@shows("fired-after-recall")
def a_message_comes_that_was_taken_back() -> Story:
    return delayed().op(1, "recall", "t/0", "1-1").wait(20).final("1-1")


@shows("duplicate")
def a_message_comes_twice() -> Story:
    return delayed().wait(20).final("1-1 1-1")
