# pyright: reportUnknownMemberType=false
# (matplotlib annotates only part of its arguments)
"""The demo's outcome: figures for programs (JSON), a table for the terminal, a page for people.

The page is one file: pictures are drawn by matplotlib and inlined.
"""

import base64
import html
import io
import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from rich.table import Table

from dledger_broker.demo.gaps import BACK_SHARE, Acknowledgement, Fault
from dledger_proto import __version__

mpl.use("Agg")

THROUGHPUT_STEP_S = 0.1
TERMS: Final = (
    ("row", "One departure, sent as one message. Its aircraft is the ordering key."),
    ("lost", "Rows that were sent and are missing on a member, summed over the members."),
    ("duplicated", "Rows that a member holds more than once, summed over the members."),
    ("out of order", "Rows of one aircraft that a member holds before an earlier row."),
    (
        "members identical",
        "All members hold the same log entries (index, term, checksum), and the digests of what "
        "they derived from the log are equal.",
    ),
    ("reader", "A consumer that reads all rows while they are written."),
    (
        "latency",
        "From the moment a burst of 200 rows is handed to the producer until the last of them is "
        "acknowledged. Bursts wait while a fault lasts.",
    ),
    ("gap", "The longest time without an acknowledgement that a fault caused."),
    (
        "recovery",
        "From the first acknowledgement after a gap until rows are acknowledged at "
        f"{BACK_SHARE:.0%} of the rate before the fault. Rows that waited do not count.",
    ),
    ("paused", "The process is stopped (SIGSTOP) and goes on later: it looks like a hang."),
)
STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;"
    "color:#1c2733}th{text-align:left;padding-right:2rem;font-weight:600;vertical-align:top}"
    "table{border-collapse:collapse}td,th{border-bottom:1px solid #dde3ea;padding-block:.3rem}"
    "img{width:100%}.verdict{font-size:1.2rem;padding:.6rem 1rem;border-left:.4rem solid}"
    ".good{border-color:#2e7d32;background:#eef6ee}.bad{border-color:#c62828;background:#fbeeee}"
    ".made{color:#5a6b7b}dt{font-weight:600}dd{margin:0 0 .5rem 1.5rem}"
)


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"{platform.system()} {platform.release()} on {platform.machine()}, {os.cpu_count()} "
        f"processors, {memory:.0f} GiB of memory, Python {platform.python_version()}"
    )


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
    version: str = __version__
    date: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    machine: str = field(default_factory=_machine)

    @property
    def is_good(self) -> bool:
        """True when nothing was lost, repeated or reordered and all members agree."""
        return not (self.lost or self.duplicated or self.out_of_order or self.problems) and (
            self.members_identical and self.rows > 0
        )

    @property
    def verdict(self) -> str:
        """What the run proved, in a sentence."""
        if self.is_good:
            return (
                f"Passed: every member holds all {self.rows:,} rows, each once and in order, and "
                f"the {self.members_compared} members are identical."
            )
        counts = {"lost": self.lost, "duplicated": self.duplicated, "disordered": self.out_of_order}
        wrong = [f"{count:,} rows {name}" for name, count in counts.items() if count]
        if not self.members_identical:
            wrong.append("the members are not identical")
        return f"Failed: {'; '.join(wrong + self.problems) or 'no row was read back'}."


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
    for name, value in (("verdict", outcome.verdict), *_figures(outcome)):
        figures.add_row(name, value)
    return figures


