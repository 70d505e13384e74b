"""What looks wrong and is not: nothing is named. And where too little happened, it is said so."""

from collections.abc import Callable
from typing import Any

import pytest

from jepsen_tests import checkers
from jepsen_tests.checkers import CHECKERS, CheckerCrashed, judge
from jepsen_tests.checkers.shared.judgement import Checker, Judgement
from jepsen_tests.checkers.shared.linear import Effect, RegisterOp, Stuck, linearize
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import NEMESIS, Kind
from tests.unit.jepsen.anomalies import three_sent
from tests.unit.jepsen.legal_deaths import STORIES, legal
from tests.unit.jepsen.member_anomalies import entries, status
from tests.unit.jepsen.stories import Story, judged, kinds_of, texts_of


@legal
def all_is_well() -> Story:
    story = three_sent().poll(2, (0, "1-1 1-2")).poll(2, (2, "1-3"))
    return story.final("1-1 1-2 1-3").send(1, "1-4", 3)


@legal
def nothing_at_all() -> Story:
    return Story()


@legal
def unknown_sends_may_be_there_or_not() -> Story:
    return Story().lose(1, "1-1").lose(2, "2-1").final("2-1")


@legal
def an_unknown_send_takes_effect_late() -> Story:
    return Story().lose(1, "1-1").send(2, "2-1", 0).send(2, "2-2", 1).final("2-1 2-2 1-1")


@legal
def a_send_without_any_answer() -> Story:
    return Story().begin_send(1, "1-1").send(2, "2-1", 0).final("2-1 1-1")


@legal
def concurrent_sends_stand_either_way() -> Story:
    story = Story().begin_send(1, "1-1", key="a").begin_send(2, "2-1", key="b")
    return story.end(1, [1, 1]).end(2, [0, 1]).final("2-1 1-1")


@legal
def a_retry_gets_the_same_offset() -> Story:
    story = Story().lose(1, "1-1").send(2, "2-1", 1)
    return story.invoke(3, "resend", "t/0", ["1-1"]).end(3, [0, 1]).final("1-1 2-1")


@legal
def a_retry_after_a_refusal_is_stored() -> Story:
    story = Story().refuse(1, "1-1").send(1, "1-2", 0)
    return story.invoke(1, "resend", "t/0", ["1-1"]).end(1, [1, 1]).final("1-2 1-1")


@legal
def a_retry_is_refused_but_the_first_attempt_was_stored() -> Story:
    story = Story().lose(1, "1-1").invoke(2, "resend", "t/0", ["1-1"])
    return story.end(2, kind=Kind.FAIL, err="NOT_LEADER").final("1-1")


@legal
def an_unknown_batch_is_seen_up_to_its_half() -> Story:
    return Story().lose(1, "1-1 1-2").poll(2, (0, "1-1"))


@legal
def trimmed_values_are_gone() -> Story:
    story = three_sent().poll(2, (0, "1-1")).op(5, "trim", "t/0", 2, 2).poll(2, (2, "1-3"))
    return story.final("1-3", first=2)


@legal
def a_trim_of_unknown_outcome_may_have_happened() -> Story:
    story = three_sent().poll(2, (0, "1-1")).invoke(5, "trim", "t/0", 2).end(5, kind=Kind.INFO)
    return story.assign(3, t0=0).poll(3, (2, "1-3")).final("1-3", first=2)


@legal
def the_confirmed_minimum_says_what_may_be_gone() -> Story:
    story = three_sent().invoke(5, "trim", "t/0", 2).end(5, kind=Kind.INFO)
    return story.op(5, "bounds", "t/0", None, [2, 3]).final("1-3", first=2)


@legal
def a_trim_that_goes_on_is_already_seen() -> Story:
    story = three_sent().invoke(5, "trim", "t/0", 2).op(6, "bounds", "t/0", None, [2, 3])
    return story.end(5, 2).op(7, "trim", "t/0", 1, 2).final("1-3", first=2)


@legal
def what_was_sent_while_final_reads_went_on_may_be_in_none() -> Story:
    return three_sent().final("1-1 1-2 1-3").send(1, "1-4", 3)


@legal
def a_send_that_began_before_a_read_may_stand_below_it() -> Story:
    story = Story().lose(1, "1-1").begin_send(3, "3-1").poll(2, (1, "1-1")).end(3, [0, 1])
    return story.final("3-1 1-1")


@legal
def readers_begin_again_after_a_crash() -> Story:
    story = three_sent().poll(2, (0, "1-1 1-2")).op(2, "crash").poll(2, (0, "1-1"))
    return story.assign(2, t0=2).poll(2, (2, "1-3")).assign(2, t1=0).poll(2, (0, "1-1 1-2 1-3"))


