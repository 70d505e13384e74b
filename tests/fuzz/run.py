"""`make fuzz`: every target in turn, for some seconds each; what was found is kept.

Owns: the processes of a run, its lines, and what joins the corpus and the findings.
"""

import argparse
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from tests.fuzz import corpus, found
from tests.fuzz.catalogue import TARGETS, by_name
from tests.fuzz.loop import known_inputs
from tests.fuzz.target import HANG_SECONDS, HOME, Target, judge, measured

OUT: Final = HOME / "out" / "fuzz"
SECONDS_DEFAULT: Final = 20
START_SECONDS_MAX: Final = 300
"""Atheris rewrites every module that it loads."""
STRAY: Final = ("crash-", "leak-", "oom-", "timeout-", "slow-unit-")
"""How files of libFuzzer begin that hold an input with which the process ended, or nearly."""


def main(arguments: Sequence[str]) -> int:
    """Run; return 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--seconds", type=int, default=SECONDS_DEFAULT, help="of each target")
    parser.add_argument("--target", action="append", choices=sorted(by_name()), default=[])
    parser.add_argument("--engine", choices=("libfuzzer", "loop"))
    chosen = parser.parse_args(arguments)
    has_atheris = importlib.util.find_spec("atheris") is not None
    engine = chosen.engine or ("libfuzzer" if has_atheris else "loop")
    print(f"engine {engine}, {chosen.seconds} s for each target; {OUT}")
    broken = 0
    for target in TARGETS:
        if not chosen.target or target.name in chosen.target:
            broken += run_one(target, engine, chosen.seconds)
    count, size = corpus.size(corpus.CORPUS)
    print(f"corpus: {count} inputs, {size} bytes of {corpus.KEPT_BYTES_MAX}; findings: {broken}")
    return 1 if broken else 0


def run_one(target: Target, engine: str, seconds: int) -> int:
    """Fuzz one target; return how many promises it broke."""
    folder = OUT / target.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", f"tests.fuzz.{engine}", target.name, str(seconds), str(folder)]
    with (folder / "log").open("wb") as log:
        try:
            ended = subprocess.run(
                command, cwd=HOME, stdout=log, stderr=log, check=False,
                timeout=seconds + START_SECONDS_MAX + HANG_SECONDS,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            ended = -1
    problems = list(found.problems(folder))
    strays = [path for path in folder.iterdir() if path.name.startswith(STRAY)]
    problems += [(f"the process ended or hung: {path.name}", path.read_bytes()) for path in strays]
    if ended and not strays:
        problems.append((f"the process ended with {ended}: see {folder / 'log'}", b""))
    with measured():
        kept = _keep_new(target, found.inputs(folder))
    print(
        f"{target.name:20} {found.executions(folder):9} executions  {kept:3} new in the corpus  "
        f"{len(problems):2} findings",
        flush=True,
    )
    for problem, data in problems:
        where = corpus.keep(corpus.FINDINGS, target.name, data) if data else "-"
        print(f"    {problem}\n    {where}", flush=True)
    return len(problems)


def _keep_new(target: Target, inputs: Sequence[bytes]) -> int:
    """Add inputs with a new outcome to the corpus, as long as there is room; return how many."""
    outcomes = {judge(target, data).outcome for data in known_inputs(target)}
    kept = 0
    for data in inputs:
        verdict = judge(target, data)
        if verdict.outcome in outcomes or verdict.problem or not corpus.has_room(data):
            continue
        outcomes.add(verdict.outcome)
        corpus.keep(corpus.CORPUS, target.name, data)
        kept += 1
    return kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
