"""Commands: golden bytes, round trips, one line each, and what is not known."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.state.commands.command import Command
from dledger.state.commands.registry import (
    COMMANDS,
    UnknownCommand,
    decode,
    describe,
    encode,
)
from dledger.state.consumers.granting import Assign, GiveBack, Held, TopicTargets
from dledger.state.consumers.groups import (
    CreateConsumerGroup,
    DeleteConsumerGroup,
    UpdateConsumerGroup,
    WidenConsumerGroup,
)
from dledger.state.consumers.membership import EndSessions, Join, Session
from dledger.state.consumers.settings import ConsumeOrder, GroupSettings, StartFrom
from dledger.state.consumers.table import QueueKey, Subscribed
from dledger.state.format_level import SetFormatLevel
from dledger.state.offsets import CommitOffset, DoneRange
from dledger.state.producers.expiry import ExpireProducers
from dledger.state.producers.registration import RegisterProducer
from dledger.state.progress.claims import ClaimQueues, GrantedQueue, ReleaseQueues, WantedQueue
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.dead_letters import SettleDeadLetters
from dledger.state.progress.failures import FailedRecord, FailRecords
from dledger.state.progress.start import BeginQueues, NewQueue
from dledger.state.progress.wave import ResumeGroup
from dledger.state.queues.carry import CarryForward, Copy
from dledger.state.queues.compact import Compact, CutRow
from dledger.state.queues.expire import Bound, ExpireRecords, Expiring
from dledger.state.queues.holds import Hold, ReleaseHold
from dledger.state.queues.trim import Trim
from dledger.state.timers.commands import FireTimers, RecallTimer
from dledger.state.timers.schedules import DeleteSchedule, SetSchedule
from dledger.state.topics.commands import (
    CreateTopic,
    DeleteTopic,
    ForgetTopics,
    ImportTopic,
    UpdateTopic,
)
from dledger.state.users.commands import DeleteUser, ImportUsers, PutMode, PutUser
from dledger.state.users.values import Credentials, Match, Policy, ResourceKind, User
from dledger.state.values import LayoutPart, Retention, Topic, TopicType
from dledger_proto.errors import Code, DledgerError

A = b"a" * 16
HEX_A = "61" * 16
B = b"b" * 16
HEX_B = "62" * 16
LAYOUT = (LayoutPart("g1", 4), LayoutPart("g2", 2))
HEX_LAYOUT = "0200" + "0200" + "6731" + "04000000" + "0200" + "6732" + "02000000"
RETENTION = Retention(7, 258)
HEX_RETENTION = "0700000000000000" + "0201000000000000"
SETTINGS = GroupSettings(
    "g1", B, ConsumeOrder.KEY, (5, 7), 3, False, StartFrom.TIME, -2, 1, 2, "circle", 4, 6, True
)
HEX_SETTINGS = (
    "0200" + "6731" + HEX_B + "02" + "0200" + "05000000" + "07000000" + "03000000" + "00" + "02"
    + "feffffffffffffff" + "01000000" + "02000000" + "0600" + "636972636c65" + "04000000"
    + "06000000" + "01"
)  # fmt: skip
SHOWN_SETTINGS = (
    f"(coordinator=g1 dead_letter_topic_id={HEX_B} order=KEY retry_delays_ms=5,7 retries_max=3 "
    "dead_letters=False start=TIME start_time_ms=-2 session_ms=1 lease_ms=2 strategy=circle "
    "pause_failures=4 pause_share=6 paused=True)"
)
TOPIC = Topic(A, "t", TopicType.FIFO, 3, LAYOUT, 5, 6, 4, 77, True)

USER = User(
    "u", Credentials(A, 4_096, A * 2, B * 2), True, False,
    (Policy(ResourceKind.GROUP, Match.PREFIX, "g", 3, False, ("10.0.0.0/8",)),),
)  # fmt: skip
HEX_USER = (
    "0100" + "75" + "10000000" + HEX_A + "00100000" + "20000000" + HEX_A * 2 + "20000000"
    + HEX_B * 2 + "01" + "00" + "0100" + "03" + "02" + "0100" + "67" + "03" + "00" + "0100"
    + "0a00" + "31302e302e302e302f38"
)  # fmt: skip
SHOWN_USER = (
    "(name=u credentials=(kept) is_admin=True is_enabled=False policies=(kind=GROUP match=PREFIX "
    "pattern=g actions=3 allows=False networks=10.0.0.0/8))"
)

GOLDEN: list[tuple[Command[object], str, str]] = [
    (
        RegisterProducer(A, B, 7, "u"),
        "1b01" + HEX_A + HEX_B + "07000000" + "0100" + "75",
        f"RegisterProducer producer_id={HEX_A} life_id={HEX_B} epoch=7 user=u",
    ),
    (
        ExpireProducers(-2, 7),
        "0201" + "feffffffffffffff" + "0700000000000000",
        "ExpireProducers elapsed_ms=-2 expiry_ms=7",
    ),
    (
        CreateTopic(A, "t", TopicType.DELAY, LAYOUT, 6, 6, 258, RETENTION),
        "3a01" + HEX_A + "0100" + "74" + "02" + HEX_LAYOUT + "06000000" + "06"
        + "0201000000000000" + HEX_RETENTION,
        f"CreateTopic topic_id={HEX_A} name=t type=DELAY layout=g1:4,g2:2 read_queues=6 "
        "permission=6 known_index=258 retention=7ms/258B",
    ),
    (
        ImportTopic(TOPIC, B),
        "3c01" + HEX_A + "0100" + "74" + "01" + "03000000" + HEX_LAYOUT + "05000000"
        + "06000000" + "04" + "4d00000000000000" + "01" + "0000" + "00" * 16 + HEX_B,
        f"ImportTopic topic=(topic_id={HEX_A} name=t type=FIFO layout_version=3 layout=g1:4,g2:2 "
        "write_queues=5 read_queues=6 permission=4 control_index=77 deleted=True "
        "settings=- retention=0ms/0B) "
        f"control_id={HEX_B}",
    ),
    (
        ImportTopic(replace(TOPIC, settings=(SETTINGS,), retention=RETENTION), B),
        "3c01" + HEX_A + "0100" + "74" + "01" + "03000000" + HEX_LAYOUT + "05000000"
        + "06000000" + "04" + "4d00000000000000" + "01" + "0100" + HEX_SETTINGS
        + HEX_RETENTION + HEX_B,
        f"ImportTopic topic=(topic_id={HEX_A} name=t type=FIFO layout_version=3 layout=g1:4,g2:2 "
        "write_queues=5 read_queues=6 permission=4 control_index=77 deleted=True "
        f"settings={SHOWN_SETTINGS} retention=7ms/258B) "
        f"control_id={HEX_B}",
    ),
    (
        CreateConsumerGroup(A, "g", LAYOUT, SETTINGS, 258),
        "1e01" + HEX_A + "0100" + "67" + HEX_LAYOUT + HEX_SETTINGS + "0201000000000000",
        f"CreateConsumerGroup group_id={HEX_A} name=g layout=g1:4,g2:2 settings={SHOWN_SETTINGS} "
        "known_index=258",
    ),
    (
        UpdateConsumerGroup(A, ("order", "paused"), SETTINGS),
        "1f01" + HEX_A + "0200" + "0500" + "6f72646572" + "0600" + "706175736564" + HEX_SETTINGS,
        f"UpdateConsumerGroup group_id={HEX_A} fields=order,paused settings={SHOWN_SETTINGS}",
    ),
    (
        DeleteConsumerGroup(A),
        "2001" + HEX_A,
        f"DeleteConsumerGroup group_id={HEX_A}",
    ),
    (
        WidenConsumerGroup(A, LAYOUT),
        "2101" + HEX_A + HEX_LAYOUT,
        f"WidenConsumerGroup group_id={HEX_A} layout=g1:4,g2:2",
    ),
    (
        UpdateTopic(A, (), 9, 2, (), (258,)),
        "3b01" + HEX_A + "0000" + "09000000" + "02" + "0000" + "0100" + "0201000000000000",
        f"UpdateTopic topic_id={HEX_A} layout=- read_queues=9 permission=2 retention_time_ms=- "
        "retention_size=258",
    ),
    (
        ExpireRecords((Expiring(A, 3, 55, Bound.SIZE, 258),), RETENTION),
        "3d01" + "0100" + HEX_A + "03000000" + "3700000000000000" + "01"
        + "0201000000000000" + HEX_RETENTION,
        f"ExpireRecords queues={HEX_A}/3@55(SIZE) default=7ms/258B",
    ),
    (
        CarryForward(258, b"", b"\xff", (Copy(7, b"ab"),)),
        "3e01" + "0201000000000000" + "00000000" + "01000000" + "ff"
        + "0100" + "0700000000000000" + "02000000" + "6162",
        "CarryForward target=258 cursor= until=ff copies=7[2]",
    ),
    (
        Compact(A, 3, 5, 9, -1, (CutRow(5, 4),), (Copy(7, b"ab"),)),
        "3f01" + HEX_A + "03000000" + "0500000000000000" + "0900000000000000" + "ff" * 8
        + "0100" + "0500000000000000" + "04000000"
        + "0100" + "0700000000000000" + "02000000" + "6162",
        f"Compact topic_id={HEX_A} queue=3 first=5 stop=9 cleaned=-1 rows=5+4 runs=7[2]",
    ),
    (
        ForgetTopics(7, 258),
        "3901" + "0700000000000000" + "0201000000000000" + "01",
        "ForgetTopics kept_ms=7 known_index=258 waits_for_all=True",
    ),
    (DeleteTopic(A), "0601" + HEX_A, f"DeleteTopic topic_id={HEX_A}"),
    (
        CommitOffsets("cg", (CommitOffset(A, 3, 55, "m", 9, 2, (DoneRange(57, 59),)),), True, "me"),
        "3201" + "0200" + "6367" + "01" + "0200" + "6d65" + "0100" + HEX_A
        + "03000000" + "3700000000000000" + "0100" + "6d" + "0900000000000000" + "02000000"
        + "0100" + "3900000000000000" + "3b00000000000000",
        f"CommitOffsets consumer_group=cg offsets={HEX_A}/3@55+57..58#9.2 reset=True member_id=me",
    ),
    (
        BeginQueues("cg", (NewQueue(A, 3, 9),)),
        "2201" + "0200" + "6367" + "0100" + HEX_A + "03000000" + "0900000000000000",
        f"BeginQueues consumer_group=cg queues={HEX_A}/3+9",
    ),
    (
        ClaimQueues("cg", "me", (WantedQueue(A, 3, 9, 7),)),
        "3801" + "0200" + "6367" + "0200" + "6d65" + "0100" + HEX_A + "03000000"
        + "0900000000000000" + "0700000000000000",
        f"ClaimQueues consumer_group=cg member_id=me queues={HEX_A}/3#9-7",
    ),
    (
        ReleaseQueues("cg", "me", (GrantedQueue(A, 3, 9),)),
        "3401" + "0200" + "6367" + "0200" + "6d65" + "0100" + HEX_A + "03000000"
        + "0900000000000000",
        f"ReleaseQueues consumer_group=cg member_id=me queues={HEX_A}/3#9",
    ),
    (
        FailRecords("cg", "me", (FailedRecord(A, 3, 9, 2, 55, 1, -1, "bad"),)),
        "3501" + "0200" + "6367" + "0200" + "6d65" + "0100" + HEX_A + "03000000"
        + "0900000000000000" + "02000000" + "3700000000000000" + "01000000" + "ff" * 8
        + "0300" + "626164",
        f"FailRecords consumer_group=cg member_id=me records={HEX_A}/3@55#9.2*1-1",
    ),
    (
        SettleDeadLetters("cg", 3, (55,), True, 4),
        "3701" + "0200" + "6367" + "03000000" + "0100" + "3700000000000000" + "01" + "04000000",
        "SettleDeadLetters consumer_group=cg queue=3 offsets=55 resend=True resent_max=4",
    ),
    (
        ResumeGroup("cg"),
        "3601" + "0200" + "6367",
        "ResumeGroup consumer_group=cg",
    ),
    (
        Trim(A, 2, 100),
        "0801" + HEX_A + "02000000" + "6400000000000000",
        f"Trim topic_id={HEX_A} queue=2 offset=100",
    ),
    (
        Hold("me", A, 2, 100, 5),
        "0901" + "0200" + "6d65" + HEX_A + "02000000" + "6400000000000000" + "0500000000000000",
        f"Hold owner=me topic_id={HEX_A} queue=2 offset=100 until_ms=5",
    ),
    (
        ReleaseHold("me", A, 2),
        "0a01" + "0200" + "6d65" + HEX_A + "02000000",
        f"ReleaseHold owner=me topic_id={HEX_A} queue=2",
    ),
    (
        FireTimers(9, 1_000),
        "1401" + "0900000000000000" + "e8030000",
        "FireTimers up_to_ms=9 at_most=1000",
    ),
    (
        RecallTimer(A, 258),
        "1501" + HEX_A + "0201000000000000",
        f"RecallTimer producer_id={HEX_A} number=258",
    ),
    (
        SetSchedule("s", "* * * * *", "UTC", b"batch"),
        "1601" + "0100" + "73" + "0900" + "2a202a202a202a202a" + "0300" + "555443"
        + "05000000" + "6261746368",
        "SetSchedule name=s cron=* * * * * time_zone=UTC batch=6261746368",
    ),
    (
        DeleteSchedule(A, "s"),
        "1701" + HEX_A + "0100" + "73",
        f"DeleteSchedule topic_id={HEX_A} name=s",
    ),
    (
        PutUser(PutMode.CHANGE, USER, 258),
        "1801" + "01" + HEX_USER + "0201000000000000",
        f"PutUser mode=CHANGE user={SHOWN_USER} known_revision=258",
    ),
    (DeleteUser("u"), "1901" + "0100" + "75", "DeleteUser name=u"),
    (
        ImportUsers("a", "", (USER,), 258, B),
        "1a01" + "0100" + "61" + "0000" + "0100" + HEX_USER + "0201000000000000" + HEX_B,
        f"ImportUsers first=a end= users={SHOWN_USER} revision=258 control_id={HEX_B}",
    ),
    (SetFormatLevel(1), "0b01" + "01000000", "SetFormatLevel level=1"),
    (
        Join(
            A, "me", "one", "host", "room", ConsumeOrder.KEY, "circle",
            (Subscribed("o"), Subscribed("p.*", True)), (QueueKey(B, 3),),
        ),
        "2801" + HEX_A + "0200" + "6d65" + "0300" + "6f6e65" + "0400" + "686f7374" + "0400"
        + "726f6f6d" + "02" + "0600" + "636972636c65" + "0200" + "0100" + "6f" + "00" + "0300"
        + "702e2a" + "01" + "0100" + HEX_B + "03000000",
        f"Join group_id={HEX_A} consumer=me instance=one client=host room=room order=KEY "
        f"strategy=circle subscriptions=o,/p.*/ wanted={HEX_B}/3",
    ),
    (
        EndSessions(A, (Session("me", 7),)),
        "2901" + HEX_A + "0100" + "0200" + "6d65" + "0700000000000000",
        f"EndSessions group_id={HEX_A} sessions=me@7",
    ),
    (
        Assign(A, 4, ("me", "you"), (TopicTargets(B, (1, 0, 2)),)),
        "2a01" + HEX_A + "0400000000000000" + "0200" + "0200" + "6d65" + "0300" + "796f75" + "0100"
        + HEX_B + "0300" + "01000000" + "00000000" + "02000000",
        f"Assign group_id={HEX_A} group_epoch=4 consumers=me,you topics={HEX_B}:1,0,2",
    ),
    (
        GiveBack(A, "me", 7, (Held(B, 3, 9),)),
        "2b01" + HEX_A + "0200" + "6d65" + "0700000000000000" + "0100" + HEX_B + "03000000"
        + "0900000000000000",
        f"GiveBack group_id={HEX_A} consumer=me joined=7 queues={HEX_B}/3#9",
    ),
]  # fmt: skip


def test_the_list_is_complete() -> None:
    assert {type(command) for command, _, _ in GOLDEN} == set(COMMANDS)


@pytest.mark.parametrize(
    ("command", "data"),
    [
        (
            CommitOffsets("cg", (CommitOffset(A, 3, 55, "m"),), True),
            "0701" + "0200" + "6367" + "01" + "0200" + "6d65" + "0900000000000000" + "0100" + HEX_A
            + "03000000" + "3700000000000000" + "0100" + "6d",
        ),
        (
            ImportTopic(TOPIC, B),
            "1101" + HEX_A + "0100" + "74" + "01" + "03000000" + HEX_LAYOUT + "05000000"
            + "06000000" + "04" + "4d00000000000000" + "01" + HEX_B,
        ),
        (
            ImportTopic(replace(TOPIC, settings=(SETTINGS,)), B),
            "3101" + HEX_A + "0100" + "74" + "01" + "03000000" + HEX_LAYOUT + "05000000"
            + "06000000" + "04" + "4d00000000000000" + "01" + "0100" + HEX_SETTINGS + HEX_B,
        ),
        (
            CreateTopic(A, "t", TopicType.DELAY, LAYOUT, 6, 6, 258),
            "0d01" + HEX_A + "0100" + "74" + "02" + HEX_LAYOUT + "06000000" + "06"
            + "0201000000000000",
        ),
        (UpdateTopic(A, (), 9, 2), "0f01" + HEX_A + "0000" + "09000000" + "02"),
        (RegisterProducer(A, B, 7), "0c01" + HEX_A + HEX_B + "07000000"),
    ],
)  # fmt: skip
def test_what_an_older_dledger_wrote_is_read(command: Command[object], data: str) -> None:
    assert decode(bytes.fromhex(data)) == command


@pytest.mark.parametrize(("command", "data", "line"), GOLDEN)
def test_golden(command: Command[object], data: str, line: str) -> None:
    """These bytes are in logs: they never change."""
    assert encode(command).hex() == data
    assert decode(bytes.fromhex(data)) == command
    assert describe(command) == line


@pytest.mark.parametrize(("command", "data", "line"), GOLDEN)
def test_anything_else_is_unknown(command: Command[object], data: str, line: str) -> None:
    """Cut short, too long, another version or kind: never a guess."""
    encoded = bytes.fromhex(data)
    for size in range(len(encoded)):
        with pytest.raises(UnknownCommand):
            decode(encoded[:size])
    for wrong in (encoded + b"\0", b"\xfe" + encoded[1:], encoded[:1] + b"\2" + encoded[2:]):
        with pytest.raises(UnknownCommand):
            decode(wrong)


def test_values_that_are_unknown() -> None:
    for data in (
        "0b01" + "02000000",  # a level above ours
        "0101" + HEX_A + "01" + "00000000",  # withdrawn: a registration without a life
        "3201" + "0100" + "67" + "02" + "0000" + "0000",  # a flag that is none
        "0d01" + HEX_A + "0100" + "74" + "09" + HEX_LAYOUT + "06000000" + "06",  # a type
        "0a01" + "0100" + "ff" + HEX_A + "00000000",  # text that is not UTF-8
    ):
        with pytest.raises(UnknownCommand):
            decode(bytes.fromhex(data))


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_command_or_unknown(data: bytes) -> None:
    try:
        command = decode(data)
    except UnknownCommand:
        return
    assert encode(command) == data


OFFSETS = st.integers(-(2**63), 2**63 - 1)


@given(
    group=st.text(max_size=30),
    member=st.text(max_size=30),
    offsets=st.lists(
        st.builds(
            CommitOffset,
            st.binary(min_size=16, max_size=16),
            st.integers(0, 2**32 - 1),
            OFFSETS,
            st.text(max_size=20),
            st.integers(0, 2**64 - 1),
            st.integers(0, 2**32 - 1),
            st.lists(st.builds(DoneRange, OFFSETS, OFFSETS), max_size=3).map(tuple),
        ),
        max_size=5,
    ),
    reset=st.booleans(),
)
def test_round_trip(group: str, member: str, offsets: list[CommitOffset], reset: bool) -> None:
    command = CommitOffsets(group, tuple(offsets), reset, member)
    assert decode(encode(command)) == command


@pytest.mark.parametrize(
    ("command", "detail"),
    [
        (DeleteTopic(b"short"), "topic_id has 5 bytes, an id has 16"),
        (Trim(A, -1, 0), "queue -1, must be 0 to 4294967295"),
        (
            Trim(A, 0, 1 << 63),
            f"offset {1 << 63}, must be -9223372036854775808 to 9223372036854775807",
        ),
        (CommitOffsets("x" * 70_000, ()), "consumer_group has 70000 bytes, at most 65535"),
        (
            CommitOffsets("g", (CommitOffset(A, -1, 0),)),
            "offsets.queue -1, must be 0 to 4294967295",
        ),
        (SetFormatLevel(1 << 32), "level 4294967296, must be 0 to 4294967295"),
    ],
)
def test_a_field_that_does_not_fit_is_refused(command: Command[object], detail: str) -> None:
    with pytest.raises(DledgerError) as caught:
        encode(command)
    assert (caught.value.code, caught.value.detail) == (Code.INVALID_ARGUMENT, detail)