@legal
def a_failed_poll_moves_nothing() -> Story:
    story = three_sent().poll(2, (0, "1-1")).invoke(2, "poll").end(2, kind=Kind.FAIL, err="X")
    return story.poll(2, (1, "1-2 1-3"))


@legal
def a_reader_that_began_late_proves_no_loss() -> Story:
    return three_sent().assign(2, t0=2).poll(2, (2, "1-3"))


@legal
def what_was_sent_in_the_end_may_be_behind_the_last_read() -> Story:
    story = three_sent().final("1-1 1-2 1-3").send(1, "1-4", 3)
    return story.on("n3", "drain", [["t/0", 0, ["1-1", "1-2", "1-3", "1-4"]]], "t/0")


@legal
def a_damaged_read_is_not_a_second_value() -> Story:
    # Only C7 names it; see the anomalies. Here: bounds while sends go on.
    story = Story().begin_send(1, "1-1").invoke(2, "bounds", "t/0").end(1, [0, 1])
    return story.end(2, [0, 0]).op(2, "bounds", "t/0", None, [0, 1])


@legal
def concurrent_bounds_in_either_order() -> Story:
    story = Story().lose(8, "8-1 8-2 8-3 8-4 8-5")
    story.invoke(1, "bounds", "t/0").invoke(2, "bounds", "t/0")
    return story.end(1, [0, 5]).end(2, [0, 4])


@legal
def the_maximum_counts_what_is_being_sent() -> Story:
    story = three_sent().lose(2, "2-1").invoke(4, "bounds", "t/0").begin_send(3, "3-1 3-2")
    return story.end(4, [0, 6]).end(3, [4, 1])


@legal
def the_maximum_counts_a_retry_of_what_was_refused() -> Story:
    story = Story().refuse(1, "1-1").invoke(1, "resend", "t/0", ["1-1"]).end(1, kind=Kind.INFO)
    return story.op(2, "bounds", "t/0", None, [0, 1])


def test_a_maximum_that_counts_second_copies_is_named_by_them_alone() -> None:
    story = three_sent().op(2, "bounds", "t/0", None, [0, 4]).final("1-1 1-2 1-3 1-1")
    assert kinds_of(story.send(1, "1-4", 4).history()) == {"duplicate"}


@legal
def all_that_the_maximum_counts_was_trimmed() -> Story:
    story = three_sent().op(5, "trim", "t/0", 3, 3).phase("final").send(1, "1-4", 3)
    story.op(2, "bounds", "t/0", None, [3, 4]).final("1-4", first=3).op(5, "trim", "t/0", 4, 4)
    return story


@legal
def a_commit_that_is_behind_is_refused() -> Story:
    story = Story().op(1, "commit", "g@t/0", 5).invoke(2, "commit", "g@t/0", 4)
    story.end(2, kind=Kind.FAIL, err="OFFSET_BEHIND: stored 5").op(1, "reset", "g@t/0", 2)
    return story.op(2, "commit", "g@t/0", 2).op(3, "committed", "g@t/0", None, 2)


@legal
def a_refusal_for_another_reason_says_nothing() -> Story:
    story = Story().invoke(2, "commit", "g@t/0", 4).end(2, kind=Kind.FAIL, err="NOT_LEADER")
    return story.op(3, "committed", "g@t/0", None, None)


@legal
def an_unknown_commit_shows_late() -> Story:
    story = Story().invoke(1, "commit", "g@t/0", 9).end(1, kind=Kind.INFO)
    story.op(2, "commit", "g@t/0", 5).op(2, "committed", "g@t/0", None, 5)
    return story.op(2, "committed", "g@t/0", None, 9)


@legal
def an_unknown_reset_explains_a_lower_commit() -> Story:
    story = Story().op(1, "commit", "g@t/0", 9)
    story.invoke(2, "reset", "g@t/0", 3).end(2, kind=Kind.INFO)
    story.invoke(3, "commit", "g@t/0", 5).end(3, kind=Kind.INFO)
    return story.op(4, "committed", "g@t/0", None, 5)


@legal
def registers_of_concurrent_writers() -> Story:
    story = Story().invoke(1, "set", "r", 1).invoke(2, "set", "r", 2).invoke(3, "get", "r")
    story.end(2).end(1).end(3, 2).op(4, "get", "r", None, 1)
    return story.op(4, "set", "q", 5).op(4, "get", "r", None, 1)


@legal
def indices_go_back_over_a_restart() -> Story:
    story = Story().on("n1", "status", status(index=9)).fault("kill", "n1, n2")
    story.on("n1", "status", status(index=7)).fault("heal", "")
    return story.on("n1", "status", status(index=8))


@legal
def a_member_is_back_before_the_fault_is_said_to_be_in_force() -> Story:
    story = Story().on("n1", "status", status(index=9))
    story.row(NEMESIS, Kind.INVOKE, "kill", "n1")
    story.on("n1", "status", status(index=7)).row(NEMESIS, Kind.OK, "kill", "n1")
    return story.fault("heal", "").on("n1", "status", status(index=8))


