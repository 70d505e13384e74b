"""C17: how long nobody could write after a fault, against what is written out naively."""

from hypothesis import given, settings
from hypothesis import strategies as st

from jepsen_tests.checkers.availability import recoveries
from jepsen_tests.checkers.view import View
from jepsen_tests.history import NEMESIS, Fault, History, Kind, Op
from tests.unit.jepsen.stories import MS, Story, judged

BUDGETS = {"kill": 0.010, "pause": 0.020, "isolate": 0.0}


@st.composite
def troubled(draw: st.DrawFn) -> Story:
    """Writes that overlap, mostly unknown, with faults of all lengths between them."""
    story = Story(budgets=BUDGETS)
    open_processes: list[int] = []
    for number in range(draw(st.integers(1, 30))):
        match draw(st.integers(0, 6)):
            case 0 | 1:
                story.fault(draw(st.sampled_from(sorted(BUDGETS))), "n1")
            case 2:
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


def recovered(history: History, fault: Fault) -> tuple[int, Op | None]:
    """Say when the first write begun since was acknowledged, by looking at every one."""
    done = [op for op in history.ops if op.began > fault.start and op.is_ok]
    first = min(done, key=lambda op: op.ended, default=None)
    return (first.ended if first else history.ended), first


def in_force(faults: list[Fault], start: int, end: int) -> float:
    """Count the milliseconds, one after the other."""
    return (
        sum(
            any(fault.start <= ms * MS < fault.end for fault in faults)
            for ms in range(start // MS, end // MS)
        )
        / 1000
    )


def too_slow(history: History, faults: list[Fault]) -> list[int]:
    """Return the rows of the first faults of chains that took too long."""
    found: list[int] = []
    ends = {fault.row: recovered(history, fault)[0] for fault in faults}
    judged_ends: set[int] = set()
    told = {fault.row for fault in faults if any(op.began > fault.start for op in history.ops)}
    for fault in faults:
        end = ends[fault.row]
        if end in judged_ends or fault.row not in told:
            continue
        judged_ends.add(end)
        together = [
            each for each in faults
            if each.start < end
            and (each.end > fault.start or (ends[each.row] > fault.start and each.row in told))
        ]  # fmt: skip
        each = [BUDGETS[one.name] for one in together]
        budget = min(sum(each), in_force(together, fault.start, end) + max(each))
        if round((end - fault.start) / 1e9, 3) > round(budget, 3):
            found.append(together[0].row)
    return found


@given(troubled())
@settings(max_examples=400)
def test_recovery_as_by_looking_at_every_write(story: Story) -> None:
    history = story.history()
    view = View(history)
    for each in recoveries(view):
        assert (each.ended, each.first) == recovered(history, each.fault)
    faults = sorted(view.faults, key=lambda fault: fault.start)
    told = [fault for fault in faults if any(op.began > fault.start for op in history.ops)]
    assert [each.fault for each in recoveries(view)] == told
    findings = judged(history)["C17"].findings
    assert [finding.rows[0] for finding in findings] == too_slow(history, faults)


def test_every_fault_of_a_chain_has_all_the_time_from_its_own_beginning() -> None:
    story = Story(budgets={"kill": 9.0}).fault("kill").wait(1000).fault("heal", "").lose(2, "2-1")
    story.fault("kill", "n2").wait(500).send(1, "1-1", 0)
    assert [each.took for each in recoveries(View(story.history()))] == [1.509, 0.503]
