"""What the benchmarks conclude from what they saw, without running anything that is measured."""

from pathlib import Path

import pytest

from bench.cluster.steady import needless_terms
from bench.setup.cluster import NotReady, Running
from bench.setup.native import Batches, rich_records
from dledger_broker.local.cluster import LocalCluster
from dledger_proto.batch.codec import BatchView


def _campaign(second: int, term: int) -> str:
    return f"2030-01-01T00:00:{second:02}.000000Z [info     ] campaign   group=g term={term} why=x"


def _paused(second: int, gap: float) -> str:
    return f"2030-01-01T00:00:{second:02}.000000Z [warning  ] paused   gap_seconds={gap} term=1"


@pytest.mark.parametrize(
    ("texts", "last", "needless"),
    [
        ([""], 1, []),
        ([_campaign(10, 2)], 2, [2]),
        ([_campaign(10, 2), _paused(11, 3.0)], 2, []),  # the leader: it tells when it is back
        ([_campaign(10, 2) + "\n" + _paused(9, 0.6)], 2, []),
        ([_campaign(10, 2), _paused(9, 0.4)], 2, [2]),  # shorter than any timeout
        ([_campaign(10, 2), _paused(30, 3.0)], 2, [2]),  # a gap elsewhere excuses nothing
        ([_campaign(10, 2) + "\n" + _campaign(40, 3), _paused(9, 1.0)], 3, [3]),
        ([""], 2, [2]),  # a term that no log explains
    ],
)
def test_an_election_is_excused_by_a_gap_at_its_time_only(
    texts: list[str], last: int, needless: list[int]
) -> None:
    assert needless_terms(texts, 1, last) == needless


def test_nobody_waits_for_a_process_that_has_died(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    cluster.prepare()
    (tmp_path / "n1" / "config.toml").write_text("nonsense = 1\n")
    cluster.start("n1")
    try:
        assert cluster.processes["n1"].wait(60)
        with pytest.raises(NotReady, match=r"n1 ended with exit code \d+; n1.log ends with: \S"):
            Running(cluster).check_alive()
    finally:
        cluster.kill("n1")


def test_keys_of_batches_in_turn_are_all_different() -> None:
    batches = Batches(b"t" * 16, 0, b"p" * 16, 1, rich_records(12), per_batch=4)
    keys = [
        key
        for _ in range(3)
        for view in [BatchView(batches.make())]
        for place in range(len(view))
        for key in view.record(place).keys
    ]
    assert len(set(keys)) == len(keys) == 12
    assert batches.sequence == 12
    assert batches.make(), "and again from the first"
