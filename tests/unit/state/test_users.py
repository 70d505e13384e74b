"""Users in the state: what the control group decides, and how other groups take it over."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.state.commands.registry import describe
from dledger.state.machine import StateMachine
from dledger.state.results import Refused, UserChanged, UsersImported
from dledger.state.tables import Table
from dledger.state.topics.commands import ImportTopic
from dledger.state.users.commands import (
    USERS_PER_IMPORT,
    DeleteUser,
    ImportUsers,
    PutMode,
    PutUser,
)
from dledger.state.users.table import META_KEY, UserTable
from dledger.state.users.values import (
    ALL_ACTIONS,
    NETWORKS_PER_POLICY_MAX,
    POLICIES_PER_USER_MAX,
    Credentials,
    Match,
    Policy,
    ResourceKind,
    User,
)
from dledger.state.values import LayoutPart, Topic, TopicType
from dledger_offline.state import describe_row
from dledger_proto.errors import Code
from tests.unit.state.kit import Driven, code_of

CONTROL, OTHER_CONTROL = b"C" * 16, b"D" * 16
SECRETS = Credentials(b"salt of 16 bytes", 4_096, b"S" * 32, b"V" * 32)
PUBLISH_ORDERS = Policy(ResourceKind.TOPIC, Match.PREFIX, "orders-", 1, networks=("10.0.0.0/8",))
ALICE = User("alice", SECRETS, is_admin=True)
BOB = User("bob", SECRETS, policies=(PUBLISH_ORDERS,))
CAROL = User("carol", SECRETS)


def create(user: User) -> PutUser:
    return PutUser(PutMode.CREATE, user)


def change(user: User) -> PutUser:
    return PutUser(PutMode.CHANGE, user)


def names(driven: Driven) -> list[str]:
    return [user.name for user in driven.machine.queries.users("", 1_000)]


def whole(revision: int, *users: User, control_id: bytes = CONTROL) -> ImportUsers:
    """Return the import of a whole list at once."""
    return ImportUsers("", "", users, revision, control_id)


def test_a_user_is_created_changed_and_deleted() -> None:
    driven = Driven()
    assert driven.one(create(ALICE)) == UserChanged("alice", 1)
    assert driven.one(create(BOB)) == UserChanged("bob", 2)
    queries = driven.machine.queries
    assert (queries.user("bob"), queries.users_revision) == (BOB, 2)
    off = replace(BOB, is_enabled=False)
    assert driven.one(change(off)) == UserChanged("bob", 3)
    assert queries.user("bob") == off
    assert driven.one(DeleteUser("bob")) == UserChanged("bob", 4)
    assert queries.user("bob") is None
    assert (names(driven), queries.users_revision) == (["alice"], 4)


def test_the_mode_says_whether_the_name_must_be_free() -> None:
    driven = Driven()
    assert code_of(driven.one(change(ALICE))) is Code.USER_NOT_FOUND
    assert code_of(driven.one(DeleteUser("alice"))) is Code.USER_NOT_FOUND
    driven.one(create(ALICE))
    other = replace(ALICE, policies=(PUBLISH_ORDERS,))
    assert code_of(driven.one(create(other))) is Code.USER_EXISTS
    assert driven.machine.queries.user("alice") == ALICE


def test_the_same_again_has_the_same_answer() -> None:
    driven = Driven()
    first = driven.one(create(ALICE))
    assert driven.one(create(ALICE)) == first
    assert driven.machine.queries.users_revision == 1


def test_the_last_administrator_that_can_log_in_stays() -> None:
    driven = Driven()
    driven.run(create(ALICE), create(BOB), create(replace(CAROL, is_admin=True)))
    assert isinstance(driven.one(DeleteUser("carol")), UserChanged)
    for command in (
        DeleteUser("alice"),
        change(replace(ALICE, is_admin=False)),
        change(replace(ALICE, is_enabled=False)),
    ):
        refused = driven.one(command)
        assert code_of(refused) is Code.INVALID_ARGUMENT
        assert isinstance(refused, Refused)
        assert "no other administrator" in refused.detail
    assert driven.machine.queries.user("alice") == ALICE
    driven.one(create(replace(CAROL, is_admin=True, is_enabled=False)))
    assert code_of(driven.one(DeleteUser("alice"))) is Code.INVALID_ARGUMENT
    driven.one(change(replace(CAROL, is_admin=True)))
    assert isinstance(driven.one(DeleteUser("alice")), UserChanged)


def test_a_change_of_what_changed_since_is_refused() -> None:
    """Two administrators do not undo each other's changes unseen."""
    driven = Driven()
    driven.run(create(ALICE), create(BOB))
    mine, others = replace(BOB, policies=()), replace(BOB, is_enabled=False)
    assert isinstance(driven.one(PutUser(PutMode.CHANGE, others, 1)), UserChanged)
    assert code_of(driven.one(PutUser(PutMode.CHANGE, mine, 1))) is Code.USER_EXISTS
    assert driven.machine.queries.user("bob") == others
    assert isinstance(driven.one(PutUser(PutMode.CHANGE, others, 1)), UserChanged), "a repeat"
    assert isinstance(driven.one(PutUser(PutMode.CHANGE, mine, 2)), UserChanged)


