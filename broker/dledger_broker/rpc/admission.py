"""What may wait or run at once in a member, by class of call (S136, S141-S143).

Owns the counters, and what a refusal says. Pure: no clock, no task, no socket. Each class has
bounds of its own. So administration works while appends are refused as busy, and readers cannot
take what writers need, nor one user what all others need. A caller that waits for room registers a
callback (`Bound.when_free`).

    append    bytes and batches of frames that are not wholly answered; streams
    fetch     bytes of frames read and not yet taken by gRPC; streams
    query     unary reads and commits of offsets
    lookup    lookups of single records, which read whole batches
    admin     administration
    log       streams of the log's entries
    watch     watchers of routes
    session   sessions of consumers
"""

import enum
from collections import Counter, deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from dledger_broker.config.sections import AdmissionConfig
from dledger_broker.metrics.meters import ProcessMeters
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import KIB

FETCH_FRAME_SHARE: Final = 8
"""A new fetch frame takes at most an eighth of the free fetch bytes. Readers that stop reading get
smaller and smaller frames, and leave room for the others."""
FETCH_FRAME_MIN: Final = 64 * KIB
"""The size that a frame may always have. Times the bound on streams, it bounds the memory."""
WAITERS_MAX: Final = 100_000


class Work(enum.Enum):
    """The classes of unary calls, each with a bound of its own."""

    QUERY = enum.auto()
    LOOKUP = enum.auto()
    ADMIN = enum.auto()


class Bound:
    """A counted resource: how much is used, the limit, and the callbacks that wait for room."""

    __slots__ = ("_of_users", "_user_limit", "_waiting", "limit", "name", "used")

    def __init__(self, name: str, limit: int, user_percent: int = 100) -> None:
        self.name = name
        self.limit = limit
        self.used = 0
        self._user_limit = max(1, limit * user_percent // 100)
        self._of_users: Counter[str] = Counter()
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def free(self) -> int:
        """What may still be taken; never negative."""
        return max(0, self.limit - self.used)

    def try_take(self, amount: int) -> bool:
        """Take `amount`; False, and nothing taken, when it does not fit.

        An amount above the whole limit is let in when nothing else is: else it could never pass.
        """
        if self.used + amount > self.limit and self.used:
            return False
        self.used += amount
        return True

    def take(self, amount: int = 1) -> None:
        """Take `amount`; DledgerError BUSY naming the bound when it does not fit."""
        if not self.try_take(amount):
            raise self.busy()

    def take_regardless(self, amount: int) -> None:
        """Take `amount` even over the limit: for bytes that are in memory already."""
        self.used += amount

    def give(self, amount: int = 1) -> None:
        """Give back what was taken, and call the callbacks that wait for room (each once)."""
        assert amount <= self.used, f"{self.name}: giving back {amount} of {self.used}"
        self.used -= amount
        waiting, self._waiting = self._waiting, deque()
        for wake in waiting:
            wake()

    def when_free(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, at the next `give`; BUSY when too many wait already."""
        if len(self._waiting) >= WAITERS_MAX:
            raise self.busy()
        self._waiting.append(wake)

    def busy(self) -> DledgerError:
        """Return the refusal, with the numbers."""
        return DledgerError(
            Code.BUSY,
            f"{self.name} is at its limit: {self.used} of {self.limit} in use, "
            f"{len(self._waiting)} waiting",
        )

    @contextmanager
    def held(self, user: str = "") -> Generator[None, None, None]:
        """Hold one for the length of a block, for a user if one is named; DledgerError BUSY."""
        self.take()
        try:
            with self.share_of(user):
                yield
        finally:
            self.give()

    @contextmanager
    def share_of(self, user: str) -> Generator[None, None, None]:
        """Count one that is held, for a user; DledgerError BUSY beyond its share."""
        if not user:
            yield
            return
        self._check_share(user)
        self._of_users[user] += 1
        try:
            yield
        finally:
            self._of_users[user] -= 1
            if not self._of_users[user]:
                del self._of_users[user]

    def _check_share(self, user: str) -> None:
        if self._of_users[user] >= self._user_limit:
            raise DledgerError(
                Code.BUSY,
                f"user {user} has {self._of_users[user]} of {self.name}, at most "
                f"{self._user_limit} of {self.limit}",
            )


class AdmissionControl:
    """The bounds of one process, and whether it takes new work at all."""

    def __init__(self, limits: AdmissionConfig) -> None:
        def shared(name: str) -> Bound:
            return Bound(f"admission.{name}", getattr(limits, name), limits.user_percent)

        self.limits = limits
        self.append_bytes = Bound("admission.append_bytes_max", limits.append_bytes_max)
        self.append_batches = Bound("admission.append_batches_max", limits.append_batches_max)
        self.fetch_bytes = Bound("admission.fetch_bytes_max", limits.fetch_bytes_max)
        self.append_streams = shared("append_streams_max")
        self.fetch_streams = shared("fetch_streams_max")
        self.queries = shared("queries_max")
        self.lookups = shared("lookups_max")
        self.admin_calls = shared("admin_calls_max")
        self.log_streams = shared("log_streams_max")
        self.route_watchers = shared("route_watchers_max")
        self.sessions = shared("sessions_max")
        self._of_work = {
            Work.QUERY: self.queries,
            Work.LOOKUP: self.lookups,
            Work.ADMIN: self.admin_calls,
        }
        self._draining = ""
        self.meters = ProcessMeters()

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """All of them."""
        return tuple(each for each in vars(self).values() if isinstance(each, Bound))

    @property
    def draining(self) -> bool:
        """True once `drain` was called."""
        return bool(self._draining)

    def drain(self, reason: str) -> None:
        """Refuse all new work from now on; work that was let in goes on."""
        self._draining = reason

    def check_open(self) -> None:
        """DledgerError SHUTTING_DOWN when the process is draining."""
        if self._draining:
            raise DledgerError(Code.SHUTTING_DOWN, self._draining)

    def counted(self, work: Work | None) -> AbstractContextManager[None]:
        """Count a unary call for the length of a block; BUSY at its limit. None: count nothing."""
        return nullcontext() if work is None else self._of_work[work].held()

    def share(self, work: Work | None, user: str) -> AbstractContextManager[None]:
        """Count a call that is counted, for its user, too, if there is one; BUSY beyond a share."""
        return self._of_work[work].share_of(user) if work and user else nullcontext()

    def try_append(self, size: int, batches: int) -> bool:
        """Let in a frame of `size` bytes with `batches` batches; False when full."""
        if not self.append_batches.try_take(batches):
            return False
        if not self.append_bytes.try_take(size):
            self.append_batches.give(batches)
            return False
        return True

    def append_regardless(self, size: int, batches: int) -> None:
        """Count a frame that will be refused, until the refusals are answered."""
        self.append_batches.take_regardless(batches)
        self.append_bytes.take_regardless(size)

    def append_done(self, size: int, batches: int) -> None:
        """Give back what a frame took: all of its batches are answered."""
        self.append_batches.give(batches)
        self.append_bytes.give(size)

    def append_refusal(self) -> DledgerError:
        """Return BUSY naming the fuller of the two append bounds."""
        batches, size = self.append_batches, self.append_bytes
        fuller = batches if batches.used * size.limit > size.used * batches.limit else size
        return fuller.busy()

    def fetch_frame_bytes(self, wanted: int) -> int:
        """Return how large the next fetch frame may be: at most `wanted`, less under pressure."""
        share = max(FETCH_FRAME_MIN, self.fetch_bytes.free // FETCH_FRAME_SHARE)
        return min(wanted, share)
