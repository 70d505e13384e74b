"""The push consumer. `push.py` is generated from this file by `client/generate_sync.py`.

Owns: what a user calls. Everything else is behind `PushEngine`.
"""

from collections.abc import Iterable
from typing import Self

from dledger_client._core.consumer.state import Place
from dledger_client._core.message_checks import check_group
from dledger_client._shell.group.calling import Listener
from dledger_client._shell.group.membership import subscriptions_of
from dledger_client._shell.group.push import PushEngine
from dledger_client._shell.runner import AsyncRunner
from dledger_client._shell.wire import parse_addresses
from dledger_client.config import PushConfig


class AsyncPushConsumer:
    """Calls a listener for each record of its group's topics, and commits what is done.

    ```
    async def bill(record):
        print(record.key, record.body)

    async with AsyncPushConsumer("127.0.0.1:9876", "billing", "orders", bill) as consumer:
        await consumer.run()
    ```

    The listener is a coroutine function, or a function, which runs in a thread. It gets a record,
    or a list of them (`PushConfig.batch_size`), and, if it takes two arguments, a `Delivery`. When
    it returns, the record is done. When it raises, the record has failed: the group delivers it
    again after a while, at last it goes to the dead letters. It may also return `Retry` or
    `DeadLetter`, of several records a list with one result for each.

    A listener may be called twice for one record, after a crash or a change of the owner. So its
    effect should be the same when it is repeated.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        group: str,
        topics: str | Iterable[str],
        listener: Listener,
        config: PushConfig | None = None,
        *,
        patterns: str | Iterable[str] = (),
    ) -> None:
        check_group(group)
        self._engine = PushEngine(
            parse_addresses(bootstrap),
            group,
            subscriptions_of(topics, patterns),
            listener,
            config or PushConfig(),
        )
        self._runner = AsyncRunner()

    async def start(self) -> Self:
        """Join the group and begin; `async with` does it. Returns itself."""
        await self._runner.run(self._engine.start())
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self) -> None:
        """Wait until the consumer is closed; raises why its group does not take it, if so."""
        await self._runner.run(self._engine.run())

    async def close(self) -> None:
        """Take no more records, finish those that the listener has, commit, leave the group.

        The listener may call it, too. Then it returns at once, and `run` when all that is done.
        """
        is_listener = self._engine.is_listener_here()
        await self._runner.run(self._engine.close(for_listener=is_listener))

    def assignment(self) -> list[Place]:
        """Return the (topic, queue) pairs that this consumer has."""
        return self._engine.places()
