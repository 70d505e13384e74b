"""Containers that the engine restarted by itself are members that died."""

from typing import Any

from jepsen_tests.backends.compose import newly_restarted
from tests.unit.jepsen.stories import Story, kinds_of


def inspected(**counts: int) -> dict[str, dict[str, Any]]:
    """What `docker inspect` says, as far as it matters."""
    return {
        node: {"RestartCount": count, "State": {"ExitCode": 74}} for node, count in counts.items()
    }


def test_each_restart_is_said_once() -> None:
    known: dict[str, int] = {}
    assert newly_restarted(known, inspected(n1=0, n2=0)) == {}
    assert newly_restarted(known, inspected(n1=0, n2=2)) == {
        "n2": "restarted 2 times by the engine, last exit code 74"
    }
    assert newly_restarted(known, inspected(n1=1, n2=2)) == {
        "n1": "restarted 1 times by the engine, last exit code 74"
    }
    assert newly_restarted(known, inspected(n1=1, n2=2)) == {}


def test_one_that_we_started_counts_from_the_beginning() -> None:
    known = {"n1": 3}
    assert newly_restarted(known, inspected(n1=0)) == {}
    assert list(newly_restarted(known, inspected(n1=1))) == ["n1"]


def test_it_is_a_finding() -> None:
    story = Story().fault("kill", "n2").fault("died", "n2").fault("heal", "")
    assert kinds_of(story.history()) == {"died"}
