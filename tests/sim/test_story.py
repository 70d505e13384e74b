"""A seed's story: it names what failed, who was there and what was done to them; it repeats itself.

Goal: who debugs a seed reads one page and need not print anything. Method: the page of a seed with
a known bug, the page of a replay that stops, and rows written by hand.
"""

import re
from collections.abc import Callable

import pytest

from tests.sim.conftest import Failing
from tests.sim.run import run_seed
from tests.sim.story.replay import Replay
from tests.sim.story.story import RECENT_MAX, Story
from tests.sim.story.timeline import FAR_LINES_MAX, WHAT_WIDTH, Lanes, leaders, timeline
from tests.sim.world.clock import Scheduler
from tests.sim.world.plan import draw_plan
from tests.sim.world.world import Stopped, World

SEED = 3
PAGE_LINES_MAX = 330


def test_a_failing_seed_has_a_page_of_what_led_to_it(failing: Failing) -> None:
    """Property, members, the faults before it, who led, and the rows right before it."""
    result = run_seed(failing.seed, replay=Replay(bug=failing.bug))
    page = result.page
    assert page.startswith(f"# Seed {failing.seed} failed: {result.broken}\n")
    assert result.failure.split()[-1] in page
    for name in draw_plan(failing.seed).groups["g"]:
        assert re.search(rf"^{name} +\S+ +\w+ +\d+ +\d+", page, re.MULTILINE), name
    assert result.part.strikes
    for name in result.part.strikes:
        assert re.search(
            rf"^#{re.escape(name)} +[\d.]+ +([\d.]+|goes on) +[a-z-]+ ", page, re.MULTILINE
        ), name
    assert re.search(r"^term +\d+  \w  ", page, re.MULTILINE)
    last = page.splitlines()[-2]
    assert last.split()[0] == f"{result.part.ended:.6f}"
    assert last.endswith(f"here {result.broken} was found")
    assert f"--seed {failing.seed} --bug {failing.bug}`" in page
    assert page.count("\n") <= PAGE_LINES_MAX
    lanes = sum(map(len, draw_plan(failing.seed).groups.values()))
    widest = max(map(len, page.split("## The members")[1].splitlines()))
    assert widest <= 36 + 5 * max(lanes, 6) + WHAT_WIDTH


def test_a_story_repeats_itself() -> None:
    """Letter by letter, of a seed that passes, too."""
    one, two = (run_seed(SEED, story=True).page for _ in range(2))
    assert one == two
    assert one.startswith(f"# Seed {SEED} did not fail\n")
    assert ", after the faults." in one


def test_a_replay_stops_at_its_time_with_the_same_history() -> None:
    """Nothing of the time before is another one, and nothing comes after it."""
    until = 12.5
    short = run_seed(SEED, replay=Replay(until=until), story=True)
    assert not short.failure
    assert short.report is None
    assert short.part.ended == until
    assert short.part.in_safety
    assert "At 12.500000 virtual seconds, while faults may come." in short.page
    longer = run_seed(SEED, replay=Replay(until=2 * until), story=True)
    begun = [name for name in longer.part.strikes if name in short.part.strikes]
    assert begun == list(short.part.strikes)
    first_rows = short.page.rpartition("## What happened")[2].splitlines()[8:12]
    assert all(row in longer.page for row in first_rows)


def test_leaving_out_a_fault_leaves_the_others_as_they_are() -> None:
    """Neither the turn nor the kind of a fault hangs on the faults before it."""

    def kinds(keep: frozenset[str] | None) -> dict[str, str]:
        world = World(draw_plan(SEED), replay=Replay(until=20.0, keep=keep))
        with pytest.raises(Stopped):
            world.run()
        return {strike.name: strike.kind for strike in world.nemesis.strikes}

    whole = kinds(None)
    first, *others = [name for name in whole if name.isdigit()]
    without = kinds(frozenset(others))
    assert first not in without
    assert len(without) >= 3, "the seed has too few faults for this test"
    assert without == {name: whole[name] for name in without}


