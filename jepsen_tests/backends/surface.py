"""What a backend offers: members to talk to, and handles for faults.

Owns the protocols only. A backend has each handle, or says why not (`missing`). A fault needs some
handles. Where one is missing, the run skips the fault and says so.

- `processes`: end, start, stop for a while
- `network`: trouble on the link from one member to another, as the first dials the second, and
  where the backend can, on the link from all clients to a member
- `folders`: the data folder of a stopped member
- `disks`: a real disk under a member: fill it, cut its power
- `syncs`: fdatasync of a running member: slow, hanging, failing
- `clocks`: a member's wall clock
- `cgroups`: a member's share of processor and memory
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Protocol

from jepsen_tests.errors import HarnessFailure


class CannotRepair(Exception):
    """`dledger repair` refused; the message is what it said."""


class CannotLimit(Exception):
    """Limiting a member's share failed and changed nothing; the message says why."""


class CannotRun(HarnessFailure):
    """This backend does not run on this machine; the message says what is missing."""


CLIENTS: Final = "clients"
"""The source of a link from clients to a member. The harness's own calls use other links."""
Setting = str | int | float | bool


@dataclass(frozen=True, slots=True)
class WantedCluster:
    """The cluster that a run asks for."""

    folder: Path
    """The folder of the run. It exists when the cluster starts."""
    nodes: int = 3
    """Of each broker group."""
    broker_groups: int = 1
    settings: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    """Members' configuration that the workload wants."""
    secure: bool = False
    """With TLS. Only backends with `can_be_secure` can do that."""
    mutant: str = ""
    """A known bug to put into the members. Only backends with `has_mutants` can do that."""
    bootstrap: str = ""
    """Name servers of a cluster that runs already."""
    group: str = ""
    commands: Path | None = None
    """The file with the lines that hurt such a cluster."""

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of members that we start ourselves."""
        return tuple(f"n{number}" for number in range(1, self.nodes * self.broker_groups + 1))


class Processes(Protocol):
    """The members' processes."""

    async def kill(self, node: str) -> None:
        """End it at once (SIGKILL), and wait until it has ended."""

    async def stop(self, node: str) -> None:
        """Ask it to end (SIGTERM), and wait."""

    async def start(self, node: str) -> None:
        """Start a member that does not run."""

    async def pause(self, node: str) -> None:
        """Stop it (SIGSTOP); return when it stands still."""

    async def resume(self, node: str) -> None:
        """Let it go on."""

    def is_running(self, node: str) -> bool:
        """Tell whether it was started and has not ended."""
        ...

    def exit_code(self, node: str) -> int | None:
        """Return how it ended; None while it runs."""

    def died(self) -> dict[str, list[str]]:
        """Return by member how its process ended by itself, each life once, as soon as it is known.

        Nothing where nobody can tell such an end from what others did to the process.
        """
        return {}

    async def restarted(self) -> dict[str, list[str]]:
        """Return by member how it ended, each time once, when others than us started it again."""
        return {}


class TroubleKind(enum.StrEnum):
    """What can be wrong with a link."""

    CUT = "cut"
    """Nothing gets through and nothing closes, as with a pulled cable."""
    DELAY = "delay"
    LOSS = "loss"
    BANDWIDTH = "bandwidth"
    SLICES = "slices"
    """Bytes arrive in small pieces."""
    RESET = "reset"
    """Connections are reset now; new ones work."""
    MUTE = "mute"
    """The dialled side hears, but its answers are lost with their connections."""


PROXIED: Final = frozenset({
    TroubleKind.CUT, TroubleKind.DELAY, TroubleKind.BANDWIDTH, TroubleKind.SLICES,
    TroubleKind.RESET,
})  # fmt: skip
"""What a proxy of bytes can do to a link between members."""
PROXIED_CLIENTS: Final = frozenset({TroubleKind.CUT, TroubleKind.RESET, TroubleKind.MUTE})
"""What a proxy of bytes can do to a link from clients."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One kind of trouble with its strength. Fields of other kinds are ignored."""

    kind: TroubleKind
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss_percent: int = 0
    bytes_per_second: int = 0
    slice_bytes: int = 0


class Network(Protocol):
    """Links between members, and from clients to members."""

    kinds: frozenset[TroubleKind]
    """What this backend can do to a link between members."""
    client_kinds: frozenset[TroubleKind]
    """What it can do to a link from CLIENTS."""

    async def trouble(self, links: Sequence[tuple[str, str]], trouble: Trouble) -> None:
        """Trouble links (from, to); a link has one trouble of each kind at most."""

    async def heal(self, links: Sequence[tuple[str, str]], kind: TroubleKind) -> None:
        """End one kind of trouble on links."""


