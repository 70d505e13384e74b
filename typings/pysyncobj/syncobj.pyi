# ruff: noqa: N802, N803, N816 - the names are the library's
"""Only what `raft/engine/_pysyncobj.py` uses, private names included: the audited seam."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from pysyncobj.config import SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

monotonicTime: Callable[[], float]
createJournal: Callable[[str | None], object]

class SyncObj:
    _SyncObj__raftState: int
    _SyncObj__raftCurrentTerm: int
    _SyncObj__raftCommitIndex: int
    _SyncObj__raftLastApplied: int
    _SyncObj__raftElectionDeadline: float
    _SyncObj__raftLeader: Node | None
    _SyncObj__raftMatchIndex: dict[Node, int]
    _SyncObj__lastResponseTime: dict[Node, float]
    _SyncObj__transferInProgress: bool
    _poller: object
    def __init__(
        self,
        selfNode: Node,
        otherNodes: Iterable[Node],
        conf: SyncObjConf,
        *,
        transport: Transport,
    ) -> None: ...
    def transferLeadership(
        self, node: Node, callback: Callable[[object, int | None], None]
    ) -> None: ...
    def _onTick(self, timeToWait: float = ...) -> None: ...
    def _checkCommandsToApply(self) -> None: ...
    def _SyncObj__onMessageReceived(self, node: Node, message: Mapping[str, object]) -> None: ...
    def _SyncObj__onNodeConnected(self, node: Node) -> None: ...
    def _SyncObj__getEntries(
        self, first: int, count: int | None = ..., size: int | None = ..., /
    ) -> Sequence[tuple[bytes, int, int]]: ...
    def _SyncObj__generateRaftTimeout(self) -> float: ...
    def _SyncObj__applyLogEntries(self) -> bool: ...
    def _SyncObj__sendAppendEntries(self) -> None: ...
    def _SyncObj__tryLogCompaction(self) -> None: ...
    def _SyncObj__setState(self, state: int) -> None: ...
    def _SyncObj__setCurrentTerm(self, term: int, vote: str | None) -> None: ...
