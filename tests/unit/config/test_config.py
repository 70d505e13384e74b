"""A member's configuration: what is taken, where it comes from, how refusals read."""

import json
import tomllib
from pathlib import Path

import pytest

from dledger.types import FlushMode
from dledger_broker.config.checks import ConfigError
from dledger_broker.config.load import (
    environment_name,
    known_keys,
    load_config,
    nearest_key,
    type_name,
)
from dledger_broker.config.model import MemberConfig
from dledger_broker.config.sections import RaftConfig
from dledger_broker.local.cluster import LocalCluster
from tests.unit.config.support import GOOD, lines

# What is taken


def test_minimal_file_and_its_derived_values(file: Path) -> None:
    config = load_config(file, {}).config
    (group,) = config.groups
    assert (group.name, group.member, group.folder) == (
        "orders-1",
        "a",
        file.parent / "data" / "orders-1",
    )
    assert group.clients == group.members
    assert config.control_group == "orders-1"
    assert config.control_group == group.name
    assert config.storage.flush is FlushMode.SYNC


def test_short_form_is_the_same(file: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.toml"
    short.write_text(
        GOOD.replace('[group]\nname = "orders-1"', "[members]").replace(
            'members = { a = "host-1:10911", b = "host-2:10911", c = "[::1]:10911" }',
            'a = "host-1:10911"\nb = "host-2:10911"\nc = "[::1]:10911"',
        )
    )
    text = short.read_text().replace('member = "a"', 'member = "a"\ngroup = "orders-1"')
    short.write_text(text)
    assert load_config(short, {}).config == load_config(file, {}).config


def test_what_a_local_cluster_writes_is_taken(tmp_path: Path) -> None:
    cluster = LocalCluster(
        tmp_path,
        settings={
            "storage.flush": "async",
            "storage.segment_size_bytes": 64 << 20,
            "topics.auto_create": False,
        },
    )
    cluster.prepare()
    for name in cluster.member_names:
        config = load_config(tmp_path / name / "config.toml", {}).config
        (group,) = config.groups
        assert (config.member, group.clients[name]) == (name, cluster.address(name))
        assert config.name_servers == (cluster.name_server,)
        assert config.storage.flush is FlushMode.ASYNC
        assert config.topics.auto_create is False


def test_several_groups_in_one_process(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(
        """
        cluster = "c"
        member = "a"
        listen = "h:1"
        security = "off"
        folder = "/d"
        control_group = "elsewhere"
        [[groups]]
        name = "g1"
        members = { a = "h:1", b = "i:1" }
        [[groups]]
        name = "g2"
        member = "x"
        folder = "/other"
        members = { x = "h:1", y = "i:1" }
        """
    )
    config = load_config(path, {}).config
    assert [(group.name, group.member, str(group.folder)) for group in config.groups] == [
        ("g1", "a", "/d/g1"),
        ("g2", "x", "/other"),
    ]
    assert config.control_group not in {group.name for group in config.groups}


def test_group_settings_are_in_seconds(file: Path) -> None:
    loaded = load_config(
        file, {"DLEDGER_STORAGE_FLUSH": "async", "DLEDGER_RAFT_HEARTBEAT_MS": "50"}
    )
    settings = loaded.config.group_settings(loaded.config.groups[0])
    assert (settings.cluster, settings.group, settings.member) == ("shop", "orders-1", "a")
    assert tuple(settings.members) == ("a", "b", "c")
    assert (settings.heartbeat, settings.election_timeout_min) == (0.05, 0.6)
    assert settings.flush is FlushMode.ASYNC


def test_environment_alone_is_enough() -> None:
    environment = {
        "DLEDGER_CLUSTER": "c",
        "DLEDGER_MEMBER": "a",
        "DLEDGER_LISTEN": "h:1",
        "DLEDGER_SECURITY": "off",
        "DLEDGER_FOLDER": "/d",
        "DLEDGER_GROUP": "g",
        "DLEDGER_MEMBERS": "a=h:1, b=i:1",
        "DLEDGER_NAME_SERVERS": "ns-1:9876,ns-2:9876",
        "DLEDGER_TOPICS_AUTO_CREATE": "false",
        "HOME": "/root",
    }
    config = load_config(None, environment).config
    assert dict(config.groups[0].members) == {"a": "h:1", "b": "i:1"}
    assert config.name_servers == ("ns-1:9876", "ns-2:9876")
    assert config.topics.auto_create is False


def test_a_member_leaves_alone_what_its_commands_are_told(file: Path) -> None:
    assert load_config(file, {"DLEDGER_INSIDE": "1"}).config == load_config(file, {}).config


def test_an_empty_variable_sets_nothing(file: Path) -> None:
    """Compose passes `${X:-}` on as an empty one. An unknown name is refused all the same."""
    empty = dict.fromkeys(map(environment_name, known_keys()), "")
    loaded = load_config(file, empty)
    assert loaded.config == load_config(file, {}).config
    assert {value.source.split()[0] for value in loaded.effective_values()} == {
        value.source.split()[0] for value in load_config(file, {}).effective_values()
    }
    assert lines(file, None, DLEDGER_ZZZ="") == [
        'DLEDGER_ZZZ = "": unknown variable; no key is similar'
    ]


def test_every_value_has_a_source(file: Path) -> None:
    file.write_text("storage.segment_size_bytes = 67108864\n" + GOOD)
    loaded = load_config(file, {"DLEDGER_LISTEN": "127.0.0.1:10911"})
    shown = {value.key: (value.value, value.source) for value in loaded.effective_values()}
    assert shown["listen"] == ("127.0.0.1:10911", "environment DLEDGER_LISTEN")
    assert shown["cluster"] == ("shop", "file member.toml")
    assert shown["storage.segment_size_bytes"] == ("67108864", "file member.toml")
    assert shown["storage.flush"] == ("sync", "default")
    assert shown["group.clients"] == (shown["group.members"][0], "derived")
    assert shown["group.members"] == (
        "a=host-1:10911, b=host-2:10911, c=[::1]:10911",
        "file member.toml",
    )
    assert set(shown) == set(known_keys())
    typed = {value.key: value.typed for value in loaded.effective_values()}
    assert typed["storage.segment_size_bytes"] == 67_108_864
    assert typed["topics.auto_create"] is True
    assert typed["storage.flush"] == "sync"
    assert typed["name_servers"] == shown["name_servers"][0].split(", ")
    assert typed["group.members"] == {
        "a": "host-1:10911", "b": "host-2:10911", "c": "[::1]:10911",
    }  # fmt: skip
    assert json.loads(json.dumps(typed)) == typed


def test_kubernetes_variables_are_not_ours(file: Path) -> None:
    environment = {
        "DLEDGER_SERVICE_HOST": "10.0.0.1",
        "DLEDGER_SERVICE_PORT_GRPC": "9876",
        "DLEDGER_PORT": "tcp://10.0.0.1:9876",
        "DLEDGER_PORT_9876_TCP_ADDR": "10.0.0.1",
        "DLEDGER_NAMESRV_PORT_9876_TCP": "tcp://10.0.0.1:9876",
    }
    assert load_config(file, environment).config == load_config(file, {}).config


def test_every_key_has_one_variable_and_a_word_for_its_type() -> None:
    keys = known_keys()
    assert len({environment_name(key) for key in keys}) == len(keys)
    short = {environment_name(f"group.{key}") for key in ("name", "members", "clients")}
    assert short == {"DLEDGER_GROUP", "DLEDGER_MEMBERS", "DLEDGER_CLIENTS"}
    assert {type_name(kind) for kind in keys.values()} == {
        "text", "whole number", "true or false", "folder", "list of addresses", "sync or async",
        "debug or info or warning or error", "console or json",
        "table of addresses by member id", "auto or off",
    }  # fmt: skip


# How refusals read


def test_unknown_keys_name_the_nearest_known_one(file: Path) -> None:
    text = (
        'flush = "async"\n'
        "segmentSizeBytes = 1\n"
        'brokerClusterName = "c"\n'
        "enableDLegerCommitLog = true\n"
        "raft.heartbeat = 100\n"
        "admision.queries_max = 5\nempty = {}\n" + GOOD
    )
    assert lines(file, text) == [
        'flush = async (file member.toml): unknown key; did you mean "storage.flush"?',
        "segmentSizeBytes = 1 (file member.toml): unknown key; did you mean "
        '"storage.segment_size_bytes"?',
        'brokerClusterName = c (file member.toml): unknown key; did you mean "cluster"?',
        "enableDLegerCommitLog = True (file member.toml): unknown key; see the list of keys: "
        "dledger config keys",
        'raft.heartbeat = 100 (file member.toml): unknown key; did you mean "raft.heartbeat_ms"?',
        "admision.queries_max = 5 (file member.toml): unknown key; did you mean "
        '"admission.queries_max"?',
        "empty = {}: unknown key; see the list of keys: dledger config keys",
    ]


@pytest.mark.parametrize(
    ("unknown", "near"),
    [
        ("clusterName", "cluster"),
        ("storage.segment_size", "storage.segment_size_bytes"),
        ("storage.flush_mode", "storage.flush"),
        ("dLegerSelfId", "member"),
        ("dLedgerPeers", "group.members"),
        ("namesrvAddr", "name_servers"),
        ("brokerIP1", "group.clients"),
        ("advertise", "group.clients"),
        ("election_timeout", "raft.election_timeout_min_ms"),
        ("loglevel", "log.level"),
        ("log.levle", "log.level"),
        ("zzz", ""),
        ("fileReservedTime", ""),
        ("deleteWhen", ""),
        ("autoCreateSubscriptionGroup", "consumer_groups.auto_create"),
    ],
)
def test_nearest_key(unknown: str, near: str) -> None:
    assert nearest_key(unknown, list(known_keys())) == near


def test_unknown_variables_name_the_nearest(file: Path) -> None:
    assert lines(file, None, DLEDGER_FLUSH="async", DLEDGER_ZZZ="1") == [
        'DLEDGER_FLUSH = async: unknown variable; did you mean "DLEDGER_STORAGE_FLUSH"?',
        "DLEDGER_ZZZ = 1: unknown variable; no key is similar",
    ]


def test_what_only_rocketmq_has_is_told_as_such(file: Path) -> None:
    told = "RocketMQ's; dledger deletes messages as they expire, see topics.retention_ms"
    assert lines(file, None, DLEDGER_DELETEWHEN="04") == [
        f"DLEDGER_DELETEWHEN = 04: unknown variable; {told}"
    ]
    text = file.read_text()
    assert lines(file, f"deleteWhen = 4\n{text}") == [
        f"deleteWhen = 4 (file member.toml): unknown key; {told}"
    ]


def test_each_refusal_names_key_value_source_and_limit(file: Path) -> None:
    text = """
cluster = "shop/1"
member = "a"
listen = "0.0.0.0"
folder = "data"
name_servers = ["ns-1:0"]
storage.flush = "maybe"
storage.tail_cache_bytes = "32M"
raft.heartbeat_ms = 0
topics.auto_create = 1
topics.default_queues_per_group = 2000
[group]
name = "g"
members = { a = "host-1:10911", "b/c" = "host-2:10911", d = "host 3:10911" }
"""
    name_rule = "must be 1 to 120 letters, digits, '_' or '-', and begin with a letter or digit"
    assert lines(file, text) == [
        f"cluster = shop/1 (file member.toml): {name_rule}",
        'listen = 0.0.0.0 (file member.toml): must be "host:port" (an IPv6 host in brackets)',
        "name_servers.0 = ns-1:0 (file member.toml): the port must be 1 to 65535",
        f"group.members.b/c = b/c (file member.toml): {name_rule}",
        'group.members.d = host 3:10911 (file member.toml): must be "host:port" (an IPv6 host in '
        "brackets)",
        "storage.flush = maybe (file member.toml): must be 'sync' or 'async'",
        "storage.tail_cache_bytes = 32M (file member.toml): must be a valid integer",
        "raft.heartbeat_ms = 0 (file member.toml): must be greater than or equal to 1",
        "topics.auto_create = 1 (file member.toml): must be a valid boolean",
        "topics.default_queues_per_group = 2000 (file member.toml): must be less than or equal to "
        "1024",
    ]


def test_everything_wrong_is_told_at_once(file: Path) -> None:
    text = GOOD.replace('listen = "0.0.0.0:10911"', 'listen = "nowhere"')
    text = (
        'brokerClusterName = "c"\nstorage.flus = "async"\nstorage.flush = "maybe"\n'
        "raft.heartbeat_ms = 0\nadmission = 5\n" + text
    )
    environment = {
        "DLEDGER_FLUSH": "async",
        "DLEDGER_RAFT_CAMPAIGN_JITTER_MS": "soon",
        "DLEDGER_STATE_SAVE_INTERVAL_MS": "0",
        "DLEDGER_LOG_LEVEL": "loud",
    }
    assert lines(file, text, **environment) == [
        'brokerClusterName = c (file member.toml): unknown key; did you mean "cluster"?',
        'storage.flus = async (file member.toml): unknown key; did you mean "storage.flush"?',
        "admission = 5 (file member.toml): must be a table",
        'DLEDGER_FLUSH = async: unknown variable; did you mean "DLEDGER_STORAGE_FLUSH"?',
        "DLEDGER_RAFT_CAMPAIGN_JITTER_MS = soon: must be a whole number",
        'listen = nowhere (file member.toml): must be "host:port" (an IPv6 host in brackets)',
        "storage.flush = maybe (file member.toml): must be 'sync' or 'async'",
        "state.save_interval_ms = 0 (environment DLEDGER_STATE_SAVE_INTERVAL_MS): must be greater "
        "than or equal to 1",
        "raft.heartbeat_ms = 0 (file member.toml): must be greater than or equal to 1",
        "log.level = loud (environment DLEDGER_LOG_LEVEL): must be 'debug', 'info', 'warning' or "
        "'error'",
    ]


def test_relations_are_told_beside_unknown_keys(file: Path) -> None:
    assert lines(file, "zzz = 1\nraft.heartbeat_ms = 300\n" + GOOD) == [
        "zzz = 1 (file member.toml): unknown key; see the list of keys: dledger config keys",
        "raft.election_timeout_min_ms = 600: must be above 900, 3 times raft.heartbeat_ms = 300",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("group = 5", ["group = 5 (file member.toml): must be a table"]),
        (
            'group = { name = "g", members = ["a=h:1"] }',
            [
                "group.members = ['a=h:1'] (file member.toml): must be a table of names and "
                'addresses, like { a = "host:port" }'
            ],
        ),
        ("groups = 5", ["groups = 5 (file member.toml): must be tables: [[groups]]"]),
        ("groups = [5]", ["groups = [5] (file member.toml): must be tables: [[groups]]"]),
        (
            "group.name = 5",
            [
                "group.name = 5 (file member.toml): must be a valid string",
                "group.members: required",
            ],
        ),
    ],
)
def test_tables_of_another_shape(file: Path, text: str, expected: list[str]) -> None:
    head = GOOD[: GOOD.index("[group]")]
    assert lines(file, f"{text}\n{head}", DLEDGER_STORAGE_FLUSH="async") == expected


def test_members_that_cannot_be_read_are_not_also_missing(file: Path) -> None:
    head = GOOD[: GOOD.index("[group]")]
    assert lines(file, head, DLEDGER_GROUP="g", DLEDGER_MEMBERS="a:1") == [
        'DLEDGER_MEMBERS = a:1: must be "a=host:port,b=host:port"'
    ]


def test_relations_between_values(file: Path) -> None:
    text = GOOD.replace('member = "a"', 'member = "z"').replace("host-2:", "host-1:")
    text = (
        "raft.heartbeat_ms = 200\nraft.election_timeout_max_ms = 500\n"
        "raft.inflight_bytes_max = 1000\nstorage.segment_size_bytes = 1000\n"
        "storage.disk_low_water_bytes = 1\nadmission.fetch_bytes_max = 5\n" + text
    )
    assert lines(file, text) == [
        "group.members = a, b, c (file member.toml): must contain this member, 'z'",
        "group.members.b = host-1:10911 (file member.toml): is also the address of a",
        "raft.election_timeout_min_ms = 600: must be above 600, 3 times raft.heartbeat_ms = 200",
        "raft.election_timeout_max_ms = 500 (file member.toml): must be above "
        "raft.election_timeout_min_ms = 600",
        "storage.segment_size_bytes = 1000 (file member.toml): must be at least 8388608, the "
        "size of the largest entry or frame",
        "raft.inflight_bytes_max = 1000 (file member.toml): must be at least 8388608, the "
        "size of the largest entry or frame",
        "admission.fetch_bytes_max = 5 (file member.toml): must be at least 16777216, the "
        "size of the largest entry or frame",
        "storage.disk_low_water_bytes = 1 (file member.toml): must be at least "
        "storage.disk_reserve_bytes = 67108864",
        "storage.disk_low_water_bytes = 1 (file member.toml): it and "
        "storage.disk_reserve_bytes = 67108864 of each group must hold 75497472 bytes: "
        "raft.uncommitted_bytes_max and one entry of each group, which may still come when the "
        "disk is that full",
    ]


def test_relations_hold_for_objects_too(file: Path) -> None:
    config = load_config(file, {}).config
    with pytest.raises(ConfigError, match="must be above 1200"):
        MemberConfig(
            cluster=config.cluster, member=config.member, listen=config.listen,
            folder=config.folder, groups=config.groups, raft=RaftConfig(heartbeat_ms=400),
        )  # fmt: skip


def test_consumer_groups_never_expire_within_an_hour(file: Path) -> None:
    """An expiry of minutes would be meant in other units; 0 is never, which is the default."""
    told = "consumer_groups.expiry_ms = 10080 (file member.toml): must be 0, or at least 3600000: "
    text = file.read_text() + "\n[consumer_groups]\nexpiry_ms = 10080\n"
    assert lines(file, text) == [told + "it is in milliseconds"]
    for expiry_ms in (0, 3_600_000):
        file.write_text(text.replace("10080", str(expiry_ms)))
        assert load_config(file, {}).config.consumer_groups.expiry_ms == expiry_ms


def test_missing_keys(tmp_path: Path) -> None:
    assert lines(None) == [
        "cluster: required",
        "member: required",
        "listen: required",
        "folder: required",
        "group: required",
    ]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "no.toml"
    assert lines(missing) == [f"file = {missing}: cannot be read: No such file or directory"]
    with pytest.raises(tomllib.TOMLDecodeError) as reason:
        tomllib.loads("x = [")
    assert lines(missing, "x = [") == [f"file = {missing}: is not TOML: {reason.value}"]
    for long in ("x = " + "9" * 2_000, "x = 0x" + "f" * 2_000, "x = 9223372036854775808"):
        assert lines(missing, long) == [f"file = {missing}: has a number of more than 64 bits"]
    for deep in (
        "x = " + "[" * 2_000,
        "[" + "x." * 1_000 + "x]\ny = 1",
        "x = " + "[" * 17 + "]" * 17,
    ):
        (line,) = lines(missing, deep)
        assert line == f"file = {missing}: has tables or lists within one another, at most 16 deep"
    (line,) = lines(missing, "y = 1\n" + "x." * 1_024 + "x = 1")
    assert line == f"file = {missing}: has 2053 characters in line 2, at most 2048"
    missing.write_bytes(b"x = '\xff'")
    assert lines(missing) == [f"file = {missing}: is not UTF-8 at byte 5"]


def test_too_many_members(file: Path) -> None:
    members = ", ".join(f'm{number} = "h-{number}:1"' for number in range(8))
    text = GOOD.replace('member = "a"', 'member = "m0"')
    text = text[: text.index("members =")] + f"members = {{ {members} }}\n"
    (line,) = lines(file, text)
    assert line.startswith("group.members = ")
    assert line.endswith("must have at most 7 items after validation, not more")


def test_group_and_groups_together(file: Path) -> None:
    text = GOOD + '[[groups]]\nname = "h"\nmembers = { a = "h:1" }\n'
    assert lines(file, text) == ["groups: give either [group] or [[groups]], not both"]


def test_two_groups_may_not_share_name_or_folder(file: Path) -> None:
    head = GOOD[: GOOD.index("[group]")]
    part = '[[groups]]\nname = "{0}"\nfolder = "/d"\nmembers = {{ a = "h:1" }}\n'
    assert lines(file, head + part.format("g") + part.format("h")) == [
        "group h.folder = /d: is also the folder of g"
    ]
    assert lines(file, head + part.format("g") + part.format("g")) == [
        "group g.name = g: two groups of one process have this name"
    ]


@pytest.mark.parametrize(
    ("variable", "text", "limit"),
    [
        ("DLEDGER_TOPICS_AUTO_CREATE", "yes", "must be true or false"),
        ("DLEDGER_RAFT_HEARTBEAT_MS", "fast", "must be a whole number"),
        ("DLEDGER_MEMBERS", "a:h:1", 'must be "a=host:port,b=host:port"'),
    ],
)
def test_variables_of_the_wrong_form(file: Path, variable: str, text: str, limit: str) -> None:
    assert lines(file, None, **{variable: text}) == [f"{variable} = {text}: {limit}"]
