"""Every anomaly of members, of availability and of outcomes by hand."""

from typing import Any

from jepsen_tests.history.events import NEMESIS, Kind
from tests.unit.jepsen.anomalies import shows
from tests.unit.jepsen.stories import Story


def status(role: str = "follower", term: int = 1, index: int = 5, **more: Any) -> dict[str, Any]:
    figures = {"commit": index, "applied": index, "last": index, "first": 1, "incarnation": 1}
    return {"role": role, "term": term, "leader": "n1"} | figures | more


def entries(crcs: list[int], applied: int | None = None, digest: str = "aa") -> dict[str, Any]:
    """What a member holds; it has applied all of that, unless something else is said."""
    terms, applied = [1] * len(crcs), len(crcs) if applied is None else applied
    return {"first": 1, "terms": terms, "crcs": crcs, "applied": applied, "digest": digest}


# Members: C15, C16.


def of_members(*results: tuple[str, str, dict[str, Any]]) -> Story:
    story = Story().phase("final")
    for node, f, result in results:
        story.on(node, f, result)
    for node in ("n1", "n2", "n3"):  # who did not answer would be not-converged
        story.on(node, "entries", entries([7]))
    return story


@shows("different-entry")
def entries_differ() -> Story:
    first, second = entries([7, 8, 9]), entries([7, 5, 9])
    return of_members(("n1", "entries", first), ("n2", "entries", second))


@shows("different-digest")
def digests_differ() -> Story:
    first, second = entries([7, 8], digest="cc"), entries([7, 8], digest="bb")
    return of_members(("n1", "entries", first), ("n2", "entries", second))


@shows("missing-entry")
def an_applied_entry_is_missing() -> Story:
    return of_members(("n1", "entries", entries([7, 8, 9])), ("n2", "entries", entries([7, 8], 3)))


@shows("missing-entry")
def a_log_is_empty_of_which_something_is_applied() -> Story:
    empty = {"first": 0, "terms": [], "crcs": [], "applied": 2, "digest": "aa"}
    return of_members(("n1", "entries", entries([7, 8])), ("n2", "entries", empty))


@shows("other-leader")
def another_leader_is_named_in_a_term() -> Story:
    story = Story().on("n1", "status", status("leader", 2, leader="n1"))
    return story.on("n2", "status", status(term=2, leader="n3"))


@shows("unnamed-leader")
def a_leader_that_nobody_follows() -> Story:
    story = Story().phase("final").on("n1", "status", status("leader", 2))
    return story.on("n2", "status", status(term=2, leader="")).on(
        "n3", "status", status(term=2, leader="")
    )


@shows("two-leaders")
def two_lead_in_a_term() -> Story:
    return Story().on("n1", "status", status("leader")).on("n2", "status", status("leader"))


@shows("term-back")
def a_term_goes_back_over_a_restart() -> Story:
    story = Story().on("n1", "status", status(term=3)).fault("kill").fault("heal", "")
    return story.on("n1", "status", status(term=2))


@shows("first-back")
def trimmed_entries_come_back() -> Story:
    return Story().on("n1", "status", status(first=4)).on("n1", "status", status(first=1))


@shows("commit-back")
def a_commit_index_goes_back() -> Story:
    first, second = status(commit=5, applied=3), status(commit=4, applied=3)
    return Story().on("n1", "status", first).on("n1", "status", second)


@shows("applied-back")
def an_applied_index_goes_back_while_another_is_killed() -> Story:
    story = Story().on("n1", "status", status(applied=5)).fault("kill", "n2, n3")
    return story.on("n1", "status", status(applied=4))


@shows("applied-back")
def an_applied_index_goes_back_in_a_partition() -> Story:
    story = Story().on("n1", "status", status(applied=5)).fault("partition-one")
    return story.on("n1", "status", status(applied=4))


@shows("index-order")
def applied_above_commit() -> Story:
    return Story().on("n1", "status", status(commit=4, applied=5))


@shows("index-order")
def commit_above_the_last_entry() -> Story:
    return Story().on("n1", "status", status(commit=6, applied=5))


@shows("stood-still")
def a_member_applies_nothing_while_others_do() -> Story:
    story = Story().fault("pause", "n1").wait(30_000)
    compared = {"applied": 4, "others": {"n2": [5, 9]}}
    story.row(NEMESIS, Kind.OK, "stood-still", "n3", compared, err="20.500 s")
    return story


# Availability: C17, C18.


@shows("too-slow")
def too_long_without_a_leader() -> Story:
    story = Story(budgets={"kill": 1.0}).fault("kill").begin_send(1, "1-1").wait(1500)
    return story.end(1, [0, 1])


