"""`dledger routes`: who claims what."""

import json
import time

import pytest

from dledger_proto.v1.routes_pb2 import Registration
from tests.unit.cli.fakes import fake_cluster


def test_routes_show_who_claims_what(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with fake_cluster() as cluster:
        table = cluster.server.registry
        stranger = Registration(
            cluster="c", group="g", member="x", address="x:1", sequence=1, full=True, term=99,
            leader="x", configured_members=["x"],
        )  # fmt: skip
        table.register(table.open_session(), stranger, time.monotonic())
        capsys.readouterr()
        assert cluster.run("routes", "--json") == 0
        rows = json.loads(capsys.readouterr().out)
        assert {(row["leader"], row["term"]) for row in rows} == {("a", 1)}
        assert [(row["member"], row["claimed_term"], bool(row["ignored"])) for row in rows] == [
            ("a", 1, False), ("b", 1, False), ("c", 1, False), ("x", 99, True),
        ]  # fmt: skip
        assert cluster.run("routes", "--group", "g") == 0
        assert "do not name it" in " ".join(capsys.readouterr().out.split())
        assert cluster.run("routes", "--group", "no") == 2
