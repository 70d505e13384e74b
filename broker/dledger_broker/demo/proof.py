"""Reading everything back from every member: nothing lost, repeated or reordered, all alike."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dledger.clock import SystemClock
from dledger_broker.demo.flights import Departure, row_number
from dledger_client import AsyncAdmin, AsyncConsumer, ConsumerConfig, StartAt

POLL_RECORDS = 5_000
SILENCE_MS = 2_000
"""A member that sends nothing for this long, with rows missing, has no more."""


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What one member holds, against what was sent."""

    distinct: int
    lost: int
    duplicated: int
    out_of_order: int


@dataclass(slots=True)
class Comparison:
    """Whether all members hold the same log and the same state."""

    identical: bool = False
    entries: int = 0
    digest: str = ""
    differences: list[str] = field(default_factory=list[str])


async def read_back(bootstrap: str, topic: str, rows: Sequence[Departure], member: str) -> ReadBack:
    """Read the whole topic from one member and compare it with the rows that were sent."""
    seen = bytearray(len(rows))
    newest: dict[str, int] = {}
    duplicated = out_of_order = 0
    config = ConsumerConfig(start_at=StartAt.FIRST, prefer=member)
    async with AsyncConsumer(bootstrap, config) as consumer:
        await consumer.assign(topic, StartAt.FIRST)
        left = sum(bounds.maximum for bounds in (await consumer.offsets(topic)).values())
        while left > 0:
            records = await consumer.poll(max_records=POLL_RECORDS, timeout_ms=SILENCE_MS)
            if not records:
                break
            for record in records:
                number = row_number(bytes(record.body))
                if seen[number]:
                    duplicated += 1
                seen[number] = 1
                tail = rows[number].tail
                if newest.get(tail, -1) >= number:
                    out_of_order += 1
                newest[tail] = number
            left -= len(records)
    distinct = sum(seen)
    return ReadBack(distinct, len(rows) - distinct, duplicated, out_of_order)


async def compare_members(
    admin: AsyncAdmin, addresses: Mapping[str, str], timeout_s: float
) -> Comparison:
    """Compare (index, term, crc) of every entry, and the digest at one applied index."""
    now = SystemClock().monotonic
    end = now() + timeout_s
    while True:
        comparison = await _compare(admin, addresses)
        if comparison.identical or now() > end:
            return comparison
        await asyncio.sleep(0.2)


async def _compare(admin: AsyncAdmin, addresses: Mapping[str, str]) -> Comparison:
    states = {name: await admin.status(address) for name, address in addresses.items()}
    logs = {name: await admin.log_entries(address) for name, address in addresses.items()}
    first_name, *others = addresses
    first, log = states[first_name], logs[first_name]
    comparison = Comparison(entries=len(log), digest=first.digest.hex())
    for name in others:
        if logs[name] != log:
            comparison.differences.append(f"{name} and {first_name} hold different entries")
        if states[name].applied_index != first.applied_index:
            comparison.differences.append(f"{name} and {first_name} have applied different indexes")
        elif states[name].digest != first.digest:
            comparison.differences.append(f"{name} and {first_name} have different state digests")
    comparison.identical = not comparison.differences
    return comparison
