"""Where no engine can be had, the reason is said and nothing is touched."""

import os
import shutil

import pytest

from jepsen_tests.docker import engine as engines
from jepsen_tests.docker.engine import NoEngine, engine, install


@pytest.fixture(autouse=True)
def nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_answers", lambda _: False)


def said_by_engine() -> str:
    with pytest.raises(NoEngine) as caught, engine(print):
        pytest.fail("there is none")
    return str(caught.value)


def test_who_is_not_root_starts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert said_by_engine() == "no engine answers, and only root can start one"


def test_packages_that_cannot_be_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert said_by_engine() == (
        "missing: docker.io, iptables, and there is no apt-get to install them"
    )
    install([], print)
