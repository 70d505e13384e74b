"""What the members of the tested group say of themselves, and whether the group is well."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from dledger_client import AsyncAdmin, MemberStatus
from dledger_proto.errors import DledgerError
from jepsen_tests.backends.surface import Backend, each_group

ANSWER_SECONDS: Final = 2.0


async def statuses(backend: Backend, admin: AsyncAdmin) -> dict[str, MemberStatus]:
    """Return the status of each member that answers. No fault troubles these calls."""

    async def ask(node: str) -> MemberStatus | None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await admin.status(backend.inner_address(node), backend.group)
        except (DledgerError, TimeoutError):
            return None

    found = zip(backend.nodes, await asyncio.gather(*map(ask, backend.nodes)), strict=True)
    return {node: status for node, status in found if status is not None}


def are_well(found: Collection[MemberStatus], members: int, applied: int) -> bool:
    """Say whether all members answer, one leads, and all have applied up to an index."""
    roles = sorted(status.role for status in found)
    wanted = ["follower"] * (members - 1) + ["leader"]
    return roles == wanted and all(status.applied_index >= applied for status in found)


async def wait_until_well(
    backend: Backend,
    admin: AsyncAdmin,
    seconds: float,
    revive: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Wait until each broker group is well, at most so many seconds.

    A group is well when one member leads and all have applied what any member had in its log at
    the first look: writes may go on. `revive` starts members that end meanwhile: a member may find
    damage long after it was done.
    """
    until = asyncio.get_running_loop().time() + seconds
    for part in each_group(backend):
        await _wait_for(part, admin, until, revive)


async def _wait_for(
    backend: Backend,
    admin: AsyncAdmin,
    until: float,
    revive: Callable[[], Awaitable[None]] | None,
) -> None:
    target: int | None = None
    while asyncio.get_running_loop().time() < until:
        if revive is not None:
            await revive()
        found = (await statuses(backend, admin)).values()
        if target is not None and are_well(found, len(backend.nodes), target):
            return
        if target is None and len(found) == len(backend.nodes):
            target = max(status.last_index for status in found)
        await asyncio.sleep(0.1)
