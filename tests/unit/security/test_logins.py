"""Logins: for whom, on which connection, until when, and who has to wait."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from dledger.state.users.values import User
from dledger_broker.rpc.table import ROWS
from dledger_broker.security import logins as of_logins
from dledger_broker.security.logins import Logins, host_of
from dledger_proto.errors import Code, DledgerError
from dledger_proto.login import scram
from dledger_proto.v1 import login_pb2
from tests.unit.broker.fakes import ManualClock
from tests.unit.broker.test_table import Refusal, Stranger, gated
from tests.unit.security.users import NONCE, log_in, user_of

if TYPE_CHECKING:
    from dledger_proto.rpc.raw import RawContext

PEER, OTHER = "ipv4:10.0.0.1:4711", "ipv4:10.0.0.2:4711"


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.users: dict[str, User] = {"alice": user_of("alice")}
        self.logins = Logins(lambda name: self.users.get(name), self.clock)


def refused(world: World, token: str, peer: str = PEER) -> Code:
    with pytest.raises(DledgerError) as error:
        world.logins.user_of(token, peer)
    return error.value.code


def test_a_token_stands_for_its_user() -> None:
    world = World()
    token = log_in(world.logins, "alice", PEER)
    assert world.logins.user_of(token, PEER).name == "alice"


def test_a_token_opens_nothing_from_another_connection() -> None:
    world = World()
    token = log_in(world.logins, "alice", PEER)
    assert refused(world, token, "ipv4:10.0.0.1:4712") is Code.UNAUTHENTICATED


def test_a_token_ends_after_an_hour() -> None:
    world = World()
    token = log_in(world.logins, "alice", PEER)
    world.clock.now += of_logins.TOKEN_SECONDS + 1
    assert refused(world, token) is Code.UNAUTHENTICATED


@pytest.mark.parametrize("change", ["secret", "disabled", "deleted"])
def test_a_token_ends_with_what_it_was_given_for(change: str) -> None:
    world = World()
    token = log_in(world.logins, "alice", PEER)
    alice = world.users.pop("alice")
    if change == "secret":
        world.users["alice"] = user_of("alice", "another")
    elif change == "disabled":
        world.users["alice"] = replace(alice, is_enabled=False)
    assert refused(world, token) is Code.UNAUTHENTICATED


def test_a_change_of_policies_needs_no_new_login() -> None:
    world = World()
    token = log_in(world.logins, "alice", PEER)
    world.users["alice"] = replace(world.users["alice"], is_admin=True)
    assert world.logins.user_of(token, PEER).is_admin


def test_a_proof_is_taken_once_and_from_its_connection() -> None:
    world = World()
    login = scram.ClientLogin("alice", "secret", NONCE)
    final = login.final(world.logins.begin(login.first, PEER))
    for peer, outcome in ((OTHER, "no login is under way"), (PEER, "no login is under way")):
        with pytest.raises(DledgerError, match=outcome):
            world.logins.finish(final, peer)
    final = login.final(world.logins.begin(login.first, PEER))
    world.logins.finish(final, PEER)
    with pytest.raises(DledgerError, match="no login is under way"):
        world.logins.finish(final, PEER)


def test_one_connection_pushes_out_its_own_proofs_alone() -> None:
    world = World()
    alice = scram.ClientLogin("alice", "secret", NONCE)
    first = world.logins.begin(alice.first, PEER)
    for _ in range(2 * of_logins.PROOFS_MAX):
        world.logins.begin(scram.ClientLogin("mallory", "x", NONCE).first, OTHER)
    world.logins.finish(alice.final(first), PEER)


def test_a_late_proof_is_refused() -> None:
    world = World()
    login = scram.ClientLogin("alice", "secret", NONCE)
    final = login.final(world.logins.begin(login.first, PEER))
    world.clock.now += of_logins.PROOF_SECONDS
    with pytest.raises(DledgerError, match="took more than 10 s"):
        world.logins.finish(final, PEER)


def test_nobody_learns_whether_a_user_exists() -> None:
    """The same salt each time, and the same words."""
    world = World()
    salts = set[str]()
    said = set[str]()
    for name in ("alice", "nobody", "nobody"):
        login = scram.ClientLogin(name, "wrong", NONCE)
        first = world.logins.begin(login.first, PEER)
        if name == "nobody":
            salts.add(first.split(",")[1])
        with pytest.raises(DledgerError) as error:
            world.logins.finish(login.final(first), PEER)
        said.add(str(error.value))
    assert len(salts) == len(said) == 1


def fail(world: World, name: str, peer: str) -> None:
    with pytest.raises(DledgerError, match="user or secret is wrong"):
        log_in(world.logins, name, peer, "wrong")


def test_refused_logins_wait_longer_and_longer_where_they_come_from() -> None:
    world = World()
    for _ in range(of_logins.REFUSALS_FREE + 1):
        fail(world, "alice", PEER)
    waits: list[float] = []
    for _ in range(12):
        with pytest.raises(DledgerError, match=r"BUSY: .* wait") as refused_now:
            log_in(world.logins, "alice", PEER, "wrong")
        seconds = float(str(refused_now.value).split()[-2])
        waits.append(seconds)
        world.clock.now += seconds + 0.1
        fail(world, "alice", PEER)
    assert waits[:4] == [0.1, 0.2, 0.4, 0.8]
    assert waits[-1] == of_logins.WAIT_MAX_SECONDS
    log_in(world.logins, "alice", OTHER)  # a stranger keeps nobody out
    world.clock.now += of_logins.WAIT_MAX_SECONDS
    log_in(world.logins, "alice", PEER)
    for _ in range(of_logins.REFUSALS_FREE):
        fail(world, "alice", PEER)
    log_in(world.logins, "alice", PEER)


def test_everything_that_strangers_fill_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    for bound in ("TOKENS_MAX", "PROOFS_MAX", "WAITS_MAX"):
        monkeypatch.setattr(of_logins, bound, 4)
    first = log_in(world.logins, "alice", PEER)
    for number in range(10):
        login = scram.ClientLogin(f"user{number}", "wrong", NONCE)
        world.logins.begin(login.first, PEER)
        fail(world, f"nobody{number}", PEER)
        log_in(world.logins, "alice", f"ipv4:10.0.0.1:{number}")
    inside = world.logins
    tables = (inside._tokens, inside._proofs, inside._waits)  # pyright: ignore[reportPrivateUsage]
    assert all(len(table) <= 4 for table in tables)
    assert refused(world, first) is Code.UNAUTHENTICATED


def test_a_user_with_many_connections_pushes_out_its_own_tokens() -> None:
    world = World()
    world.users["bob"] = user_of("bob")
    alices = log_in(world.logins, "alice", PEER)
    bobs = [log_in(world.logins, "bob", f"{OTHER}{number}") for number in range(3)]
    assert world.logins.user_of(bobs[0], f"{OTHER}0").name == "bob", "used last"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_logins, "TOKENS_MAX", 4)
        log_in(world.logins, "bob", OTHER)
    assert world.logins.user_of(alices, PEER).name == "alice"
    assert refused(world, bobs[1], f"{OTHER}1") is Code.UNAUTHENTICATED
    assert world.logins.user_of(bobs[0], f"{OTHER}0").name == "bob"


def test_a_member_that_cannot_confirm_what_it_knows_takes_a_secret_and_denies_none() -> None:
    """A secret may have been changed that it has not heard of: the client goes on elsewhere."""
    world = World()
    for secret, outcome in (("wrong", "UNAVAILABLE"), ("secret", "")):
        login = scram.ClientLogin("alice", secret, NONCE)
        final = login.final(world.logins.begin(login.first, PEER, is_current=False))
        if outcome:
            with pytest.raises(DledgerError, match=outcome):
                world.logins.finish(final, PEER)
        else:
            world.logins.finish(final, PEER)


def test_wrong_secrets_count_also_where_nothing_is_confirmed() -> None:
    """Yet a client with the right secret is not kept out for long once a leader is there."""
    world = World()
    for _ in range(of_logins.REFUSALS_FREE + 10):
        world.clock.now += of_logins.UNDECIDED_WAIT_MAX_SECONDS
        login = scram.ClientLogin("alice", "wrong", NONCE)
        final = login.final(world.logins.begin(login.first, PEER, is_current=False))
        with pytest.raises(DledgerError, match="UNAVAILABLE"):
            world.logins.finish(final, PEER)
    with pytest.raises(DledgerError, match="BUSY"):
        log_in(world.logins, "alice", PEER)
    world.clock.now += of_logins.UNDECIDED_WAIT_MAX_SECONDS
    log_in(world.logins, "alice", PEER)


def test_hosts_of_peers() -> None:
    assert host_of("ipv4:10.0.0.1:4711") == "10.0.0.1"
    assert host_of("ipv6:%5B::1%5D:4711") == "::1"
    assert host_of("ipv6:[::1]:4711") == "::1"
    assert host_of("unix:/x") == "unix:/x"


def test_the_audit_names_the_user_whose_secret_somebody_guesses() -> None:
    """Else nobody sees which user is under attack."""
    calls = gated(user_of("alice"))
    noted: list[tuple[object, ...]] = []
    calls.gate.audit.refused = lambda *told, **_fields: noted.append(told[:3])  # type: ignore[method-assign]
    (row,) = (row for row in ROWS if row.path == "/dledger.v1.Login/Finish")

    async def guess(name: str) -> None:
        login = scram.ClientLogin(name, "guessed", NONCE)
        final = login.final(calls.gate.logins.begin(login.first, PEER))
        for expected in ("UNAUTHENTICATED", "UNAVAILABLE"):  # the second time it is used up
            request = login_pb2.FinishLoginRequest(client_final=final).SerializeToString()
            with pytest.raises(Refusal, match=f"^{expected}$"):
                await calls.answer(row, request, cast("RawContext", Stranger()))

    for name in ("alice", "nobody"):
        asyncio.run(guess(name))
    assert noted == [
        ("login", PEER, "alice"), ("login", PEER, ""), ("login", PEER, "nobody"),
        ("login", PEER, ""),
    ]  # fmt: skip
