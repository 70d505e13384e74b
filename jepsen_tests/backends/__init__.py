"""Clusters to test, and the handles by which they are hurt; one module for each kind."""

from typing import Final

from jepsen_tests.backends.process import ProcessBackend

BACKENDS: Final = {"process": ProcessBackend}
