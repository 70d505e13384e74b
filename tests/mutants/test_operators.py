"""The small changes of a source: which there are, what they compile to, and what says so."""

import json

from tests.mutants.mutation import NOT_JUDGED, SURVIVORS, VERDICTS
from tests.mutants.operators import changes_of, compiled

SOURCE = """
class Box:
    def put(self, size: int, room: int) -> int:
        if size < 0 or not self.fits(size):
            return -1
        assert room >= size
        return max(room - size, 0)

    @staticmethod
    def fits(size):
        return size <= 10
"""


def test_conditions_bounds_and_choices_are_changed() -> None:
    """Assertions are not; of `or` the whole is True, and each operand False."""
    assert [change.name for change in changes_of(SOURCE)] == [
        "Box.put: size < 0 or not self.fits(size) -> True",
        "Box.put: size < 0 -> size <= 0",
        "Box.put: size < 0 -> False",
        "Box.put: not self.fits(size) -> False",
        "Box.put: max(room - size, 0) -> room - size",
        "Box.put: max(room - size, 0) -> 0",
        "Box.fits: size <= 10 -> size < 10",
        "Box.fits: size <= 10 -> True",
        "Box.fits: size <= 10 -> False",
    ]


def test_a_changed_function_does_what_its_name_says() -> None:
    """The code of one function is exchanged; the rest of the module stays."""
    space: dict[str, type] = {}
    exec(compile(SOURCE, "box.py", "exec"), space)
    box = space["Box"]()
    change = next(each for each in changes_of(SOURCE) if each.name.endswith("size < 10"))
    code = compiled(SOURCE, "box.py", change)[("Box.fits", 9)]
    assert box.put(10, 12) == 2
    space["Box"].fits.__code__ = code  # type: ignore[attr-defined]
    assert box.put(10, 12) == -1
    assert box.put(9, 12) == 3


def test_every_survivor_has_one_verdict() -> None:
    """With a reason, unless nobody has judged it yet. `make mutation` tells which are gone."""
    rows = json.loads(SURVIVORS.read_text())
    assert [row["key"] for row in rows if row["verdict"] not in VERDICTS] == []
    assert [
        row["key"] for row in rows if bool(row["reason"]) == (row["verdict"] == NOT_JUDGED)
    ] == []
    assert len({row["key"] for row in rows}) == len(rows)