def write_page(outcome: Outcome, acknowledgements: Sequence[Acknowledgement], path: Path) -> None:
    """Write the self-contained page."""
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in _figures(outcome)
    )
    terms = "".join(
        f"<dt>{html.escape(term)}</dt><dd>{html.escape(meaning)}</dd>" for term, meaning in TERMS
    )
    made = f"{outcome.date}, dledger {outcome.version}, {outcome.machine}"
    picture = _inlined(draw(outcome, acknowledgements))
    path.write_text(
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>dledger demo</title>"
        f"<style>{STYLE}</style><h1>dledger demo</h1>"
        f"<p class='verdict {'good' if outcome.is_good else 'bad'}'>"
        f"{html.escape(outcome.verdict)}</p><p class='made'>{html.escape(made)}</p>"
        "<p>The demo sends every departure from New York's airports in 2013 to a group of three "
        "members. Meanwhile it kills the leader, pauses the next leader, and kills all members "
        "and starts them again. Then it reads every row back from every member.</p>"
        f"<table>{rows}</table><h2>Throughput and latency over time</h2>"
        "<p>Numbers mark the faults; the red areas are their gaps.</p>"
        f"<img alt='throughput and latency over time, faults marked' "
        f"src='data:image/png;base64,{picture}'><h2>Terms</h2><dl>{terms}</dl></html>\n"
    )


def _figures(outcome: Outcome) -> list[tuple[str, str]]:
    latency = outcome.latency_ms
    return [
        ("rows read back", f"{outcome.rows:,}"),
        ("lost", str(outcome.lost)),
        ("duplicated", str(outcome.duplicated)),
        ("out of order", str(outcome.out_of_order)),
        ("members identical", "yes" if outcome.members_identical else "no"),
        ("log entries compared", f"{outcome.log_entries:,}"),
        ("rows seen by the reader", f"{outcome.followed:,}"),
        ("time", f"{outcome.seconds:.1f} s, {outcome.rows_per_second:,.0f} rows/s with all faults"),
        ("latency", ", ".join(f"{name} {value:,g} ms" for name, value in latency.items())),
        *(
            (f"fault {number}, at {fault.at_s:.1f} s", _told(fault))
            for number, fault in enumerate(outcome.faults, 1)
        ),
        ("longest gap without a fault", f"{outcome.quiet_gap_s:.2f} s"),
        *(("problem", problem) for problem in outcome.problems),
    ]


def _told(fault: Fault) -> str:
    back = "not seen" if fault.back_s is None else f"{fault.back_s:.2f} s"
    return f"{fault.name} ({fault.member}): gap {fault.gap_s:.2f} s, recovery {back}"


def draw(outcome: Outcome, acknowledgements: Sequence[Acknowledgement]) -> Figure:
    """Return the picture: throughput above, latency below, faults marked in both."""
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(11, 6.5), sharex=True)
    steps = int(outcome.seconds / THROUGHPUT_STEP_S) + 2
    counts = [0.0] * steps
    for each in acknowledgements:
        counts[min(steps - 1, int(each.at_s / THROUGHPUT_STEP_S))] += each.rows
    times = [step * THROUGHPUT_STEP_S for step in range(steps)]
    upper.fill_between(
        times, [count / THROUGHPUT_STEP_S for count in counts], step="post", color="#4878a8"
    )
    upper.set_ylabel("acknowledged rows per second")
    upper.set_ylim(bottom=0)
    upper.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    lower.scatter(
        [each.at_s for each in acknowledgements],
        [max(each.latency_s, 1e-4) * 1e3 for each in acknowledgements],
        s=3,
        color="#4878a8",
    )
    lower.set_yscale("log")
    lower.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    lower.set_ylabel("latency in milliseconds")
    lower.set_xlabel("seconds since the first row was sent")
    lower.set_xlim(0, times[-1])
    for axes in (upper, lower):
        _mark_faults(axes, outcome.faults)
    figure.tight_layout()
    return figure


def _inlined(figure: Figure) -> str:
    """Return a figure as the text of a PNG in base64, and close it."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=110)
    plt.close(figure)
    return base64.b64encode(image.getvalue()).decode()


def _mark_faults(axes: Axes, faults: Sequence[Fault]) -> None:
    """Mark each fault's gap, with its number above the axes: there no line of text is cut off."""
    for number, fault in enumerate(faults, 1):
        axes.axvspan(fault.at_s, fault.at_s + fault.gap_s, color="#c44e52", alpha=0.25)
        axes.axvline(fault.at_s, color="#c44e52", linewidth=1)
        axes.annotate(
            str(number),
            (fault.at_s, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=10,
            fontweight="bold",
            color="#c44e52",
        )
