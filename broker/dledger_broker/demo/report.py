# pyright: reportUnknownMemberType=false
# (matplotlib annotates only part of its arguments)
"""The demo's outcome: figures for programs (JSON), a table for the terminal, a page for people.

The page is one file: pictures are drawn by matplotlib and inlined.
"""

import base64
import html
import io
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from rich.table import Table

from dledger_broker.demo.gaps import BACK_SHARE, Acknowledgement, Fault

mpl.use("Agg")

THROUGHPUT_STEP_S = 0.1


@dataclass(slots=True)
class Outcome:
    """What the run showed. Times are seconds from the first send."""

    rows: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    members_identical: bool = False
    members_compared: int = 0
    log_entries: int = 0
    digest: str = ""
    followed: int = 0
    """Rows that the reader had seen, in order, while it followed the writer."""
    seconds: float = 0.0
    rows_per_second: float = 0.0
    latency_ms: dict[str, float] = field(default_factory=dict[str, float])
    faults: list[Fault] = field(default_factory=list[Fault])
    quiet_gap_s: float = 0.0
    """The longest time without an acknowledgement that no fault explains."""
    problems: list[str] = field(default_factory=list[str])

    @property
    def is_good(self) -> bool:
        """True when nothing was lost, repeated or reordered and all members agree."""
        return not (self.lost or self.duplicated or self.out_of_order or self.problems) and (
            self.members_identical and self.rows > 0
        )


def summarise_latency(acknowledgements: Sequence[Acknowledgement]) -> dict[str, float]:
    """Return median, p99 and maximum of the time from send to acknowledgement, milliseconds."""
    times = sorted(each.latency_s * 1e3 for each in acknowledgements)
    if not times:
        return {}
    return {
        "median": round(statistics.median(times), 2),
        "p99": round(times[min(len(times) - 1, int(len(times) * 0.99))], 2),
        "max": round(times[-1], 2),
    }


def write_json(outcome: Outcome, path: Path) -> None:
    """Write every figure as one JSON object."""
    path.write_text(json.dumps(asdict(outcome), indent=1) + "\n")


def table(outcome: Outcome) -> Table:
    """Return the figures as a table for the terminal."""
    figures = Table(title="336,776 departures through three members", show_header=False)
    for name, value in _figures(outcome):
        figures.add_row(name, value)
    return figures


def write_page(outcome: Outcome, acknowledgements: Sequence[Acknowledgement], path: Path) -> None:
    """Write the self-contained page."""
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in _figures(outcome)
    )
    picture = _picture(outcome, acknowledgements)
    path.write_text(
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>dledger demo</title>"
        "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;"
        "padding:0 1rem;color:#1c2733}th{text-align:left;padding-right:2rem;font-weight:600}"
        "td,th{border-bottom:1px solid #dde3ea;padding-block:.3rem}img{width:100%}</style>"
        "<h1>dledger demo</h1><p>Every departure from New York's airports in 2013, keyed by "
        "aircraft, streamed into a group of three members while its leader was killed, the next "
        "one paused, and all of them killed and started again.</p>"
        f"<table>{rows}</table><h2>Throughput and latency over time</h2>"
        f"<img alt='throughput and latency over time, faults marked' "
        f"src='data:image/png;base64,{picture}'></html>\n"
    )


def _figures(outcome: Outcome) -> list[tuple[str, str]]:
    latency = outcome.latency_ms
    return [
        ("rows read back", f"{outcome.rows:,}"),
        ("lost", str(outcome.lost)),
        ("duplicated", str(outcome.duplicated)),
        ("out of order", str(outcome.out_of_order)),
        ("members identical", f"{outcome.members_identical} ({outcome.members_compared} compared)"),
        ("log entries compared", f"{outcome.log_entries:,}"),
        ("rows seen by the follower", f"{outcome.followed:,}"),
        (
            "time",
            f"{outcome.seconds:.1f} s, {outcome.rows_per_second:,.0f} rows/s, faults included",
        ),
        ("latency (ms)", ", ".join(f"{name} {value:g}" for name, value in latency.items())),
        *(
            (f"{fault.name} ({fault.member}) at {fault.at_s:.1f} s", _told(fault))
            for fault in outcome.faults
        ),
        ("longest gap apart from faults", f"{outcome.quiet_gap_s:.2f} s"),
        *(("problem", problem) for problem in outcome.problems),
    ]


def _told(fault: Fault) -> str:
    back = "not seen" if fault.back_s is None else f"after {fault.back_s:.2f} s"
    return f"gap {fault.gap_s:.2f} s, {BACK_SHARE:g} of the rate {back}"


def _picture(outcome: Outcome, acknowledgements: Sequence[Acknowledgement]) -> str:
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(11, 6), sharex=True)
    steps = int(outcome.seconds / THROUGHPUT_STEP_S) + 2
    counts = [0.0] * steps
    for each in acknowledgements:
        counts[min(steps - 1, int(each.at_s / THROUGHPUT_STEP_S))] += each.rows
    times = [step * THROUGHPUT_STEP_S for step in range(steps)]
    upper.fill_between(
        times, [count / THROUGHPUT_STEP_S for count in counts], step="post", color="#4878a8"
    )
    upper.set_ylabel("acknowledged rows / s")
    lower.scatter(
        [each.at_s for each in acknowledgements],
        [max(each.latency_s, 1e-4) * 1e3 for each in acknowledgements],
        s=3,
        color="#4878a8",
    )
    lower.set_yscale("log")
    lower.set_ylabel("latency, ms")
    lower.set_xlabel("seconds")
    for axes in (upper, lower):
        _mark_faults(axes, outcome.faults)
    figure.tight_layout()
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=110)
    plt.close(figure)
    return base64.b64encode(image.getvalue()).decode()


def _mark_faults(axes: Axes, faults: Sequence[Fault]) -> None:
    for fault in faults:
        axes.axvspan(fault.at_s, fault.at_s + fault.gap_s, color="#c44e52", alpha=0.25)
        axes.axvline(fault.at_s, color="#c44e52", linewidth=1)
        axes.annotate(
            f"{fault.name}, gap {fault.gap_s:.2f} s",
            (fault.at_s, 1),
            xycoords=("data", "axes fraction"),
            rotation=90,
            va="top",
            fontsize=8,
        )
