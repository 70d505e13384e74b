"""Clusters to test, and the handles by which they are hurt; one module for each kind."""

from collections.abc import Mapping
from typing import Final

from jepsen_tests.backends.compose import ComposeBackend
from jepsen_tests.backends.netns import NetnsBackend
from jepsen_tests.backends.own import OwnBackend
from jepsen_tests.backends.process import ProcessBackend
from jepsen_tests.backends.surface import Backend
from jepsen_tests.backends.troubles.toxiproxy_links import ToxiproxyBackend

BACKENDS: Final[Mapping[str, type[Backend]]] = {
    backend.name: backend
    for backend in (ProcessBackend, NetnsBackend, ToxiproxyBackend, ComposeBackend, OwnBackend)
}
