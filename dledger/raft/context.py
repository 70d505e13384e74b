"""What the parts of one group share: its settings, its log, the core, the way out. No decisions.

Owns: `Context` and the `Outbox`. A part takes the context, never another part's insides.
`wiring.py` decides who calls whom.
"""

from collections.abc import Callable, Iterable
from random import Random

from dledger.clock import Clock
from dledger.log.commit_log import CommitLog
from dledger.log.errors import DamagedLog
from dledger.raft.api import GroupSettings, Machine
from dledger.raft.durability import Durability
from dledger.raft.engine._pysyncobj import Engine
from dledger.raft.engine.journal import Journal
from dledger.raft.gate import OutboundGate
from dledger.raft.wire.messages import Message
from dledger.trace import Trace
from dledger.types import MemberId

SESSION_BITS = 62


class Outbox:
    """Messages that may leave: stamped with session and sequence, in order for each peer."""

    def __init__(self, session: int, peers: Iterable[MemberId]) -> None:
        self.session = session
        self._sequences = dict.fromkeys(peers, 0)
        self.up: set[MemberId] = set()
        """Peers with a link. To other peers nothing is sent, and nothing is kept for them."""
        self._messages: list[tuple[MemberId, Message]] = []

    def send(self, target: MemberId, message: Message) -> bool:
        """Let a message leave; False when there is no way to the peer."""
        if target not in self.up:
            return False
        self._sequences[target] += 1
        message.session = self.session
        message.sequence = self._sequences[target]
        self._messages.append((target, message))
        return True

    def __len__(self) -> int:
        return len(self._messages)

    def take(self) -> list[tuple[MemberId, Message]]:
        """Return what is to be sent now."""
        messages, self._messages = self._messages, []
        return messages

    def close(self) -> None:
        """Let nothing leave any more."""
        self.up.clear()
        self._messages.clear()


class Context:
    """Shared by the parts of one group. `now` is the time of the input being handled."""

    def __init__(
        self,
        settings: GroupSettings,
        log: CommitLog,
        durability: Durability,
        machine: Machine,
        clock: Clock,
        random: Random,
        trace: Trace,
        now: float,
    ) -> None:
        self.settings = settings
        self.member = settings.member
        self.peers = tuple(sorted(member for member in settings.members if member != self.member))
        self.majority = len(settings.members) // 2 + 1
        self.log = log
        self.durability = durability
        self.machine = machine
        self.clock = clock
        self.random = random
        self.trace = trace
        self.now = now
        self.outbox = Outbox(random.getrandbits(SESSION_BITS) | 1, self.peers)
        self.first_number = self.outbox.session
        """Request numbers begin here, so that answers to an earlier process match no request."""
        self.gate = OutboundGate()
        self.is_mended: Callable[[DamagedLog], bool] = lambda _damage: False
        """Told of damage in the log: True when somebody mends it, so that this member goes on."""
        self.formed = False
        """The genesis entry is on disk: this member takes part."""
        self.engine: Engine
        """The core; only of a formed member."""
        self.journal: Journal
        """The log as the core sees it; only of a formed member."""

    def send(self, target: MemberId, message: Message) -> bool:
        """Let a message that promises nothing leave at once."""
        return self.outbox.send(target, message)

    def set_core(self, engine: Engine, journal: Journal) -> None:
        """Take the core, once."""
        assert not self.formed, "a member forms once"
        self.engine = engine
        self.journal = journal
        self.formed = True

    @property
    def quarantined(self) -> bool:
        """This member is not trusted (D18); its own newest word, on disk or not yet."""
        return self.durability.state.quarantined
