"""Clusters to test, and the handles by which they are hurt; one module for each kind.

compose    The docker compose cluster of deploy/: the image that people run
netns      Members as processes, each in a network namespace of its own, joined by a bridge
own        A cluster of your own, which runs already and goes on running
process    Members as processes of this machine, with a proxy on every link. Needs no root
surface    What a backend offers: members to talk to, and handles for faults
troubles/  How disks, links and processes are troubled
"""

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
