"""The engine of atheris, libFuzzer for Python: guided by the lines that an input reaches.

Owns: its process. `make fuzz` installs the package (`requirements.lock`); where there is none,
`loop.py` does the work. A broken promise never ends the process: it is written down.
"""

import sys
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.fuzz.found import Found
from tests.fuzz.target import HANG_SECONDS, INPUT_BYTES_MAX, judge

PACKAGES: Final = (
    "dledger", "dledger_broker", "dledger_client", "dledger_namesrv", "dledger_offline",
    "dledger_proto",
)  # fmt: skip
MALLOC_MIB_MAX: Final = 512
PROCESS_MIB_MAX: Final = 4_096


def main(name: str, seconds: int, folder: Path) -> None:
    """Fuzz a target for some seconds; the process ends within."""
    import atheris

    engine: Any = atheris
    with engine.instrument_imports(include=list(PACKAGES)):
        from tests.fuzz.catalogue import by_name
        from tests.fuzz.loop import changed_one, known_inputs
        from tests.fuzz.target import measured

    target, found = by_name()[name], Found(folder)
    known = known_inputs(target)
    begin = folder / "begin"
    begin.mkdir(parents=True)
    for place, data in enumerate(known):
        (begin / str(place)).write_bytes(data)

    def one(data: bytes) -> None:
        verdict = judge(target, data)
        found.note(data, verdict)

    def change(data: bytes, size_max: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.5:
            data = engine.Mutate(data, size_max)
            return data if target.reseal is None else target.reseal(data)[:size_max]
        return changed_one(target, random, data, known)[:size_max]

    arguments = [
        sys.argv[0], f"-max_total_time={seconds}", f"-timeout={HANG_SECONDS}",
        f"-max_len={INPUT_BYTES_MAX}", f"-malloc_limit_mb={MALLOC_MIB_MAX}",
        f"-rss_limit_mb={PROCESS_MIB_MAX}", f"-artifact_prefix={folder}/", "-verbosity=0",
        "-print_final_stats=1", str(begin),
    ]  # fmt: skip
    with measured():
        for data in known:  # What is loaded at the first use is not the input's memory.
            judge(target, data)
        engine.Setup(arguments, one, custom_mutator=change)
        engine.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
