"""A console that shows control characters instead of obeying them.

Histories, clusters and tools may print anything. The console shows each character that is not
printable as an escape, except the end of a line. Its own colours and cursor movements stay. Callers
print texts of others as `Text` or with `markup=False`, so that these contain no markup.
"""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from dledger_proto.names import printable


def visible(text: str) -> str:
    """Return the text with escapes for all that is not printable but the ends of lines."""
    return "\n".join(map(printable, text.split("\n")))


class Terminal(Console):
    """A console that shows the control characters of others as escapes."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Escape what is not printable, but for the console's own sequences."""
        for segment in super().render(renderable, options):
            own = segment.control or segment.text.isprintable()
            yield segment if own else segment._replace(text=visible(segment.text))
