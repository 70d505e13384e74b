"""A message fails, is retried, is done, and its story is told; over two broker groups."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dledger_broker.cli import main
from dledger_broker.read import explain
from dledger_client import (
    AsyncAdmin,
    AsyncProducer,
    AsyncPushConsumer,
    ConsumedRecord,
    DeadLetter,
    NothingFound,
    OffsetOutOfRange,
    StartFrom,
)
from tests.integration.test_groups import two_groups
from tests.waiting import until


class Clerk:
    """A listener: fails at "twice" once, and gives up "never"."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    async def __call__(self, record: ConsumedRecord) -> DeadLetter | None:
        body = bytes(record.body)
        self.seen.append(body)
        if body == b"never":
            return DeadLetter("cannot")
        if body == b"twice" and self.seen.count(body) == 1:
            raise RuntimeError("try again")
        return None


def test_a_message_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with two_groups(tmp_path) as groups:
            address = groups["red"]["n1"].address
            async with AsyncAdmin(address) as admin, AsyncProducer(address) as producer:
                await admin.create_topic("t", queues_per_group=1)
                await admin.create_consumer_group(
                    "billing", start=StartFrom.FIRST, retry_delays_ms=(10,)
                )
                sent = {
                    body: await producer.send("t", body, queue=0)
                    for body in (b"once", b"twice", b"never")
                }
                later = await producer.send("t", b"later", queue=1, delay_ms=3_600_000)
                clerk = Clerk()
                async with AsyncPushConsumer(address, "billing", "t", clerk):
                    await until(lambda: clerk.seen.count(b"twice") == 2, "the retry")
                    await until(lambda: b"never" in clerk.seen, "the dead letter")
                await check_stories(admin, sent[b"twice"].message_id.hex(), later.message_id)
                lines = await admin.explain("t", 0, 1)
                with monkeypatch.context() as small:  # a page for each entry or two
                    small.setattr(explain, "BLOCK", 512)
                    small.setattr(explain, "PAGE_READ_MAX", 1)
                    assert await admin.explain("t", 0, 1) == lines
                at = "--name-servers", address
                code = await asyncio.to_thread(
                    main, ["message", "explain", "t", "0", "0", "--json", *at]
                )
                assert code == 0
                printed = capsys.readouterr().out.splitlines()  # the members' log is among them
                (told,) = [line for line in printed if line.startswith("[")]
                rows: list[Any] = json.loads(told)
                events = [row["event"] for row in rows]
                assert (events[0], events[-1]) == ("stored", "done")
                code = await asyncio.to_thread(main, ["message", "explain", "t", "0", *at])
                assert code == 2

    asyncio.run(run())


async def check_stories(admin: AsyncAdmin, twice: str, later: bytes) -> None:
    lines = await admin.explain_message(twice)
    assert lines == await admin.explain("t", 0, 1)
    assert [line.index for line in lines] == sorted(line.index for line in lines)
    told = [line for line in lines if line.event not in ("claimed", "released")]
    assert [line.event for line in told] == ["stored", "failed", "retry", "done"], lines
    stored, failed, retry, done = told
    assert (stored.topic, stored.queue, stored.offset) == ("t", 0, 1)
    assert "try again" in failed.text
    assert (failed.consumer_group, retry.topic, done.topic) == (
        "billing", "%RETRY%billing", "%RETRY%billing",
    )  # fmt: skip
    assert failed.epoch > 0
    assert failed.member_id == done.member_id != ""
    (dead,) = await admin.dead_letters("billing")
    events = [line.event for line in await admin.explain("t", 0, 2)]
    assert [each for each in events if each not in ("claimed", "released")] == [
        "stored", "dead", "dead letter",
    ]  # fmt: skip
    assert (await admin.resend_dead_letters("billing")).settled == 1
    lines = await admin.explain("t", dead.queue, dead.offset)
    assert lines[-1].event == "resent"
    (waits,) = await admin.explain_message(later)
    assert (waits.event, waits.offset) == ("waits", -1)
    with pytest.raises(NothingFound):
        await admin.explain_message("ab" * 24)
    with pytest.raises(OffsetOutOfRange):
        await admin.explain("t", 0, 99)
