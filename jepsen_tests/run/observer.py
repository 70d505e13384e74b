"""Asks members for their status, and looks at what their processes use, for the history.

All phases use this. The checkers judge what it saw.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dledger_client import AsyncAdmin, EntryMark, MemberStatus
from dledger_proto.errors import Code, DledgerError
from jepsen_tests.backends.surface import Backend, each_group
from jepsen_tests.run.members import are_well
from jepsen_tests.run.patience import Patience, Revive
from jepsen_tests.run.recorder import Process
from jepsen_tests.run.standstill import Looks, Seen
from jepsen_tests.workloads.workload import Stage


class Observer:
    """Looks at members for the history: status, resources, log entries."""

    def __init__(self, stage: Stage, admin: AsyncAdmin) -> None:
        self._stage = stage
        self._admin = admin
        self._process = Process(stage.recorder)
        self._looks: defaultdict[str, Looks] = defaultdict(Looks)
        """By broker group."""

    async def look(self) -> list[MemberStatus]:
        """Note the status and the resources of each member; return the statuses.

        Also notes members that applied nothing for long while others of their group did.
        """
        parts = each_group(self._stage.backend)
        return [status for part in parts for status in await self._look_at(part)]

    async def _look_at(self, backend: Backend) -> list[MemberStatus]:
        recorder = self._stage.recorder
        statuses: list[MemberStatus] = []
        seen: dict[str, Seen] = {}
        for node in backend.nodes:
            address, asked = backend.inner_address(node), recorder.now()
            answer = await self._process.do(
                "status", "", None,
                partial(self._admin.status, address, backend.group), _shown_status,
                node=node, reads=True,
            )  # fmt: skip
            if answer[1] is not None:
                status = answer[1]
                statuses.append(status)
                seen[node] = Seen(asked, recorder.now(), status.role, status.applied_index)
            used = _resources(backend.pid(node))
            if used:

                async def call(used: dict[str, int] = used) -> dict[str, int]:
                    return used

                await self._process.do("resources", "", None, call, dict, node=node, reads=True)
        for still in self._looks[backend.group].add(seen):
            recorder.stood_still(still)
        return statuses

    async def agreement(self, revive: Revive) -> None:
        """Look until all members of each group agree, or until patience ends. The last look counts.

        Where other clients write too, members need not stand still: each must have applied what any
        member had committed at the look before.
        """
        for part in each_group(self._stage.backend):
            await self._agreement_of(part, revive)

    async def _agreement_of(self, backend: Backend, revive: Revive) -> None:
        patience, members = Patience(revive), len(backend.nodes)
        others_write = backend.is_kept
        before = await self._look_at(backend) if others_write else []

        async def attempt() -> bool:
            nonlocal before
            earlier, before = before, await self._look_at(backend)
            return caught_up(earlier, before, members) if others_write else agree(before, members)

        await patience.until(attempt)

    async def entries(self, revive: Revive) -> None:
        """Note the log of each member. A log that is too long is not asked for again."""
        patience = Patience(revive)
        for backend in each_group(self._stage.backend):
            for node in backend.nodes:
                await patience.until(partial(self._entries_of, backend, node))

    async def _entries_of(self, backend: Backend, node: str) -> bool:
        is_too_long = False

        async def call() -> tuple[list[EntryMark], MemberStatus]:
            nonlocal is_too_long
            address = backend.inner_address(node)
            status = await self._admin.status(address, backend.group)  # it holds that much
            try:
                return await self._admin.log_entries(address, backend.group), status
            except DledgerError as error:
                is_too_long = error.code is Code.INVALID_ARGUMENT
                raise

        done, _ = await self._process.do(
            "entries", "", None, call, _shown_entries, node=node, reads=True
        )
        return done or is_too_long


def agree(found: Sequence[MemberStatus], members: int) -> bool:
    """Say whether one member leads, all are of its term and name it, and have applied the same.

    A member that names another leader, or none, was asked while leadership changed: that look
    compares two moments.
    """
    ends = {
        (status.term, status.leader, status.commit_index, status.applied_index) for status in found
    }
    applied = max((status.commit_index for status in found), default=0)
    return len(ends) == 1 and are_well(found, members, applied)


def caught_up(before: Sequence[MemberStatus], found: Sequence[MemberStatus], members: int) -> bool:
    """Say whether one member leads, all name it, and all have what was committed a look before."""
    applied = max((status.commit_index for status in before), default=0)
    leaders = {(status.term, status.leader) for status in found}
    return len(leaders) == 1 and are_well(found, members, applied)


def _shown_status(status: MemberStatus) -> dict[str, Any]:
    return {
        "role": status.role,
        "term": status.term,
        "leader": status.leader,
        "commit": status.commit_index,
        "applied": status.applied_index,
        "first": status.first_index,
        "last": status.last_index,
        "incarnation": status.incarnation,
    }


def _shown_entries(found: tuple[list[EntryMark], MemberStatus]) -> dict[str, Any]:
    marks, status = found
    return {
        "first": marks[0].index if marks else 0,
        "terms": [mark.term for mark in marks],
        "crcs": [mark.crc for mark in marks],
        "applied": status.applied_index,
        "digest": status.digest.hex(),
    }


def _resources(pid: int | None) -> dict[str, int]:
    """Return what a process uses; nothing if the process is gone."""
    proc = Path(f"/proc/{pid}")
    try:
        lines = (proc / "status").read_text().splitlines()
        files = sum(1 for _ in (proc / "fd").iterdir())
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    if "VmRSS" not in fields:  # the process has ended, and its parent has not noticed yet
        return {}
    return {
        "rss": int(fields["VmRSS"].split()[0]) * 1024,
        "files": files,
        "threads": int(fields["Threads"]),
    }
