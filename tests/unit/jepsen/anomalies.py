"""Every anomaly of a log by hand: the smallest history that shows it, and all that is to be named.

Where one anomaly is another as well by its nature, both are expected and the comment says why.
"""

from collections.abc import Callable

from jepsen_tests.history.events import Kind
from tests.unit.jepsen.stories import Story

STORIES: list[tuple[set[str], Callable[[], Story]]] = []


def shows(*kinds: str) -> Callable[[Callable[[], Story]], Callable[[], Story]]:
    """Register a story and all that is to be found in it."""

    def register(story: Callable[[], Story]) -> Callable[[], Story]:
        STORIES.append((set(kinds), story))
        return story

    return register


# Loss: C1, C2, C3. An acknowledged value from the middle that no reader ever got is lost (C1), was
# gone past by consumers (C2), and they jumped over its known offset (C10).


@shows("lost", "lost-write", "poll-skip")
def lost_from_the_middle() -> Story:
    story = Story().send(1, "1-1", 0).send(1, "1-2", 1).send(1, "1-3", 2).phase("final")
    story.assign(9, t0=0).poll(9, (0, "1-1")).poll(9, (2, "1-3"))
    return story


@shows("lost", "un-read", "int-poll-skip")
def lost_after_it_was_read() -> Story:
    # Its loss takes back what was read (C11); consumers did get it once, so C2 is silent.
    story = Story().send(1, "1-1 1-2 1-3", 0).poll(2, (0, "1-1 1-2 1-3")).phase("final")
    return story.assign(9, t0=0).poll(9, (0, "1-1"), (2, "1-3"))


@shows("lost", "un-read", "poll-skip")
def unknown_but_proven_and_lost() -> Story:
    story = Story().lose(1, "1-1").poll(2, (0, "1-1")).send(3, "3-1", 1).phase("final")
    return story.assign(9, t0=0).poll(9, (1, "3-1"))


@shows("lost")
def lost_before_any_poll() -> Story:
    # Drains are no consumers: only C1 looks at them.
    story = Story().send(1, "1-1", 0).send(1, "1-2", 1).send(1, "1-3", 2).phase("final")
    return story.on("n1", "drain", [["t/0", 0, ["1-1"]], ["t/0", 2, ["1-3"]]], "t/0")


@shows("lost-on-node")
def lost_on_one_node() -> Story:
    story = Story().send(1, "1-1 1-2 1-3", 0).final("1-1 1-2 1-3")
    return story.on("n3", "drain", [["t/0", 0, ["1-1"]], ["t/0", 2, ["1-3"]]], "t/0")


@shows("lost-on-node")
def the_end_is_lost_on_one_node() -> Story:
    story = Story().send(1, "1-1 1-2 1-3", 0).final("1-1 1-2 1-3")
    return story.on("n3", "drain", [["t/0", 0, ["1-1", "1-2"]]], "t/0")


@shows("lost-write", "poll-skip")
def lost_write_without_a_final_phase() -> Story:
    story = Story().send(1, "1-1", 0).send(1, "1-2", 1).send(1, "1-3", 2)
    return story.assign(9, t0=0).poll(9, (0, "1-1")).poll(9, (2, "1-3"))


@shows("lost", "lost-write", "poll-skip")
def lost_above_the_minimum_after_a_trim() -> Story:
    story = Story().send(1, "1-1 1-2 1-3 1-4", 0).op(5, "trim", "t/0", 2, 2)
    return story.phase("final").assign(9, t0=0).poll(9, (3, "1-4"))


@shows("unseen")
def the_end_was_never_read() -> Story:
    return Story().send(1, "1-1", 0).send(1, "1-2", 1).final("1-1")


@shows("unseen")
def the_end_was_read_before_and_is_gone() -> Story:
    return Story().send(1, "1-1 1-2", 0).poll(2, (0, "1-1 1-2")).final("1-1")


@shows("unseen")
def everything_is_gone() -> Story:
    return Story().send(1, "1-1", 0).final("")


@shows("unseen")
def nobody_read_the_place() -> Story:
    return Story().send(1, "1-1", 0).send(2, "2-1", 0, "t/1").final("2-1", k="t/1")


# One value at one offset: C4, C5.