def test_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger.state.users.commands.USERS_MAX", 2)
    driven = Driven()
    driven.run(create(ALICE), create(BOB))
    refused = driven.one(create(CAROL))
    assert isinstance(refused, Refused)
    assert refused.detail == "users: 2 exist, at most 2: delete some first"
    assert isinstance(driven.one(change(replace(BOB, is_admin=True))), UserChanged)


def test_users_are_there_after_a_restart() -> None:
    driven = Driven()
    driven.run(create(BOB), create(ALICE))
    again = StateMachine(driven.store, driven.group).queries
    assert again.users("", 10) == [ALICE, BOB]
    assert again.users("alice", 10) == [BOB]
    assert again.users("", 1) == [ALICE]
    assert again.users_revision == 1


@pytest.mark.parametrize(
    ("user", "detail"),
    [
        (replace(BOB, name=""), "user '': has 0 characters, must be 1 to 64"),
        (replace(BOB, name="a b"), "user 'a b': only letters, digits, . _ - and @ are allowed"),
        (
            replace(BOB, credentials=replace(SECRETS, salt=b"short")),
            "salt of 5 bytes, must be 16 to 64",
        ),
        (
            replace(BOB, credentials=replace(SECRETS, rounds=4_095)),
            "rounds 4095, must be 4096 to 1000000",
        ),
        (
            replace(BOB, credentials=replace(SECRETS, stored_key=b"")),
            "stored_key of 0 bytes, must be 32",
        ),
        (
            replace(BOB, credentials=replace(SECRETS, server_key=b"x" * 33)),
            "server_key of 33 bytes, must be 32",
        ),
        (
            replace(BOB, policies=(PUBLISH_ORDERS,) * (POLICIES_PER_USER_MAX + 1)),
            "65 policies, at most 64",
        ),
        *(
            (replace(BOB, policies=(replace(PUBLISH_ORDERS, **fields),)), detail)
            for fields, detail in (
                ({"actions": 0}, "actions 0, must be 1 to 127"),
                ({"actions": 128}, "actions 128, must be 1 to 127"),
                ({"match": Match.ALL}, "pattern 'orders-': must be empty where all are meant"),
                ({"pattern": ""}, "pattern '': has 0 characters, must be 1 to 127"),
                (
                    {"kind": ResourceKind.CLUSTER},
                    "pattern 'orders-': there is one cluster, so all must be meant",
                ),
                (
                    {"kind": ResourceKind.GROUP, "pattern": "g" * 121},
                    f"pattern '{'g' * 40}'...: has 121 characters, must be 1 to 120",
                ),
                ({"networks": ("10.0.0.1/8",)}, "network '10.0.0.1/8': 10.0.0.1/8 has host bits"),
                ({"networks": ("here",)}, "network 'here': 'here' does not appear to be"),
                (
                    {"networks": ("10.0.0.1",)},
                    "network '10.0.0.1': must be written as 10.0.0.1/32",
                ),
                (
                    {"networks": ("10.0.0.0/8",) * (NETWORKS_PER_POLICY_MAX + 1)},
                    "17 networks, at most 16",
                ),
            )
        ),
    ],
)
def test_what_no_user_may_be(user: User, detail: str) -> None:
    driven = Driven()
    for command in (create(user), whole(9, user)):
        refused = driven.one(command)
        assert isinstance(refused, Refused)
        assert refused.code is Code.INVALID_ARGUMENT
        assert refused.detail.startswith(detail)
    assert not driven.machine.queries.users("", 10)


