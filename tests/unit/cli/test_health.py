"""`dledger health`, for the health checks of containers."""

import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from threading import Event

import grpc
import pytest

from dledger_broker.cli import main
from dledger_broker.process import health
from dledger_client import Admin
from dledger_proto.errors import Code, DledgerError
from dledger_proto.exit_codes import Exit
from dledger_proto.rpc.raw import sync_unary
from dledger_proto.v1 import broker_pb2 as pb
from tests.ports import free_port
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


@pytest.mark.parametrize("code", [Code.UNAUTHENTICATED, Code.NO_PERMISSION])
def test_a_member_that_asks_for_users_answers(cluster: FakeCluster, code: Code) -> None:
    """Whoever checks it may have no user: its no is an answer."""
    member = cluster.members["a"]

    def refuse(_: bytes) -> None:
        raise DledgerError(code, "log in")

    member.answers["Status"] = refuse
    assert "a member that asks for users, answers" in health.look(member.address)


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


class Garbled:
    """An answer that is no message."""

    def SerializeToString(self) -> bytes:
        return b"\xff"


@pytest.mark.parametrize("answer", [Garbled(), pb.StatusReply()])
def test_who_answers_nonsense_is_unhealthy(cluster: FakeCluster, answer: object) -> None:
    member = cluster.members["a"]
    member.answers["Status"] = lambda _: answer
    with pytest.raises(health.Unhealthy, match=f"^{member.address}: the answer is garbled: "):
        health.look(member.address)


def test_what_strangers_say_moves_no_cursor(cluster: FakeCluster) -> None:
    member = cluster.members["a"]
    status = pb.StatusReply(member="a", group="g", role="leader", reason="\x1b[2J")
    member.answers["Status"] = lambda _: status
    assert health.look(member.address).endswith(r"; \x1b[2J")

    def broken(_: bytes) -> None:
        raise DledgerError(Code.INTERNAL, "\x1b[2J")

    member.answers["Status"] = broken
    with pytest.raises(health.Unhealthy, match=r": \\x1b\[2J$"):
        health.look(member.address)


def test_the_timeout_is_for_all_that_is_asked(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts: list[float] = []

    def watched(channel: grpc.Channel, method: str) -> Callable[[bytes, float], bytes]:
        call = sync_unary(channel, method)

        def made(request: bytes, timeout: float) -> bytes:
            timeouts.append(timeout)
            return call(request, timeout)

        return made

    def late(_: bytes) -> None:
        Event().wait(0.2)
        raise DledgerError(Code.UNIMPLEMENTED, "a name server, it seems")

    monkeypatch.setattr(health, "sync_unary", watched)
    member = cluster.members["a"]
    member.answers["Status"] = late
    with pytest.raises(health.Unhealthy):
        health.look(member.address, 5)
    assert timeouts[1] <= timeouts[0] - 0.2


def test_a_proxy_for_the_web_is_not_used(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert health.look(cluster.name_server) == "name server of c, groups: g"
    cluster.members["a"].answers["ListTopics"] = lambda _: pb.ListTopicsReply()
    assert cluster.run("topic", "list", "--timeout", "2") == Exit.OK
    with Admin(cluster.name_server) as admin:
        assert [group.name for group in admin.groups()] == ["g"]


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


def test_as_a_module_it_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        health.main(["--help"])
    assert ended.value.code == 0
    assert "HOST:PORT" in capsys.readouterr().out


def test_as_a_module_it_loads_no_command_line() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "dledger_broker.process.health"]
    done = subprocess.run(
        [*command, f"127.0.0.1:{free_port()}"],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.startswith("unhealthy: 127.0.0.1:")
    assert not {"typer", "rich", "pydantic"} & {
        line.rpartition("|")[2].strip() for line in done.stderr.splitlines()
    }
