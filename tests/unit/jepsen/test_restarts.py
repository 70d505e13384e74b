"""Containers that the engine restarted by itself are members that died."""

import asyncio
import json
from typing import Any, cast

from jepsen_tests.backends.compose import Containers, newly_restarted
from jepsen_tests.docker.stack import CommandFailed, Stack
from tests.unit.jepsen.stories import Story, kinds_of

AGAIN = "restarted by the engine"


def inspected(**counts: int) -> dict[str, dict[str, Any]]:
    """What `docker inspect` says, as far as it matters."""
    return {
        node: {"RestartCount": count, "State": {"ExitCode": 74}} for node, count in counts.items()
    }


def test_each_restart_is_said_once() -> None:
    known: dict[str, int] = {}
    assert newly_restarted(known, inspected(n1=0, n2=0)) == {}
    assert newly_restarted(known, inspected(n1=0, n2=2)) == {"n2": [AGAIN, AGAIN]}
    assert newly_restarted(known, inspected(n1=1, n2=2)) == {"n1": [AGAIN]}
    assert newly_restarted(known, inspected(n1=1, n2=2)) == {}


def test_one_that_we_started_counts_from_the_beginning() -> None:
    known = {"n1": 3}
    assert newly_restarted(known, inspected(n1=0)) == {}
    assert list(newly_restarted(known, inspected(n1=1))) == ["n1"]


class Engine:
    """As `Stack`: one container, which the engine restarts when it ends by itself."""

    members = ("n1",)
    network = "net"

    def __init__(self) -> None:
        self.restarts = 0
        self.is_paused = False

    def container(self, name: str) -> str:
        return name

    async def docker(self, *arguments: str) -> str:
        assert arguments == ("inspect", "n1")
        return json.dumps(
            [
                {
                    "Id": "none",
                    "RestartCount": self.restarts,
                    "State": {
                        "ExitCode": 74,
                        "Running": True,
                        "Pid": 0,
                        "Paused": self.is_paused,
                    },
                    "HostConfig": {"NanoCpus": 0, "Memory": 0},
                    "NetworkSettings": {"Networks": {"net": {"IPAddress": "127.0.0.1"}}},
                }
            ]
        )

    async def each(self, command: str, node: str) -> None:
        assert node == "n1"
        match command:
            case "start":
                self.restarts = 0
            case "pause":
                self.is_paused = True
            case "kill":
                self.is_paused = False
            case _:
                assert command == "unpause"
                if not self.is_paused:
                    raise CommandFailed("Container n1 is not paused")
                self.is_paused = False


def test_a_start_by_command_hides_no_restart_before_it_or_after() -> None:
    engine = Engine()
    containers = Containers(cast("Stack", engine))

    async def story() -> list[dict[str, list[str]]]:
        said = []
        engine.restarts = 2
        said.append(await containers.restarted())
        engine.restarts = 3
        await containers.start("n1")
        engine.restarts = 2  # as many as were known before
        said.append(await containers.restarted())
        said.append(await containers.restarted())
        return said

    first, second, third = asyncio.run(story())
    assert first == {"n1": [AGAIN, AGAIN]}
    assert second == {"n1": [AGAIN] * 3}
    assert third == {}


def test_only_a_container_that_stands_still_is_resumed() -> None:
    engine = Engine()
    containers = Containers(cast("Stack", engine))

    async def story() -> None:
        await containers.look()
        await containers.pause("n1")
        await containers.kill("n1")
        await containers.start("n1")
        await containers.resume("n1")
        await containers.pause("n1")
        await containers.resume("n1")

    asyncio.run(story())
    assert not engine.is_paused


def test_it_is_a_finding() -> None:
    story = Story().fault("kill", "n2").fault("died", "n2").fault("heal", "")
    assert kinds_of(story.history()) == {"died"}
