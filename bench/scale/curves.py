"""Draws what `python -m bench scale --out FILE` measured: one picture for each axis.

    python -m bench.scale.curves FILE FOLDER

writes FOLDER/scale-<axis>.svg: a small plot of each thing measured, over the axis's points.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import matplotlib as mpl
import typer
from matplotlib.figure import Figure as Picture

NAME = re.compile(r"scale_([a-z]+)_(\d+)_(\w+)")
Lines = dict[str, dict[str, list[tuple[int, float]]]]
"""By axis and what was measured (with its unit): (point, value) in order."""


def lines_of(text: Iterable[str]) -> Lines:
    """Return the curves in JSON lines of a run; other figures are passed over."""
    found: Lines = {}
    for line in text:
        figure = json.loads(line)
        named = NAME.fullmatch(figure["name"])
        if named:
            what = f"{named[3].replace('_', ' ')}, {figure['unit']}"
            curve = found.setdefault(named[1], {}).setdefault(what, [])
            curve.append((int(named[2]), figure["value"]))
    for axis in found.values():
        for curve in axis.values():
            curve.sort()
    return found


def draw(axis: str, curves: dict[str, list[tuple[int, float]]], path: Path) -> None:
    """Write the picture of one axis."""
    with mpl.rc_context({"svg.hashsalt": axis, "font.size": 8}):
        picture = Picture(figsize=(9, 2.2 * ((len(curves) + 2) // 3)), layout="constrained")
        for number, (what, curve) in enumerate(curves.items(), 1):
            plot = picture.add_subplot((len(curves) + 2) // 3, 3, number)
            points, values = zip(*curve, strict=True)
            plot.plot(points, values, marker="o")
            plot.set_xscale("log")
            plot.set_xticks(points, [f"{point:,}" for point in points], minor=False)
            plot.set_xticks([], minor=True)
            plot.set_ylim(bottom=0)
            plot.set_title(what)
            plot.grid(visible=True, alpha=0.3)
        picture.supxlabel(axis if axis != "bodies" else "bytes of a body")
        picture.savefig(path, format="svg", metadata={"Date": None})


def main(
    lines: Annotated[Path, typer.Argument(help="JSON lines of a run.", dir_okay=False)],
    folder: Annotated[Path, typer.Argument(help="Where the pictures go.", file_okay=False)],
) -> None:
    """Draw the pictures of a run."""
    with lines.open() as text:
        found = lines_of(text)
    for axis, curves in found.items():
        draw(axis, curves, folder / f"scale-{axis}.svg")


if __name__ == "__main__":
    typer.run(main)
