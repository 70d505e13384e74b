"""Which addresses only this machine reaches."""

import socket

import pytest

from dledger_proto.network.exposure import exposed_because, numbers_of

NAMES = {
    "localhost": ["127.0.0.1", "::1"],
    "here": ["127.0.1.1"],
    "log1.example": ["10.0.0.1"],
    "both": ["127.0.0.1", "10.0.0.1"],
    "0": ["0.0.0.0"],
    "scoped": ["fe80::1%eth0"],
    "gone": [],
}
WHY = {
    **dict.fromkeys(("0.0.0.0", "[::]", "[0::0]", "[::ffff:0.0.0.0]"), ""),
    **dict.fromkeys(("10.0.0.1", "[fe80::1%eth0]"), ""),
    "0": ": it is 0.0.0.0",
    "log1.example": ": it is 10.0.0.1",
    "both": ": it is 10.0.0.1",
    "scoped": ": it is fe80::1%eth0",
    "gone": ": nobody here knows its number",
}


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]", "[0:0:0:0:0:0:0:1]", "localhost",
     "here"],
)  # fmt: skip
def test_what_only_this_machine_reaches(host: str) -> None:
    assert exposed_because(f"{host}:1", NAMES.__getitem__) == ""


@pytest.mark.parametrize("host", WHY)
def test_what_other_machines_may_reach(host: str) -> None:
    why = exposed_because(f"{host}:1", NAMES.__getitem__)
    assert why == f"other machines may reach it{WHY[host]}"


def test_numbers_are_those_that_the_machine_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(numbers_of("localhost")) <= {"127.0.0.1", "::1"}

    def nobody(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    assert numbers_of("log1.example") == []
