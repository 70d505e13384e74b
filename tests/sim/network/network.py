"""The network of a simulated world: its hosts, the paths between them, and all faults.

Owns: which process runs on a host and what it listens to, which connections there are, who learns
of their end and when. A killed process's kernel resets its connections. A machine without power
says nothing: the others learn it by keepalive. Keepalive is not simulated ping by ping. When
nothing can answer any more, the end of the connection that pings gives it up at a drawn moment
within its options' times, if nothing answers by then. A hold is too short for keepalive.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from dledger.raft.links.frame_stream import SIZE
from tests.sim.network.options import Options
from tests.sim.network.path import Path
from tests.sim.network.plain import PlainServer, connect
from tests.sim.network.wire import CLOSE, MESSAGE, Listener, Socket, SocketOwner, StreamEnd
from tests.sim.process.loop import P, ProcessLoop
from tests.sim.world.clock import Scheduler

RESET_NOTICE_MAX: Final = 0.004
"""The peers of a killed process learn it within so many seconds."""
BREAK_NOTICE_MAX: Final = 0.002
RESET_REASON: Final = "recvmsg:Connection reset by peer"
FIRST_FREE_PORT: Final = 40_000

FrameFilter = Callable[[str, str, bytes], list[bytes]]


class Host:
    """One machine: at most one process of ours at a time."""

    def __init__(self) -> None:
        self.loop: ProcessLoop | None = None
        self.is_up = True
        """Its kernel answers; false after a power cut."""
        self.listeners: dict[int, Listener] = {}
        self.sockets: dict[int, Socket] = {}
        """The ends of connections of the process, by the connection's number."""

    @property
    def is_frozen(self) -> bool:
        """True when the kernel answers but the process does not."""
        return self.loop is not None and self.loop.is_paused


