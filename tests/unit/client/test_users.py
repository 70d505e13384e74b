"""Users as clients see them: the words of policies, and what leaves the client of a secret."""

import pytest

from dledger_client import InvalidRequest, Policy, User
from dledger_client._core.users import change_of, credentials_of, user_of, user_request
from dledger_proto.login.derivation import keys_of
from dledger_proto.v1 import users_pb2 as pb

SALT = b"0123456789abcdef"


@pytest.mark.parametrize(
    ("pattern", "match", "sent"),
    [
        ("orders", pb.POLICY_MATCH_EXACT, "orders"),
        ("orders-*", pb.POLICY_MATCH_PREFIX, "orders-"),
        ("*", pb.POLICY_MATCH_ALL, ""),
    ],
)
def test_a_user_is_what_it_was_on_the_way_back(pattern: str, match: int, sent: str) -> None:
    policy = Policy("topic", pattern, ("publish", "list"), False, ("10.0.0.0/8",))
    user = User("alice", is_admin=True, is_enabled=False, policies=(policy,))
    wire = user_request(user)
    assert (wire.policies[0].match, wire.policies[0].pattern) == (match, sent)
    assert wire.policies[0].actions == 1 + 64
    assert user_of(wire) == user
    reply = pb.UserReply(user=wire, revision=7, missing_groups=["g"])
    assert change_of(reply).missing_groups == ("g",)


def test_the_secret_stays_here() -> None:
    secret = "a secret of a person"
    sent = credentials_of(secret, SALT, is_drawn=False)
    assert (sent.salt, sent.rounds) == (SALT, 200_000)
    assert (sent.stored_key, sent.server_key) == keys_of(secret, SALT, 200_000)
    assert secret.encode() not in sent.SerializeToString()
    assert credentials_of(secret, SALT, is_drawn=True).rounds == 4_096


@pytest.mark.parametrize(
    ("user", "problem"),
    [
        (User("a b"), "user 'a b': only letters"),
        (User("a", policies=(Policy("queue", "*", ("get",)),)), "policy kind 'queue', must be one"),
        (User("a", policies=(Policy("topic", "*", ("write",)),)), "action 'write', must be one of"),
    ],
)
def test_what_no_user_can_be(user: User, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        user_request(user)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="secret of 15 characters, must be at least 16"):
        credentials_of("x" * 15, SALT, is_drawn=False)
