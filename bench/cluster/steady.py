"""Full load on all processors: no election that is not needed.

An election counts as needed when a log shows that a member did not run for longer than the
shortest election timeout (`paused`), and it began in that gap or soon after it: nobody can tell
such a member from a dead leader. A gap that no election followed excuses none.
"""

import re
from collections.abc import Sequence
from datetime import datetime

from bench.effort import Effort
from bench.figures import Figure, stated
from bench.log.append import WINDOWS
from bench.setup.cluster import Running, running
from bench.setup.native import plain_records, pour_for
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import broker_pb2_grpc

LINE = re.compile(r"^(\S+)Z \[\w+\s*\] (campaign|paused) .*?$", re.MULTILINE)
GAP = re.compile(r"\bgap_seconds=([0-9.]+)")
TERM = re.compile(r"\bterm=([0-9]+)")
ELECTION_TIMEOUT_SECONDS = 0.5
EXCUSED_SECONDS = 2.0
"""After a gap: the longest election timeout, and an election."""
SLICE_SECONDS = 10.0
"""Batches of 64 and of 1000 in turn, for so long each; then what is stored is trimmed, or ten
minutes would need three hundred gigabytes."""
QUEUES = 4


async def measure(effort: Effort) -> list[Figure]:
    async with running(effort.folder) as here:
        topic = await here.create_topic("steady", queues=QUEUES)
        term = await _term(here)
        rates: list[float] = []
        left = effort.minutes * 60
        while left > 0:
            size = list(WINDOWS)[len(rates) % len(WINDOWS)]
            seconds = min(SLICE_SECONDS, left)
            poured = await pour_for(here, topic, plain_records(size), WINDOWS[size], seconds)
            rates.append(poured.rate)
            left -= poured.seconds
            await _trim(here, topic)
        last_term = await _term(here)
        texts = [here.cluster.log_text(name) for name in here.cluster.member_names]
    needless = needless_terms(texts, term, last_term)
    note = f"{effort.minutes:g} minutes, {last_term - term} elections"
    return [
        stated("steady_needless_elections", [float(len(needless))], "elections", "<=", 0.0, note),
        stated("steady_rate", rates, "records/s"),
    ]


async def _trim(here: Running, topic: bytes) -> None:
    """Trim all that is stored."""
    channel = here.channel(await here.leader())
    broker, admin = broker_pb2_grpc.BrokerStub(channel), broker_pb2_grpc.AdminStub(channel)
    queues = [pb.QueueRef(topic_id=topic, queue=number) for number in range(QUEUES)]
    ends = await broker.QueueOffsets(
        pb.QueueOffsetsRequest(queues=queues), timeout=10, metadata=here.metadata
    )
    for queue, row in zip(queues, ends.rows, strict=True):
        request = pb.TrimRequest(queue=queue, offset=row.maximum)
        await admin.Trim(request, timeout=10, metadata=here.metadata)


async def _term(here: Running) -> int:
    status = await here.status(await here.leader())
    assert status is not None
    return status.term


def needless_terms(texts: Sequence[str], first: int, last: int) -> list[int]:
    """Return the terms after `first` up to `last` that no member's log shows a reason for."""
    gaps: list[tuple[float, float]] = []
    campaigns: list[tuple[float, int]] = []
    for line in (line for text in texts for line in LINE.finditer(text)):
        at = datetime.fromisoformat(line[1]).timestamp()
        gap, term = GAP.search(line[0]), TERM.search(line[0])
        if line[2] == "campaign" and term:
            campaigns.append((at, int(term[1])))
        elif gap and float(gap[1]) > ELECTION_TIMEOUT_SECONDS:
            gaps.append((at - float(gap[1]), at + EXCUSED_SECONDS))
    excused = {term for at, term in campaigns if any(begin <= at <= end for begin, end in gaps)}
    return [term for term in range(first + 1, last + 1) if term not in excused]
