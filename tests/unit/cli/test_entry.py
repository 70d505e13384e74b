"""The `dledger` command before any command of it: version, help, what an install may lack."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from dledger_broker.cli import main
from dledger_broker.cli.app import COMMANDS

WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Absent())
from dledger_broker.cli import main
sys.exit(main({arguments}))
"""
CLIENT_LACKS = {
    "lmdb", "pydantic", "pydantic_core", "pysyncobj", "rich", "sortedcontainers", "structlog",
    "typer", "uvloop",
}  # fmt: skip
"""The extra `broker`, and what it brings with it."""


def without(absent: set[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command where some packages are not installed."""
    program = WITHOUT.format(absent=absent, arguments=list(arguments))
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"], ["status"], ["up"]])
def test_a_client_alone_is_told_what_the_command_needs(arguments: list[str]) -> None:
    ended = without(CLIENT_LACKS, *arguments)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        "error: the dledger command needs typer, which is not installed; "
        "install dledger with the extra broker, from a checkout or a wheel\n"
    )


def test_a_package_that_only_one_command_needs_is_named_as_well() -> None:
    ended = without({"lmdb"}, "inspect", "state", "/")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: the dledger command needs lmdb, which is not installed;")


def test_a_module_of_ours_that_is_missing_is_a_bug_and_says_where() -> None:
    ended = without({"dledger_proto"}, "status")
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag]) == 0
    assert capsys.readouterr().out == f"dledger {version('dledger')}\n"


@pytest.mark.parametrize(
    "command", ["", "topic list", "config keys", "inspect segments", "export status", *COMMANDS]
)
def test_h_is_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "-h"]) == 0
    short = capsys.readouterr().out
    assert "Usage: dledger" in short
    assert main([*command.split(), "--help"]) == 0
    assert capsys.readouterr().out == short


@pytest.mark.parametrize("command", ["topic list", "export gc", *COMMANDS])
def test_help_cuts_no_option_at_80_columns(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command.split(), "--help"]) == 0
    assert "\N{HORIZONTAL ELLIPSIS}" not in capsys.readouterr().out
