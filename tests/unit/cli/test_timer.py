"""`dledger timer recall`: which message ids it takes."""

import contextlib
import json
from collections.abc import Generator

import pytest

from dledger_broker.cli.messages import timer
from dledger_broker.cli.output import CommandFailed

ID = "0123456789abcdef" * 3


class FakeAdmin:
    def __init__(self) -> None:
        self.recalled: list[str] = []

    def recall(self, message_id: str) -> int:
        self.recalled.append(message_id)
        return 1_000


@pytest.mark.parametrize("given", [ID, ID.upper()])
def test_an_id_may_be_written_in_capitals(
    given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = FakeAdmin()

    @contextlib.contextmanager
    def opened(*_: object) -> Generator[FakeAdmin]:
        yield admin

    monkeypatch.setattr(timer, "open_admin", opened)
    timer.recall(given, as_json=True)
    assert admin.recalled == [given]
    assert json.loads(capsys.readouterr().out)[0]["message_id"] == ID


@pytest.mark.parametrize("given", [ID[1:], ID + "00", "x" * 48, " " * 48])
def test_what_is_no_id_is_refused(given: str) -> None:
    with pytest.raises(CommandFailed, match="must be 48 hex digits"):
        timer.recall(given)
