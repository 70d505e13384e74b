"""What the members of the tested group say of themselves, and whether that is well."""

import asyncio
from typing import Final

from dledger_client import AsyncAdmin, MemberStatus
from dledger_proto.errors import DledgerError
from jepsen_tests.backends.surface import Backend

WHOLE: Final = ("leader", "follower")
"""Roles of a member that is trusted and complete enough to take part."""


async def statuses(backend: Backend, admin: AsyncAdmin) -> dict[str, MemberStatus]:
    """Return by name what the members that answer say."""
    found = await admin.statuses()
    return {
        node: status
        for (group, node), status in found.items()
        if group == backend.group and isinstance(status, MemberStatus)
    }


async def are_well(backend: Backend, admin: AsyncAdmin) -> bool:
    """Tell whether all members answer, one leads, and all have committed and applied the same."""
    found = await statuses(backend, admin)
    roles = sorted(status.role for status in found.values())
    ends = {(s.commit_index, s.applied_index, s.last_index) for s in found.values()}
    wanted = ["follower"] * (len(backend.nodes) - 1) + ["leader"]
    return roles == wanted and len(ends) == 1 and len(set(next(iter(ends)))) == 1


async def wait_until_well(backend: Backend, admin: AsyncAdmin, seconds: float) -> None:
    """Wait for that, at most so long; whoever goes on then finds out what is not well."""
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        try:
            if await are_well(backend, admin):
                return
        except DledgerError:
            pass
        await asyncio.sleep(0.1)
