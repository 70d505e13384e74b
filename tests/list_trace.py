"""A trace that keeps its events in a list."""


class ListTrace:
    """Keeps the newest events in memory."""

    def __init__(self, kept_max: int = 100_000) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []
        self._kept_max = kept_max

    def event(self, name: str, **fields: object) -> None:
        """See `Trace.event`."""
        if len(self.events) >= self._kept_max:
            del self.events[: self._kept_max // 2]
        self.events.append((name, fields))

    def named(self, name: str) -> list[dict[str, object]]:
        """Return the fields of every kept event of one name, oldest first."""
        return [fields for other, fields in self.events if other == name]