class Folders(Protocol):
    """Data folders."""

    def folder(self, node: str) -> Path:
        """Return where the member keeps its data."""
        ...

    async def is_sound(self, node: str) -> bool:
        """Read all of a stopped member's folder; say whether no damage is found."""
        ...

    async def repair(self, node: str) -> None:
        """Set a stopped member's damaged folder aside (`dledger repair`); CannotRepair."""


class Disks(Protocol):
    """A file system for each member."""

    async def fill(self, node: str) -> None:
        """Leave no room."""

    async def give_back(self, node: str) -> None:
        """Give the room back."""

    async def cut_power(self, node: str) -> None:
        """Lose what was not synced; the member is killed. `power_on` before it starts again."""

    async def power_on(self, node: str) -> None:
        """Mount again."""


class Syncs(Protocol):
    """A running member's fdatasync."""

    async def slow(self, node: str, seconds: float) -> None:
        """Let each sync take so many seconds longer; 0: no longer than it takes."""

    async def fail(self, node: str) -> None:
        """Let the next syncs fail with EIO, until the member is started again."""


class Clocks(Protocol):
    """A running member's wall clock, which stamps entries. Elections use another."""

    async def shift(self, node: str, seconds: float, rate: float) -> None:
        """Set it `seconds` off and let it run `rate` times as fast; 0 and 1: right again."""


class Cgroups(Protocol):
    """A member's share of the machine."""

    async def starve(self, node: str, cpu_percent: int, memory_bytes: int) -> None:
        """Limit the member's share, or raise CannotLimit; zeros: no limit."""


class Backend(ABC):
    """One cluster, from nothing until it is gone."""

    name: ClassVar[str]
    has_mutants: ClassVar[bool] = False
    """`launch` starts its members and can put a known bug into them."""
    can_be_secure: ClassVar[bool] = False
    """It can start its cluster with TLS."""
    is_kept: ClassVar[bool] = False
    """The cluster belongs to a user: the end of a run deletes what the run made in it."""
    nodes: tuple[str, ...]
    group: str
    parts: Sequence["Backend"] = ()
    """Of several broker groups: this cluster with the members of one group alone, for each group.
    The first is the control group. Empty: there is one group."""
    tls_folder: str = ""
    """The folder of clients' certificates; empty: the cluster has no TLS."""
    missing: dict[str, str]
    """Why a handle is not there, by its name."""
    never: Collection[str] = ()
    """Handles that this backend has on no machine. A run that needs only such ones is refused."""
    processes: Processes | None = None
    network: Network | None = None
    folders: Folders | None = None
    disks: Disks | None = None
    syncs: Syncs | None = None
    clocks: Clocks | None = None
    cgroups: Cgroups | None = None

    @abstractmethod
    def __init__(self, wanted: WantedCluster) -> None:
        """CannotRun when this machine lacks something that is known before anything starts."""

    @classmethod
    def own_namespaces(cls) -> Sequence[str]:
        """Return the namespaces that a run needs for itself; CannotRun when they cannot be made."""
        return ()

    async def prepare(self) -> None:  # noqa: B027 - most have nothing to learn
        """Learn what is there, without starting anything; CannotRun when it is not there."""

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """Addresses for clients."""

    @abstractmethod
    def address(self, node: str) -> str:
        """Return where clients reach one member."""

    def inner_address(self, node: str) -> str:
        """Return where the harness reaches one member, also while clients' links are troubled."""
        return self.address(node)

    @abstractmethod
    def describe(self) -> str:
        """Return one line: what runs where."""

    @abstractmethod
    async def start(self) -> None:
        """Start everything; CannotRun when this machine cannot."""

    @abstractmethod
    async def stop(self) -> None:
        """End everything, also what half started; leave only logs and data behind."""

    async def abort(self) -> None:
        """End everything at once, also when `stop` was broken off; leave as little behind as it."""
        await self.stop()

    def pid(self, node: str) -> int | None:
        """Return the process id of a member that runs on this machine."""
        del node
        return None


def each_group(backend: Backend) -> Sequence[Backend]:
    """Return a cluster's parts if it has several broker groups, else the cluster itself."""
    return backend.parts or (backend,)


def places_of(backend: Backend, topics: Mapping[str, int]) -> dict[str, list[tuple[str, int]]]:
    """Return by group the queues of topics that have so many queues in each group.

    A topic's queues are numbered group by group, in the order of the groups.
    """
    return {
        part.group: [
            (topic, queue)
            for topic, count in topics.items()
            for queue in range(number * count, (number + 1) * count)
        ]
        for number, part in enumerate(each_group(backend))
    }
