"""The dump of a state: what was written is read, and nothing else is."""

from random import Random

import pytest

from dledger.log.atomic_file import CorruptFile
from dledger.refill.state_dump import STEP_BYTES, read_dump, write_dump
from dledger.store.store import Row
from tests.sim.disk.disk import SimFileSystem

PATH = "/dump"


def rows(count: int, size: int) -> list[Row]:
    random = Random(count)
    return [(b"%08d" % number, random.randbytes(random.randrange(size))) for number in range(count)]


@pytest.mark.parametrize("wanted", [rows(0, 1), rows(1, 9), rows(500, 90), rows(40, STEP_BYTES)])
def test_what_was_written_is_read(wanted: list[Row]) -> None:
    fs = SimFileSystem(Random(1))
    size = write_dump(fs, PATH, wanted)
    assert size == fs.size_of(PATH)
    assert list(read_dump(fs, PATH)) == wanted
    write_dump(fs, PATH, wanted[:1])
    assert list(read_dump(fs, PATH)) == wanted[:1], "a longer file of before is replaced"


def test_any_flipped_byte_is_found() -> None:
    fs = SimFileSystem(Random(1))
    size = write_dump(fs, PATH, rows(9, 30))
    fs.open(PATH).fdatasync()
    for offset in range(size):
        fs.flip(PATH, offset)
        with pytest.raises(CorruptFile):
            list(read_dump(fs, PATH))
        fs.flip(PATH, offset)


def test_a_file_of_another_length_is_found() -> None:
    fs = SimFileSystem(Random(1))
    size = write_dump(fs, PATH, rows(9, 30))
    whole = fs.content(PATH)
    file = fs.open(PATH)
    for shorter in range(size):
        file.truncate(shorter)
        with pytest.raises(CorruptFile):
            list(read_dump(fs, PATH))
        file.pwritev([whole], 0)
    file.pwritev([b"x"], size)
    with pytest.raises(CorruptFile):
        list(read_dump(fs, PATH))
