"""The clusters under test, and the handles by which faults hurt them: one module for each kind.

compose    the docker compose cluster of deploy/: the image that people run
netns      processes, each in a network namespace of its own; needs root
own        a cluster of the user, which runs already and goes on running
process    processes of this machine, with a proxy on each link; needs no root
security   with TLS or without: certificates, and what processes are told
surface    what a backend offers: members to talk to, and handles for faults
troubles/  the tools that trouble disks, links and processes
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
