"""What a backend offers: members to talk to, and handles for faults.

Owns the protocols alone. A backend gives each handle, or says why it cannot (`missing`); a fault
needs some handles and is skipped, loudly, where one is missing.

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
    """A member's share could not be limited, and is as it was; the message says why."""


class CannotRun(HarnessFailure):
    """This backend does not run on this machine; the message says what is missing."""


CLIENTS: Final = "clients"
"""Who dials on a link from clients to a member. The harness's own looks do not take that way."""
Setting = str | int | float | bool


@dataclass(frozen=True, slots=True)
class WantedCluster:
    """The cluster that is asked for."""

    folder: Path
    """Of the run; there when the cluster is started."""
    nodes: int = 3
    settings: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    """Members' configuration that the workload wants."""
    mutant: str = ""
    """A known bug to put into the members; only of backends that say they can (`has_mutants`)."""
    bootstrap: str = ""
    """Name servers of a cluster that runs already."""
    group: str = ""
    commands: Path | None = None
    """How such a cluster is hurt."""

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of members that we start ourselves."""
        return tuple(f"n{number}" for number in range(1, self.nodes + 1))


class Processes(Protocol):
    """The members' processes."""

    async def kill(self, node: str) -> None:
        """End it at once (SIGKILL), and wait until it has ended."""

    async def stop(self, node: str) -> None:
        """Ask it to end (SIGTERM), and wait."""

    async def start(self, node: str) -> None:
        """Start a member that does not run."""

    async def pause(self, node: str) -> None:
        """Let it stand still (SIGSTOP); return when it does."""

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
    """Who is dialled hears, and is not heard: its answers are lost with their connections."""


PROXIED: Final = frozenset({
    TroubleKind.CUT, TroubleKind.DELAY, TroubleKind.BANDWIDTH, TroubleKind.SLICES,
    TroubleKind.RESET,
})  # fmt: skip
"""What a proxy of bytes can do to a link between members."""
PROXIED_CLIENTS: Final = frozenset({TroubleKind.CUT, TroubleKind.RESET, TroubleKind.MUTE})
"""What a proxy of bytes can do to a link from clients."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One kind with its strength; what does not belong to the kind is ignored."""

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
        """Let each take so much longer; 0: as it is."""

    async def fail(self, node: str) -> None:
        """Let the next ones fail with EIO, until the member is started again."""


class Clocks(Protocol):
    """A running member's wall clock, which stamps entries. Elections use another."""

    async def shift(self, node: str, seconds: float, rate: float) -> None:
        """Set it `seconds` off, running `rate` times as fast from now on; 0 and 1: right again."""


class Cgroups(Protocol):
    """A member's share of the machine."""

    async def starve(self, node: str, cpu_percent: int, memory_bytes: int) -> None:
        """Limit it, or CannotLimit; zeros: no limit."""


class Backend(ABC):
    """One cluster, from nothing until it is gone."""

    name: ClassVar[str]
    has_mutants: ClassVar[bool] = False
    """Its members are started through `launch`, which can put a known bug into them."""
    is_kept: ClassVar[bool] = False
    """It is somebody's cluster: what a run made in it is deleted at the end."""
    nodes: tuple[str, ...]
    group: str
    missing: dict[str, str]
    """Why a handle is not there, by its name."""
    never: Collection[str] = ()
    """Those of them that it would have on no machine: who asks for nothing else is refused."""
    processes: Processes | None = None
    network: Network | None = None
    folders: Folders | None = None
    disks: Disks | None = None
    syncs: Syncs | None = None
    clocks: Clocks | None = None
    cgroups: Cgroups | None = None

    @abstractmethod
    def __init__(self, wanted: WantedCluster) -> None:
        """CannotRun when this machine cannot, as far as is known without starting anything."""

    @classmethod
    def own_namespaces(cls) -> Sequence[str]:
        """Return which namespaces a run needs to itself here; CannotRun when it can't have them."""
        return ()

    async def prepare(self) -> None:  # noqa: B027 - most have nothing to learn
        """Learn what is there, start nothing; CannotRun when it isn't there."""

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """Addresses for clients."""

    @abstractmethod
    def address(self, node: str) -> str:
        """Return where clients reach one member."""

    def inner_address(self, node: str) -> str:
        """Return where the harness looks at one member, whatever is done to clients' links."""
        return self.address(node)

    @abstractmethod
    def describe(self) -> str:
        """Return one line: what runs where."""

    @abstractmethod
    async def start(self) -> None:
        """Start everything; CannotRun when this machine cannot."""

    @abstractmethod
    async def stop(self) -> None:
        """End everything, also what was half started; leave logs and data behind, nothing else."""

    async def abort(self) -> None:
        """End everything at once, also after `stop` was broken off; leave as little behind."""
        await self.stop()

    def pid(self, node: str) -> int | None:
        """Return the process id of a member that runs on this machine."""
        del node
        return None
