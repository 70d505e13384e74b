"""A guard for calls that may raise: an error ends the group before callers see it (I16)."""

from collections.abc import Callable
from types import TracebackType


class FailStop:
    """Gives every error to `handle`, which returns True to swallow it, False to raise it."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Callable[[BaseException], bool]) -> None:
        self._handle = handle

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        return error is not None and self._handle(error)
