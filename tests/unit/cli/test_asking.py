"""Commands that destroy something ask first: a person agrees, or `--yes` was given."""

import io
import sys

import pytest

from dledger_broker.cli import main
from dledger_broker.cli.asking import ask
from dledger_broker.cli.output import CommandFailed

DESTRUCTIVE = {
    "topic t is not deleted": ["topic", "delete", "t"],
    "queue 0 of topic t is not trimmed": ["trim", "t", "-q", "0", "--offset", "5"],
}


class Terminal(io.StringIO):
    """A person who answers."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("refusal", DESTRUCTIVE)
def test_nothing_is_destroyed_unasked(refusal: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The name server would not be reached: nobody is asked for anything before."""
    assert main([*DESTRUCTIVE[refusal], "-n", "127.0.0.1:1"]) == 2
    shown = capsys.readouterr()
    assert shown.err == f"error: {refusal}: there is no terminal to ask on; confirm with --yes\n"
    assert shown.out == ""


@pytest.mark.parametrize("answer", ["y", "n", ""])
@pytest.mark.parametrize("refusal", DESTRUCTIVE)
def test_a_person_is_asked(
    refusal: str, answer: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
    code = main([*DESTRUCTIVE[refusal], "-n", "127.0.0.1:1", "--timeout", "0.2"])
    shown = capsys.readouterr()
    assert code == (3 if answer == "y" else 1)
    assert ("nothing was changed" in shown.err) == (answer != "y")
    assert "Delete " in shown.err
    assert shown.out == "", "standard output holds the answer only"


def test_yes_asks_nobody() -> None:
    ask("x is not deleted", "Delete x?", yes=True)
    with pytest.raises(CommandFailed, match="x is not deleted: there is no terminal to ask on"):
        ask("x is not deleted", "Delete x?", yes=False)