@legal
def a_fault_that_names_no_member_may_have_hit_any() -> Story:
    story = Story().on("n1", "status", status(index=9)).fault("restart", "one after the other")
    return story.fault("heal", "").on("n1", "status", status(index=8))


@legal
def a_wiped_member_begins_again() -> Story:
    story = Story().on("n1", "status", status(term=4, first=5)).fault("wipe", "all")
    return story.fault("heal", "").on("n1", "status", status(index=1, incarnation=2))


@legal
def leaders_of_different_terms() -> Story:
    story = Story().on("n1", "status", status("leader", 1))
    story.on("n2", "status", status("leader", 2, leader="n2"))
    return story.on("n1", "status", status("leader", 1))


@legal
def entries_differ_above_what_is_applied() -> Story:
    story = Story().phase("final").on("n1", "entries", entries([7, 8, 9], applied=2))
    story.on("n2", "entries", entries([7, 8, 5], applied=3, digest="bb"))
    trimmed = entries([5], applied=3, digest="bb") | {"first": 3}
    return story.on("n3", "entries", trimmed)


@legal
def members_agree_in_the_end() -> Story:
    story = Story().phase("final").on("n1", "status", status("leader", 3, 4))
    for node, role in (("n1", "follower"), ("n2", "leader"), ("n3", "follower")):
        story.on(node, "status", status(role, 4, 9, leader="n2"))
    return story


@legal
def recovery_within_the_budget() -> Story:
    story = Story(budgets={"kill": 1.0}).send(1, "1-1", 0).fault("kill").wait(900)
    return story.send(1, "1-2", 1).final("1-1 1-2").send(1, "1-3", 2)


@legal
def faults_that_follow_each_other_have_their_budgets_together() -> Story:
    story = Story(budgets={"kill": 0.5, "pause": 0.5}).send(1, "1-1", 0).fault("kill").wait(400)
    story.fault("heal", "").fault("pause", "n2").wait(400).fault("heal", "").fault("kill")
    story.wait(400)
    return story.send(1, "1-2", 1).final("1-1 1-2").send(1, "1-3", 2)


@legal
def a_fault_begins_while_the_budget_of_the_one_before_it_lasts() -> Story:
    # Its own would be over; the write that ends the first one's time began before it.
    story = Story(budgets={"kill-all": 3.0, "kill": 0.2}).send(1, "1-1", 0).fault("kill-all", "all")
    story.fault("heal", "").begin_send(2, "2-1").wait(800).fault("kill", "n2").begin_send(3, "3-1")
    story.fault("heal", "").wait(700).end(2, [1, 1]).wait(100).end(3, [2, 1])
    return story.final("1-1 2-1 3-1").send(1, "1-3", 3)


@legal
def a_fault_of_a_class_without_a_budget_is_not_judged() -> Story:
    story = Story(budgets={"kill": 0.2}).send(1, "1-1", 0).fault("kill").fault("new-one", "n2")
    return story.wait(900).send(1, "1-2", 1).final("1-1 1-2").send(1, "1-3", 2)


@legal
def a_member_that_is_deposed_leads_an_older_term() -> Story:
    story = Story().on("n1", "status", status("leader", 1, leader="n1"))
    story.on("n2", "status", status("leader", 2, leader="n2"))
    return story.on("n1", "status", status("leader", 1, leader="n1"))


@legal
def indices_go_back_over_a_death() -> Story:
    story = Story().on("n1", "status", status(index=9)).fault("failing-sync", "n2")
    story.died("n2", "exit 74").fault("heal", "").on("n1", "status", status(index=9))
    story.on("n2", "status", status(index=9)).fault("full-disk", "n2").died("n2", "exit 74")
    return story.fault("heal", "").on("n2", "status", status(index=8))


@legal
def a_fault_after_all_sends_tells_nothing() -> Story:
    return Story(budgets={"kill": 1.0}).send(1, "1-1", 0).fault("kill").wait(9000)


@legal
def known_errors_and_enough_successes() -> Story:
    story = Story(errors=["NOT_LEADER", "DEADLINE"], least_ok={"send": [2, 0.5]})
    return story.refuse(1, "1-1").lose(1, "1-2").send(2, "2-1", 0).send(2, "2-2", 1)


@legal
def resources_that_grow_a_little() -> Story:
    story = Story().phase("setup").on("n1", "resources", {"rss": 1000, "files": 10, "threads": 9})
    figures = {"rss": 100 << 20, "files": 60, "threads": 29}
    return story.phase("final").on("n1", "resources", figures)


