"""`dledger health`, for the health checks of containers."""

import socket
import subprocess
import sys
from collections.abc import Generator

import pytest

from dledger_broker import health
from dledger_broker.cli import main
from dledger_broker.cli.output import Exit
from dledger_broker.local_cluster import free_port
from dledger_proto.errors import Code, DledgerError
from dledger_proto.v1 import broker_pb2 as pb
from tests.unit.cli.fakes import FakeCluster, fake_cluster


@pytest.fixture(scope="module")
def cluster() -> Generator[FakeCluster]:
    with fake_cluster() as made:
        yield made


def test_a_member_says_what_it_is(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    member = cluster.members["a"]
    status = pb.StatusReply(member="a", group="g", role="leader", term=3, leader="a")
    member.answers["Status"] = lambda _: status
    assert main(["health", member.address]) == Exit.OK
    assert capsys.readouterr().out == "a: leader of g, term 3, leader a\n"


def test_a_member_that_does_not_serve_is_healthy_and_says_why(cluster: FakeCluster) -> None:
    member = cluster.members["a"]
    status = pb.StatusReply(member="a", group="g", role="follower", reason="quarantined: it is new")
    member.answers["Status"] = lambda _: status
    assert health.look(member.address) == (
        "a: follower of g, term 0, no leader; quarantined: it is new"
    )


def test_a_member_of_several_groups_answers(cluster: FakeCluster) -> None:
    member = cluster.members["a"]

    def which(_: bytes) -> None:
        raise DledgerError(Code.INVALID_ARGUMENT, "metadata dledger-group must name one of a, b")

    member.answers["Status"] = which
    assert "a member of several groups" in health.look(member.address)


def test_a_name_server_says_what_it_is(cluster: FakeCluster) -> None:
    assert health.look(cluster.name_server) == "name server of c, groups: g"


def test_who_does_not_answer_is_unhealthy(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"127.0.0.1:{free_port()}"
    assert main(["health", address]) == Exit.FAILED
    assert f"error: {address}: UNAVAILABLE" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # takes connections and says nothing
        hung = f"127.0.0.1:{hanging.getsockname()[1]}"
        assert main(["health", hung, "--timeout", "0.3"]) == Exit.FAILED
    member = cluster.members["a"]

    def broken(_: bytes) -> None:
        raise DledgerError(Code.INTERNAL, "a bug")

    member.answers["Status"] = broken
    with pytest.raises(health.Unhealthy, match="a bug"):
        health.look(member.address)
    assert main(["health", "nowhere"]) == Exit.BAD_INPUT


def test_without_an_address_the_usual_ports_are_asked(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = f"127.0.0.1:{free_port()}"
    monkeypatch.setattr(health, "MEMBER", closed)
    monkeypatch.setattr(health, "NAME_SERVER", cluster.name_server)
    assert health.look() == "name server of c, groups: g"
    monkeypatch.setattr(health, "NAME_SERVER", closed)
    with pytest.raises(health.Unhealthy, match=rf"{closed}.*; {closed}"):
        health.look()


def test_as_a_module_it_loads_no_command_line() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "dledger_broker.health"]
    done = subprocess.run(
        [*command, f"127.0.0.1:{free_port()}"],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.startswith("unhealthy: 127.0.0.1:")
    assert not {"typer", "rich", "pydantic"} & {
        line.rpartition("|")[2].strip() for line in done.stderr.splitlines()
    }
