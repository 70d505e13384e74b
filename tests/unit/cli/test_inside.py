"""Commands that stream tell the client whether they run where the members do."""

from typing import Any, NoReturn

import pytest

from dledger_broker.cli import main
from dledger_broker.cli.messages import bench, send, tail
from dledger_broker.cli.output import CommandFailed


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    ("module", "client", "arguments"),
    [
        (send, "AsyncProducer", ["send", "t", "hello"]),
        (tail, "AsyncConsumer", ["tail", "t", "--from", "beginning"]),
        (bench, "AsyncProducer", ["bench", "--modes", "batched"]),
        (bench, "AsyncConsumer", ["bench", "--modes", "read"]),
    ],
)
def test_the_client_is_told(
    module: Any, client: str, arguments: list[str], inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []

    def take(_name_servers: object, config: Any) -> NoReturn:
        told.append(config.connection.inside)
        raise CommandFailed("seen enough")

    monkeypatch.setattr(module, client, take)
    monkeypatch.setenv("DLEDGER_INSIDE", str(int(inside)))
    assert main(arguments) == 1
    assert told == [inside]
