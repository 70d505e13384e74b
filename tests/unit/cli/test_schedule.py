"""`dledger schedule`: what it passes on, and how it shows it."""

import contextlib
import json
from collections.abc import Generator

import pytest

from dledger_broker.cli.messages import schedule
from dledger_client import Message, Schedule

DAILY = Schedule(
    "t", "daily", "0 6 * * *", "UTC", "g1", 0, Message(b"body"), 1_000, 21_600_000, b"i" * 16
)


class FakeAdmin:
    def __init__(self, found: list[Schedule]) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.found = found

    def set_schedule(self, *given: object, **more: object) -> Schedule:
        self.calls.append((*given, more))
        return DAILY

    def schedules(self, topic: str) -> list[Schedule]:
        self.calls.append((topic,))
        return self.found

    def delete_schedule(self, topic: str, name: str) -> None:
        self.calls.append((topic, name))


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    fake = FakeAdmin([DAILY])

    @contextlib.contextmanager
    def opened(*_: object) -> Generator[FakeAdmin]:
        yield fake

    monkeypatch.setattr(schedule, "open_admin", opened)
    return fake


def test_set_passes_on_what_is_given(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    schedule.set_schedule(
        "t", "daily", "0 6 * * *", "body", time_zone="Asia/Tokyo", ordering_key="k",
        keys=["a", "b"], properties=["p=v"], as_json=True,
    )  # fmt: skip
    (given,) = admin.calls
    assert given[:4] == ("t", "daily", "0 6 * * *", b"body")
    assert given[4] == {
        "time_zone": "Asia/Tokyo", "ordering_key": "k", "queue": None, "tag": "",
        "keys": ("a", "b"), "properties": {"p": "v"},
    }  # fmt: skip
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["next_due_ms"], row["group"]) == ("daily", 21_600_000, "g1")


def test_list_says_when_each_sends_next(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule.list_schedules("t", as_json=True)
    assert admin.calls == [("t",)]
    assert json.loads(capsys.readouterr().out)[0]["cron"] == "0 6 * * *"


def test_delete_names_topic_and_schedule(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule.delete("t", "daily", as_json=True)
    assert admin.calls == [("t", "daily")]
    assert json.loads(capsys.readouterr().out) == [{"topic": "t", "deleted": "daily"}]
