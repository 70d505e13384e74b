"""Views of a received buffer, and what they keep in memory.

A view keeps its whole buffer in memory, however little of the buffer it shows: one batch may keep a
frame of 16 MiB. Code that keeps views for longer than the work on their frame calls `compacted`.
Code that bounds memory counts `kept_bytes`, not the bytes that the views show.
"""

from collections.abc import Sequence
from typing import Final

SHOWN_SHARE_MIN: Final = 2
"""Views that are kept show together at least one in this many bytes of their buffer."""


def compacted(views: Sequence[memoryview]) -> list[memoryview]:
    """Return the views; a copy of each whose buffer all of them together show too little of.

    What they keep alive is then at most SHOWN_SHARE_MIN times what they show.
    """
    shown: dict[int, int] = {}
    for view in views:
        buffer = id(view.obj)
        shown[buffer] = shown.get(buffer, 0) + view.nbytes
    return [
        view
        if shown[id(view.obj)] * SHOWN_SHARE_MIN >= _buffer_bytes(view)
        else memoryview(bytes(view))
        for view in views
    ]


def kept_bytes(views: Sequence[memoryview]) -> int:
    """Return the size of what the views keep alive: each buffer once, and whole."""
    return sum({id(view.obj): _buffer_bytes(view) for view in views}.values())


def _buffer_bytes(view: memoryview) -> int:
    return memoryview(view.obj).nbytes
