"""What tests with real processes share."""

import pytest


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def secure(request: pytest.FixtureRequest) -> bool:
    """Whether the cluster has TLS. For tests of what goes over every kind of connection."""
    return bool(request.param)
