"""C25: an export holds each record of its range once and in order, and what it held is not gone."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.view import View, grouped
from jepsen_tests.history.events import Op


def exports(view: View) -> Judgement:
    """C25. The versions of an export follow one another, and each is complete.

    A version begins where the one before it ends, and everybody is shown the same version N. The
    files of a version hold each offset of its range once and in order, but for the gaps that the
    version names. A gap is where somebody asked for a trim. It is not where a plan held the log,
    nor where a session did: it holds the log from the end of the version that it published before.
    A version that was not planned by another run ends above all that was acknowledged before its
    run began. That the rows are those of the log: C4, C5, C7.
    """
    judgement = Judgement("C25")
    done = [op for op in view.ops("export") if op.is_ok]
    for topic, ops in grouped(done, lambda op: op.k).items():
        versions: dict[int, Op] = {}
        for op in ops:
            first = versions.setdefault(op.result["version"], op)
            if first is not op and not _same(first, op):
                _add(judgement, "export-differs", topic, (first, op), "is shown in two ways")
        for before, after in pairwise(versions[n] for n in sorted(versions)):
            _follows(judgement, before, after)
        for op in versions.values():
            _tiles(judgement, op)
            _gaps(view, judgement, op)
        _in_sessions(judgement, ops)
    for op in done:
        if not op.result["adopted"]:
            _complete(view, judgement, op)
    rows = sum(len(values) for op in done for _, _, values in op.result["rows"])
    judgement.facts |= {"looked_at": len(done), "rows": rows}
    return judgement


def _add(judgement: Judgement, kind: str, what: str, ops: Iterable[Op], text: str) -> None:
    named = list(ops)
    version = named[-1].result["version"]
    rows = [row for op in named for row in (op.i, op.done)]
    judgement.add(kind, f"{what}: version {version} of the export {text}", rows)


def _same(one: Op, other: Op) -> bool:
    said = ("start", "end", "gaps", "rows")
    return all(one.result[each] == other.result[each] for each in said)


def _follows(judgement: Judgement, before: Op, after: Op) -> None:
    """Versions in between may be those of a run whose end nobody saw: ranges only grow then."""
    is_next = after.result["version"] == before.result["version"] + 1
    for place, start in after.result["start"].items():
        end = before.result["end"].get(place)
        if end is not None and (start != end if is_next else start < end):
            _add(
                judgement, "export-not-next", place, (before, after),
                f"begins at {start}, version {before.result['version']} ends at {end}",
            )  # fmt: skip


def _runs(op: Op) -> defaultdict[str, list[tuple[int, int]]]:
    """Return by place the ranges of the rows, in the order in which the files were read."""
    runs: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for place, offset, values in op.result["rows"]:
        runs[place].append((offset, offset + len(values)))
    return runs


def _tiles(judgement: Judgement, op: Op) -> None:
    ranges = _runs(op)
    for place, runs in ranges.items():
        for before, after in pairwise(runs):
            if after[0] < before[1]:
                _add(
                    judgement, "export-order", place, [op],
                    f"shows offset {after[0]} behind {before[1] - 1}",
                )  # fmt: skip
    for place, start, end in op.result["gaps"]:
        ranges[place].append((start, end))
    for place in sorted({*op.result["end"], *ranges}):
        at = op.result["start"].get(place, 0)
        end = op.result["end"].get(place, at)
        for start, stop in sorted(ranges[place]):
            if start < at:
                _add(judgement, "export-twice", place, [op], f"has offset {start} twice")
            elif start > at:
                _add(judgement, "export-hole", place, [op], f"lacks offsets {at} to {start - 1}")
            at = max(at, stop)
        if at < end:
            _add(judgement, "export-hole", place, [op], f"lacks offsets {at} to {end - 1}")
        elif at > end:
            _add(judgement, "export-twice", place, [op], f"has offset {at - 1} above its end {end}")


def _gaps(view: View, judgement: Judgement, op: Op) -> None:
    for place, start, end in op.result["lost"]:
        _add(
            judgement, "export-held-trimmed", place, [op],
            f"lost offsets {start} to {end - 1} after they were planned and held",
        )  # fmt: skip
    for place, start, end in op.result["gaps"]:
        if end > view.log.places[place].floor_at(op.done):
            _add(
                judgement, "export-gap", place, [op],
                f"lacks offsets {start} to {end - 1}, and nobody asked for such a trim",
            )  # fmt: skip


def _in_sessions(judgement: Judgement, ops: Iterable[Op]) -> None:
    """Hold each version's gaps against what its session had held since its version before."""
    for session in grouped(ops, lambda op: (op.p, op.asked)).values():
        for before, after in pairwise(session):
            for place, start, end in _held_gaps(before, after):
                _add(
                    judgement, "export-held-trimmed", place, (before, after),
                    f"lacks offsets {start} to {end - 1}, though its exporter held the log from "
                    f"{before.result['end'][place]} on",
                )  # fmt: skip


def _held_gaps(before: Op, after: Op) -> Iterator[tuple[str, int, int]]:
    for place, start, end in after.result["gaps"]:
        if place in before.result["end"]:
            yield place, start, end


def _complete(view: View, judgement: Judgement, op: Op) -> None:
    """Look for what was acknowledged before the run began, above the end of its version."""
    for sent in view.log.sent.values():
        if 0 < sent.acked_row < op.i and sent.place.name.rpartition("/")[0] == op.k:
            end = op.result["end"].get(sent.place.name, 0)
            if sent.acked_offset >= end:
                _add(
                    judgement, "export-short", sent.place.name, [op],
                    f"ends at {end}, but {sent.op.asked[sent.index]} was stored at "
                    f"{sent.acked_offset} before its run began",
                )  # fmt: skip
                return
