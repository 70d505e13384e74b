"""Our own engine: changed inputs, of which those with a new outcome are changed further.

Owns: the loop, and its process. It needs no package, and knows nothing of covered lines: the line
where a reader stops is its only guide. `libfuzzer.py` goes deeper where it can be installed.
"""

import faulthandler
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final

from tests.fuzz import corpus
from tests.fuzz.catalogue import by_name
from tests.fuzz.found import Found
from tests.fuzz.mutate import changed
from tests.fuzz.target import HANG_SECONDS, INPUT_BYTES_MAX, Target, Verdict, judge, measured

RESEALED_SHARE: Final = 0.75
POOL_MAX: Final = 2_000
"""Inputs of one run that are changed further."""
PROCESS_BYTES_MAX: Final = 8 << 30
"""Address space of the process: an allocation that a length asked for fails."""


def known_inputs(target: Target) -> list[bytes]:
    """Return what a run begins with: seeds, the corpus, what was found once."""
    kept = (corpus.kept(folder, target.name) for folder in (corpus.CORPUS, corpus.FINDINGS))
    return list(dict.fromkeys([b"", *target.seeds(), *(data for each in kept for data in each)]))


def tried(
    target: Target, random: Random, goes_on: Callable[[int], bool], pool: Sequence[bytes]
) -> Iterator[tuple[bytes, Verdict]]:
    """Yield each input and what became of it: first those of `pool`, then changed ones.

    `goes_on` is asked before each changed input, with their number so far.
    """
    pool = list(pool)
    outcomes: set[str] = set()
    for data in pool:  # What is loaded at the first use is not the input's memory.
        judge(target, data)
    for data in list(pool):
        verdict = judge(target, data)
        outcomes.add(verdict.outcome)
        yield data, verdict
    number = 0
    while goes_on(number):
        number += 1
        data = changed_one(target, random, random.choice(pool), pool)
        verdict = judge(target, data)
        if verdict.outcome not in outcomes and len(pool) < POOL_MAX:
            outcomes.add(verdict.outcome)
            pool.append(data)
        yield data, verdict


def changed_one(target: Target, random: Random, data: bytes, pool: Sequence[bytes]) -> bytes:
    """Return a changed input, mostly with checksums that are right."""
    data = changed(random, data, pool, target.tokens)[:INPUT_BYTES_MAX]
    if target.reseal is not None and random.random() < RESEALED_SHARE:
        data = target.reseal(data)
    return data


def main(name: str, seconds: float, folder: Path) -> None:
    """Try changed inputs of a target for some seconds."""
    resource.setrlimit(resource.RLIMIT_AS, (PROCESS_BYTES_MAX, PROCESS_BYTES_MAX))
    target, found = by_name()[name], Found(folder)
    end = time.monotonic() + seconds
    with measured():
        for data, verdict in tried(
            target, Random(), lambda _: time.monotonic() < end, known_inputs(target)
        ):
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            found.note(data, verdict)
    faulthandler.cancel_dump_traceback_later()
    found.write_count()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
