"""What the members of the tested group say of themselves, and whether that is well."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from dledger_client import AsyncAdmin, MemberStatus
from dledger_proto.errors import DledgerError
from jepsen_tests.backends.surface import Backend

WHOLE: Final = ("leader", "follower")
"""Roles of a member that is trusted and complete enough to take part."""
ANSWER_SECONDS: Final = 2.0


async def statuses(backend: Backend, admin: AsyncAdmin) -> dict[str, MemberStatus]:
    """Return by name what the members that answer say; each is asked where nobody troubles it."""

    async def ask(node: str) -> MemberStatus | None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await admin.status(backend.inner_address(node), backend.group)
        except (DledgerError, TimeoutError):
            return None

    found = zip(backend.nodes, await asyncio.gather(*map(ask, backend.nodes)), strict=True)
    return {node: status for node, status in found if status is not None}


async def are_well(backend: Backend, admin: AsyncAdmin) -> bool:
    """Tell whether all members answer, one leads, and all have committed and applied the same."""
    found = await statuses(backend, admin)
    roles = sorted(status.role for status in found.values())
    ends = {(s.commit_index, s.applied_index, s.last_index) for s in found.values()}
    wanted = ["follower"] * (len(backend.nodes) - 1) + ["leader"]
    return roles == wanted and len(ends) == 1 and len(set(next(iter(ends)))) == 1


async def wait_until_well(
    backend: Backend,
    admin: AsyncAdmin,
    seconds: float,
    revive: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Wait for that, at most so long; whoever goes on then finds out what is not well.

    `revive` brings back who ends meanwhile: a member may find damage long after it was done.
    """
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        if revive is not None:
            await revive()
        if await are_well(backend, admin):
            return
        await asyncio.sleep(0.1)
