"""What the exit codes of the harness say: valid, invalid, unknown, failed."""

from typing import Final

EXIT_VALID, EXIT_INVALID, EXIT_UNKNOWN, EXIT_FAILED = range(4)
WORST_FIRST: Final = (EXIT_FAILED, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID)
MEANINGS: Final = {
    EXIT_VALID: "valid: the checkers found nothing wrong",
    EXIT_INVALID: "invalid: the product broke a promise",
    EXIT_UNKNOWN: "unknown: too little happened, or a signal ended the run in order",
    EXIT_FAILED: "the harness failed, refused the request, or got a second signal; this says "
    "nothing about the product",
}


def exit_codes_help() -> str:
    """Return the exit codes for the end of a help text, one in each line."""
    lines = (f"{code}  {meaning}" for code, meaning in MEANINGS.items())
    return "\n\n".join(("Exit codes:", *lines))
