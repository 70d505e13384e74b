"""Log lines: what a stranger sends cannot make a line of its own, nor reach the terminal."""

import io

import pytest
import structlog

from dledger_broker.cli.output import print_error
from dledger_broker.config.sections import LogConfig, LogFormat
from dledger_broker.process.logs import set_up_logs
from dledger_namesrv.logs import set_up_logs as set_up_name_server_logs


@pytest.mark.parametrize("form", list(LogFormat))
@pytest.mark.parametrize(
    "hostile", ["a\n2026-01-01 [info] forged", "a\rb", "\x1b[31mred", "a\x00b"]
)
def test_values_cannot_inject(form: LogFormat, hostile: str) -> None:
    stream = io.StringIO()
    try:
        set_up_logs(LogConfig(format=form), stream=stream, cluster="c")
        structlog.get_logger().warning("refused", name=hostile, names=[hostile], error=str(hostile))
    finally:
        structlog.reset_defaults()
    (line,) = stream.getvalue().split("\n")[:-1]
    assert line.isprintable()
    assert "refused" in line


@pytest.mark.parametrize("json", [False, True])
def test_values_cannot_inject_at_the_name_server(
    json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        set_up_name_server_logs(json=json)
        structlog.get_logger().info("member registered", member="a\x1b[2J\nforged")
    finally:
        structlog.reset_defaults()
    (line,) = capsys.readouterr().err.split("\n")[:-1]
    assert line.isprintable()


def test_a_traceback_makes_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line of it is escaped and indented, whatever the text of the error is."""
    try:
        set_up_name_server_logs(json=False)
        try:
            raise ValueError("bad\n2026-01-01 [info] forged\x1b[2J\rhidden")
        except ValueError:
            structlog.get_logger().exception("a bug")
    finally:
        structlog.reset_defaults()
    first, *rest = capsys.readouterr().err.split("\n")[:-1]
    assert "a bug" in first
    assert any("forged\\x1b[2J\\rhidden" in line for line in rest)
    assert all(line.isprintable() and line.startswith("  ") for line in rest)


def test_the_one_line_of_a_failure_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("topic \x1b[31m\nx does not exist")
    assert capsys.readouterr().err == "error: topic \\x1b[31m x does not exist\n"