@shows("inconsistent-offset", "lost", "lost-write")
def two_acknowledged_at_one_offset() -> Story:
    # Only one of them can be there, so the other one is lost.
    story = Story().begin_send(1, "1-1").begin_send(2, "2-1").end(1, [0, 1]).end(2, [0, 2])
    return story.final("2-1")


@shows("inconsistent-offset")
def two_polls_differ() -> Story:
    return Story().lose(1, "1-1").lose(2, "2-1").poll(3, (0, "1-1")).poll(4, (0, "2-1"))


@shows("inconsistent-offset", "lost-on-node", "lost-write")
def two_drains_differ() -> Story:
    # Each of the two members lacks what the other one has, and consumers got only one of the two.
    story = Story().lose(1, "1-1").lose(2, "2-1").final("1-1", nodes=("n1",))
    return story.on("n2", "drain", [["t/0", 0, ["2-1"]]], "t/0")


@shows("duplicate")
def read_at_two_offsets() -> Story:
    return Story().send(1, "1-1", 0).send(2, "2-1", 1).final("1-1 2-1 1-1")


@shows("duplicate")
def a_retry_was_stored_again() -> Story:
    story = Story().send(1, "1-1", 0)
    return story.invoke(2, "resend", "t/0", ["1-1"]).end(2, [1, 1])


# Contents: C6, C7.


@shows("aborted-read")
def a_refused_value_is_visible() -> Story:
    return Story().refuse(1, "1-1").final("1-1")


@shows("aborted-read")
def refused_twice_and_visible() -> Story:
    story = Story().refuse(1, "1-1")
    story.invoke(2, "resend", "t/0", ["1-1"]).end(2, kind=Kind.FAIL, err="NOT_LEADER")
    return story.poll(3, (0, "1-1"))


@shows("fenced-write")
def a_zombie_is_heard() -> Story:
    story = Story().send(1, "1-1", 0).invoke(2, "zombie-send", "t/0", ["2-1"])
    return story.end(2, kind=Kind.INFO, err="DEADLINE").final("1-1 2-1")


@shows("fenced-write", "unseen")
def a_zombie_is_acknowledged_and_what_it_sent_is_nowhere() -> Story:
    story = Story().send(1, "1-1", 0).invoke(2, "zombie-send", "t/0", ["2-1"])
    return story.end(2, [1, 1]).final("1-1")


@shows("fenced-write", "inconsistent-offset", "lost", "lost-write")
def a_zombie_is_acknowledged_at_an_offset_of_another() -> Story:
    story = Story().send(1, "1-1", 0).invoke(2, "zombie-send", "t/0", ["2-1"])
    return story.end(2, [0, 1]).final("1-1")


@shows("fenced-write")
def a_zombie_is_refused_and_heard() -> Story:
    story = Story().send(1, "1-1", 0).invoke(2, "zombie-send", "t/0", ["2-1"])
    return story.end(2, kind=Kind.FAIL, err="STALE_EPOCH").final("1-1 2-1")


@shows("phantom")
def nobody_sent_it() -> Story:
    return Story().send(1, "1-1", 0).final("1-1 7-7")


@shows("misplaced")
def it_was_sent_elsewhere() -> Story:
    return Story().lose(1, "1-1").send(2, "2-1", 0, "t/1").final("2-1 1-1", k="t/1")


@shows("corrupt")
def its_bytes_are_damaged() -> Story:
    return Story().send(1, "1-1 1-2", 0).poll(2, (0, "1-1 !00ff")).final("1-1 1-2")


@shows("corrupt")
def its_bytes_are_damaged_for_good() -> Story:
    # Something stands there, so that it is neither a loss nor a hole.
    return Story().send(1, "1-1 1-2 1-3", 0).final("1-1 !00ff 1-3", nodes=("n1",))


# Offsets: C8.


@shows("nonmonotonic-send", "real-time")
def a_process_goes_back() -> Story:
    # One process's sends follow each other in real time.
    return Story().send(1, "1-1", 1).send(1, "1-2", 0).final("1-2 1-1")


@shows("wrong-reply")
def the_reply_names_another_offset() -> Story:
    return Story().send(1, "1-1", 7).final("1-1")


@shows("wrong-reply", "inconsistent-offset")
def the_reply_names_an_offset_of_another() -> Story:
    return Story().send(1, "1-1", 1).send(2, "2-1", 1).final("1-1 2-1")


