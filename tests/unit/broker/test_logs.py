"""Log lines: what a stranger sends cannot make a line of its own, nor reach the terminal."""

import io

import pytest
import structlog

from dledger_broker.config import LogConfig, LogFormat
from dledger_broker.logs import set_up_logs


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
