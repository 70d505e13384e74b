"""Before anything opens a gRPC channel: its fork handlers hang children made between fork and exec.

These tests start processes while channels are open; the children replace themselves at once and
need nothing of gRPC.
"""

import os

import pytest

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def secure(request: pytest.FixtureRequest) -> bool:
    """Whether the cluster has TLS. For tests of what goes over every kind of connection."""
    return bool(request.param)
