"""Who is refused: by epoch, by resets, by a lease. Pure (D21, D22).

what comes                             of the row                        verdict
-------------------------------------  --------------------------------  ---------------------
a claim with a lower epoch             any                               FENCED
a claim with the same epoch            of another consumer, or given     FENCED
                                       back
a claim with the same epoch            of this consumer                  taken: a renewal
a claim with a higher epoch            another consumer's lease lasts    LEASED
a claim with a higher epoch            else                              taken
a commit without an epoch              HELD                              FENCED
a commit without an epoch              else                              taken
a commit or failure with an epoch      another epoch, another consumer,  FENCED
                                       or given back
... with another number of resets      any                               OFFSET_RESET
a reset                                any                               taken

Stamps do not end a lease: they follow wall clocks, which leap, and each leader has its own. A lease
is named by the index of the entry that began or renewed it. The leader that proposes a claim says
which lease is over, by its monotonic clock (`dledger_broker.group.leases`). The claim is taken when
this is still the lease of the row: a renewal that came between gave it another name. Claims and
leases of an older dledger end by stamps (`BY_STAMP`).
"""

from typing import Final, NamedTuple

from dledger.state.progress.row import Holding, Progress
from dledger_proto.errors import Code

BY_STAMP: Final = (1 << 64) - 1
"""No index of an entry: in a claim of an older dledger, which named no lease."""


class Verdict(NamedTuple):
    """Why a claim is refused: the code and a sentence."""

    code: Code
    detail: str


def refusal_to_claim(
    row: Progress, epoch: int, consumer: str, over: int, time_ms: int
) -> Verdict | None:
    """Return why a claim is refused; None when it is taken. `over`: the lease that is over."""
    if epoch < row.epoch:
        return Verdict(
            Code.FENCED, f"epoch {epoch}, {row.consumer or 'nobody'} claimed with {row.epoch}"
        )
    if epoch == row.epoch:
        if consumer != row.consumer:
            return Verdict(Code.FENCED, f"epoch {epoch} is that of {row.consumer}")
        if row.holding is Holding.RELEASED:
            return Verdict(Code.FENCED, f"the queue was given back with epoch {epoch}")
    elif consumer != row.consumer and lease_lasts(row.lease_until_ms, row.leased_at, over, time_ms):
        return Verdict(Code.LEASED, f"{row.consumer} has the queue by a lease")
    return None


def lease_lasts(until_ms: int, leased_at: int, over: int, time_ms: int) -> bool:
    """Tell whether a lease keeps another consumer out; without a lease `until_ms` is 0."""
    if leased_at and over != BY_STAMP:
        return over != leased_at
    return time_ms < until_ms


def refusal_of_sender(row: Progress | None, epoch: int, consumer: str, resets: int) -> Code | None:
    """Return why a commit or a failure is refused by who sends it; None when it is not."""
    if epoch == 0:
        return Code.FENCED if row is not None and row.holding is Holding.HELD else None
    if row is None or (epoch, consumer) != (row.epoch, row.consumer):
        return Code.FENCED
    if resets != row.resets:
        return Code.OFFSET_RESET
    return Code.FENCED if row.holding is Holding.RELEASED else None
