"""A sound file of one group, and how refusals of one read."""

from pathlib import Path

import pytest

from dledger_broker.config.checks import ConfigError
from dledger_broker.config.load import load_config

GOOD = """
cluster = "shop"
member = "a"
listen = "0.0.0.0:10911"
folder = "data"
security = "off"
name_servers = ["ns-1:9876", "ns-2.example:9876"]

[group]
name = "orders-1"
members = { a = "host-1:10911", b = "host-2:10911", c = "[::1]:10911" }
"""


def lines(path: Path | None, text: str | None = None, **environment: str) -> list[str]:
    """The refusal of a configuration, one line for each problem."""
    if path is not None and text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path, environment)
    return [problem.describe() for problem in caught.value.problems]
