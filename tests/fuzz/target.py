"""What is fuzzed: a reader of bytes, the errors and the memory that it may take.

Owns: the promise of a target, and the judgement of one input. Not: where inputs come from
(`mutate.py`, `libfuzzer.py`), and which targets there are (`catalogue.py`).
"""

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from dledger_proto.limits import MIB

HOME: Final = Path(__file__).parents[2]
INPUT_BYTES_MAX: Final = 64 * 1_024
"""A longer input is not tried: what a length does wrong it does at once."""
HANG_SECONDS: Final = 25
"""Of one input: a reader that takes longer hangs."""
OUTCOME_FRAMES_MAX: Final = 4
"""Innermost calls of an error that tell its outcome from others."""


@dataclass(frozen=True, slots=True)
class Target:
    """A reader of bytes with its promise: it returns, or raises one of `errors`."""

    name: str
    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    seeds: Callable[[], Sequence[bytes]]
    """Inputs that real encoders made."""
    covers: tuple[str, ...]
    """The parsers that it runs, "module:function" or "module:Class.method"."""
    reseal: Callable[[bytes], bytes] | None = None
    """Makes the checksums right again, so that changed bytes get past them."""
    multiple: int = 32
    """Bytes of memory for a byte of the input, at most..."""
    allowance: int = MIB
    """...and so many more, whatever the input is."""
    tokens: Sequence[bytes] = ()
    """Words that mean something to the reader."""
    tries: int = 2_500
    """Changed inputs in an ordinary test run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an input."""

    outcome: str
    """Where the reader stopped and how; equal for inputs that went the same way."""
    problem: str = ""
    """Which promise was broken; empty: none."""


@contextmanager
def measured() -> Iterator[None]:
    """Let `judge` see the memory that a reader takes."""
    tracemalloc.start(1)
    try:
        yield
    finally:
        tracemalloc.stop()


def judge(target: Target, data: bytes) -> Verdict:
    """Let a target read an input; call within `measured`."""
    verdict, taken = _read(target, data)
    limit = target.multiple * len(data) + target.allowance
    if taken > limit:  # Tables of the interpreter grow at some time: only what repeats counts.
        verdict, taken = _read(target, data)
    if taken > limit and not verdict.problem:
        problem = f"memory of {taken} bytes for {len(data)} bytes, at most {limit}"
        return Verdict(f"memory {verdict.outcome}", f"{problem} [{verdict.outcome}]")
    return verdict


def _read(target: Target, data: bytes) -> tuple[Verdict, int]:
    """Return what became of an input, and the bytes of memory that it took."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        target.read(data)
    except target.errors as error:
        verdict = Verdict(_place_of(error))
    except Exception as error:
        place = _place_of(error)
        verdict = Verdict(place, f"{type(error).__name__}: {str(error)[:300]} [{place}]")
    else:
        verdict = Verdict("returned")
    return verdict, tracemalloc.get_traced_memory()[1] - before


def _place_of(error: BaseException) -> str:
    """Return the class of an error, and its innermost lines of ours."""
    lines: list[str] = []
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        path = Path(trace.tb_frame.f_code.co_filename)
        if path.is_relative_to(HOME) and ".venv" not in path.parts:
            lines.append(f"{path.stem}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f"{type(error).__name__} at {' '.join(lines[-OUTCOME_FRAMES_MAX:])}"
