"""`dledger acl`: users and policies by a cluster that answers from a script; where secrets go."""

import io
import json
import sys
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace

import pytest

from dledger_proto.errors import Code, DledgerError
from dledger_proto.login.derivation import keys_of
from dledger_proto.v1 import users_pb2 as pb
from tests.unit.cli.fakes import FakeCluster, Garbled, fake_cluster

ALICE = pb.User(name="alice", is_admin=True)
CHOSEN = "correct horse battery"


@pytest.fixture
def cluster() -> Generator[FakeCluster]:
    with fake_cluster() as made:
        answers = made.members["a"].answers
        answers["Put"] = lambda data: pb.UserReply(
            user=pb.PutUserRequest.FromString(data).user, revision=8, missing_groups=["h"]
        )
        answers["Describe"] = lambda _: pb.UserReply(user=ALICE, revision=7)
        answers["Delete"] = lambda _: pb.UserReply(user=ALICE, revision=8)
        answers["List"] = lambda data: (
            pb.ListUsersReply(users=[pb.User(name="bob")])
            if pb.ListUsersRequest.FromString(data).after
            else pb.ListUsersReply(users=[ALICE], more=True, revision=6)
        )
        yield made


def asked(cluster: FakeCluster) -> pb.PutUserRequest:
    """Return the last change that was asked for."""
    data = [data for name, data in cluster.members["a"].calls if name == "Put"]
    return pb.PutUserRequest.FromString(data[-1])


def fits(request: pb.PutUserRequest, secret: str) -> bool:
    of = request.user.credentials
    return (of.stored_key, of.server_key) == keys_of(secret, of.salt, of.rounds)