def test_the_widest_user_fits() -> None:
    policy = Policy(
        ResourceKind.TOPIC, Match.EXACT, "t" * 127, int(ALL_ACTIONS), networks=("10.0.0.0/8",) * 16
    )
    user = User("u" * 64, SECRETS, policies=(policy,) * POLICIES_PER_USER_MAX)
    assert isinstance(Driven().one(create(user)), UserChanged)


def test_a_list_is_known_when_its_ranges_meet() -> None:
    driven = Driven()
    queries = driven.machine.queries
    first = ImportUsers("", "bob", (ALICE,), 9, CONTROL)
    last = ImportUsers("bob", "", (BOB, CAROL), 9, CONTROL)
    assert driven.one(last) == UsersImported(0), "a range before it is missing"
    assert driven.one(first) == UsersImported(0)
    assert (names(driven), queries.users_revision) == (["alice", "bob", "carol"], 0)
    assert driven.one(last) == UsersImported(9)
    assert queries.users_revision == 9
    assert driven.one(first) == UsersImported(9), "a range may come again"


def test_a_range_says_who_is_there() -> None:
    """Whoever it does not name is deleted, and nobody beyond it."""
    driven = Driven()
    driven.one(whole(5, ALICE, BOB, CAROL))
    driven.one(ImportUsers("b", "carol", (), 7, CONTROL))
    assert names(driven) == ["alice", "carol"]
    driven.one(whole(7))
    assert names(driven) == []


def test_nothing_goes_back_to_an_older_list() -> None:
    """Neither than the one that is known, nor than one that is known in part."""
    driven = Driven()
    driven.one(whole(5, ALICE, BOB))
    assert code_of(driven.one(whole(4, ALICE, CAROL))) is Code.STALE_LAYOUT
    driven.one(ImportUsers("", "b", (), 9, CONTROL))
    refused = driven.one(whole(8, ALICE, BOB))
    assert refused == Refused(Code.STALE_LAYOUT, "users: revision 8, known is 9")
    assert (names(driven), driven.machine.queries.users_revision) == (["bob"], 5)


def test_ranges_of_two_lists_are_no_list() -> None:
    driven = Driven()
    driven.one(ImportUsers("", "b", (ALICE,), 5, CONTROL))
    assert driven.one(ImportUsers("b", "", (BOB,), 6, CONTROL)) == UsersImported(0)
    assert driven.one(ImportUsers("", "b", (), 6, CONTROL)) == UsersImported(0)
    assert driven.one(ImportUsers("b", "", (BOB,), 6, CONTROL)) == UsersImported(6)


def test_one_control_group_alone_is_followed() -> None:
    """About users and about topics."""
    driven = Driven()
    driven.one(whole(5, ALICE))
    assert code_of(driven.one(whole(9, BOB, control_id=OTHER_CONTROL))) is Code.WRONG_GROUP
    layout = (LayoutPart("g1", 1),)
    topic = Topic(b"T" * 16, "t", TopicType.NORMAL, 1, layout, 1, 1, 6, 9)
    assert code_of(driven.one(ImportTopic(topic, OTHER_CONTROL))) is Code.WRONG_GROUP
    assert names(driven) == ["alice"]