@shows("split-batch")
def a_batch_is_torn_apart() -> Story:
    return Story().lose(1, "1-1 1-2").begin_send(2, "2-1").end(2, [1, 1]).final("1-1 2-1 1-2")


@shows("split-batch")
def half_of_a_batch_is_there() -> Story:
    return Story().lose(1, "1-1 1-2").send(2, "2-1", 1).final("1-1 2-1")


@shows("gap")
def a_hole_that_nobody_knows() -> Story:
    story = Story().send(1, "1-1", 0).send(1, "1-2", 2).phase("final")
    return story.on("n1", "drain", [["t/0", 0, ["1-1"]], ["t/0", 2, ["1-2"]]], "t/0")


@shows("gap")
def the_log_does_not_begin_at_its_minimum() -> Story:
    return Story().send(1, "1-1", 1).final("1-1", first=1)


# Order: C9, C12.


@shows("real-time")
def two_sends_the_wrong_way_round() -> Story:
    return Story().send(1, "1-1", 1).send(2, "2-1", 0).final("2-1 1-1")


@shows("real-time")
def an_unknown_send_before_what_it_followed() -> Story:
    return Story().send(1, "1-1", 1).lose(2, "2-1").final("2-1 1-1")


@shows("real-time")
def a_retry_of_a_refused_send_before_what_it_followed() -> Story:
    story = Story().refuse(1, "1-1").send(2, "2-1", 1)
    return story.invoke(1, "resend", "t/0", ["1-1"]).end(1, [0, 1]).final("1-1 2-1")


@shows("real-time", "key-order")
def a_key_the_wrong_way_round() -> Story:
    # Both sends follow each other in real time, whatever their key.
    return Story().send(1, "1-1", 1, key="a").send(2, "2-1", 0, key="a").final("2-1 1-1")


@shows("key-order", "duplicate")
def a_key_is_first_read_the_wrong_way_round() -> Story:
    # A repeat before its time: in the log's last copies the order is right, for a reader it is not.
    story = Story().send(1, "1-1", 1, key="a").send(2, "2-1", 2, key="a")
    return story.final("2-1 1-1 2-1")


@shows("key-moved")
def a_key_in_two_places() -> Story:
    story = Story().send(1, "1-1", 0, key="a").send(1, "1-2", 0, "t/1", key="a")
    return story.final("1-1").final("1-2", k="t/1")


# Readers: C10, C11.


def three_sent() -> Story:
    return Story().send(1, "1-1 1-2 1-3", 0)


@shows("poll-skip")
def a_poll_skips() -> Story:
    return three_sent().poll(2, (0, "1-1")).poll(2, (2, "1-3")).final("1-1 1-2 1-3")


@shows("poll-skip")
def the_first_poll_is_not_where_it_was_assigned() -> Story:
    return three_sent().assign(2, t0=0).poll(2, (1, "1-2 1-3")).final("1-1 1-2 1-3")


@shows("nonmonotonic-poll")
def a_poll_goes_back() -> Story:
    return three_sent().poll(2, (0, "1-1 1-2")).poll(2, (1, "1-2 1-3")).final("1-1 1-2 1-3")


@shows("int-poll-skip")
def a_poll_skips_within() -> Story:
    return three_sent().poll(2, (0, "1-1"), (2, "1-3")).final("1-1 1-2 1-3")


@shows("int-nonmonotonic-poll")
def a_poll_goes_back_within() -> Story:
    return three_sent().poll(2, (0, "1-1 1-2"), (0, "1-1")).final("1-1 1-2 1-3")


@shows("un-read", "phantom")
def a_phantom_is_taken_back() -> Story:
    # What was sent and is taken back is lost as well; this was never sent.
    story = Story().send(1, "1-1", 0).send(2, "2-1", 2).poll(4, (0, "1-1 3-1 2-1"))
    story.phase("final").on("n1", "drain", [["t/0", 0, ["1-1"]], ["t/0", 2, ["2-1"]]], "t/0")
    return story


@shows("un-read", "duplicate")
def a_value_has_moved() -> Story:
    story = Story().send(1, "1-1", 0).lose(2, "2-1").poll(3, (0, "1-1 2-1")).send(4, "4-1", 3)
    runs = [["t/0", 0, ["1-1"]], ["t/0", 2, ["2-1", "4-1"]]]
    return story.phase("final").on("n1", "drain", runs, "t/0")


