"""What a configuration leaves room for on a disk that is found to be low or full (I16)."""

from pathlib import Path

import pytest

from dledger_broker.config.checks import ConfigError
from dledger_broker.config.load import load_config

MIB = 1 << 20


@pytest.mark.parametrize(
    ("groups", "low_water", "reserve", "inflight", "uncommitted", "short_of"),
    [
        (1, 256, 64, 16, 64, ""),
        (1, 0, 0, 16, 64, ""),
        (1, 24, 12, 16, 28, ""),
        (1, 23, 12, 16, 27, "raft.inflight_bytes_max"),
        (1, 24, 12, 16, 29, "raft.uncommitted_bytes_max"),
        (8, 96, 12, 10, 16, ""),
        (8, 95, 12, 10, 15, "raft.inflight_bytes_max"),
        (8, 96, 12, 10, 17, "raft.uncommitted_bytes_max"),
    ],
)
def test_what_may_still_come_has_room_on_a_full_disk(
    tmp_path: Path,
    groups: int,
    low_water: int,
    reserve: int,
    inflight: int,
    uncommitted: int,
    short_of: str,
) -> None:
    """All groups of a process share the mark, each has a reserve of its own."""
    head = 'cluster = "shop"\nmember = "a"\nlisten = "127.0.0.1:10911"\nfolder = "data"\n'
    for number in range(groups):
        head += f'[[groups]]\nname = "g{number}"\nmembers = {{ a = "127.0.0.1:1" }}\n'
    text = (
        f"storage.disk_low_water_bytes = {low_water * MIB}\n"
        f"storage.disk_reserve_bytes = {reserve * MIB}\n"
        f"raft.inflight_bytes_max = {inflight * MIB}\n"
        f"raft.uncommitted_bytes_max = {uncommitted * MIB}\n" + head
    )
    file = tmp_path / "member.toml"
    file.write_text(text)
    if not short_of:
        load_config(file, {})
        return
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    said = [problem.describe() for problem in caught.value.problems]
    assert len(said) == 1
    assert f"{short_of} and one entry of each group" in said[0]
