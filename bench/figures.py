"""A figure: what was measured, beside what it is compared with, and whether that is good enough.

Owns the shape of a JSON line and of the table. Not: measuring.
"""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from rich.table import Table

Sense = Literal[">=", "<=", ""]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the result. `runs` are the single measurements that `value` is the median of."""

    name: str
    value: float
    unit: str
    floor: str = ""
    """What the value is compared with, measured in the same run; empty: nothing."""
    floor_value: float | None = None
    wanted: float | None = None
    """Bound of the ratio, or of the value if there is no floor. None: no bound."""
    sense: Sense = ""
    runs: Sequence[float] = ()
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Value over floor."""
        return self.value / self.floor_value if self.floor_value else None

    @property
    def met(self) -> bool | None:
        """Whether the figure reaches its bound; None when it has none."""
        if self.wanted is None:
            return None
        measured = self.value if self.ratio is None else self.ratio
        return measured >= self.wanted if self.sense == ">=" else measured <= self.wanted

    def line(self) -> str:
        """Return the figure as one JSON object."""
        fields = asdict(self) | {"ratio": self.ratio, "met": self.met}
        fields["wanted"] = f"{self.sense} {self.wanted:g}" if self.wanted is not None else ""
        del fields["sense"]
        rounded = {name: _rounded(value) for name, value in fields.items()}
        rounded["runs"] = [_rounded(run) for run in self.runs]
        return json.dumps(rounded)


def compared(
    name: str,
    runs: Sequence[float],
    unit: str,
    floor: str,
    floor_runs: Sequence[float],
    sense: Sense = "",
    wanted: float | None = None,
    note: str = "",
) -> Figure:
    """Return the median of `runs` beside the median of its floor's."""
    return Figure(
        name, statistics.median(runs), unit, floor, statistics.median(floor_runs), wanted, sense,
        list(runs), note,
    )  # fmt: skip


def stated(
    name: str,
    runs: Sequence[float],
    unit: str,
    sense: Sense = "",
    wanted: float | None = None,
    note: str = "",
) -> Figure:
    """Return the median of `runs`, with a bound of its own or none."""
    return Figure(
        name, statistics.median(runs), unit, "", None, wanted, sense, list(runs), note
    )  # fmt: skip


def table(figures: Iterable[Figure]) -> Table:
    """Return the figures for people."""
    result = Table(title="dledger bench", title_justify="left")
    for column in ("figure", "value", "unit", "beside", "its value", "ratio", "wanted", "met"):
        result.add_column(column, justify="right" if column in {"value", "its value"} else "left")
    for figure in figures:
        met = {True: "yes", False: "[bold red]no[/]", None: ""}[figure.met]
        result.add_row(
            figure.name,
            _short(figure.value),
            figure.unit,
            figure.floor,
            _short(figure.floor_value),
            _short(figure.ratio),
            f"{figure.sense} {figure.wanted:g}" if figure.wanted is not None else "",
            met,
        )
    return result


@dataclass(slots=True)
class Rounds:
    """Measurements of several things, taken in turn."""

    values: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def add(self, name: str, value: float) -> None:
        """Keep one measurement."""
        self.values.setdefault(name, []).append(value)

    def __getitem__(self, name: str) -> list[float]:
        return self.values[name]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _rounded(value: object) -> object:
    return float(f"{value:.6g}") if isinstance(value, float) else value
