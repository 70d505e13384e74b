"""The page of one seed: who led, the faults, the answers, what came last.

Owns: the order and the headings of the page. It is Markdown; what has columns stands in blocks of
plain text. The same seed gives the same page, letter by letter.
"""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tests.sim.faults.fault import Strike
from tests.sim.story.members import members_table
from tests.sim.story.story import Row
from tests.sim.story.timeline import Lanes, leaders, timeline
from tests.sim.story.words import describe

if TYPE_CHECKING:
    from tests.sim.world.world import World

LEADERS_MAX: Final = 20
FAULTS_MAX: Final = 40
TROUBLES_SHOWN: Final = 12
WIDTH: Final = 120
KEY: Final = (
    "Lanes: L3 leads term 3, f follows, c is a candidate, q is in quarantine, u has not formed a\n"
    "group, Z is paused, - is down. `commit` is the highest index that is committed anywhere.\n"
    "`ok`, `?` and `!` count the sends since the line above: acknowledged, unknown, failed.\n"
)


def page_of(world: "World", *, broken: str, failure: str, command: str) -> str:
    """Return the page of a world that has ended.

    `broken` names the property, and `failure` is all that was said; both are empty when it passed.
    """
    end, rows = world.scheduler.now, world.story.rows()
    lanes = Lanes(tuple(world.members))
    for row in rows:
        lanes.take(row)
    title = f"failed: {broken}" if failure else "did not fail"
    phase = "after the faults" if not world.nemesis.running else "while faults may come"
    parts = [
        f"# Seed {world.plan.seed} {title}\n",
        f"At {end:.6f} virtual seconds, {phase}.\n",
        _block(failure_lines(failure)) if failure else "",
        f"Replay: `{command}`\n",
        f"{world.plan.describe()}; faults {', '.join(world.nemesis.kinds)}\n",
        "## The members at the end\n",
        _block(members_table(world, lanes)),
        "## Who led\n",
        _block(_last(leaders(rows, end), LEADERS_MAX)),
        "## Faults\n",
        _block(_last(_faults(world.nemesis.strikes), FAULTS_MAX, head=1)),
        "## Sends that failed or stayed unknown\n",
        _block(_troubles(world)),
        "## What happened\n",
        KEY,
        _block(
            [
                *timeline(rows, tuple(world.members), end, world.story.marks),
                _last_line(end, lanes, broken),
            ]
        ),
    ]
    return "\n".join(part for part in parts if part)


def _last_line(end: float, lanes: Lanes, broken: str) -> str:
    cells = "".join(f"{cell:<5}" for cell in lanes.cells())
    return f"{end:>10.6f}  {cells}  {f'here {broken} was found' if broken else 'the end'}"


def failure_lines(failure: str) -> list[str]:
    """Return what was said, wrapped; the lines of a traceback stay as they are."""
    return [part for line in failure.splitlines() for part in textwrap.wrap(line, WIDTH) or [""]]


def _block(lines: Sequence[str]) -> str:
    return "\n".join(["```text", *(lines or ["none"]), "```", ""])


def _last(lines: Sequence[str], count: int, head: int = 0) -> list[str]:
    """Return the heading and the last lines; say how many are left out."""
    body = lines[head:]
    left_out = [f"... {len(body) - count} more before"] if len(body) > count else []
    return [*lines[:head], *left_out, *body[-count:]]


def _faults(strikes: Sequence[Strike]) -> list[str]:
    if not strikes:
        return []
    lines = [f"{'name':<7}{'begin':>9}{'end':>9}  {'kind':<18}whom"]
    for strike in strikes:
        assert strike.began is not None
        end = strike.began if strike.ended is None else strike.ended
        ended = "goes on" if strike.open_ends else f"{end:.3f}"
        begin = f"{'#' + strike.name:<7}{strike.began:>9.3f}{ended:>9}"
        lines.append(f"{begin}  {strike.kind:<18}{strike.detail}")
    return lines


def _troubles(world: "World") -> list[str]:
    rows: list[Row] = list(world.story.troubles)[-TROUBLES_SHOWN:]
    lines = [f"{row.time:>10.3f}  {describe(row)}" for row in rows]
    marks = world.story.marks
    if marks.unknown + marks.failed > len(rows):
        total = f"of {marks.failed} that failed and {marks.unknown} that stayed unknown, the last:"
        lines.insert(0, total)
    waiting = [send for send in world.oracle.sends if send.state == "invoked"]
    if waiting:
        oldest = waiting[0]
        said = f"unanswered: {len(waiting)}, the oldest of {oldest.client}"
        lines.append(f"{said}, asked at {oldest.invoked:.3f}")
    return lines
