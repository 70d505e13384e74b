"""What the benchmark of growth concludes and draws, without running anything that is measured."""

import tomllib
from pathlib import Path

from bench.scale import groups
from bench.scale.curves import draw, lines_of
from bench.scale.load import BATCH_BYTES, Spread, records_of
from bench.setup.native import Batches
from dledger_broker.local.cluster import LocalCluster
from dledger_proto.batch.codec import BatchView
from dledger_proto.limits import BODY_SIZE_MAX


def test_queues_get_their_batches_in_turn_and_their_own_sequences() -> None:
    records = records_of(BATCH_BYTES // 2)
    spread = Spread([Batches(b"t" * 16, queue, b"p" * 16, 1, records, 2) for queue in range(3)])
    seen = [BatchView(spread.make()).header for _ in range(6)]
    stamps = [header.stamp for header in seen if header.stamp is not None]
    assert [header.queue for header in seen] == [0, 1, 2, 0, 1, 2]
    assert [stamp.base_sequence for stamp in stamps] == [0, 0, 0, 2, 2, 2]


def test_a_batch_has_one_body_when_it_is_larger_than_a_batch() -> None:
    assert len(records_of(1024)) == BATCH_BYTES // 1024
    assert [len(record.body) for record in records_of(BODY_SIZE_MAX)] == [BODY_SIZE_MAX]


def test_a_member_of_many_groups_has_each_of_them_with_all_members(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    cluster.prepare()
    groups.write_groups(cluster, "n2", ["group-1", "group-2"])
    config = tomllib.loads((tmp_path / "n2" / "config.toml").read_text())
    assert [group["name"] for group in config["groups"]] == ["group-1", "group-2"]
    for group in config["groups"]:
        assert group["members"] == {name: cluster.address(name) for name in cluster.member_names}
        assert group["links"]["n3"] == cluster.link_address("n3")
    assert "group" not in config


def test_curves_are_drawn_of_the_figures_of_growth_alone(tmp_path: Path) -> None:
    found = lines_of(
        [
            '{"name": "scale_queues_10000_append_cost", "value": 14.0, "unit": "core-ms per MB"}',
            '{"name": "lone_send_p50", "value": 3.0, "unit": "ms"}',
            '{"name": "scale_queues_100_append_cost", "value": 12.0, "unit": "core-ms per MB"}',
        ]
    )
    curves = {"append cost, core-ms per MB": [(100, 12.0), (10_000, 14.0)]}
    assert found == {"queues": curves}
    draw("queues", curves, tmp_path / "queues.svg")
    once = (tmp_path / "queues.svg").read_bytes()
    draw("queues", curves, tmp_path / "queues.svg")
    assert (tmp_path / "queues.svg").read_bytes() == once
    assert b"<svg" in once
