"""One version, which every package names and the distribution has."""

import importlib
from importlib import metadata

import pytest


@pytest.mark.parametrize(
    "package", ["dledger", "dledger_broker", "dledger_client", "dledger_namesrv", "dledger_proto"]
)
def test_every_package_names_the_version_of_the_distribution(package: str) -> None:
    assert importlib.import_module(package).__version__ == metadata.version("dledger")