@shows("too-slow")
def never_again_acknowledged() -> Story:
    story = Story(budgets={"kill": 1.0}).begin_send(1, "1-1").fault("kill").end(1, [0, 1])
    return story.lose(2, "2-1").wait(1500)


@shows("not-live")
def no_write_after_the_heal() -> Story:
    return Story().send(1, "1-1", 0).final("1-1").lose(2, "2-1")


@shows("not-live")
def no_read_after_the_heal() -> Story:
    story = Story().send(1, "1-1", 0).phase("final").send(1, "1-2", 1)
    story.invoke(1, "bounds", "t/0").end(1, kind=Kind.FAIL, err="NOT_LEADER: n1")
    return story.op(2, "assign", v={"t/0": 0}).op(2, "poll", result=[["t/0", 0, ["1-1", "1-2"]]])


@shows("too-slow")
def offsets_are_not_committed_again() -> Story:
    """Sends are not the only writes."""
    story = Story(budgets={"kill": 1.0}).fault("kill")
    return story.invoke(1, "commit", "g t/0", 5).wait(1500).end(1)


@shows("not-converged")
def a_member_is_silent_in_the_end() -> Story:
    story = Story().phase("final").on("n1", "status", status("leader"))
    return story.on("n2", "status", status())


@shows("not-converged")
def a_member_tells_its_entries_and_no_status() -> Story:
    story = Story().phase("final").on("n1", "status", status("leader"))
    story.on("n2", "status", status()).invoke(103, "status", node="n3")
    story.end(103, kind=Kind.FAIL, err="UNAVAILABLE: n3")
    for node in ("n1", "n2", "n3"):
        story.on(node, "entries", entries([7]))
    return story


def in_the_end(**other: Any) -> Story:
    """Two members that agree, and a third of which something else is said."""
    story = Story().phase("final").on("n1", "status", status("leader"))
    return story.on("n2", "status", status()).on("n3", "status", status(**other))


@shows("not-converged")
def a_member_is_gone_at_the_last_look() -> Story:
    story = in_the_end().invoke(103, "status", node="n3")
    return story.end(103, kind=Kind.FAIL, err="UNAVAILABLE: n3")


@shows("not-converged")
def a_member_has_not_applied_all_in_the_end() -> Story:
    return in_the_end(applied=4)


@shows("not-converged")
def a_member_is_not_trusted_in_the_end() -> Story:
    return in_the_end(role="quarantined")


@shows("not-converged")
def a_member_is_in_another_term_in_the_end() -> Story:
    return in_the_end(term=2)


@shows("not-live")
def consumers_do_not_come_to_the_end() -> Story:
    story = Story().send(1, "1-1 1-2", 0).phase("final").send(1, "1-3", 2)
    story.op(1, "bounds", "t/0", result=[0, 3]).assign(2, t0=0).poll(2, (0, "1-1 1-2"))
    story.invoke(2, "poll").end(2, kind=Kind.FAIL, err="CORRUPT_BATCH: at offset 2")
    return story.on("n1", "drain", [["t/0", 0, ["1-1", "1-2", "1-3"]]], "t/0")


@shows("not-live")
def no_consumer_can_be_assigned_a_place() -> Story:
    story = Story().phase("final").send(1, "1-1", 0).op(1, "bounds", "t/0", result=[0, 1])
    story.invoke(2, "assign", v={"t/0": 0}).end(2, kind=Kind.FAIL, err="NOT_LEADER: n2")
    return story.on("n1", "drain", [["t/0", 0, ["1-1"]]], "t/0")


@shows("not-converged")
def a_member_cannot_read_its_own_log() -> Story:
    story = in_the_end()
    for node in ("n1", "n2"):
        story.on(node, "entries", entries([7]))
    story.invoke(103, "entries", node="n3")
    return story.end(103, kind=Kind.FAIL, err="DATA_CORRUPT: segment 3")


@shows("not-converged")
def a_member_does_not_tell_what_it_holds() -> Story:
    story = Story().send(1, "1-1", 0).final("1-1").send(1, "1-2", 1)
    story.invoke(103, "drain", "t/0", node="n3")
    return story.end(103, kind=Kind.FAIL, err="NOT_LEADER: n3")


@shows("applied-back")
def an_applied_index_goes_back_after_a_death() -> Story:
    story = Story().fault("failing-sync", "n1").died("n1", "exit 74").fault("heal", "")
    return story.on("n1", "status", status(applied=5)).on("n1", "status", status(applied=4))


@shows("too-slow")
def every_fault_begins_before_the_group_recovered_from_the_one_before() -> Story:
    # Each alone is within its budget, and so are all: but it had quiet times enough.
    story = Story(budgets={"kill": 1.0})
    for number in range(10):
        story.fault("kill", f"n{number % 3 + 1}").wait(100).fault("heal", "").wait(200)
        story.lose(10 + number, f"{10 + number}-1")
    return story.send(1, "1-1", 0)


