"""The rows of a story as lines: one lane for each member, merged where nothing failed.

Owns: what a lane shows (`L3` leads term 3, `f` follows, `c` is a candidate, `q` is in quarantine,
`u` has not formed a group, `Z` is paused, `-` is down), which rows count as near the end, and how
rows far from it are merged to so few lines that all of it is one page.
"""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from tests.sim.story.story import Kind, Marks, Row
from tests.sim.story.words import describe

NEAR_SECONDS: Final = 0.5
NEAR_ROWS_MAX: Final = 80
FAR_LINES_MAX: Final = 60
MERGE_SECONDS: Final = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
WHAT_WIDTH: Final = 90
WHAT_LINES_MAX: Final = 3
LETTERS: Final = {
    "leader": "L",
    "follower": "f",
    "candidate": "c",
    "quarantined": "q",
    "unformed": "u",
    "stopped": "s",
}
FAR: Final = frozenset({Kind.FAULT, Kind.FAULT_END, Kind.PROCESS, Kind.CUT_OFF, Kind.PHASE})
"""Kinds that are told far from the end, too. Of roles: who leads, and quarantine."""
FAR_ROLES: Final = frozenset({"leader", "quarantined"})


class Lanes:
    """What every member is at a moment; rows move it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._role = dict.fromkeys(names, "u")
        self._up = dict.fromkeys(names, False)
        self._paused = dict.fromkeys(names, False)

    def take(self, row: Row) -> None:
        """Take the next row."""
        name = row.who
        if name not in self._role:
            return
        if row.kind is Kind.ROLE:
            role, term = row.what
            self._role[name] = f"{LETTERS[str(role)]}{term}"
            self._up[name] = True  # a member has a role before its start is told
        elif row.kind is Kind.PROCESS:
            self._process(name, str(row.what[0]))

    def _process(self, name: str, line: str) -> None:
        word = line.partition(" ")[0]
        if word in ("pause", "resume"):
            self._paused[name] = word == "pause"
        elif word == "start" and " refused " not in line:
            self._up[name], self._paused[name], self._role[name] = True, False, "u"
        elif word in ("kill", "power", "stop", "start"):
            self._up[name] = False

    def cells(self) -> list[str]:
        """Return what each lane shows now."""
        return [self.of(name) for name in self._role]

    def of(self, name: str) -> str:
        """Return what a member's lane shows now."""
        if not self._up[name]:
            return "-"
        return f"Z{self._role[name][1:]}" if self._paused[name] else self._role[name]


def near_from(rows: Sequence[Row], end: float) -> int:
    """Return the number of the first row that is told in full."""
    near = [row for row in rows if row.time >= end - NEAR_SECONDS][-NEAR_ROWS_MAX:]
    return near[0].number if near else 1 << 62


def timeline(rows: Sequence[Row], names: Sequence[str], end: float, marks: Marks) -> list[str]:
    """Return the lines of the whole story, heading first. `marks` is how far the world came."""
    first_near = near_from(rows, end)
    far = [row for row in rows if row.number < first_near and _is_told_far(row)]
    lanes, at = Lanes(names), 0
    lines = [_heading(names)]
    before = Marks(0, 0, 0, 0)
    for group in _merged(far):
        last = group[-1]
        at = _move(lanes, rows, at, last.number)
        now = last.marks or before
        lines += _line(group[0].time, lanes, _progress(before, now), _together(group))
        before = now
    if first_near < 1 << 62:
        at = _move(lanes, rows, at, first_near - 1)
        lines.append(
            f"{'':>10}  {_progress(before, marks, ' ' * _lane_width(names))}  until the end"
        )
    for row, times in _repeated(rows[at:]):
        lanes.take(row)
        what = describe(row) + (f" ({times} times)" if times > 1 else "")
        width = 1 if row.kind is Kind.TRACE else WHAT_LINES_MAX  # the trace has the whole line
        lines += _line(row.time, lanes, None, what, width)
    return lines


