"""Standard streams that are closed, full, left by their reader, or of an old encoding.

What was asked for may have happened when its answer cannot be printed: so the exit code must not
say that it did not.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dledger_proto.exit_codes import Exit

DLEDGER = f"{sys.executable} -m dledger_broker.cli"
PRINT = """
import sys
from dledger_proto.exit_codes import Exit
from dledger_broker.cli import app, output
from dledger_broker.cli.messages import tail
from dledger_client.records import RecordBatch
from dledger_proto.batch.codec import BatchView, Record, encode_batch

def add_to(app):
    app.command("say")(lambda: output.say(TEXT))
    app.command("line")(lambda: output.print_line(TEXT))
    app.command("json")(lambda: output.print_json(TEXT))
    app.command("rows")(lambda: output.print_rows([{"a": TEXT}], ["a"], as_json=False))
    app.command("error")(lambda: output.print_error(TEXT))
    app.command("note")(lambda: output.note(TEXT))
    app.command("raw")(lambda: tail.print_body(RECORD))

TEXT = "h\u00e9llo"
RECORD = RecordBatch("t", 0, 0, BatchView(encode_batch(
    [Record(TEXT.encode())], topic_id=b"t" * 16, queue=0, stamp=None, base_number=0, base_time_ms=0
)), 0, 1, 0)[0]
sys.modules["dledger_broker.cli.x"] = sys.modules["__main__"]
app.COMMANDS = dict.fromkeys(["say", "line", "json", "rows", "error", "note", "raw"], "x")
sys.exit(app.run(sys.argv[1:]))
"""
"""A command line of commands that only print."""
ANSWERS = ["say", "line", "json", "rows", "raw"]


def shell(line: str, program: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of the shell, with $PRINT and $DLEDGER, and with buffers as users have them."""
    names = {"PYTHONUNBUFFERED": "", "PRINT": f"{sys.executable} {program}", "DLEDGER": DLEDGER}
    return subprocess.run(
        ["/bin/bash", "-c", line], capture_output=True, timeout=60, check=False,
        stdin=subprocess.DEVNULL, env=os.environ | names | environment,
    )  # fmt: skip


@pytest.fixture(name="program")
def program_of(tmp_path: Path) -> Path:
    path = tmp_path / "print.py"
    path.write_text(PRINT)
    return path


@pytest.mark.parametrize("command", ANSWERS)
def test_an_answer_that_nobody_takes_is_no_definite_failure(command: str, program: Path) -> None:
    full = shell(f"$PRINT {command} > /dev/full", program)
    assert full.returncode == Exit.UNKNOWN_OUTCOME, full.stderr
    assert full.stderr == (
        b"error: the answer cannot be printed: No space left on device; the command may have taken "
        b"effect: look, for example with dledger status, before you repeat it\n"
    )
    left = shell(f"(sleep 0.1; $PRINT {command}; echo $? >&2) | true", program)
    assert left.stderr == b"4\n", "and a reader that left is told nothing"


@pytest.mark.parametrize("command", [*ANSWERS, "error", "note"])
def test_closed_streams_change_no_exit_code(command: str, program: Path) -> None:
    ended = shell(f"$PRINT {command} >&-", program)
    assert ended.returncode == 0, ended.stderr
    ended = shell(f"$PRINT {command} 2>&-", program)
    assert ended.returncode == 0
    assert bool(ended.stdout) == (command in ANSWERS), "errors are no answer"


@pytest.mark.parametrize("command", ["error", "note"])
def test_that_nobody_reads_errors_changes_no_exit_code(command: str, program: Path) -> None:
    for line in (
        f"$PRINT {command} 2> /dev/full; echo $?",
        f"$PRINT {command} 2> >(true); echo $?",
    ):
        assert shell(line, program).stdout == b"0\n"


@pytest.mark.parametrize("command", ANSWERS)
def test_any_encoding_takes_any_text(command: str, program: Path) -> None:
    ended = shell(f"$PRINT {command}", program, PYTHONIOENCODING="ascii")
    assert ended.returncode == 0, ended.stderr
    if command == "json":
        assert json.loads(ended.stdout) == "h\u00e9llo"
    elif command != "raw":
        assert b"h\\xe9llo" in ended.stdout


def test_nobody_is_asked_through_a_closed_stream(program: Path) -> None:
    for command in ("topic delete t", "trim t -q 0 --offset 5", "hold release t me"):
        ended = shell(f"$DLEDGER {command} -n 127.0.0.1:1 <&-", program)
        assert ended.returncode == Exit.BAD_INPUT
        assert ended.stderr.endswith(b"there is no terminal to ask on; confirm with --yes\n")