def test_the_rows_are_those_of_the_range_in_order() -> None:
    driven = Driven()
    for command in (
        ImportUsers("b", "", (ALICE,), 5, CONTROL),
        ImportUsers("", "b", (BOB,), 5, CONTROL),
        whole(5, BOB, ALICE),
        whole(5, ALICE, ALICE),
        whole(5, *(User(f"u{i:04}", SECRETS) for i in range(USERS_PER_IMPORT + 1))),
    ):
        assert code_of(driven.one(command)) is Code.INVALID_ARGUMENT
    assert META_KEY not in driven.rows()


def test_a_user_that_stays_is_the_same_object() -> None:
    """What was decided for it is remembered by that."""
    driven = Driven()
    driven.one(whole(5, ALICE, BOB))
    before = driven.machine.queries.user("bob")
    driven.one(whole(6, ALICE, replace(BOB)))
    assert driven.machine.queries.user("bob") is before


def test_how_far_a_list_is_known_is_there_after_a_restart() -> None:
    driven = Driven()
    driven.one(whole(5, ALICE))
    driven.one(ImportUsers("", "b", (), 9, CONTROL))
    again = Driven(driven.store, driven.log)
    assert code_of(again.one(whole(8, ALICE))) is Code.STALE_LAYOUT
    assert again.one(ImportUsers("b", "", (BOB,), 9, CONTROL)) == UsersImported(9)


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])


@given(
    before=st.sets(NAMES), now=st.sets(NAMES), cuts=st.sets(NAMES), order=st.permutations(range(6))
)
def test_ranges_in_any_order_come_to_the_list(
    before: set[str], now: set[str], cuts: set[str], order: list[int]
) -> None:
    """And the list counts as known only when all of it is there."""
    driven = Driven()
    driven.one(whole(3, *(User(name, SECRETS) for name in sorted(before))))
    ends = [*sorted(cuts), ""]
    ranges = list(zip(["", *sorted(cuts)], ends, strict=True))
    for _ in ranges:
        for at in order:
            if at < len(ranges):
                first, end = ranges[at]
                users = [
                    User(name, SECRETS)
                    for name in sorted(now)
                    if first <= name and (not end or name < end)
                ]
                driven.one(ImportUsers(first, end, tuple(users), 7, CONTROL))
                if driven.machine.queries.users_revision == 7:
                    assert names(driven) == sorted(now)
    assert (names(driven), driven.machine.queries.users_revision) == (sorted(now), 7)


def test_nobody_prints_credentials() -> None:
    driven = Driven()
    driven.one(create(BOB))
    row = next(key for key in driven.rows() if key[0] == Table.USER)
    shown = [
        describe(create(BOB)),
        describe(whole(7, BOB)),
        str(describe_row(Table.USER, row, driven.rows()[row]).value),
        repr(create(BOB)),
    ]
    for text in shown:
        for secret in (SECRETS.salt, SECRETS.stored_key, SECRETS.server_key):
            assert secret.hex() not in text
            assert repr(secret) not in text
    assert describe_row(Table.USER, row, driven.rows()[row]).value["credentials"] == "(kept)"
    meta = describe_row(Table.USER_META, META_KEY, driven.rows()[META_KEY])
    assert meta.value == {"revision": "1", "newest": "1", "covered": ""}


def test_a_table_is_read_as_it_was_written() -> None:
    driven = Driven()
    driven.run(create(BOB), create(ALICE), DeleteUser("bob"), create(CAROL))
    table: UserTable = StateMachine(driven.store, driven.group)._state.users
    assert table.names_between("", "") == ["alice", "carol"]
    assert table.names_between("alice", "carol") == ["alice"]
