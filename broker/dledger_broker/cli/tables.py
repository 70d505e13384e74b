"""Tables for people: one row per line, or rows side by side where a table is too wide.

Owns the layout. No width loses a column, a row or a part of a cell:
- what fits the terminal is a table, a row to a line;
- where it fits once its longest texts are folded, those are folded;
- else each row becomes a column, as many side by side as fit, its fields one below the other.
What is no terminal has no width: there each row is one line.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from dledger_proto.names import printable

GAP: Final = 2
"""Spaces between two columns."""
FOLD_WIDTH_MIN: Final = 16
"""A text is not folded to less than this."""
SIDE_WIDTH_MAX: Final = 40
"""Of one of several rows that stand side by side."""

Row = Mapping[str, object]


class Rows:
    """Rows with these columns, and a title unless it is empty; rich prints it."""

    def __init__(self, rows: Sequence[Row], columns: Sequence[str], title: str = "") -> None:
        self._title = printable(title)
        self._names = list(columns)
        self._heads = [column.replace("_", " ") for column in columns]
        self._cells = [[printable(cell(row.get(name, ""))) for name in columns] for row in rows]
        self._numeric = [
            any(isinstance(row.get(name), (int, float)) for row in rows) for name in columns
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield what rich prints, within the width that there is."""
        if self._title:
            yield Text(self._title, "italic", no_wrap=True, overflow="fold")
        widths = [
            max(map(cell_len, column)) for column in zip(self._heads, *self._cells, strict=True)
        ]
        folds = [
            width > FOLD_WIDTH_MIN and not numeric
            for width, numeric in zip(widths, self._numeric, strict=True)
        ]
        if not console.is_terminal:
            yield self._table([False] * len(widths))
            return
        least = [
            max(cell_len(head), FOLD_WIDTH_MIN) if fold else width
            for head, width, fold in zip(self._heads, widths, folds, strict=True)
        ]
        if sum(least) + GAP * (len(least) - 1) <= options.max_width:
            yield self._table(folds)
        else:
            yield from self._side_by_side(options.max_width)

    def _table(self, folds: Sequence[bool]) -> Table:
        table = _plain_table(show_header=True)
        for head, numeric, fold in zip(self._heads, self._numeric, folds, strict=True):
            table.add_column(
                head,
                justify="right" if numeric else "left",
                overflow="fold",
                no_wrap=not fold,
                min_width=FOLD_WIDTH_MIN if fold else None,
            )
        for cells in self._cells:
            table.add_row(*map(Text, cells))  # in a str rich reads "[fd00::1]:1" as markup
        return table

    def _side_by_side(self, width: int) -> Iterator[Table | str]:
        label_width = max(map(cell_len, self._heads))
        left = list(self._cells)
        while left:
            count, used = 0, label_width
            for cells in left:
                used += GAP + min(max(map(cell_len, cells)), SIDE_WIDTH_MAX)
                if count and used > width:
                    break
                count += 1
            block, left = left[:count], left[count:]
            table = _plain_table(show_header=False)
            table.add_column(no_wrap=True, style="bold")
            for cells in block:
                longest = max(map(cell_len, cells))
                table.add_column(
                    overflow="fold", max_width=SIDE_WIDTH_MAX if count > 1 else None,
                    no_wrap=longest <= SIDE_WIDTH_MAX and count > 1,
                )  # fmt: skip
            for head, *values in zip(self._heads, *block, strict=True):
                table.add_row(head, *map(Text, values))
            yield table
            if left:
                yield ""


def _plain_table(*, show_header: bool) -> Table:
    return Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=show_header)


def cell(value: object) -> str:
    """Return a value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, list):
        return ", ".join(str(item) for item in cast("list[object]", value))
    return str(value)
