"""C17: how long nobody could write after a fault, against what is written out naively."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jepsen_tests.checkers.cluster.availability import recoveries
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import NEMESIS, History, Kind, Op
from jepsen_tests.history.faults import FaultInForce
from tests.unit.jepsen.member_anomalies import status
from tests.unit.jepsen.stories import MS, NODES, Story, judged, texts_of

BUDGETS = {"kill": 0.010, "pause": 0.020, "isolate": 0.0}


@st.composite
def troubled(draw: st.DrawFn) -> Story:
    """Writes that overlap, mostly unknown, with faults of all lengths between them."""
    story = Story(budgets=BUDGETS)
    open_processes: list[int] = []
    begun = ""
    for number in range(draw(st.integers(1, 30))):
        match draw(st.integers(0, 6)):
            case 0 | 1 if begun:
                story.row(NEMESIS, Kind.OK, begun, draw(st.sampled_from(NODES)))
                begun = ""
            case 0 | 1:
                begun = draw(st.sampled_from(sorted(BUDGETS)))
                story.row(NEMESIS, Kind.INVOKE, begun)
            case 2 if not begun:
                story.row(NEMESIS, Kind.OK, "heal")
            case 3 | 4:
                open_processes.append(number)
                story.begin_send(number, f"{number}-1")
            case 5 if open_processes:
                p = open_processes.pop(draw(st.integers(0, len(open_processes) - 1)))
                story.end(p, [p, 1])
            case _:
                story.wait(draw(st.integers(0, 15)))
    return story


def recovered(history: History, fault: FaultInForce) -> tuple[int, int, Op | None]:
    """Say from when on one waited longest for a write, by looking at every moment and write."""
    waits: list[tuple[int, int, Op | None]] = []
    for since in range(fault.start, fault.done + 1, MS):
        begun = [op for op in history.ops if op.began > since]
        first = min((op for op in begun if op.is_ok), key=lambda op: op.ended, default=None)
        if begun:
            waits.append((since, first.ended if first else history.ended, first))
    return max(waits, key=lambda each: each[1] - each[0])


def in_force(faults: list[FaultInForce], start: int, end: int) -> float:
    """Count the milliseconds, one after the other."""
    return (
        sum(
            any(fault.start <= ms * MS < fault.end for fault in faults)
            for ms in range(start // MS, end // MS)
        )
        / 1000
    )


def without_majority(faults: list[FaultInForce], start: int, end: int) -> float:
    """Count the milliseconds in which two members are away, each by faults of its own."""
    return (
        sum(
            len({each.targets for each in faults if each.done <= ms * MS < each.end} - {""}) > 1
            for ms in range(start // MS, end // MS)
        )
        / 1000
    )


def too_slow(history: History, faults: list[FaultInForce]) -> list[int]:
    """Return of each chain that took too long the first row that shows it."""
    found: list[int] = []
    told = {fault.row for fault in faults if any(op.began > fault.start for op in history.ops)}
    waits = {fault.row: recovered(history, fault) for fault in faults if fault.row in told}
    judged_ends: set[int] = set()
    for fault in faults:
        if fault.row not in told:
            continue
        since, end, first = waits[fault.row]
        if end in judged_ends:
            continue
        judged_ends.add(end)
        together = [
            each for each in faults
            if each.start < end
            and (each.end > since or (each.row in told and waits[each.row][1] > since))
        ]  # fmt: skip
        each = [BUDGETS[one.name] for one in together]
        away = without_majority(faults, since, end)
        budget = min(sum(each), in_force(together, since, end) - away + max(each))
        if round((end - since) / 1e9 - away, 3) > round(budget, 3):
            row = together[0].row
            found.append(min(row, first.i) if first else row)
    return found


@given(troubled())
@settings(max_examples=400)
def test_recovery_as_by_looking_at_every_write(story: Story) -> None:
    history = story.history()
    view = View(history)
    for each in recoveries(view):
        assert (each.since, each.ended, each.first) == recovered(history, each.fault)
    faults = sorted(view.faults, key=lambda fault: fault.start)
    told = [fault for fault in faults if any(op.began > fault.start for op in history.ops)]
    assert [each.fault for each in recoveries(view)] == told
    findings = judged(history)["C17"].findings
    assert [finding.rows[0] for finding in findings] == too_slow(history, faults)


def test_every_fault_of_a_chain_has_all_the_time_from_its_own_beginning() -> None:
    story = Story(budgets={"kill": 9.0}).fault("kill").wait(1000).fault("heal", "").lose(2, "2-1")
    story.fault("kill", "n2").wait(500).send(1, "1-1", 0)
    assert [each.took for each in recoveries(View(story.history()))] == [1.509, 0.503]


def test_a_write_acknowledged_before_the_act_is_no_recovery() -> None:
    story = Story(budgets={"kill": 10.0})
    story.row(NEMESIS, Kind.INVOKE, "kill")
    story.send(1, "1-1", 0).row(NEMESIS, Kind.OK, "kill", "n1")
    history = story.lose(2, "2-1").wait(65_000).lose(3, "3-1").history()
    assert judged(history)["C17"].kinds() == {"too-slow"}
    assert [round(each.took) for each in recoveries(View(history))] == [65]


def test_what_comes_before_a_beginning_of_many_acts_and_after_it_is_not_added() -> None:
    story = Story(budgets={"kill": 0.05})
    story.row(NEMESIS, Kind.INVOKE, "kill")
    for number in range(9):
        story.wait(40).send(1, f"1-{number}", number)
    story.row(NEMESIS, Kind.OK, "kill", "n1")
    history = story.wait(40).send(1, "1-9", 9).history()
    assert not judged(history)["C17"].findings


SLOW = {"transfer": 25.5, "isolate": 10.0, "pause": 10.0, "pause-majority": 30.0}


def held_up(
    quarantined: tuple[str, ...],
    cut_off: str = "",
    seconds: int = 51,
    *,
    is_explained: bool = True,
    were_whole: bool = False,
) -> Story:
    """Leadership is handed round while nobody can lead, and for that long."""
    story = Story(budgets=SLOW)
    for number, node in enumerate(quarantined if is_explained else ()):
        story.fault("wipe", node).fault("heal", "").send(7, f"7-{number}", 10 + number)
        if were_whole:
            story.on(node, "status", status())
    for node in NODES:
        role = "quarantined" if node in quarantined else "follower"
        story.on(node, "status", status(role))
    if cut_off:
        story.fault("isolate", cut_off)
    story.fault("transfer", "n1").lose(1, "1-1").wait(seconds * 1000)
    story.fault("heal", "").wait(8_000)
    for node in NODES:
        story.on(node, "status", status("leader" if node == "n1" else "follower"))
    return story.send(2, "2-1", 0)


def test_faults_that_take_the_majority_away_together_are_no_slowness() -> None:
    history = held_up(("n1", "n2"), "n3").history()
    assert not judged(history)["C17"].findings, texts_of(history)
    history = held_up(("n2",), "n3").history()
    assert not judged(history)["C17"].findings, texts_of(history)


@pytest.mark.parametrize(
    ("quarantined", "cut_off"),
    [
        ((), "n3"),  # two of three are a majority
        (("n3",), "n3"),  # the same one twice
        (("n1", "n2"), ""),  # nothing is in force that keeps them there
    ],
)
def test_what_leaves_a_majority_excuses_nothing(quarantined: tuple[str, ...], cut_off: str) -> None:
    assert judged(held_up(quarantined, cut_off).history())["C17"].kinds() == {"too-slow"}


def test_a_quarantine_that_no_fault_explains_excuses_nothing() -> None:
    history = held_up(("n1", "n2"), "n3", is_explained=False).history()
    assert judged(history)["C17"].kinds() == {"too-slow"}


def test_nor_does_one_of_who_was_whole_since_it_was_wiped() -> None:
    history = held_up(("n1", "n2"), "n3", were_whole=True).history()
    assert judged(history)["C17"].kinds() == {"too-slow"}


def test_after_the_majority_is_back_the_budget_holds() -> None:
    story = held_up(("n1", "n2"), "n3", 100)
    del story.rows[-2:]
    history = story.wait(40_000).lose(3, "3-1").send(2, "2-1", 0).history()
    [finding] = judged(history)["C17"].findings
    assert re.search(
        r"budget is 25.50\d s, not counting 100.00\d s without a majority$", finding.text
    )


def test_a_fault_that_takes_it_alone_has_that_in_its_budget() -> None:
    story = Story(budgets=SLOW).fault("pause-majority", "n1,n2").fault("isolate", "n3")
    story.lose(1, "1-1").wait(41_000).fault("heal", "").send(2, "2-1", 0)
    assert judged(story.history())["C17"].kinds() == {"too-slow"}


def test_a_quarantine_ends_when_the_member_says_so() -> None:
    story = Story(budgets=SLOW).on("n1", "status", status("quarantined"))
    story.on("n1", "status", status()).fault("isolate", "n3").lose(1, "1-1").wait(11_000)
    assert judged(story.send(2, "2-1", 0).history())["C17"].kinds() == {"too-slow"}
