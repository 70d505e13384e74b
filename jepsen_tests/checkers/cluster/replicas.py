"""C15, C16: members hold equal entries, and their terms, commits and leaders obey Raft."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.realtime import high_water
from jepsen_tests.checkers.shared.view import NS, View
from jepsen_tests.history.events import HEAL, STOOD_STILL, Op

TOO_LONG: Final = "entries follow"
"""The error of `entries` ends so when a log is longer than one answer may be."""
LIVES_ON: Final = (
    "partition", "isolate", "bridge", "ring", "one-way", "flap", "delay", "loss", "bandwidth",
    "slices", "reset", "pause", "slow", "clock", "transfer", "heal-at-timeout", "client", "zombie",
    "leader-unheard", "cut-while-slow", "split-vote",
)  # fmt: skip
"""Names of faults that end no process begin so. Any other fault may restart its targets."""


def replica_equality(view: View) -> Judgement:
    """C15. In the final phase members hold identical applied entries and equal states.

    Two members are compared up to the smaller of their applied indices, because an entry above it
    may still be replaced. Members with equal applied indices have equal digests. A member holds all
    applied entries from its first entry on, and at least one: the newest is never trimmed.
    """
    judgement = Judgement("C15")
    rows = view.final("entries")
    entries: dict[int, tuple[tuple[int, int], Op]] = {}
    digests: dict[int, tuple[str, Op]] = {}
    for op in rows:
        _compare_entries(entries, op, judgement)
        applied, digest = op.result["applied"], op.result["digest"]
        other_digest, other = digests.setdefault(applied, (digest, op))
        if digest != other_digest:
            judgement.add(
                "different-digest",
                f"both have applied entry {applied}, but the state of {other.node} has digest "
                f"{other_digest} and the state of {op.node} has digest {digest}",
                (other.done, op.done),
            )
    judgement.facts |= {
        "looked_at": len(rows),
        "members": len({op.node for op in rows}),
        "entries": len(entries),
    }
    _compared(view, judgement)
    return judgement


def _compared(view: View, judgement: Judgement) -> None:
    """Note whose log could not be compared. A member that told nothing is for C18 to judge."""
    told = {op.node for op in view.final("entries")}
    silent = [node for node in view.header.nodes if node not in told]
    if silent:
        judgement.unknown(f"there was no log of {', '.join(silent)} to compare")
        long = {op.node for op in view.ops("entries") if op.err.endswith(TOO_LONG)}
        judgement.is_asked = not long.issuperset(silent)  # such a log is too long for an answer


def _compare_entries(
    entries: dict[int, tuple[tuple[int, int], Op]], op: Op, judgement: Judgement
) -> None:
    """Compare a member's applied entries with those of others; name the first difference."""
    first, terms, crcs = op.result["first"], op.result["terms"], op.result["crcs"]
    end = first + len(terms)
    if op.result["applied"] and (not terms or end <= op.result["applied"]):
        holds = f"{first} to {end - 1}" if terms else "none"
        judgement.add(
            "missing-entry",
            f"{op.node} has applied entry {op.result['applied']}, but holds entries {holds}",
            (op.i, op.done),
        )
    named = False
    for index, entry in enumerate(zip(terms, crcs, strict=True), first):
        if index > op.result["applied"]:
            break
        seen, other = entries.setdefault(index, (entry, op))
        if seen != entry and not named:
            named = True
            judgement.add(
                "different-entry",
                f"index {index}: {other.node} holds term {seen[0]}, checksum {seen[1]}; but "
                f"{op.node} holds term {entry[0]}, checksum {entry[1]}",
                (other.done, op.done),
            )


def raft_invariants(view: View) -> Judgement:
    """C16. A term has one leader, and what members say of their log never goes back.

    Term and first index never go back while a member keeps its incarnation. Commit and applied
    index are partly in memory only, so they are compared within one life of the process. A life
    ends with the process, and with any fault that may restart it. No member names another leader
    of a term than the one that says it leads. At the end a majority names the leader. A member
    that leads or follows applies what others have applied: if it applied nothing for long while
    they went on, a fault must have hit it in that time.
    """
    judgement = Judgement("C16")
    _leaders(view.statuses, judgement)
    if not view.interrupted:  # else it was not the end, where all should have heard of it
        _named(view, judgement)
    _stood_still(view, judgement)
    lives = _Lives(view)
    by_incarnation: defaultdict[tuple[str, str], list[Op]] = defaultdict(list)
    by_life: defaultdict[tuple[str, str, int], list[Op]] = defaultdict(list)
    for op in view.statuses:
        _in_order(op, judgement)
        incarnation = op.node, str(op.result["incarnation"])
        by_incarnation[incarnation].append(op)
        life = lives.of(op)
        if life is not None:
            by_life[*incarnation, life].append(op)
    for figure, groups in (
        ("term", by_incarnation.values()), ("first", by_incarnation.values()),
        ("commit", by_life.values()), ("applied", by_life.values()),
    ):  # fmt: skip
        _never_back(figure, groups, judgement)
    judgement.facts |= {
        "looked_at": len(view.statuses),
        "terms": max((op.result["term"] for op in view.statuses), default=0),
    }
    return judgement