@shows("too-slow")
def a_chain_of_faults_that_is_longer_than_all_their_budgets() -> Story:
    story = Story(budgets={"kill": 0.5, "pause": 0.5})
    for fault in ("kill", "pause", "kill"):
        story.fault(fault).wait(900).fault("heal", "").lose(
            len(story.rows) + 9, f"{len(story.rows)}-1"
        )
    return story.send(1, "1-1", 0)


@shows("too-slow")
def one_more_fault_when_all_is_over_excuses_nothing() -> Story:
    story = Story(budgets={"kill": 0.5, "pause": 0.5}).fault("kill").lose(2, "2-1").wait(1500)
    return story.fault("pause", "n2")


@shows("too-slow")
def too_long_after_the_last_of_several_faults() -> Story:
    story = Story(budgets={"kill": 0.5, "pause": 0.5}).fault("kill").wait(400).fault("pause")
    return story.begin_send(1, "1-1").wait(1500).end(1, [0, 1])


@shows("not-converged")
def nobody_leads_in_the_end() -> Story:
    story = Story().phase("final")
    for node in ("n1", "n2", "n3"):
        story.on(node, "status", status())
    return story


@shows("not-converged")
def a_member_is_behind_in_the_end() -> Story:
    story = Story().phase("final").on("n1", "status", status("leader"))
    return story.on("n2", "status", status()).on("n3", "status", status(index=4))


@shows("died")
def a_member_ends_by_itself() -> Story:
    return Story().fault("failing-sync", "n2").fault("heal", "").fault("died", "n1")


@shows("died")
def a_member_ends_long_after_its_disk_was_healed() -> Story:
    story = Story().fault("full-disk", "n1").fault("heal", "").fault("pause", "n2")
    return story.fault("heal", "").fault("died", "n1")


@shows("died")
def a_member_ends_again_after_it_was_healed_and_restarted() -> Story:
    story = Story().fault("full-disk", "n1").fault("heal", "").fault("died", "n1")
    return story.fault("died", "n1")


@shows("died")
def a_member_ends_that_only_stood_still_while_another_lost_its_disk() -> Story:
    story = Story().fault("next-quorum", "n1 late, n2 forgot, n3 knew")
    return story.fault("died", "n3").fault("heal", "")


@shows("died")
def a_member_ends_when_its_damaged_folder_was_set_aside() -> Story:
    story = Story().on("n1", "status", status()).fault("bit-flips", "n1, state 3 bits flipped")
    story.fault("heal", "").fault("died", "n1").on("n1", "status", status(incarnation=2))
    return story.fault("heal", "").fault("died", "n1")


@shows("died")
def a_member_ends_that_was_damaged_twice_and_set_aside() -> Story:
    story = Story().on("n1", "status", status()).fault("truncation", "n1").fault("died", "n1")
    story.fault("heal", "").fault("bit-flips", "n1, state 3 bits flipped")
    for life in (2, 3):
        story.fault("heal", "").on("n1", "status", status(incarnation=life))
    return story.fault("died", "n1")


@shows("died")
def a_member_ends_that_was_wiped_long_before_its_folder_was_damaged_and_set_aside() -> Story:
    story = Story().fault("wipe", "n1").fault("heal", "").on("n1", "status", status())
    story.fault("bit-flips", "n1, state 3 bits flipped").fault("heal", "").fault("died", "n1")
    return story.on("n1", "status", status(incarnation=2)).fault("heal", "").fault("died", "n1")


@shows("died")
def a_member_ends_beside_one_that_was_damaged() -> Story:
    return Story().fault("bit-flips", "n1, state 3 bits flipped").fault("died", "n2")


# Outcomes: C19, C20.


@shows("unexpected-error")
def an_error_that_nobody_knows() -> Story:
    story = Story(errors=["NOT_LEADER"]).begin_send(1, "1-1")
    return story.end(1, kind=Kind.INFO, err="KeyError: 'x'")


@shows("not-returned")
def files_stay_open() -> Story:
    figures = {"rss": 1000, "files": 10, "threads": 10}
    story = Story().on("n1", "resources", figures).phase("final")
    return story.on("n1", "resources", figures | {"files": 61})


@shows("other-topics")
def a_group_has_another_topic_of_that_name() -> Story:
    story = Story().on("n1", "topics", {"t": "01"}).on("n2", "topics", {"t": "02"})
    return story.on("n3", "topics", {"t": "01"}).phase("final")


@shows("other-topics")
def a_group_lacks_a_topic_in_the_end() -> Story:
    story = Story().on("n1", "topics", {"t": "01"}).on("n2", "topics", {"t": "01"})
    return story.on("n2", "topics", {}).phase("final")
