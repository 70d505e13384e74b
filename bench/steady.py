"""Full load on all processors: no election that is not needed.

An election counts as needed when a log shows that a member did not run for longer than the
shortest election timeout (`paused`): nobody can tell that from a dead leader.
"""

import re

from bench.append import WINDOWS
from bench.cluster import Running, running
from bench.figures import Figure, stated
from bench.native import plain_records, pour_for
from bench.plan import Plan

PAUSED = re.compile(r"\bpaused\b.*\bgap_seconds=([0-9.]+)")
ELECTION_TIMEOUT_SECONDS = 0.5
SLICE_SECONDS = 10.0
"""Batches of 64 and of 1000 in turn, for so long each."""


async def measure(plan: Plan) -> list[Figure]:
    """Measure."""
    async with running(plan.folder) as here:
        topic = await here.create_topic("steady", queues=4)
        term = await _term(here)
        rates: list[float] = []
        left = plan.minutes * 60
        while left > 0:
            size = list(WINDOWS)[len(rates) % len(WINDOWS)]
            seconds = min(SLICE_SECONDS, left)
            poured = await pour_for(here, topic, plain_records(size), WINDOWS[size], seconds)
            rates.append(poured.rate)
            left -= poured.seconds
        elections = await _term(here) - term
        pauses = _pauses(here)
    needless = float(max(0, elections - pauses))
    note = f"{plan.minutes:g} minutes, {elections} elections, {pauses} scheduling gaps logged"
    return [
        stated("steady_needless_elections", [needless], "elections", "<=", 0.0, note),
        stated("steady_rate", rates, "records/s"),
    ]


async def _term(here: Running) -> int:
    status = await here.status(await here.leader())
    assert status is not None
    return status.term


def _pauses(here: Running) -> int:
    texts = [here.cluster.log_text(name) for name in here.cluster.member_names]
    gaps = [float(gap) for text in texts for gap in PAUSED.findall(text)]
    return sum(gap > ELECTION_TIMEOUT_SECONDS for gap in gaps)
