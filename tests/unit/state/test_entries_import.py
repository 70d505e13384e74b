"""What is imported when a member starts, and not in the middle of an entry."""

import subprocess
import sys

WANTED = """
import importlib.util, sys
import dledger.state.machine
assert ("numpy" in sys.modules) == (importlib.util.find_spec("numpy") is not None)
"""


def test_numpy_comes_with_the_state_machine() -> None:
    """Imported by the first keys it stopped the loop of every member for a tenth of a second."""
    subprocess.run([sys.executable, "-c", WANTED], check=True)
