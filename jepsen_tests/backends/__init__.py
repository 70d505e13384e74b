"""Clusters to test, and the handles by which they are hurt; one module for each kind."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from jepsen_tests.backends.netns import NetnsBackend
from jepsen_tests.backends.process import ProcessBackend, Setting
from jepsen_tests.backends.surface import Backend
from jepsen_tests.backends.toxiproxy_links import ToxiproxyBackend

Make = Callable[[Path, Sequence[str], Mapping[str, Setting], str], Backend]
"""Of a run's folder, members' names, their settings, and a known bug."""
BACKENDS: Final[Mapping[str, Make]] = {
    "process": ProcessBackend,
    "netns": NetnsBackend,
    "toxiproxy": ToxiproxyBackend,
}