def test_a_seed_without_some_clients() -> None:
    """Who is left out sends nothing, and the end asks nothing of them."""
    result = run_seed(SEED, replay=Replay(clients=frozenset({"p0"})), story=True)
    assert not result.failure
    assert list(result.part.producers) == ["p0"]
    assert not result.part.others
    assert "p1 " not in result.page


# Rows written by hand.


def _story() -> tuple[Scheduler, Story]:
    scheduler = Scheduler()
    return scheduler, Story(scheduler)


def test_lanes_follow_roles_and_processes() -> None:
    """Down, up, leading, paused, awake, killed."""
    _, story = _story()
    seen = []
    steps: list[Callable[[], None]] = [
        lambda: story.traced("start a boot 1 last 0 applied 0"),
        lambda: story.role("a", "leader", 3),
        lambda: story.traced("pause a"),
        lambda: story.traced("resume a"),
        lambda: story.traced("power cut a"),
        lambda: story.traced("start a refused 5"),
    ]
    for tell in steps:
        tell()
        lanes = Lanes("ab")
        for row in story.rows():
            lanes.take(row)
        seen.append(lanes.cells())
    assert [cell for cell, _ in seen] == ["u", "L3", "Z3", "L3", "-", "-"]
    assert {other for _, other in seen} == {"-"}


def test_far_rows_are_merged_and_near_rows_are_not() -> None:
    """However much happens, the far part has few lines, and the last row is there."""
    scheduler, story = _story()
    for number in range(1_000):
        scheduler.now = number / 10
        story.traced(f"kill {'ab'[number % 2]}")
        story.commit("a", number, number, 1)
    lines = timeline(story.rows(), "ab", scheduler.now, story.marks)
    assert len(lines) <= FAR_LINES_MAX + 30
    assert lines[-1].startswith(" 99.900000")
    assert lines[-1].endswith("committed 999 of term 1, first at a")
    assert "kill a; kill b" in lines[1]


def test_memory_is_bounded_and_what_matters_is_kept() -> None:
    """A role is older than everything that was kept of the rest."""
    _, story = _story()
    story.role("a", "leader", 1)
    for number in range(2 * RECENT_MAX):
        story.traced(f"send a b append #{number}")
    rows = story.rows()
    assert len(rows) == RECENT_MAX + 1
    assert rows[0].who == "a"


def test_who_led_until_what() -> None:
    """A term of leadership ends with the next role, with the process, or with the story."""
    scheduler, story = _story()
    steps: list[tuple[float, Callable[[], None]]] = [
        (1.0, lambda: story.role("a", "leader", 1)),
        (2.0, lambda: story.role("b", "leader", 2)),
        (3.0, lambda: story.role("a", "follower", 2)),
        (4.0, lambda: story.traced("kill b")),
        (5.0, lambda: story.role("a", "leader", 3)),
    ]
    for time, tell in steps:
        scheduler.now = time
        tell()
    assert leaders(story.rows(), 6.0) == [
        "term   1  a     1.000    2.000 s, to 3.000, a is follower",
        "term   2  b     2.000    2.000 s, to 4.000, kill b",
        "term   3  a     5.000    1.000 s, to the end",
    ]


@pytest.mark.parametrize(
    "options", ["", "--keep 3,7,b.4 --clients c0,p1", "--keep none --until 1.5"]
)
def test_a_command_means_what_it_says(options: str) -> None:
    """The command of a part, parsed, is that part."""
    from tests.sim.run import parse_arguments
    from tests.sim.story.replay import from_arguments

    arguments = parse_arguments(["sim", "--seed", "5", *options.split()])
    replay = from_arguments(arguments)
    assert replay.command(5) == f"python -m tests.sim.run sim --seed 5 {options}".rstrip()