def _repeated(rows: Sequence[Row]) -> Iterator[tuple[Row, int]]:
    """Return each row with how often it is told in a row at the same time."""
    for _, same in groupby(rows, lambda row: (row.time, describe(row))):
        group = list(same)
        yield group[0], len(group)


def leaders(rows: Sequence[Row], end: float) -> list[str]:
    """Return who led which term, from when, and until what happened."""
    lines = []
    led: dict[str, tuple[int, float]] = {}
    for row in (*rows, None):
        ended = list(led) if row is None else [row.who] if _ends_lead(row) else []
        for name in ended:
            if name in led:
                term, since = led.pop(name)
                until = "the end" if row is None else f"{row.time:.3f}, {describe(row)}"
                time = end if row is None else row.time
                lines.append(
                    f"term {term:>3}  {name}  {since:8.3f}  {time - since:7.3f} s, to {until}"
                )
        if row is not None and row.kind is Kind.ROLE and row.what[0] == "leader":
            led[row.who] = (int(str(row.what[1])), row.time)
    return lines


def _ends_lead(row: Row) -> bool:
    if row.kind is Kind.ROLE:
        return True
    line = str(row.what[0])
    return row.kind is Kind.PROCESS and line.startswith(("kill ", "power ", "stop "))


def _is_told_far(row: Row) -> bool:
    if row.kind is Kind.ROLE:
        return row.what[0] in FAR_ROLES
    return row.kind in FAR and row.marks is not None


def _merged(rows: Sequence[Row]) -> list[list[Row]]:
    """Return groups of rows that stand together, so that they need few lines."""
    groups: list[list[Row]] = []
    for seconds in MERGE_SECONDS:
        groups = _within(rows, seconds)
        if sum(len(_wrapped(_together(group))) for group in groups) <= FAR_LINES_MAX:
            break
    return groups


def _within(rows: Sequence[Row], seconds: float) -> list[list[Row]]:
    groups: list[list[Row]] = []
    for row in rows:
        if groups and row.time - groups[-1][0].time <= seconds:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _together(rows: Sequence[Row]) -> str:
    return "; ".join(describe(row) for row in rows)


def _wrapped(what: str, lines_max: int = WHAT_LINES_MAX) -> list[str]:
    return textwrap.wrap(
        what, WHAT_WIDTH, max_lines=lines_max, placeholder=" ...", break_on_hyphens=False
    )


def _move(lanes: Lanes, rows: Sequence[Row], at: int, number: int) -> int:
    """Let the lanes see every row up to a number; return where the rest begins."""
    while at < len(rows) and rows[at].number <= number:
        lanes.take(rows[at])
        at += 1
    return at


def _lane_width(names: Sequence[str]) -> int:
    return 5 * len(names)


def _heading(names: Sequence[str]) -> str:
    lanes = "".join(f"{name:<5}" for name in names)
    return f"{'time':>10}  {lanes}  {'commit':>6} {'ok':>5} {'?':>3} {'!':>3}  what"


def _progress(before: Marks, now: Marks, lanes: str | None = None) -> str:
    ok, unknown, failed = (
        f"+{now[place] - before[place]}" if now[place] > before[place] else ""
        for place in (1, 2, 3)
    )
    text = f"{now.committed:>6} {ok:>5} {unknown:>3} {failed:>3}"
    return text if lanes is None else f"{lanes}  {text}"


def _line(
    time: float, lanes: Lanes, progress: str | None, what: str, lines_max: int = WHAT_LINES_MAX
) -> Iterator[str]:
    """Return a row's lines; rows near the end have a precise time, and no progress."""
    shown = f"{time:>10.6f}" if progress is None else f"{time:>10.3f}"
    begin = f"{shown}  {''.join(f'{cell:<5}' for cell in lanes.cells())}"
    middle = "" if progress is None else f"  {progress:<20}"
    for number, part in enumerate(_wrapped(what, lines_max)):
        lead = f"{begin}{middle}" if number == 0 else " " * len(begin + middle)
        yield f"{lead}  {part}".rstrip()
