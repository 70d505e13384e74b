# pyright: reportUnknownMemberType=false
# (matplotlib annotates only some of its arguments)
"""The pictures of a run: operations over time, latency, throughput, with the faults behind them."""

import io
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jepsen_tests.checkers.shared.view import seconds
from jepsen_tests.history.events import NEVER, History, Kind, Op
from jepsen_tests.history.faults import faults_in_force

mpl.rcParams["text.parse_math"] = False  # a "$" of a history begins no formula
COLOURS: Final = {Kind.OK: "#3b7dd8", Kind.FAIL: "#e0a100", Kind.INFO: "#d03b3b"}
FAULT_COLOUR: Final = "#00000018"
POINTS_MAX: Final = 4_000
"""So many operations of each outcome are drawn. Of more, every n-th is drawn."""
WIDTH_INCHES: Final = 11.0


def _thinned(ops: Sequence[Op]) -> Sequence[Op]:
    return ops[:: max(1, -(-len(ops) // POINTS_MAX))]


def _by_outcome(history: History) -> dict[Kind, list[Op]]:
    grouped: dict[Kind, list[Op]] = {kind: [] for kind in COLOURS}
    for op in history.ops:
        if op.outcome in grouped:
            grouped[op.outcome].append(op)
    return grouped


def _shade(axes: Axes, history: History) -> None:
    for fault in faults_in_force(history):
        axes.axvspan(seconds(fault.start), seconds(fault.end), color=FAULT_COLOUR, lw=0)
        axes.annotate(
            fault.name, (seconds(fault.start), 1.0), xycoords=("data", "axes fraction"),
            fontsize=5, rotation=90, va="top", color="#555",
        )  # fmt: skip
    axes.set_xlim(0, max(1.0, seconds(history.ended)))


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.tight_layout()
    figure.savefig(out, format="svg")
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


def timeline(history: History) -> str:
    """Return a picture of the operations of each process, with their outcomes."""
    figure, axes = plt.subplots(figsize=(WIDTH_INCHES, 5))
    _shade(axes, history)
    for kind, ops in _by_outcome(history).items():
        some = _thinned(ops)
        ends = [min(op.ended, history.ended) for op in some]
        axes.hlines(
            [op.p for op in some], [seconds(op.began) for op in some],
            [seconds(end) for end in ends], colors=COLOURS[kind], lw=2, label=f"{kind} {len(ops)}",
        )  # fmt: skip
    axes.set(xlabel="seconds", ylabel="process")
    axes.legend(loc="lower right", fontsize=7)
    return _svg(figure)


def latency(history: History) -> str:
    """Return a picture of how long sends took that ended, on a logarithmic scale."""
    figure, axes = plt.subplots(figsize=(WIDTH_INCHES, 3))
    _shade(axes, history)
    for kind, ops in _by_outcome(history).items():
        some = _thinned([op for op in ops if op.f in ("send", "resend") and op.ended < NEVER])
        if some:
            took = [max(0.01, (op.ended - op.began) / 1e6) for op in some]
            begun = [seconds(op.began) for op in some]
            axes.scatter(begun, took, s=3, color=COLOURS[kind], label=str(kind))
    axes.set(yscale="log", xlabel="seconds", ylabel="latency of sends, ms")
    return _svg(figure)


def throughput(history: History) -> str:
    """Return a picture of the ok operations in each second, by function."""
    figure, axes = plt.subplots(figsize=(WIDTH_INCHES, 3))
    _shade(axes, history)
    counts: defaultdict[str, list[int]] = defaultdict(
        lambda: [0] * (int(seconds(history.ended)) + 1)
    )
    for op in history.ops:
        if op.is_ok:
            counts[op.f][int(seconds(op.ended))] += 1
    for f, each in sorted(counts.items(), key=lambda pair: -sum(pair[1]))[:6]:
        axes.plot(each, lw=1, label=f)
    axes.set(xlabel="seconds", ylabel="ok a second")
    if counts:
        axes.legend(fontsize=7)
    return _svg(figure)
