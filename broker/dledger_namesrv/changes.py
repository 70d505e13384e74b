"""What changed since when: the base of deltas for watchers. Pure.

Instead of a queue per watcher, the table remembers for each key the version of its last change.
A watcher is one number. A slow watcher sees each key once, with its newest value. A watcher that is
too far behind gets a new snapshot. So a watcher that stops reading costs nothing.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

DELTA_KEYS_MAX: Final = 5_000
"""A delta of more keys is not worth computing for each watcher: a shared snapshot is cheaper."""


class ChangeLog(Generic[Key]):
    """Keys in the order of their last change, each with its version."""

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._versions: OrderedDict[Key, int] = OrderedDict()
        self._version = 0
        self._forgotten = 0

    @property
    def version(self) -> int:
        """Grows by one with every change."""
        return self._version

    def mark(self, key: Key) -> None:
        """Note that the key changed, or is gone."""
        self._version += 1
        self._versions[key] = self._version
        self._versions.move_to_end(key)
        if len(self._versions) > self._keys_max:
            _, self._forgotten = self._versions.popitem(last=False)

    def forget(self, key: Key) -> None:
        """Drop a key that no later delta may name."""
        self._versions.pop(key, None)

    def since(self, version: int) -> list[Key] | None:
        """Return the keys changed after `version`, oldest change first; None: too far behind."""
        if version < self._forgotten:
            return None
        found: list[Key] = []
        for key in reversed(self._versions):
            if self._versions[key] <= version:
                break
            found.append(key)
            if len(found) > DELTA_KEYS_MAX:
                return None
        found.reverse()
        return found
