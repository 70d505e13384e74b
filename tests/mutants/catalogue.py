"""The closed list of known bugs: every one must be caught."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.core.clock_bugs import CLOCK_BUGS
from tests.mutants.core.compaction_bugs import COMPACTION_BUGS
from tests.mutants.core.disk_bugs import DISK_BUGS
from tests.mutants.core.log_bugs import LOG_BUGS
from tests.mutants.core.pace_bugs import PACE_BUGS
from tests.mutants.core.raft_bugs import RAFT_BUGS
from tests.mutants.core.refill_bugs import REFILL_BUGS
from tests.mutants.core.repair_bugs import REPAIR_BUGS
from tests.mutants.core.snapshot_bugs import SNAPSHOT_BUGS
from tests.mutants.core.storage_bugs import STORAGE_BUGS
from tests.mutants.core.trust_bugs import LINK_BUGS, TRUST_BUGS
from tests.mutants.data.call_bugs import CALL_BUGS
from tests.mutants.data.column_bugs import COLUMN_BUGS
from tests.mutants.data.consumer_bugs import CONSUMER_BUGS
from tests.mutants.data.coordination_bugs import COORDINATION_BUGS, GROUP_BUGS
from tests.mutants.data.export_bugs import EXPORT_BUGS
from tests.mutants.data.forgetting_bugs import FORGETTING_BUGS
from tests.mutants.data.plan_bugs import PLAN_BUGS
from tests.mutants.data.retention_bugs import RETENTION_BUGS
from tests.mutants.data.route_bugs import ROUTE_BUGS
from tests.mutants.data.state_bugs import STATE_BUGS
from tests.mutants.data.timer_bugs import TIMER_BUGS
from tests.mutants.data.unreadable_bugs import UNREADABLE_BUGS
from tests.mutants.delivery.expiry_bugs import EXPIRY_BUGS
from tests.mutants.delivery.progress_bugs import PROGRESS_BUGS
from tests.mutants.delivery.schedule_bugs import SCHEDULE_BUGS
from tests.mutants.edges.flight_bugs import FLIGHT_BUGS
from tests.mutants.edges.parser_bugs import PARSER_BUGS
from tests.mutants.mutant import Mutant
from tests.mutants.security.exposure_bugs import EXPOSURE_BUGS
from tests.mutants.security.login_bugs import LOGIN_BUGS
from tests.mutants.security.tls_bugs import TLS_BUGS
from tests.mutants.security.user_bugs import USER_BUGS

MUTANTS: Final[Sequence[Mutant]] = (
    *REFILL_BUGS, *REPAIR_BUGS, *RAFT_BUGS, *PACE_BUGS, *CLOCK_BUGS, *DISK_BUGS, *STORAGE_BUGS,
    *LOG_BUGS, *STATE_BUGS, *SNAPSHOT_BUGS, *COMPACTION_BUGS,
    *FORGETTING_BUGS, *TRUST_BUGS, *LINK_BUGS, *CALL_BUGS, *COLUMN_BUGS, *EXPORT_BUGS, *PLAN_BUGS,
    *UNREADABLE_BUGS, *CONSUMER_BUGS, *COORDINATION_BUGS, *GROUP_BUGS, *TIMER_BUGS,
    *PROGRESS_BUGS, *SCHEDULE_BUGS, *EXPIRY_BUGS, *ROUTE_BUGS, *RETENTION_BUGS,
    *TLS_BUGS, *LOGIN_BUGS, *USER_BUGS, *EXPOSURE_BUGS, *PARSER_BUGS, *FLIGHT_BUGS,
)  # fmt: skip

assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS), "names are unique"


def by_name() -> dict[str, Mutant]:
    """Return every known bug by its name."""
    return {mutant.name: mutant for mutant in MUTANTS}
