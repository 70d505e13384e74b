"""`dledger send` as a process: slow pipes, terminals, interrupts, closed and empty inputs.

Whoever writes goes on when a consumer has seen what was written before.
"""

import json
import os
import pty
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from dledger_client import Consumer, StartAt
from tests.integration.test_up import COMMAND, DEADLINE_SECONDS, eventually, run, seven_ports, up

TOPIC = "lines"


class Sender:
    """A running `dledger send`, and a consumer of what it has sent."""

    def __init__(self, name_server: str, consumer: Consumer, stdin: int) -> None:
        self._consumer = consumer
        self.process = subprocess.Popen(
            [*COMMAND, "send", TOPIC, "--json", "--queue", "0", "--name-servers", name_server],
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def stored(self, *bodies: bytes) -> None:
        """Wait until these, and nothing else, come next."""
        seen: list[bytes] = []

        def all_seen() -> bool:
            seen.extend(bytes(each.body) for each in self._consumer.poll(timeout_ms=100))
            return len(seen) >= len(bodies)

        eventually(all_seen, f"{bodies} are stored")
        assert seen == list(bodies)

    def end(self) -> tuple[int, dict[str, Any], str]:
        """Wait for its end; return code, summary, standard error."""
        output, errors = self.process.communicate(timeout=DEADLINE_SECONDS)
        return self.process.returncode, json.loads(output), errors.decode()


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    folder: Path = tmp_path_factory.mktemp("send") / "data"
    with up(folder, "--port", str(seven_ports())) as running:
        serving: str = running.event("serving")["name_server"]
        assert run(serving, "topic", "create", TOPIC, "--queues", "1")[0] == 0
        yield serving


@pytest.fixture
def consumer(name_server: str) -> Generator[Consumer]:
    with Consumer(name_server) as consumer:
        consumer.assign(TOPIC, StartAt.LAST)
        yield consumer


def test_a_slow_pipe_is_sent_line_by_line(name_server: str, consumer: Consumer) -> None:
    there, here = os.pipe()
    sender = Sender(name_server, consumer, there)
    os.close(there)
    for number in range(5):
        os.write(here, b"line%d\r\n" % number)
        sender.stored(b"line%d\r" % number)
    os.write(here, b"no end")
    os.close(here)
    sender.stored(b"no end")
    code, row, errors = sender.end()
    assert (code, row["stored"], row["failed"], errors) == (0, 6, 0, "")


def test_an_interrupt_ends_the_wait_for_a_pipe_and_tells_what_is_stored(
    name_server: str, consumer: Consumer
) -> None:
    there, here = os.pipe()
    sender = Sender(name_server, consumer, there)
    os.write(here, b"one\n")
    sender.stored(b"one")
    sender.process.send_signal(signal.SIGINT)
    code, row, errors = sender.end()
    assert (code, row["stored"], errors) == (130, 1, "")
    os.close(here)
    os.close(there)


def test_lines_are_typed_at_a_terminal_until_its_end(name_server: str, consumer: Consumer) -> None:
    here, there = pty.openpty()
    sender = Sender(name_server, consumer, there)
    os.write(here, b"typed\n")
    sender.stored(b"typed")
    os.write(here, b"\x04")
    code, row, errors = sender.end()
    assert (code, row["stored"]) == (0, 1)
    assert errors == "each line becomes a message; Ctrl-D ends\n"
    os.close(here)
    os.close(there)


def test_nothing_is_drawn_over_what_is_typed(name_server: str) -> None:
    here, there = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "send", TOPIC, "--name-servers", name_server],
        stdin=there, stderr=there, stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    os.write(here, b"typed\n\x04")
    assert process.wait(DEADLINE_SECONDS) == 0
    os.close(there)
    assert os.read(here, 65_536).decode().splitlines()[-1].startswith("each line becomes")
    os.close(here)


def test_no_input_and_a_closed_one(name_server: str, consumer: Consumer) -> None:
    code, row, errors = Sender(name_server, consumer, subprocess.DEVNULL).end()
    assert (code, row["stored"], row["failed"], errors) == (0, 0, 0, "")
    command = " ".join([*COMMAND, "send", TOPIC, "--name-servers", name_server])
    ended = subprocess.run(
        ["sh", "-c", f"{command} <&-"],
        capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: no messages: standard input is closed")
