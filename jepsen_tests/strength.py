"""Proof of strength: known bugs put into the members, and which of them are found, how fast.

Owns the closed list of trials: a bug of `tests/mutants`, the workload and faults that should show
it. A bug that no black box can show names the simulation's script that does, and why.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from jepsen_tests.history import History, read_history


@dataclass(frozen=True, slots=True)
class Trial:
    """One bug, and what should show it."""

    mutant: str
    workload: str
    faults: str
    seconds: int = 25
    hidden: str = ""
    """Why a black box need not find it; the simulation does, by the script or seed that
    `tests/mutants/caught.json` names."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a trial. `after` is in seconds since the faults began; 0: not caught."""

    mutant: str
    workload: str
    faults: str
    caught_by: str
    after: float


TRIALS: Final = (
    Trial("ack-before-fsync", "log", "power-cut-before-sync"),
    Trial("entries-not-synced", "log", "power-cut-before-sync"),
    Trial("failed-sync-ignored", "log", "power-cut-before-sync"),
    Trial("ack-before-quorum", "log", "isolate-leader,kill-leader"),
    Trial("unconditional-truncation", "log", "flap,isolate-leader,delay", 60),
    Trial(
        "no-commit-clamp",
        "log",
        "flap,isolate-leader,delay",
        60,
        "one message must carry a commit index above what it proves, and a new leader differ there",
    ),
    Trial(
        "stale-acknowledgement",
        "log",
        "heal-at-timeout,flap,slow-sync",
        60,
        "an answer must outlive the connection and the reign that it belongs to",
    ),
    Trial(
        "acknowledged-more-than-stored",
        "log",
        "isolate,kill,slow-sync",
        40,
        "a follower must lose its connection and its leader between two messages",
    ),
    Trial("apply-before-commit", "log", "isolate-leader,kill-while-cut", 40),
    Trial("leader-counts-itself-before-sync", "log", "power-cut-before-sync", 60),
    Trial("stale-leader-read", "offsets", "isolate-leader,pause-leaders", 40),
    Trial(
        "read-before-own-entry",
        "offsets",
        "kill-leader,isolate-leader",
        40,
        "a commit, its leader's death and a read must fall into some milliseconds",
    ),
    Trial("dedup-off", "retry", "kill-leader"),
    Trial("dedup-lost-at-restart", "retry", "restart,kill-all", 40),
    Trial("repeat-without-its-offset", "retry", "kill-leader"),
    Trial("stale-epoch-writes", "fifo", "transfer"),
    Trial("lives-are-one", "fifo", "transfer", 60),
    Trial("offsets-reused-after-restart", "log", "restart,kill-all", 40),
    Trial("offset-commit-lost", "offsets", "kill-leader"),
    Trial("offset-goes-back", "offsets", "kill-leader"),
    Trial("unknown-told-as-failed", "log", "pause-leaders", 40),
    Trial("append-forgets-the-frozen-rows", "log", "kill", 20),
    Trial("incomplete-candidate-elected", "log", "isolate,kill-leader,flap", 60),
    Trial(
        "proposals-never-settled",
        "log",
        "isolate-leader,kill-while-cut",
        40,
        "clients give up waiting by themselves, with the same outcome",
    ),
    Trial("refill-sends-unchecked-bytes", "log", "bit-flips,kill", 60),
    Trial("no-quarantine", "log", "next-quorum-wiped", 40),
    Trial("quarantine-ends-with-a-majority", "log", "next-quorum-wiped", 40),
    Trial("double-vote", "log", "heal-at-timeout,pause-leaders,kill-leader", 60),
    Trial("vote-forgotten-at-restart", "log", "crash-loop,kill-all", 60),
    Trial("trim-above-the-slowest", "retention", "pause,isolate", 60),
)


def prove(seed: int, out: Path, only: str, console: Console) -> int:
    """Run the trials; print and keep the table; return 0 when all that should be are caught."""
    trials = [trial for trial in TRIALS if only in ("", trial.mutant)]
    outcomes: list[Outcome] = []
    for trial in track(trials, "bugs", console=console):
        outcomes.append(_try(trial, seed, out / "mutants"))
        console.print(f"{trial.mutant}: {outcomes[-1].caught_by or 'not caught'}", highlight=False)
    table = Table("bug", "workload", "faults", "caught by", "after s", title="known bugs")
    for trial, each in zip(trials, outcomes, strict=True):
        after = f"{each.after:.1f}" if each.caught_by else ""
        by = each.caught_by or (f"- ({trial.hidden})" if trial.hidden else "NOT CAUGHT")
        table.add_row(each.mutant, each.workload, each.faults, by, after)
    console.print(table)
    times = [each.after for each in outcomes if each.caught_by]
    if times:
        median = f"{statistics.median(times):.1f} s"
        console.print(f"{len(times)} of {len(outcomes)} caught, the median after {median}")
    (out / "mutants.json").write_text(json.dumps([asdict(each) for each in outcomes], indent=1))
    missed = [t.mutant for t, each in zip(trials, outcomes, strict=True)
              if not each.caught_by and not t.hidden]  # fmt: skip
    return 1 if missed else 0


def _try(trial: Trial, seed: int, out: Path) -> Outcome:
    folder = out / trial.mutant
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.iterdir())
    ran = subprocess.run(
        [
            sys.executable, "-m", "jepsen_tests", "run", "--workload", trial.workload,
            "--nemesis", trial.faults, "--time", str(trial.seconds), "--seed", str(seed),
            "--mutant", trial.mutant, "--out", str(folder),
        ],
        check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    (folder / "said.txt").write_text(ran.stdout)
    for made in set(folder.iterdir()) - before:
        if (made / "results.json").exists():
            results = json.loads((made / "results.json").read_text())
            wrong = [each for each in results["judgements"] if each["valid"] == "invalid"]
            if wrong:
                history = read_history(made / "history.jsonl")
                by = ", ".join(_described(each) for each in wrong)
                return Outcome(
                    trial.mutant, trial.workload, trial.faults, by, _after(history, wrong)
                )
    return Outcome(trial.mutant, trial.workload, trial.faults, "", 0.0)


def _described(judgement: dict[str, Any]) -> str:
    kinds = sorted({finding["kind"] for finding in judgement["findings"]})
    return f"{judgement['checker']} {'/'.join(kinds)}"


def _after(history: History, wrong: Sequence[dict[str, Any]]) -> float:
    """Return when the first anomaly was complete: when the last of its rows was written."""
    times = {row.i: row.t for row in history.faults}
    for op in history.ops:
        times[op.i] = op.began
        if op.done:
            times[op.done] = min(op.ended, history.ended)
    began = next(row.t for row in history.faults if row.f == "phase" and row.k == "faults")
    found = [
        max(times[row] for row in finding["rows"])
        for judgement in wrong
        for finding in judgement["findings"]
        if finding["rows"]
    ]
    return max(0.0, (min(found, default=history.ended) - began) / 1e9)
