"""The rule on messages of commits, tried on samples. `make commits` runs it on the history."""

import pytest

from tests.tidy.commits import wrong_message

BODY = "\n\nBecause of this."


@pytest.mark.parametrize(
    "message",
    [
        "Move the gate" + BODY,
        "Let two themes of weather crash producers" + BODY,
        "Bring the fixtures up to date" + BODY,
        "Embed the picture" + BODY,
        "Pass the clock" + BODY,
    ],
)
def test_good_messages_pass(message: str) -> None:
    assert not list(wrong_message(message))


@pytest.mark.parametrize(
    "message",
    [
        "x".upper() * 73 + BODY,
        "Move the gate." + BODY,
        "move the gate" + BODY,
        "Moves the gate" + BODY,
        "Moved the gate" + BODY,
        "Moving the gate" + BODY,
        "The gate moves" + BODY,
        "Move the gate",
        "Move the gate\nwithout an empty line",
    ],
)
def test_each_fault_is_found(message: str) -> None:
    assert len(list(wrong_message(message))) == 1
