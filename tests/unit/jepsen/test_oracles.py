"""The checkers against definitions that are written out naively, on tiny histories of any kind."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jepsen_tests.checkers.shared.linear import Effect, Number, RegisterOp, linearize
from jepsen_tests.checkers.shared.offset_ranges import OffsetRanges
from jepsen_tests.checkers.shared.realtime import high_water
from jepsen_tests.history.events import Kind, Op
from tests.unit.jepsen.stories import Story, judged

EXAMPLES = settings(max_examples=400)


# C14: every order of every subset of what is unknown.


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[RegisterOp], list[RegisterOp]]:
    """Up to six certain and three unknown operations on one number, at random times.

    They mostly return what they would if all took effect in order of invocation, so that many
    histories are valid, or nearly so.
    """
    certain_count, pending_count = draw(st.integers(0, 6)), draw(st.integers(0, 3))
    rows = draw(st.permutations(range(1, 2 * certain_count + pending_count + 1)))
    spans = [sorted(rows[2 * n : 2 * n + 2]) for n in range(certain_count)]
    spans += [[row, 0] for row in rows[2 * certain_count :]]
    certain: list[RegisterOp] = []
    pending: list[RegisterOp] = []
    state: Number = None
    for called, returned in sorted(spans):
        does = draw(st.sampled_from(list(Effect) if returned else [Effect.WRITE, Effect.RAISE]))
        number: Number = draw(st.integers(0, 3))
        if does is Effect.SEE and draw(st.integers(0, 5)):
            number = state
        step = RegisterOp(called, returned, does, number)
        if not step.allows(state) and does is Effect.RAISE and returned:
            step = RegisterOp(called, returned, Effect.SEE_ABOVE, number)
        (certain if returned else pending).append(step)
        if step.allows(state) and (returned or draw(st.booleans())):
            state = step.after(state)
    return certain, pending


def has_an_order(
    certain: list[RegisterOp], pending: list[RegisterOp], state: Number = None
) -> bool:
    """Try every order that real time allows, with every choice of what is unknown."""
    if not certain:
        return True
    first_end = min(step.returned for step in certain)
    for step in certain:
        if step.called < first_end and step.allows(state):
            others = [each for each in certain if each is not step]
            if has_an_order(others, pending, step.after(state)):
                return True
    for step in pending:
        if step.called < first_end and step.allows(state):
            others = [each for each in pending if each is not step]
            if has_an_order(certain, others, step.after(state)):
                return True
    return False


@given(steps())
@settings(max_examples=600)
def test_linearizable_as_by_trying_every_order(
    given_steps: tuple[list[RegisterOp], list[RegisterOp]],
) -> None:
    certain, pending = given_steps
    assert (linearize(certain, pending) is None) == has_an_order(certain, pending)


@given(steps())
@EXAMPLES
def test_what_blocks_is_the_first_that_cannot_end(
    given_steps: tuple[list[RegisterOp], list[RegisterOp]],
) -> None:
    """Cut off right after the blocking operation there is no order, right before it there is."""
    certain, pending = given_steps
    stuck = linearize(certain, pending)
    if stuck is None:
        return
    assert stuck.step is not None
    end = stuck.step.returned
    before = [step for step in certain if step.returned < end]
    cut = [
        RegisterOp(step.called, 0, step.does, step.number)
        for step in certain
        if step.called < end < step.returned and step.writes
    ]
    assert not has_an_order([*before, stuck.step], [*pending, *cut])
    if stuck.step.writes:
        cut.append(RegisterOp(stuck.step.called, 0, stuck.step.does, stuck.step.number))
    assert has_an_order(before, [step for step in [*pending, *cut] if step.called < end])


# C9: every pair.


@st.composite
def concurrent_sends(draw: st.DrawFn) -> Story:
    """Up to seven sends of one value or two in one place, at any offsets, some unknown."""
    story, count = Story(), draw(st.integers(1, 7))
    events = draw(st.permutations([n // 2 for n in range(2 * count)]))
    offsets = draw(st.permutations(range(count)))
    begun: set[int] = set()
    seen: list[tuple[int, str]] = []
    for p in events:
        values = [f"{p}-{n}" for n in range(draw(st.integers(1, 2)))]
        if p not in begun:
            begun.add(p)
            story.invoke(p, "send", "t/0", values)
        elif draw(st.integers(0, 3)):
            story.end(p, [3 * offsets[p], 1])
        elif draw(st.booleans()):
            seen.append((3 * offsets[p], f"{p}-0"))  # without an answer, and read
    story.poll(90, *seen)
    return story


@given(concurrent_sends())
@EXAMPLES
def test_real_time_order_as_by_looking_at_every_pair(story: Story) -> None:
    history = story.history()
    offset = {op.asked[0]: op.result[0] for op in history.ops if op.f == "send" and op.is_ok}
    offset |= {run[2][0]: run[1] for op in history.ops if op.f == "poll" for run in op.result}
    sends = [op for op in history.ops if op.f == "send" and op.asked[0] in offset]

    def is_late(second: Op) -> bool:
        return any(
            first.is_ok and first.done < second.i
            and offset[first.asked[0]] + len(first.asked) - 1 > offset[second.asked[0]]
            for first in sends
        )  # fmt: skip

    assert judged(history)["C9"].count == sum(map(is_late, sends))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9))), st.lists(st.integers(0, 20)))
def test_high_water(completed: list[tuple[int, int]], invoked: list[int]) -> None:
    found = high_water(((row, n, n) for row, n in completed), ((row, row) for row in invoked))
    expected = [
        (row, max(n for done, n in completed if done < row))
        for row in sorted(invoked)
        if any(done < row for done, _ in completed)
    ]
    assert [(row, number) for row, number, _ in found] == expected


# C10 and C1: offset by offset.


@st.composite
def reading(draw: st.DrawFn) -> Story:
    """A log with holes, two readers that are given anything, a trim, and drains of anything."""
    story = Story()
    for offset in sorted(draw(st.sets(st.integers(0, 7), min_size=1))):
        story.send(1, f"1-{offset}", offset)
    if draw(st.booleans()):
        story.op(2, "trim", "t/0", draw(st.integers(0, 3)), 0)
    if draw(st.booleans()):
        story.phase("final")
    is_final = any(row.k == "final" for row in story.rows)
    for _ in range(draw(st.integers(0, 6))):
        p, what = draw(st.integers(3, 4)), draw(st.integers(0, 9))
        if what == 0:
            story.op(p, "crash")
        elif what == 1:
            story.assign(p, t0=draw(st.integers(0, 7)))
        elif what == 2 and is_final:
            story.on("n1", "drain", draw(_runs()), "t/0")
        else:
            story.op(p, "poll", result=draw(_runs()))
    return story


def _runs() -> st.SearchStrategy[list[list[object]]]:
    run = st.tuples(st.integers(0, 7), st.integers(1, 3)).map(
        lambda at: ["t/0", at[0], [f"1-{offset}" for offset in range(at[0], at[0] + at[1])]]
    )
    return st.lists(run, max_size=2)


@given(reading())
@EXAMPLES
def test_polls_as_by_following_each_reader(story: Story) -> None:
    history = story.history()
    known = _known(story)
    expected: list[str] = []
    position: dict[int, int] = {}
    for op in history.ops:
        if op.f == "crash":
            position.pop(op.p, None)
        elif op.f == "assign":
            position[op.p] = op.asked["t/0"]
        for number, (_, offset, values) in enumerate(op.result if op.f == "poll" else []):
            stands = position.get(op.p, offset)
            prefix = "int-" if number else ""
            if offset < stands:
                expected.append(prefix + "nonmonotonic-poll")
            elif any(at in known and at >= _floor(story) for at in range(stands, offset)):
                expected.append(prefix + "poll-skip")
            position[op.p] = offset + len(values)
    assert [finding.kind for finding in judged(history)["C10"].findings] == expected


@given(reading())
@EXAMPLES
def test_loss_as_by_looking_at_every_offset(story: Story) -> None:
    history = story.history()
    final = next((row.i for row in story.rows if row.k == "final"), None)
    covered: set[int] = set()
    shown: set[int] = set()
    position: dict[int, int] = {}
    for op in history.ops:
        if op.f == "crash":
            position.pop(op.p, None)
        elif op.f == "assign":
            position[op.p] = op.asked["t/0"]
        if op.f not in ("poll", "drain"):
            continue
        if op.f == "drain":
            position[-1] = _floor(story)
        p = op.p if op.f == "poll" else -1
        for _, offset, values in op.result:
            end = offset + len(values)
            if final is not None and op.i > final:
                covered |= set(range(min(offset, position.get(p, offset)), end))
                shown |= set(range(offset, end))
            position[p] = end if op.f == "poll" else max(position[p], end)
    sent = {row.v[0] for row in story.rows if row.f == "send" and isinstance(row.v[0], int)}
    lost = {at for at in sent if at >= _floor(story) and at in covered and at not in shown}
    findings = [each for each in judged(history)["C1"].findings if each.kind == "lost"]
    assert len(findings) == len(lost)
    assert {text.text.split(",")[0] for text in findings} == {f"t/0: 1-{at}" for at in lost}


def _known(story: Story) -> set[int]:
    """Every offset that anything shows to hold a value."""
    found: set[int] = set()
    for row in story.rows:
        if row.f == "send" and isinstance(row.v[0], int):
            found.add(row.v[0])
        for _, offset, values in row.v or [] if row.f in ("poll", "drain") else []:
            found |= set(range(offset, offset + len(values)))
    return found


def _floor(story: Story) -> int:
    asked = [row.v for row in story.rows if row.f == "trim" and row.k]
    return max(asked, default=0)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))))
def test_coverage_is_a_set_of_offsets(ranges: list[tuple[int, int]]) -> None:
    coverage, expected = OffsetRanges(), set[int]()
    for number, (start, end) in enumerate(ranges):
        coverage.add(start, end)
        expected |= set(range(start, end))
        if number % 3 == 0:
            assert coverage.end == max(expected, default=-1) + 1
    assert {offset for offset in range(40) if offset in coverage} == expected
    assert bool(coverage) == bool(expected)


def test_of_two_unknown_writes_of_a_number_the_weaker_may_have_to_be_used_first() -> None:
    certain = [
        RegisterOp(1, 2, Effect.WRITE, 3), RegisterOp(5, 6, Effect.SEE, 5),
        RegisterOp(7, 8, Effect.WRITE, 9), RegisterOp(9, 10, Effect.SEE, 5),
    ]  # fmt: skip
    pending = [RegisterOp(3, 0, Effect.WRITE, 5), RegisterOp(4, 0, Effect.RAISE, 5)]
    assert has_an_order(certain, pending)
    assert linearize(certain, pending) is None


# C11: every trim of every answer, and every send.


@st.composite
def bounded(draw: st.DrawFn) -> Story:
    """Sends, trims and bounds that overlap, with any answers."""
    story = Story()
    begun: dict[int, str] = {}
    for p in range(draw(st.integers(1, 14))):
        if draw(st.booleans()) and begun:
            ending = draw(st.sampled_from(sorted(begun)))
            kind = draw(st.sampled_from([Kind.OK, Kind.OK, Kind.INFO, Kind.FAIL]))
            low, high = sorted([draw(st.integers(0, 6)), draw(st.integers(0, 6))])
            found: dict[str, Any] = {"send": [low, 1], "trim": low, "bounds": [low, high]}
            f = begun.pop(ending)
            story.end(ending, found[f] if kind is Kind.OK else None, kind)
            continue
        f = begun[p] = draw(st.sampled_from(["send", "trim", "bounds"]))
        asked: dict[str, Any] = {"send": [f"{p}-1", f"{p}-2"], "trim": draw(st.integers(0, 6))}
        story.invoke(p, f, "t/0", asked.get(f))
    return story


@given(bounded())
@EXAMPLES
def test_bounds_as_by_looking_at_every_trim_and_send(story: Story) -> None:
    history = story.history()
    trims = [op for op in history.ops if op.f == "trim" and not op.is_failed]
    sends = [op for op in history.ops if op.f == "send" and not op.is_failed]
    over, high = 0, 0
    for op in history.ops:
        if op.f in ("trim", "bounds") and op.is_ok:
            minimum = op.result if op.f == "trim" else op.result[0]
            over += minimum > max((each.asked for each in trims if each.i < op.done), default=0)
        if op.f == "bounds" and op.is_ok:
            high += op.result[1] > 2 * sum(each.i < op.done for each in sends)
    found = [finding.kind for finding in judged(history)["C11"].findings]
    assert found.count("over-trimmed") == over
    assert found.count("high-bounds") == high


def test_of_many_trims_of_a_place_each_is_compared_a_few_times() -> None:
    compared = 0

    class Asked(int):
        """A number that counts how often it is compared."""

        def __gt__(self, other: int) -> bool:
            nonlocal compared
            compared += 1
            return int(self) > other

        def __lt__(self, other: int) -> bool:
            nonlocal compared
            compared += 1
            return int(self) < other

    story = Story()
    for number in range(500):
        story.op(1, "trim", "t/0", Asked(number), number)
    assert judged(story.history())["C11"].count == 0
    assert 0 < compared < 500 * 8
