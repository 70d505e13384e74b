"""The points along each axis, each in a cluster of its own; what `python -m bench scale` runs.

The axes take turns within a run. A figure's name is `scale_<axis>_<point>_<what>`: `curves` draws
each (axis, what) as a line.
"""

from collections.abc import AsyncIterator, Callable

from bench.effort import Effort
from bench.figures import Figure, Rounds, stated
from bench.scale import bodies, consumers, groups, producers, queues

Measure = Callable[[int, Effort], AsyncIterator[tuple[str, float, str]]]
AXES: dict[str, tuple[tuple[int, ...], Measure]] = {
    "queues": (queues.POINTS, queues.measure),
    "producers": (producers.POINTS, producers.measure),
    "consumers": (consumers.POINTS, consumers.measure),
    "groups": (groups.POINTS, groups.measure),
    "bodies": (bodies.POINTS, bodies.measure),
}


async def measure(effort: Effort) -> list[Figure]:
    """Measure every point of every axis, `effort.runs` times in turn."""
    rounds = Rounds()
    units: dict[str, str] = {}
    for _ in range(effort.runs):
        for axis, (points, at_point) in AXES.items():
            for point in points:
                async for what, value, unit in at_point(point, effort):
                    name = f"scale_{axis}_{point}_{what}"
                    rounds.add(name, value)
                    units[name] = unit
    return [stated(name, rounds[name], unit) for name, unit in units.items()]
