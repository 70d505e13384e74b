"""What a known bug is. `scripts` name scenarios made for it: "module.function" of tests/scenarios,
with a JSON argument after a colon; what they miss is hunted with seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.mutants.rewrite import Edit

SAFETY: Final = "test_safety_findings"
LIVENESS: Final = "test_liveness_findings"
DISK: Final = "test_disk_findings"
QUARANTINE: Final = "test_quarantine"


AREAS: Final = {
    "dledger.raft": "replication",
    "dledger.refill": "refill",
    "dledger.repair": "repair",
    "dledger.snapshot": "snapshots",
    "dledger.state.queues.compact": "compaction",
    "dledger_broker.compacting": "compaction",
    "dledger_broker.snapshots": "snapshots",
    "dledger_broker.repair": "repair",
    "dledger_broker.refill.single_entries": "repair",
    "dledger_broker.refill": "refill",
    "pysyncobj": "replication",
    "dledger.log": "log",
    "dledger.store.lmdb": "state's file",
    "dledger.store.sealed": "state's file",
    "dledger.store": "state",
    "dledger.state": "state",
    "dledger_proto": "formats",
    "dledger_broker": "broker",
    "dledger_offline": "reading",
    "dledger_namesrv": "name server",
    "dledger_client.export": "export",
    "dledger_client.arrow": "reading",
    "dledger_client.reading": "reading",
    "dledger_client.spark": "reading",
    "dledger_client": "client",
}
"""By the module that the first edit of a bug changes; the first that fits counts."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug: small, plausible, and real in some system."""

    name: str
    what: str
    edits: Sequence[Edit]
    scripts: Sequence[str] = ()

    @property
    def area(self) -> str:
        """Return the part of the product that the bug is in."""
        where = self.edits[0].where
        return next((area for begin, area in AREAS.items() if where.startswith(begin)), "harness")
