"""Every parser has a target: what packages unpack is compared with what targets cover.

Goal: a new parser module cannot be forgotten. Method, by names: each function `parse_*`, `decode*`
or `load_*` of our packages is covered. By deeds: each module that takes bytes apart holds something
that is covered, or stands in `NOT_FROM_OUTSIDE` with the reason.
"""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fuzz.catalogue import TARGETS
from tests.tidy.sources import ROOT, our_files

PACKAGES: Final = ("proto/dledger_proto", "dledger", "broker", "client")
PARSER: Final = re.compile(r"(parse|decode|load)(_\w+|d)?")
TAKING_APART: Final = re.compile(
    r"\.(unpack|unpack_from|iter_unpack|FromString|ParseFromString)\(|json\.loads?\(|tomllib\.loads"
    r"|int\.from_bytes\(|\b(parsed|answer_of)\("
)
NOT_FROM_OUTSIDE: Final = {
    "dledger/state/": "rows passed their seals; `state-row` reads a row of every table",
    "dledger/log/memory/tail.py": "headers that this process made, or has checked",
    "dledger/log/atomic_file.py": "the frame of the small files: all `file-` targets go through it",
    "dledger/snapshot/making.py": "the applied row of the own state",
    "dledger/store/lmdb_check.py": "what the checking process of the own program prints",
    "broker/dledger_broker/cli/": "what members answer, as protobuf",
    "broker/dledger_broker/delivery/": "sessions: protobuf, then checks of each use case",
    "broker/dledger_broker/demo/": "files that the demo wrote",
    "broker/dledger_broker/local/": "files that `dledger up` wrote",
    "broker/dledger_broker/read/batches.py": "checked batches of the own log",
    "broker/dledger_broker/process/health.py": "protobuf of the own member",
    "broker/dledger_broker/repair/fetching.py": "protobuf; the entries are compared with the log",
    "broker/dledger_broker/refill/": "protobuf (`call`), entries (`entry-refill`), `state-dump`",
    "broker/dledger_broker/cluster/": "protobuf, then `frame-answers`; pages: `cursors`",
    "broker/dledger_broker/rpc/": "protobuf: `call`",
    "client/dledger_client/_shell/": "protobuf of a member",
    "client/dledger_client/reading/reader.py": "protobuf of a member",
    "client/dledger_client/admin": "protobuf of a member",
    "broker/dledger_monitoring/health.py": "protobuf: `call`",
    "broker/dledger_broker/users/": "protobuf: `call`; the state checks each user",
    "proto/dledger_proto/login/": "protobuf, then texts: the `login-` targets",
    "broker/dledger_namesrv/service.py": "protobuf: `registration`, `call`",
}
"""Modules, or folders of them, whose bytes nobody else makes, or that others read for them."""
NO_PARSERS: Final = {
    "dledger.raft.wire.loading:load": "fetches entries of the own log",
    "dledger.log.hard_state:load_hard_state": "`parse_hard_state` on a file",
    "dledger_client.export.manifests.history:load": "`load_manifest` on files",
}


def modules() -> Iterator[Path]:
    for path in our_files("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(PACKAGES) and "_pb2" not in name and not name.startswith("client/gen"):
            yield path


def module_name(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    for folder in ("proto/", "broker/", "client/"):
        name = name.removeprefix(folder)
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def parsers(path: Path) -> list[str]:
    """Return the functions of a module that have the name of a parser."""
    return [
        f"{module_name(path)}:{node.name}"
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and PARSER.fullmatch(node.name)
    ]


def takes_apart(text: str) -> bool:
    return TAKING_APART.search(text) is not None


COVERED: Final = {each for target in TARGETS for each in target.covers}


def test_what_targets_cover_is_there() -> None:
    for covered in sorted(COVERED):
        module, _, path = covered.partition(":")
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)


def test_every_function_that_parses_has_a_target() -> None:
    found = {name for path in modules() for name in parsers(path)}
    assert sorted(found - COVERED - set(NO_PARSERS)) == []
    assert sorted(set(NO_PARSERS) - found) == []


def test_every_module_that_takes_bytes_apart_has_a_target() -> None:
    covered = {name.partition(":")[0] for name in COVERED}
    used: set[str] = set()
    missing: list[str] = []
    for path in modules():
        name = path.relative_to(ROOT).as_posix()
        if not takes_apart(path.read_text()) or module_name(path) in covered:
            continue
        reasons = [each for each in NOT_FROM_OUTSIDE if name.startswith(each)]
        used.update(reasons)
        if not reasons:
            missing.append(name)
    assert missing == []
    assert sorted(set(NOT_FROM_OUTSIDE) - used) == [], "reasons that no module needs any more"


@pytest.mark.parametrize(
    "text",
    ["struct.unpack('<I', data)", "HEAD.unpack_from(view, at)", "json.loads(text)",
     "pb.Request.FromString(data)", "int.from_bytes(data, 'big')"],
)  # fmt: skip
def test_the_rule_finds_its_sample(text: str) -> None:
    assert takes_apart(text)


def test_the_rule_knows_the_name_of_a_parser(tmp_path: Path) -> None:
    assert PARSER.fullmatch("parse_frame")
    assert PARSER.fullmatch("decode")
    assert not PARSER.fullmatch("encode")