def _leaders(statuses: Iterable[Op], judgement: Judgement) -> None:
    leaders: dict[int, Op] = {}
    for op in statuses:
        if op.result["role"] != "leader":
            continue
        other = leaders.setdefault(op.result["term"], op)
        if other.node != op.node:
            judgement.add(
                "two-leaders",
                f"{other.node} and {op.node} both lead in term {op.result['term']}",
                (other.done, op.done),
            )
    for op in statuses:
        leads = leaders.get(op.result["term"])
        named = op.result["leader"]
        if leads is not None and named and named != leads.node and op.node != named:
            judgement.add(
                "other-leader",
                f"{op.node} says that {named} leads term {op.result['term']}, and {leads.node} "
                "says that it leads this term itself",
                (leads.done, op.done),
            )


def _named(view: View, judgement: Judgement) -> None:
    """Judge whether at the end a majority names the member that says it leads."""
    last = {op.node: op for op in sorted(view.final("status"), key=lambda op: op.done)}
    for leads in last.values():
        term = leads.result["term"]
        if leads.result["role"] != "leader":
            continue
        if any(op.result["term"] > term for op in last.values()):
            continue  # it is deposed and does not know yet
        naming = [
            op.node for op in last.values()
            if op.result["term"] == term and op.result["leader"] == leads.node
        ]  # fmt: skip
        if 2 * len(naming) <= len(view.header.nodes) and len(last) == len(view.header.nodes):
            names = ", ".join(naming) or "nobody"
            judgement.add(
                "unnamed-leader",
                f"at the end {leads.node} leads term {term}, but only {names} says so",
                (op.done for op in last.values()),
            )


def _stood_still(view: View, judgement: Judgement) -> None:
    for row in view.history.faults:
        if row.f != STOOD_STILL:
            continue
        since = row.t - round(float(row.err.removesuffix(" s")) * NS)
        if any(
            fault.start < row.t and fault.end > since and fault.hits(row.k, view.header.nodes)
            for fault in view.faults
        ):
            continue
        others = ", ".join(
            f"{node} went from {start} to {end}" for node, (start, end) in row.v["others"].items()
        )
        judgement.add(
            "stood-still",
            f"{row.k} applied nothing after index {row.v['applied']} for {row.err}, though no "
            f"fault hit it; meanwhile {others}",
            (row.i,),
        )


def _in_order(op: Op, judgement: Judgement) -> None:
    applied, commit, last = (op.result[figure] for figure in ("applied", "commit", "last"))
    if not applied <= commit <= last:
        judgement.add(
            "index-order",
            f"{op.node}: applied {applied}, commit {commit} and last {last} must not fall in this "
            "order",
            (op.i, op.done),
        )


def _never_back(figure: str, groups: Iterable[list[Op]], judgement: Judgement) -> None:
    for ops in groups:
        completed = ((op.done, op.result[figure], op) for op in ops)
        for later, highest, earlier in high_water(completed, ((op.i, op) for op in ops)):
            if later.result[figure] < highest:
                judgement.add(
                    f"{figure}-back",
                    f"{later.node}: {figure} was {highest} and later {later.result[figure]}",
                    (earlier.i, earlier.done, later.i, later.done),
                )


class _Lives:
    """Tells the lives of members' processes apart by the faults that may have ended them.

    Such a fault counts from the row that begins it until it is healed. A member that the harness
    found dead died at some time since the heal before.
    """

    def __init__(self, view: View) -> None:
        self._nodes = view.header.nodes
        self._faults = [fault for fault in view.faults if not fault.name.startswith(LIVES_ON)]
        self._hits: dict[str, list[tuple[int, int]]] = {}
        self._deaths: list[tuple[str, int, int]] = []
        healed = 0
        for row in view.history.faults:
            if row.f == "died":
                self._deaths.append((row.k, healed, row.t))
            elif row.f == HEAL:
                healed = row.t

    def of(self, op: Op) -> int | None:
        """Return a number for the life that an operation met; None if it may be one of several."""
        hits = self._hits.get(op.node)
        if hits is None:
            hits = self._hits[op.node] = [
                (fault.start, fault.end)
                for fault in self._faults
                if fault.hits(op.node, self._nodes)
            ]
            hits += [(start, end) for node, start, end in self._deaths if node == op.node]
        if any(start < op.ended and op.began < end for start, end in hits):
            return None
        return sum(end <= op.began for _, end in hits)
