"""What the exit codes of the harness say: valid, invalid, unknown, failed."""

from typing import Final

EXIT_VALID, EXIT_INVALID, EXIT_UNKNOWN, EXIT_FAILED = range(4)
WORST_FIRST: Final = (EXIT_FAILED, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID)
