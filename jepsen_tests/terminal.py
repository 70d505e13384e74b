"""A console on which what histories, clusters and tools say commands no terminal.

Owns that every character that is not printable, but the end of a line, is shown as an escape,
whoever prints it; the console's own colours and cursor movements stay. Markup is another matter:
texts of others are printed as `Text`, or with `markup=False`.
"""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from dledger_proto.names import printable


def visible(text: str) -> str:
    """Return lines with all that is not printable as escapes."""
    return "\n".join(map(printable, text.split("\n")))


class Terminal(Console):
    """A console that shows what others would let it do."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """See `Console`."""
        for segment in super().render(renderable, options):
            own = segment.control or segment.text.isprintable()
            yield segment if own else segment._replace(text=visible(segment.text))
