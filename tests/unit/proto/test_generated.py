"""The committed generated code: current, importable beside others, honest about its needs."""

import pickle
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool
from packaging.requirements import Requirement
from packaging.version import Version

import dledger_proto.v1 as generated
from dledger_proto.errors import MEANINGS, Code, DledgerError
from dledger_proto.v1 import broker_pb2, broker_pb2_grpc, routes_pb2, routes_pb2_grpc

ROOT = Path(__file__).parents[3]
FOLDER = Path(generated.__file__).parent


def test_the_committed_code_is_what_the_generator_makes() -> None:
    check = subprocess.run(
        [sys.executable, str(ROOT / "proto" / "generate.py"), "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert check.returncode == 0, check.stderr


def test_generated_modules_import_each_other_under_our_package_only() -> None:
    for path in FOLDER.glob("*.py*"):
        text = path.read_text() if path.suffix in (".py", ".pyi") else ""
        assert not re.search(r"^\s*(from|import) dledger[. ]", text, re.MULTILINE), path
    program = "import dledger_proto.v1.routes_pb2_grpc, sys; print('dledger' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert found.stdout.strip() == "False"


def test_names_on_the_wire_are_those_of_the_proto_files() -> None:
    pool = descriptor_pool.Default()
    assert pool.FindFileByName("dledger/v1/broker.proto").package == "dledger.v1"
    for service in ("Broker", "Admin", "Routes", "Registry"):
        assert pool.FindServiceByName(f"dledger.v1.{service}").methods
    assert broker_pb2.Topic.DESCRIPTOR.full_name == "dledger.v1.Topic"
    assert broker_pb2_grpc.BrokerStub is not None
    assert routes_pb2_grpc.RoutesStub is not None


def test_messages_can_be_pickled() -> None:
    reply = routes_pb2.RoutesReply(cluster="c", topics=[broker_pb2.Topic(name="t")])
    assert pickle.loads(pickle.dumps(reply)) == reply


@pytest.mark.parametrize(
    ("package", "pattern", "file"),
    [
        ("protobuf", r"# Protobuf Python Version: ([\d.]+)", "broker_pb2.py"),
        ("grpcio", r"GRPC_GENERATED_VERSION = '([\d.]+)'", "broker_pb2_grpc.py"),
    ],
)
def test_the_distribution_requires_what_the_generated_code_needs(
    package: str, pattern: str, file: str
) -> None:
    needed = re.search(pattern, (FOLDER / file).read_text())
    assert needed is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {Requirement(line).name: Requirement(line) for line in project["dependencies"]}
    minimum = next(iter(declared[package].specifier)).version
    assert Version(minimum) >= Version(needed.group(1))


def test_every_code_has_a_meaning_and_errors_tell_it() -> None:
    for code in Code:
        error = DledgerError(code)
        assert (error.definite, error.retriable) == (
            MEANINGS[code].definite, MEANINGS[code].retriable,
        )  # fmt: skip
        assert str(error) == f"{code.name}: {MEANINGS[code].sentence}"
    assert not DledgerError(Code.UNKNOWN_OUTCOME).definite
