"""The judge of the strict-order run: what it must find, and what it must let pass."""

import pytest

from tests.compose.strict_order import Found, Message, Place, Traffic, Verdict, judge

GOOD: list[Found] = [
    (Place(0, 0), Message("a", 0)),
    (Place(1, 0), Message("b", 0)),
    (Place(0, 1), Message("a", 1)),
    (Place(0, 2), Message("c", 0)),
    (Place(0, 3), Message("a", 2)),
]
TOLD = {message: place for place, message in GOOD}
NOTHING = Verdict((), (), (), (), ())


def test_what_is_as_acknowledged_is_good() -> None:
    assert judge(TOLD, GOOD) == NOTHING
    assert judge({}, GOOD).is_good, "what was stored and not acknowledged is no fault"


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (GOOD[:4], {"lost": (Message("a", 2),)}),
        ([*GOOD, (Place(0, 4), Message("a", 2))], {"repeated": (Message("a", 2),)}),
        (
            [*GOOD[:4], (Place(0, 3), Message("x", 0)), (Place(0, 4), Message("a", 2))],
            {"elsewhere": (Message("a", 2),)},
        ),
        (
            [*GOOD, (Place(0, 4), Message("d", 1)), (Place(0, 5), Message("d", 0))],
            {"reordered": (Message("d", 0),)},
        ),
        ([*GOOD, (Place(1, 1), Message("a", 3))], {"reordered": (Message("a", 3),)}),
        ([*GOOD, (Place(0, 5), Message("a", 3))], {"holes": (Place(0, 5),)}),
    ],
    ids=["lost", "repeated", "elsewhere", "reordered", "in another queue", "a hole"],
)
def test_each_fault_is_named_and_no_other(found: list[Found], wrong: dict[str, object]) -> None:
    verdict = judge(TOLD, found)
    assert not verdict.is_good
    assert {name: getattr(verdict, name) for name in wrong} == wrong
    assert all(
        getattr(verdict, name) == () for name in NOTHING.__dataclass_fields__ if name not in wrong
    )


def test_the_longest_silence_is_measured_from_the_last_acknowledgement_before() -> None:
    traffic = Traffic(times=[1.0, 2.0, 2.5, 6.0, 6.1])
    assert traffic.longest_silence(3.0) == 3.5
    assert traffic.longest_silence(2.0) == 3.5
    assert traffic.longest_silence(6.0) == pytest.approx(0.1)
    assert traffic.longest_silence(7.0) == 0.0
