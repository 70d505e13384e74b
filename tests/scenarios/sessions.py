"""A stage with a consumer group: its consumers, its oracle, and the verbs of scripts about them."""

from collections.abc import Sequence
from typing import Final

from dledger.state.consumers.settings import GroupSettings
from dledger.state.results import Result
from dledger.state.topics.commands import ImportTopic
from dledger.state.values import LayoutPart, Topic, TopicType
from dledger.types import Entry
from tests.scenarios.stage import Stage
from tests.sim.clients.group.session import SessionClient
from tests.sim.invariants.delivery.grants import Grants
from tests.sim.member.process import Process

GROUP_ID: Final = b"\xfebilling".ljust(16, b".")
SETTLES: Final = 30.0
SESSION_MS: Final = 1_000


class Sessions:
    """A group of members, a consumer group on it, and consumers."""

    def __init__(self, names: str = "abc", seed: int = 1, *, consumers: int = 2) -> None:
        self.stage = stage = Stage(names, seed)
        self.grants = Grants(GROUP_ID)
        observer = stage.group.observer
        tell = observer.applied

        def applied(
            process: Process, entry: Entry, results: Sequence[Result], digest: bytes
        ) -> None:
            tell(process, entry, results, digest)
            self.grants.applied(process.machine, int(entry.ref.index), list(results))

        observer.applied = applied  # type: ignore[method-assign,assignment]
        stage.formed()
        self.decide()
        self.clients = [
            SessionClient(stage, self.grants, f"s{number}", "billing")
            for number in range(consumers)
        ]

    def decide(self, index: int = 1_000, **settings: object) -> None:
        """Let the consumer group be as it is decided at this index of the control group."""
        chosen = GroupSettings("g", b"d" * 16, session_ms=SESSION_MS, **settings)  # type: ignore[arg-type]
        topic = Topic(
            GROUP_ID, "%RETRY%billing", TopicType.NORMAL, 1, (LayoutPart("g", 1),), 1, 1, 4, index,
            settings=(chosen,),
        )  # fmt: skip
        self.take_over(topic)

    def take_over(self, topic: Topic) -> None:
        """Let the leader take over a decision about a topic."""
        process = self.stage.members[self.stage.leader].process
        assert process is not None
        commands = process.runtime.view.commands
        done: list[object] = []

        async def propose() -> None:
            done.append(await commands.propose(ImportTopic(topic, b"c" * 16)))

        process.loop.run_now(lambda: process.loop.create_task(propose()))
        self.stage.run_until(lambda: bool(done), SETTLES, "a decision is taken over")

    def add(self, name: str, *, instance: str = "", topic: str = "t") -> SessionClient:
        """Add a consumer, which does not run yet."""
        client = SessionClient(
            self.stage, self.grants, name, "billing", instance=instance, topic=topic
        )
        self.clients.append(client)
        return client

    def start(self, *clients: SessionClient) -> "Sessions":
        """Let consumers join (by default all), and wait until all is dealt out."""
        for client in clients or self.clients:
            client.start()
        self.settle()
        return self

    def settle(self, limit: float = SETTLES) -> float:
        """Wait until every queue has one holder who runs; return how long that took."""
        return self.stage.run_until(self.is_settled, limit, "every queue has one holder")

    def is_settled(self) -> bool:
        """Tell whether every queue has one holder who runs and knows it."""
        running = {client.member_id for client in self.clients if client.runs}
        return self.grants.settled(running, self.queues)

    @property
    def queues(self) -> int:
        """How many queues there are, that of the retry topic included."""
        return len(self.stage.plan.queues) + 1

    def close(self) -> None:
        """End the consumers."""
        for client in self.clients:
            client.close()
        self.stage.close()