@legal
def a_member_answers_at_the_second_look() -> Story:
    story = Story().phase("final").invoke(103, "status", node="n3")
    story.end(103, kind=Kind.FAIL, err="UNAVAILABLE: n3")
    for node, role in (("n1", "leader"), ("n2", "follower"), ("n3", "follower")):
        story.on(node, "status", status(role))
    return story


@legal
def a_log_that_is_too_long_is_not_told() -> Story:
    story = members_agree_in_the_end()
    for node in ("n1", "n2", "n3"):
        story.invoke(100 + int(node[1:]), "entries", node=node)
        story.end(
            100 + int(node[1:]),
            kind=Kind.FAIL,
            err="INVALID_ARGUMENT: more than 9 entries follow",
        )
    return story


@legal
def consumers_come_to_the_end_that_was_told_first() -> Story:
    story = Story().send(1, "1-1", 0).phase("final").op(1, "bounds", "t/0", result=[0, 1])
    story.assign(9, t0=0).poll(9, (0, "1-1")).send(1, "1-2", 1)
    return story.op(1, "bounds", "t/0", result=[0, 2])


@legal
def who_begins_at_the_end_or_elsewhere_need_not_read_what_is_there() -> Story:
    story = Story().phase("final").send(1, "1-1", 0).op(1, "bounds", "t/0", result=[0, 1])
    story.op(1, "bounds", "t/1", result=[0, 0])
    story.on("n1", "drain", [["t/0", 0, ["1-1"]]], "t/0")
    return story.assign(9, t0=1).poll(9).assign(9, t1=0).poll(9)


@legal
def what_was_trimmed_whole_is_not_read() -> Story:
    story = Story().send(1, "1-1", 0).phase("final").send(1, "1-2", 1)
    story.op(1, "trim", "t/0", 2, 2).op(1, "bounds", "t/0", result=[2, 2])
    return story.assign(9, t0=2).poll(9)


@legal
def a_member_that_has_applied_nothing_has_an_empty_log() -> Story:
    story, nothing = Story().phase("final"), entries([])
    for node in ("n1", "n2", "n3"):
        story.on(node, "entries", nothing)
    return story


@pytest.mark.parametrize("story", STORIES, ids=[story.__name__ for story in STORIES])
def test_nothing_is_named(story: Callable[[], Story]) -> None:
    history = story().history()
    assert kinds_of(history) == set(), texts_of(history)


def test_judging_changes_nothing() -> None:
    history = all_is_well().history()
    first = judge(history)
    assert judge(history) == first
    assert history == all_is_well().history()


def test_a_search_that_is_too_long_is_given_up() -> None:
    writes = [RegisterOp(n, 100 + n, Effect.WRITE, n) for n in range(1, 9)]
    impossible = RegisterOp(200, 201, Effect.SEE, 77)
    assert linearize([*writes, impossible], [], states_max=50) == Stuck(None)
    stuck = linearize([*writes, impossible], [])
    assert stuck is not None
    assert stuck.step == impossible
    assert set(stuck.states) == set(range(1, 9))


def test_what_cannot_be_linearized_is_shown_with_what_was_concurrent() -> None:
    story = Story().op(1, "set", "r", 1).invoke(5, "set", "r", 9).end(5, kind=Kind.INFO)
    story.invoke(2, "set", "r", 2).op(3, "get", "r", None, 7).end(2).op(1, "get", "r", None, 2)
    finding = judged(story.history())["C14"].findings[0]
    assert "get -> 7 in row 7" in finding.text
    assert "the value is 2" in finding.text
    assert "set 9 (info), set 2 (ok)" in finding.text
    assert finding.rows == (3, 5, 6, 7)


def test_a_checker_that_raises_is_a_failure_of_the_harness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: View) -> Judgement:
        raise ZeroDivisionError("oops")

    every = (*CHECKERS, Checker("X1", "broken", "", (), broken))
    monkeypatch.setattr(checkers, "CHECKERS", every)
    with pytest.raises(CheckerCrashed, match="X1 broken: ZeroDivisionError: oops"):
        judge(Story().history())


def test_figures_of_faults() -> None:
    story = Story().send(1, "1-1", 0).fault("kill").lose(1, "1-2").wait(500).send(2, "2-1", 1)
    story.fault("heal", "").send(2, "2-2", 2).refuse(2, "2-3")
    recovery = judged(story.history())["C17"].facts
    assert (recovery["kill_count"], recovery["kill_max_s"]) == (1, 0.505)
    assert recovery["longest_gap_s"] == recovery["longest_gap_s t/0"] == 0.506
    shares: dict[str, Any] = judged(story.history())["C19"].facts
    assert (shares["ops"], shares["ok_share"]) == (5, 0.6)
    assert (shares["ops kill"], shares["ok_share kill"], shares["info_share kill"]) == (2, 0.5, 0.5)
