"""The gate: what follows from policies, what the refused are told, what every call needs."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dledger.state.users.values import Action, Policy, ResourceKind, User
from dledger_broker.security import deciding
from dledger_broker.security.access import Access
from dledger_broker.security.audit import LINES_MAX, Audit
from dledger_broker.security.deciding import CLUSTER, UNKNOWN, Resource
from dledger_broker.security.gate import EVERYBODY, LOGIN_KEY, Caller, Confirm, Gate, Need
from dledger_proto.errors import Code, DledgerError
from dledger_proto.network.tls import client_name, member_name
from tests.unit.broker.fakes import ManualClock
from tests.unit.security.users import allow, log_in, user_of

TOPIC, GROUP, ANY = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.ANY
PUBLISH, SUBSCRIBE, GET = Action.PUBLISH, Action.SUBSCRIBE, Action.GET
PEER = "ipv4:10.1.2.3:4711"


class Context:
    def __init__(self, *names: str, peer: str = PEER) -> None:
        self.names = names
        self._peer = peer

    def auth_context(self) -> Mapping[str, Any]:
        """Return what the connection proved."""
        return {"peer_uri": [name.encode() for name in self.names]}

    def peer(self) -> str:
        """Return the other end."""
        return self._peer


def ask(user: User, action: Action, resource: Resource, host: str = "10.1.2.3") -> bool:
    from dledger_broker.security.gate import _address  # pyright: ignore[reportPrivateUsage]

    return bool(action & deciding.rights(user, resource, _address(host)))


def test_without_a_policy_the_answer_is_no() -> None:
    nobody = user_of("bob")
    assert not any(
        ask(nobody, action, resource)
        for action in Action
        for resource in (CLUSTER, deciding.topic("t"), deciding.group("g"))
    )


@pytest.mark.parametrize(
    ("pattern", "met", "missed"),
    [("orders", ["orders"], ["orders2", "order", ""]),
     ("orders*", ["orders", "orders2"], ["order"]),
     ("*", ["a", UNKNOWN], [])],
)  # fmt: skip
def test_names(pattern: str, met: list[str], missed: list[str]) -> None:
    user = user_of("bob", "secret", allow(TOPIC, pattern, PUBLISH))
    assert all(ask(user, PUBLISH, deciding.topic(name)) for name in met)
    assert not any(ask(user, PUBLISH, deciding.topic(name)) for name in missed)
    assert not any(ask(user, SUBSCRIBE, deciding.topic(name)) for name in met)
    assert not any(ask(user, PUBLISH, deciding.group(name)) for name in met)


def test_a_denial_wins_wherever_it_stands() -> None:
    yes, no = allow(TOPIC, "*", PUBLISH), allow(TOPIC, "secret*", PUBLISH, allows=False)
    for policies in ((yes, no), (no, yes)):
        user = user_of("bob", "secret", *policies)
        assert ask(user, PUBLISH, deciding.topic("orders"))
        assert not ask(user, PUBLISH, deciding.topic("secret-orders"))
        unknown = deciding.topic(UNKNOWN)
        assert not ask(user, PUBLISH, unknown), "it may be called secret-something"
        assert ask(user_of("bob", "secret", yes), PUBLISH, unknown)


def test_who_may_use_something_may_look_at_it() -> None:
    for kind, of in ((TOPIC, deciding.topic), (GROUP, deciding.group)):
        user = user_of("bob", "secret", allow(kind, "orders*", SUBSCRIBE))
        assert ask(user, GET, of("orders"))
        assert not ask(user, GET, of("bank"))
        denied = allow(kind, "orders", GET, allows=False)
        user = user_of("bob", "secret", allow(kind, "orders*", SUBSCRIBE), denied)
        assert not ask(user, GET, of("orders"))
        assert ask(user, GET, of("orders2"))
    changes = allow(ResourceKind.CLUSTER, "*", Action.UPDATE)
    assert not ask(user_of("bob", "secret", changes), GET, CLUSTER)


def test_networks() -> None:
    inside = allow(TOPIC, "*", PUBLISH, networks=("10.0.0.0/8", "2001:db8::/32"))
    user = user_of("bob", "secret", inside)
    for host, expected in (
        ("10.9.9.9", True), ("11.0.0.1", False), ("2001:db8::1", True), ("::ffff:10.0.0.1", True),
        ("unix:/socket", False),
    ):  # fmt: skip
        assert ask(user, PUBLISH, deciding.topic("t"), host) is expected, host
    denied = user_of(
        "bob", "secret", allow(TOPIC, "*", PUBLISH),
        allow(TOPIC, "*", PUBLISH, allows=False, networks=("10.0.0.0/8",)),
    )  # fmt: skip
    assert not ask(denied, PUBLISH, deciding.topic("t"), "unix:/socket"), "a denial holds"


def test_administrators_may_everything_unless_they_are_disabled() -> None:
    admin = user_of("root", is_admin=True)
    assert ask(admin, Action.DELETE, CLUSTER)
    assert not ask(replace(admin, is_enabled=False), Action.DELETE, CLUSTER)


def test_retries_and_dead_letters_belong_to_their_group() -> None:
    user = user_of("bob", "secret", allow(GROUP, "billing", SUBSCRIBE))
    for name in ("%RETRY%billing", "%DLQ%billing"):
        assert ask(user, SUBSCRIBE, deciding.topic(name))
    everything = user_of("bob", "secret", allow(TOPIC, "*", SUBSCRIBE))
    assert not ask(everything, SUBSCRIBE, deciding.topic("%DLQ%billing"))


class World:
    def __init__(self, *users: User, on: bool = True) -> None:
        self.users = {user.name: user for user in users}
        self.gate = Gate(
            Access("c", proves=True), lambda name: self.users.get(name), ManualClock(), on=on
        )

    def caller(self, name: str) -> Caller:
        token = log_in(self.gate.logins, name, PEER)
        return self.gate.caller(Context(client_name("c", "app")), {LOGIN_KEY: token}, "Fetch")


def test_who_calls() -> None:
    world = World(user_of("bob"))
    stranger = Context(client_name("c", "app"))
    for metadata in ({}, {LOGIN_KEY: "guessed"}):
        with pytest.raises(DledgerError) as error:
            world.gate.caller(stranger, metadata, "Fetch")
        assert error.value.code is Code.UNAUTHENTICATED
    member = Context(member_name("c", "g", "a"))
    assert world.gate.caller(member, {}, "Fetch") is EVERYBODY
    with pytest.raises(DledgerError):
        world.gate.caller(Context(member_name("other", "g", "a")), {}, "Fetch")
    assert World(on=False).gate.caller(stranger, {}, "Fetch") is EVERYBODY


def refusal(caller: Caller, action: Action, resource: Resource, not_found: str = "no x") -> str:
    with pytest.raises(DledgerError) as error:
        caller.check((Need(action, resource, not_found),))
    return str(error.value)


def test_what_a_caller_may_not_know_does_not_exist() -> None:
    world = World(user_of("bob", "secret", allow(TOPIC, "orders", PUBLISH)))
    bob = world.caller("bob")
    bob.check((Need(PUBLISH, deciding.topic("orders"), "no orders"),))
    assert refusal(bob, SUBSCRIBE, deciding.topic("orders")) == (
        "NO_PERMISSION: user bob may not SUBSCRIBE topic orders"
    )
    assert refusal(bob, PUBLISH, deciding.topic("bank")) == "TOPIC_NOT_FOUND: no x"
    assert refusal(bob, SUBSCRIBE, deciding.group("g")) == "CONSUMER_GROUP_NOT_FOUND: no x"
    assert refusal(bob, GET, CLUSTER, "") == "NO_PERMISSION: user bob may not GET cluster"
    assert not bob.knows(deciding.topic("bank"))
    assert bob.knows(deciding.topic("orders"))


def test_a_stream_feels_a_change_at_its_next_frame() -> None:
    world = World(user_of("bob", "secret", allow(TOPIC, "orders", PUBLISH)))
    bob = world.caller("bob")
    need = Need(PUBLISH, deciding.topic("orders"), "no orders")
    bob.check((need,))
    world.users["bob"] = replace(world.users["bob"], policies=())
    assert refusal(bob, PUBLISH, deciding.topic("orders")).startswith("TOPIC_NOT_FOUND")
    del world.users["bob"]
    assert refusal(bob, PUBLISH, deciding.topic("orders")).startswith("UNAUTHENTICATED")


def test_only_administrators_are_administrators() -> None:
    world = World(user_of("root", is_admin=True), user_of("bob"))
    world.caller("root").check_admin("Put")
    with pytest.raises(DledgerError, match="NO_PERMISSION: only an administrator"):
        world.caller("bob").check_admin("Put")


def test_the_audit_says_which_call_was_refused() -> None:
    world = World(user_of("bob"))
    noted: list[tuple[object, object]] = []
    world.gate.audit.refused = lambda *told, **fields: noted.append((told[2], fields["wished"]))  # type: ignore[method-assign]
    stranger, bob = Context(client_name("c", "app")), world.caller("bob")
    for refuse in (
        lambda: world.gate.caller(stranger, {}, "Fetch"),
        lambda: world.gate.check_member(stranger, "Append"),
        lambda: bob.check_admin("Put"),
    ):
        with pytest.raises(DledgerError):
            refuse()
    assert noted == [("", "Fetch"), ("", "Append"), ("bob", "Put")]


def test_strangers_cannot_fill_the_audit(capsys: pytest.CaptureFixture[str]) -> None:
    """And the next line with room says how many were left out."""
    clock = ManualClock()
    audit = Audit(clock)
    error = DledgerError(Code.UNAUTHENTICATED, "no")
    for _ in range(LINES_MAX + 50):
        audit.refused("call", PEER, "", error)
    audit.done("login", PEER, "root")
    clock.now += 1
    audit.refused("call", PEER, "", error)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == LINES_MAX + 2
    assert "others_since=50" in lines[-1]
    assert "user=root" in lines[-2]


@pytest.mark.parametrize(
    ("policies", "may"),
    [
        ((), False),
        ((allow(TOPIC, "t", PUBLISH),), True),
        ((allow(TOPIC, "t*", PUBLISH), allow(TOPIC, "t", PUBLISH, allows=False)), True),
        ((allow(TOPIC, "t", PUBLISH), allow(TOPIC, "*", PUBLISH, allows=False)), False),
        ((allow(TOPIC, "t", SUBSCRIBE),), False),
        ((allow(GROUP, "g", PUBLISH),), False),
    ],
)
def test_who_may_send_something_may_register(policies: tuple[Policy, ...], may: bool) -> None:
    user = user_of("bob", "secret", *policies)
    rights = deciding.rights(user, deciding.Resource(TOPIC, deciding.SOME), None)
    assert bool(rights & PUBLISH) is may


def test_nobody_is_refused_by_what_is_out_of_date() -> None:
    """A member that lags catches up with users and topics before it says no (D10)."""
    world = World(user_of("bob"))
    bob = world.caller("bob")
    caught_up: list[str] = []

    async def confirm_users(_seconds: float) -> None:
        caught_up.append("users")
        world.users["bob"] = replace(world.users["bob"], policies=(allow(TOPIC, "t", PUBLISH),))

    async def confirm_topics(_seconds: float) -> None:
        caught_up.append("topics")
        raise DledgerError(Code.NO_LEADER)

    async def admit() -> None:
        need = Need(PUBLISH, deciding.topic("t"), "no t")
        await world.gate.admit(bob, lambda: (need,), confirm_topics)

    with pytest.raises(DledgerError, match="UNAVAILABLE: what user bob may"):
        asyncio.run(admit())
    world.gate = Gate(
        world.gate.access, world.users.get, ManualClock(), on=True, confirm=confirm_users
    )
    bob = world.caller("bob")
    asyncio.run(admit())
    assert caught_up == ["topics", "users", "topics"]
    asyncio.run(admit())
    assert len(caught_up) == 3, "what is allowed needs no confirmed state"


def test_nobody_is_refused_administration_by_what_is_out_of_date() -> None:
    """The member that takes the call may not have heard yet of a new administrator (D10)."""
    world = World(user_of("bob"))
    bob = world.caller("bob")
    root = replace(world.users["bob"], is_admin=True)

    async def nobody_leads(_seconds: float) -> None:
        raise DledgerError(Code.NO_LEADER)

    async def hears(_seconds: float) -> None:
        world.users["bob"] = root

    async def hears_nothing(_seconds: float) -> None:
        pass

    def admit(confirm: Confirm) -> None:
        gate = Gate(world.gate.access, world.users.get, ManualClock(), on=True, confirm=confirm)
        asyncio.run(gate.admit_admin(bob, "Put"))

    with pytest.raises(DledgerError, match="UNAVAILABLE: what user bob may"):
        admit(nobody_leads)
    with pytest.raises(DledgerError, match="NO_PERMISSION: only an administrator"):
        admit(hears_nothing)
    admit(hears)
    admit(nobody_leads)