def test_a_drawn_secret_is_shown_once(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run("acl", "user", "add", "bob") == 0
    shown = capsys.readouterr()
    request = asked(cluster)
    assert (request.create, request.known_revision) == (True, 6), "a late copy adds nobody"
    assert not request.user.is_admin
    assert fits(request, shown.out.removesuffix("\n"))
    assert request.user.credentials.rounds == 4_096
    assert "have not taken the change over yet, and will by themselves: h" in shown.err
    assert cluster.run("acl", "user", "secret", "alice", "--json") == 0
    row = json.loads(capsys.readouterr().out)
    request = asked(cluster)
    assert (request.create, request.known_revision, request.user.is_admin) == (False, 7, True)
    assert fits(request, row.pop("secret"))
    assert row == {"name": "alice", "admin": True, "enabled": True, "policies": 0}


def test_two_administrators_add_users_at_once(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other one's user is no reason to say that this one exists. Who is there, is there."""
    answers, revisions = cluster.members["a"].answers, iter((6, 8, 8, 8))
    answers["List"] = lambda _: pb.ListUsersReply(revision=next(revisions))

    def put(data: bytes) -> pb.UserReply:
        request = pb.PutUserRequest.FromString(data)
        if request.known_revision < 8 or request.user.name == "alice":
            raise DledgerError(Code.USER_EXISTS, "users have changed, or the user is there")
        return pb.UserReply(user=request.user, revision=9)

    answers["Put"] = put
    assert cluster.run("acl", "user", "add", "bob") == 0
    assert asked(cluster).known_revision == 8
    capsys.readouterr()
    assert cluster.run("acl", "user", "add", "alice") != 0
    assert "USER_EXISTS" in capsys.readouterr().err
    assert [name for name, _ in cluster.members["a"].calls].count("Put") == 3


def test_a_secret_goes_to_a_file_that_nobody_else_reads(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    add = ("acl", "user", "add", "bob", "--admin", "--secret-file", str(file))
    assert cluster.run(*add) == 0
    assert capsys.readouterr().out == f"user bob is added; its secret is in {file}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert fits(asked(cluster), file.read_text().removesuffix("\n"))
    assert asked(cluster).user.is_admin
    before = file.read_text()
    assert cluster.run(*add) == 2
    assert file.read_text() == before
    assert "exists; give another one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "stays"), [(Code.USER_EXISTS, False), (Code.UNKNOWN_OUTCOME, True)]
)
def test_the_file_goes_when_the_user_certainly_has_not_got_the_secret(
    code: Code, stays: bool, cluster: FakeCluster, tmp_path: Path
) -> None:
    def refuse(_data: bytes) -> pb.UserReply:
        raise DledgerError(code, "no")

    cluster.members["a"].answers["Put"] = refuse
    file = tmp_path / "secret"
    arguments = ("acl", "user", "secret", "alice", "--secret-file", str(file), "--timeout", "1")
    assert cluster.run(*arguments) == (4 if stays else 1)
    assert file.exists() is stays


def test_a_chosen_secret_comes_from_a_file_or_from_standard_input(
    cluster: FakeCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    file = tmp_path / "chosen"
    file.write_text(CHOSEN + "\n")
    assert cluster.run("acl", "user", "add", "bob", "--secret-from", str(file)) == 0
    assert fits(asked(cluster), CHOSEN)
    assert asked(cluster).user.credentials.rounds == 200_000
    assert CHOSEN not in "".join(capsys.readouterr())
    typed = SimpleNamespace(buffer=io.BytesIO(b"of sixteen chars"))
    monkeypatch.setattr(sys, "stdin", typed)
    assert cluster.run("acl", "user", "add", "bob", "--secret-from", "-") == 0
    assert fits(asked(cluster), "of sixteen chars")
    for content, problem in (
        (b"fifteen letters", "15 characters, must be at least 16"),
        (b"\xff" * 20, "is no UTF-8"),
        (b"x" * 1_025, "more than 1024 bytes"),
    ):
        file.write_bytes(content)
        assert cluster.run("acl", "user", "add", "bob", "--secret-from", str(file)) == 2
        assert problem in capsys.readouterr().err
    assert cluster.run("acl", "user", "add", "bob", "--secret-from", "/nowhere") == 2
    both = ("--secret-from", "-", "--secret-file", str(tmp_path / "new"))
    assert cluster.run("acl", "user", "add", "bob", *both) == 2


def test_users_are_listed_shown_changed_and_deleted(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run("acl", "user", "list", "--json") == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["alice", "bob"]
    assert cluster.run("acl", "user", "show", "alice", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["admin"] is True
    assert cluster.run("acl", "user", "change", "alice", "--disable", "--json") == 0
    request = asked(cluster)
    assert (request.user.is_admin, request.user.is_disabled) == (True, True)
    assert (request.known_revision, request.user.HasField("credentials")) == (7, False)
    assert cluster.run("acl", "user", "change", "alice") == 2
    assert cluster.run("acl", "user", "delete", "alice") == 2
    assert "Delete" not in cluster.members["a"].names()
    assert cluster.run("acl", "user", "delete", "alice", "--yes") == 0
    assert "Delete" in cluster.members["a"].names()


def test_policies_are_words(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--allow", "subscribe,publish", "--topic", "orders-*", "--network", "10.1.0.0/16")
    assert cluster.run("acl", "policy", "add", "alice", *words, "--json") == 0
    row = {
        "rule": "allow", "actions": "publish,subscribe", "of": "topic", "pattern": "orders-*",
        "networks": "10.1.0.0/16",
    }  # fmt: skip
    assert json.loads(capsys.readouterr().out) == [row]
    request = asked(cluster)
    assert request.known_revision == 7
    (policy,) = request.user.policies
    assert (policy.kind, policy.match, policy.pattern) == (
        pb.POLICY_KIND_TOPIC, pb.POLICY_MATCH_PREFIX, "orders-",
    )  # fmt: skip
    assert (policy.actions, policy.denies) == (3, False)
    has = pb.User(name="alice", policies=[policy])
    cluster.members["a"].answers["Describe"] = lambda _: pb.UserReply(user=has, revision=9)
    assert cluster.run("acl", "policy", "list", "alice", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [row]
    count = len(cluster.members["a"].calls)
    assert cluster.run("acl", "policy", "add", "alice", *words) == 0
    assert len(cluster.members["a"].calls) == count + 1, "it has the policy: nothing is changed"
    assert cluster.run("acl", "policy", "delete", "alice", "--deny", "all", "--cluster") == 1
    assert "user alice has no such policy" in capsys.readouterr().err
    assert cluster.run("acl", "policy", "delete", "alice", *words) == 0
    assert capsys.readouterr().out == "no policies: it may do nothing\n"
    assert not asked(cluster).user.policies


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--topic", "t"], "a policy allows or denies"),
        (["--allow", "all", "--deny", "all", "--topic", "t"], "a policy allows or denies"),
        (["--allow", "all"], "a policy is about one thing, 0 are given"),
        (["--allow", "all", "--topic", "t", "--cluster"], "one thing, 2 are given"),
        (["--allow", "write", "--topic", "t"], "--allow: write, must be of publish,subscribe"),
        (["--deny", "all", "--any", "*", "--network", "10.0.0.1/8"], "--network: 10.0.0.1/8 has"),
    ],
)
def test_words_that_are_no_policy(
    words: list[str], problem: str, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run("acl", "policy", "add", "alice", *words) == 2
    assert problem in capsys.readouterr().err
    assert not cluster.members["a"].calls


def test_an_answer_that_is_none_is_no_outcome(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a change nobody knows whether it was made; it is not repeated."""
    answers = cluster.members["a"].answers
    answers["Delete"] = lambda _: Garbled()
    assert cluster.run("acl", "user", "delete", "alice", "--yes") != 0
    assert "the answer is no UserReply" in capsys.readouterr().err
    assert [name for name, _ in cluster.members["a"].calls].count("Delete") == 1
