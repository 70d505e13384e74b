"""What the tests of one contract run on: every implementation of it."""

import pytest

from tests.contract.grpc_service import Run, run_in_memory, run_real


@pytest.fixture(params=[run_real, run_in_memory], ids=["grpc", "memory"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a case on one of both."""
    chosen: Run = request.param
    return chosen