@shows("over-trimmed")
def the_minimum_is_above_what_was_asked_for() -> Story:
    story = three_sent().op(5, "trim", "t/0", 1, 1)
    return story.op(6, "bounds", "t/0", None, [2, 3]).final("1-3", first=2)


@shows("over-trimmed")
def a_trim_does_more_than_it_was_asked() -> Story:
    return three_sent().op(5, "trim", "t/0", 1, 2).final("1-3", first=2)


@shows("over-trimmed")
def a_refused_trim_is_done() -> Story:
    story = three_sent().invoke(5, "trim", "t/0", 2).end(5, kind=Kind.FAIL, err="NOT_LEADER")
    return story.op(6, "bounds", "t/0", None, [2, 3]).final("1-3", first=2)


@shows("unseen")
def what_was_sent_after_the_heal_is_not_read() -> Story:
    story = Story().send(1, "1-1", 0).phase("final").send(1, "1-2", 1)
    return story.final("1-1", nodes=("n1",))


@shows("real-time")
def a_send_stands_below_what_was_read_before_it_began() -> Story:
    return Story().lose(1, "1-1").poll(2, (1, "1-1")).send(3, "3-1", 0).final("3-1 1-1")


def nine_sent() -> Story:
    """Of unknown outcome: so that the maximum may be anything up to nine."""
    return Story().lose(8, "8-1 8-2 8-3 8-4 8-5 8-6 8-7 8-8 8-9")


@shows("high-bounds")
def the_maximum_is_above_all_that_was_sent() -> Story:
    return three_sent().refuse(2, "2-1").op(2, "bounds", "t/0", None, [0, 4])


@shows("high-bounds")
def the_maximum_knows_what_is_sent_later() -> Story:
    return Story().send(1, "1-1", 0).op(2, "bounds", "t/0", None, [0, 2]).send(1, "1-2", 1)


@shows("high-bounds", "not-live")
def the_maximum_is_above_all_that_can_be_read() -> Story:
    story = three_sent().lose(2, "2-1").phase("final").op(2, "bounds", "t/0", None, [0, 4])
    return story.final("1-1 1-2 1-3").send(1, "1-4", 4)


@shows("bounds-back")
def the_maximum_goes_back() -> Story:
    return nine_sent().op(1, "bounds", "t/0", None, [0, 9]).op(2, "bounds", "t/0", None, [0, 8])


@shows("bounds-back")
def the_minimum_goes_back() -> Story:
    story = nine_sent().op(5, "trim", "t/0", 4, 4)
    return story.op(1, "bounds", "t/0", None, [4, 9]).op(2, "bounds", "t/0", None, [3, 9])


@shows("stale-bounds")
def the_maximum_is_below_what_was_acknowledged() -> Story:
    return three_sent().op(2, "bounds", "t/0", None, [0, 2])


@shows("stale-bounds")
def the_maximum_is_below_what_was_read() -> Story:
    return Story().lose(1, "1-1").poll(2, (0, "1-1")).op(2, "bounds", "t/0", None, [0, 0])


# Registers: C14.


@shows("not-linearizable")
def a_stale_committed_offset() -> Story:
    story = Story().op(1, "commit", "g@t/0", 5).op(1, "commit", "g@t/0", 7)
    return story.op(2, "committed", "g@t/0", None, 5)


@shows("not-linearizable")
def a_lost_commit() -> Story:
    return Story().op(1, "commit", "g@t/0", 5).op(2, "committed", "g@t/0", None, None)


@shows("not-linearizable")
def a_commit_goes_back_without_a_reset() -> Story:
    return Story().op(1, "commit", "g@t/0", 5).op(2, "commit", "g@t/0", 4)


@shows("not-linearizable")
def a_commit_is_refused_for_nothing() -> Story:
    story = Story().op(1, "commit", "g@t/0", 5).invoke(2, "commit", "g@t/0", 5)
    return story.end(2, kind=Kind.FAIL, err="OFFSET_BEHIND: stored 6")


@shows("not-linearizable")
def an_unknown_write_is_undone() -> Story:
    story = Story().op(1, "set", "r", 1).invoke(2, "set", "r", 2).end(2, kind=Kind.INFO)
    story.op(3, "get", "r", None, 2).op(1, "set", "r", 3).op(3, "get", "r", None, 3)
    return story.op(3, "get", "r", None, 2)
