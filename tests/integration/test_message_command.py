"""`dledger message` and the keys of `dledger send`, over real processes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dledger_broker.cli import main
from tests.integration.cluster import running_cluster


def test_messages_are_looked_up_by_what_send_was_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The keys of the command line are those of Python: `--key` is for lookups."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            at = "--name-servers", cluster.members[0].address

            async def dledger(*arguments: str) -> tuple[int, Any, str]:
                code = await asyncio.to_thread(main, [*arguments, *at, "--json"])
                out = capsys.readouterr()
                return code, json.loads(out.out) if out.out else None, out.err

            code, sent, _ = await dledger(
                "send", "orders", "paid", "--key", "order-1", "--key", "a", "--ordering-key", "c",
                "--tag", "t",
            )  # fmt: skip
            assert code == 0
            sent = sent[0] if isinstance(sent, list) else sent
            place = str(sent["queue"]), str(sent["offset"])
            found: list[dict[str, object]] = []
            for asked in (
                ("id", str(sent["message_id"])), ("key", "orders", "order-1"),
                ("at", "orders", *place),
            ):  # fmt: skip
                code, rows, _ = await dledger("message", *asked)
                assert code == 0
                found += rows
            assert found[0] == found[1] == found[2]
            assert len(found) == 3
            assert found[0]["keys"] == ["order-1", "a"]
            assert (found[0]["body"], found[0]["tag"]) == ("paid", "t")
            assert (str(found[0]["queue"]), str(found[0]["offset"])) == place
            code, rows, _ = await dledger("message", "key", "orders", "c")
            assert (code, rows) == (0, []), "an ordering key is no key to look up by"
            code, _, error = await dledger("message", "id", "00" * 24)
            assert code == 1
            assert "no message has the id" in error
            code, _, error = await dledger("message", "id", "xyz")
            assert code == 2
            assert "must be 48 hex digits" in error
            code, _, error = await dledger("message", "at", "orders", "0", "77")
            assert code != 0
            assert "77" in error

    asyncio.run(run())