class Network:
    """All hosts of one world."""

    def __init__(
        self,
        scheduler: Scheduler,
        random: Random,
        delay: tuple[float, float],
        trace: Callable[[str], None],
    ) -> None:
        self.scheduler = scheduler
        self.random = random
        self.trace = trace
        self.counts: Counter[str] = Counter()
        self.delivered = 0
        """Messages that reached a process."""
        self.on_link_frame: FrameFilter | None = None
        """Replaces each frame of a Raft link by the frames that are sent instead, without sizes."""
        self._delay = delay
        self._hosts: dict[str, Host] = {}
        self.paths: dict[tuple[str, str], Path] = {}
        self._links: dict[tuple[str, str], list[StreamEnd]] = {}
        """The diallers' ends of Raft links in the order of their start, by dialler, listener."""
        self._next_number = 1

    def host(self, name: str) -> Host:
        """Return a host, made at first use."""
        found = self._hosts.get(name)
        if found is None:
            found = self._hosts[name] = Host()
        return found

    def path(self, source: str, target: str) -> Path:
        """Return one direction between two hosts, made at first use."""
        found = self.paths.get((source, target))
        if found is None:
            found = Path(self, source, target, self._delay, self.random.getrandbits(64))
            self.paths[source, target] = found
        return found

    # Processes.

    def process_started(self, host: str, loop: ProcessLoop) -> None:
        """Let a new process use the network."""
        machine = self.host(host)
        assert not machine.sockets, f"the process before on {host} was not ended"
        machine.loop, machine.is_up = loop, True
        loop.network = self
        machine.listeners = {}

    def process_ended(self, host: str, *, silent: bool) -> None:
        """End a dead process's connections; `silent` (power cut): peers learn by keepalive."""
        machine = self.host(host)
        sockets, machine.sockets = machine.sockets, {}
        machine.loop, machine.is_up, machine.listeners = None, not silent, {}
        for socket in sockets.values():
            socket.is_open = False
            if silent:
                socket.peer.is_severed = True
                self._watch(socket.peer)
            elif self.random.random() < 0.5:
                # What the process had sent still arrives, and the reset behind it.
                self._close_peer(socket)
            else:
                socket.peer.is_severed = True
                self._tell_reset(socket.peer, self.random.uniform(0.0, RESET_NOTICE_MAX))

    def process_paused(self, host: str) -> None:
        """Let the peers' keepalive notice that a process does not answer."""
        for socket in self.host(host).sockets.values():
            self._watch(socket.peer)

    def process_resumed(self, host: str) -> None:
        """End what `process_paused` began."""
        self.process_paused(host)

    def _close_peer(self, socket: Socket) -> None:
        """Let the peer read the connection's end, after all that was sent to it before."""
        socket.is_answered = True
        socket.out.carry(socket.peer.control, CLOSE, None, 0)
        self._watch(socket.peer)

    def _tell_reset(self, socket: Socket, delay: float) -> None:
        if socket.peer.out.is_open:
            self.scheduler.after(delay, socket.lose_soon, RESET_REASON)
        else:
            self._watch(socket)  # the reset is lost with all else

    def answer_stranger(self, socket: Socket) -> None:
        """Something came for an end that is closed: its kernel resets the connection."""
        if socket.is_answered or not socket.peer.is_open or not self.host(socket.host).is_up:
            return
        if not socket.peer.is_severed:
            self._close_peer(socket)
        elif socket.out.is_open:
            socket.is_answered = True
            self._tell_reset(socket.peer, socket.out.draw_delay())

    # Connections.

    def listen(self, loop: ProcessLoop, port: int, server: Listener) -> int:
        """Take a port of a host, 0: a free one; return it, 0 when it is taken."""
        host = self.host(loop.host)
        assert host.loop is loop, f"{loop.host} runs another process"
        listeners = host.listeners
        if not port:
            port = FIRST_FREE_PORT
            while port in listeners:
                port += 1
        elif port in listeners:
            return 0
        listeners[port] = server
        return port

    def unlisten(self, loop: ProcessLoop, port: int) -> None:
        """Give a port back."""
        self.host(loop.host).listeners.pop(port, None)

    def connect(
        self, loop: ProcessLoop, owner: SocketOwner, options: Options, server: Listener
    ) -> Socket:
        """Make a connection to a server; return the dialler's end."""
        there = server.loop
        number = self._next_number
        self._next_number += 1
        near = Socket(self, number, loop, self.path(loop.host, there.host), owner, options)
        far = Socket(self, number, there, self.path(there.host, loop.host), server, server.options)
        near.is_dialler = True
        near.peer, far.peer = far, near
        near.control.peer, far.control.peer = far.control, near.control
        # A connection of a host to itself has both of its ends there: they have two numbers.
        self.host(loop.host).sockets[number << 1] = near
        self.host(there.host).sockets[number << 1 | 1] = far
        server.accepted(far)
        return near

    async def dial(
        self, loop: ProcessLoop, factory: Callable[[], P], host: str, port: int
    ) -> tuple[asyncio.Transport, P]:
        """Connect to a port without gRPC; see `plain.connect`."""
        return await connect(self, loop, factory, host, port)

    def serve(
        self, loop: ProcessLoop, factory: Callable[[], asyncio.BaseProtocol], port: int
    ) -> PlainServer:
        """Take connections without gRPC; OSError when the port is taken."""
        return PlainServer(self, loop, factory, port)

    def forget(self, socket: Socket) -> None:
        """Take a closed end off its host."""
        key = socket.number << 1 | (not socket.is_dialler)
        self.host(socket.host).sockets.pop(key, None)
        if socket.keepalive_check is not None:
            socket.keepalive_check.cancel()

    # Keepalive.

    def _watch(self, socket: Socket) -> None:
        """Begin or end the time until this end's keepalive gives up."""
        answered = self._is_answered(socket)
        check = socket.keepalive_check
        if answered and check is not None:
            check.cancel()
            socket.keepalive_check = None
        elif not answered and check is None and socket.is_open and socket.options.keepalive:
            self._expect_silence(socket)

    def _expect_silence(self, socket: Socket) -> None:
        options = socket.options
        wait = self.random.uniform(0.0, options.keepalive) + options.keepalive_timeout
        if options.by_kernel and any(end.outstanding for end in socket.streams.values()):
            wait = options.keepalive_timeout  # of sent data without a receipt (TCP_USER_TIMEOUT)
        socket.keepalive_check = self.scheduler.after(wait, self._give_up, socket)

    def _is_answered(self, socket: Socket) -> bool:
        if socket.out.cut or socket.peer.out.cut or not socket.peer.is_open:
            return False
        return socket.options.by_kernel or not self.host(socket.peer.host).is_frozen

    def _give_up(self, socket: Socket) -> None:
        socket.keepalive_check = None
        if not socket.is_open:
            return
        options = socket.options
        if not options.by_kernel and (
            socket.loop.is_paused or not (socket.streams or options.pings_without_calls)
        ):
            self._expect_silence(socket)  # no pings without calls
            return
        self.trace(f"keepalive {socket.host} {socket.peer.host} missed")
        self.counts["keepalive"] += 1
        socket.lose_soon("keepalive watchdog timeout")

    def _watch_pair(self, one: str, other: str) -> None:
        for socket in list(self.host(one).sockets.values()):
            if socket.peer.host == other:
                self._watch(socket)
        for socket in list(self.host(other).sockets.values()):
            if socket.peer.host == one:
                self._watch(socket)

    # Frames of Raft links.

    def link_opened(self, end: StreamEnd) -> None:
        """Remember the dialler's end of a Raft link. From here on weather spoils what it sends."""
        end.carries_frames = True
        pair = end.socket.host, end.socket.peer.host
        self._links[pair] = [each for each in self._links.get(pair, ()) if not each.is_closed]
        self._links[pair].append(end)

    def send_frame(self, end: StreamEnd, frame: bytes) -> None:
        """Send a frame of a Raft link, or what the filter makes of it."""
        path = end.socket.out
        if self.on_link_frame is None:
            path.carry_frame(end.peer, frame)
            return
        for each in self.on_link_frame(path.source, path.target, frame[SIZE.size :]):
            path.carry_frame(end.peer, SIZE.pack(len(each)) + each)

    def inject(self, source: str, target: str, frame: bytes) -> None:
        """Deliver a frame on the newest link of this direction, past all faults, if it stands."""
        for end in reversed(self._links.get((source, target), ())):
            if end.stands and end.peer.stands:
                data = SIZE.pack(len(frame)) + frame
                end.peer.socket.loop.call_soon(end.peer.take, MESSAGE, data, 0)
                return

    # Faults.

    def cut(self, source: str, target: str) -> None:
        """Let one direction lose everything; keepalive notices after a while."""
        self.path(source, target).cut = True
        self._watch_pair(source, target)

    def heal(self, source: str, target: str) -> None:
        """End a cut."""
        self.path(source, target).heal()
        self._watch_pair(source, target)
        for socket in list(self.host(source).sockets.values()):
            if socket.peer.host == target and socket.options.by_kernel and not socket.peer.is_open:
                self.answer_stranger(socket.peer)  # TCP sends again what nobody has confirmed

    def hold(self, source: str, target: str) -> None:
        """Keep back what is sent in one direction from now on."""
        self.path(source, target).hold = True

    def release(self, source: str, target: str) -> None:
        """Deliver what was kept back, in order, where the connection still stands."""
        self.path(source, target).release()

    def break_connections(self, source: str, target: str) -> None:
        """Reset every connection that one host dialled to another: what is under way is lost."""
        for socket in list(self.host(source).sockets.values()):
            if socket.is_dialler and socket.peer.host == target and not socket.is_severed:
                self.counts["broken"] += 1
                for end in (socket, socket.peer):
                    end.is_severed = True
                    delay = self.random.uniform(0.0, BREAK_NOTICE_MAX)
                    self.scheduler.after(delay, end.lose_soon, RESET_REASON)

    def quiet(self) -> None:
        """End loss, repetition and reordering on all paths."""
        for path in self.paths.values():
            path.calm()

    def heal_all(self) -> None:
        """End every fault of the network."""
        for (source, target), path in self.paths.items():
            path.calm()
            if path.cut:
                self.heal(source, target)
            if path.hold:
                path.release()
