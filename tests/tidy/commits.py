"""Subjects of commits: `python -m tests.tidy.commits [BASE]` judges those since BASE.

Run by hand before a push (`make commits`), not by the tests: a checkout may lack the history.
A subject is a sentence in the imperative that says what the commit does; the body gives the reason.
"""

import re
import subprocess
import sys
from collections.abc import Iterator

SUBJECT_LENGTH_MAX = 72
SEPARATOR = "\x1e"
NO_COMMAND = re.compile(r"\w+(ed|ing|[^s]s)|The|An?|This|These|Some|New|It")
"""First words that are no imperative: participles, the third person, articles."""
COMMANDS = frozenset({"Bring", "Embed", "Feed", "Focus", "Need", "Ping", "Seed", "Speed", "String"})
"""Imperatives that look like something else."""


def wrong_message(message: str) -> Iterator[str]:
    """Find what is wrong with a commit's message."""
    subject, _, rest = message.strip().partition("\n")
    if len(subject) > SUBJECT_LENGTH_MAX:
        yield f"{len(subject)} characters, at most {SUBJECT_LENGTH_MAX}"
    if subject.endswith("."):
        yield "ends with a full stop"
    if not re.match(r"[A-Z]", subject):
        yield "does not begin with a capital letter"
    first = subject.partition(" ")[0]
    if first not in COMMANDS and NO_COMMAND.fullmatch(first):
        yield f"begins with {first!r}: say what the commit does, as a command"
    if rest[:1] != "\n" or not rest.strip():
        yield "has no body behind an empty line: give the reason"


def main(base: str) -> int:
    """Judge every commit since `base`, without merges; return the exit code."""
    log = subprocess.run(
        ["git", "log", "--no-merges", f"--format=%h %B{SEPARATOR}", f"{base}..HEAD"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    count = wrong = 0
    for commit in filter(None, map(str.strip, log.split(SEPARATOR))):
        name, _, message = commit.partition(" ")
        count += 1
        for what in wrong_message(message):
            wrong += 1
            print(f"{name} {message.partition(chr(10))[0]}: {what}")
    print(f"{count} commits since {base}, {wrong} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "@{upstream}"))
