"""How many deaths of a member its faults explain, and of which of its lives."""

from collections.abc import Callable

import pytest

from jepsen_tests.history import NEMESIS, Kind
from tests.unit.jepsen.member_anomalies import status
from tests.unit.jepsen.stories import Story, judged


def died(story: Story, node: str = "n1", err: str = "exit 70") -> Story:
    story.row(NEMESIS, Kind.OK, "died", node, err=err)
    return story


def heal(story: Story) -> Story:
    return story.fault("heal", "")


def flipped(story: Story) -> Story:
    return story.fault("bit-flips", "n1, state 3 bits flipped")


def found(story: Story) -> Story:
    return died(story, err="exit 65, life 2")


STORIES: dict[str, tuple[int, Callable[[], Story]]] = {
    "no fault at all": (1, lambda: died(Story())),
    "a fault that ends nobody": (1, lambda: died(Story().fault("isolate"))),
    "a fault of another": (1, lambda: died(Story().fault("full-disk", "n2"))),
    "a fault that came later": (1, lambda: died(Story()).fault("full-disk")),
    "a sync fails once": (0, lambda: died(Story().fault("failing-sync"))),
    "and not again": (1, lambda: died(died(Story().fault("failing-sync")))),
    "nor once healed": (1, lambda: died(heal(died(Story().fault("failing-sync"))))),
    "two syncs fail": (
        0,
        lambda: died(heal(died(Story().fault("failing-sync"))).fault("failing-sync")),
    ),
    "each life while a disk is full": (0, lambda: died(died(died(Story().fault("full-disk"))))),
    "a sync that fails serves when the disk is full no longer": (
        0,
        lambda: died(heal(died(Story().fault("failing-sync").fault("full-disk")))),
    ),
    "one more when it has room": (0, lambda: died(heal(died(Story().fault("full-disk"))))),
    "but no other life": (2, lambda: died(died(died(heal(Story().fault("full-disk")))))),
    "a life that a kill began": (1, lambda: died(heal(Story().fault("full-disk")).fault("kill"))),
    "a kill of another begins none": (
        0,
        lambda: died(heal(Story().fault("full-disk")).fault("kill", "n2")),
    ),
    "nor one of another while it was slow": (
        0,
        lambda: died(
            heal(Story().fault("full-disk")).fault("kill-while-slow", "n2 killed, n1 slow")
        ),
    ),
    "damage is found once": (0, lambda: died(heal(flipped(Story())))),
    "and not twice": (1, lambda: died(heal(died(heal(flipped(Story())))))),
    "a folder hurt twice": (0, lambda: died(heal(died(heal(flipped(flipped(Story()))))))),
    "is not found damaged thrice": (
        1,
        lambda: died(died(died(heal(flipped(flipped(Story())))))),
    ),
    "all damage is gone with the folder": (
        1,
        lambda: died(died(heal(flipped(flipped(Story()))), err="exit 65, life 2")),
    ),
    "who is started in a damaged folder again and again finds it again": (
        0,
        lambda: found(found(found(flipped(Story()).fault("crash-loop")))),
    ),
    "but only until it is healed": (1, lambda: found(heal(found(flipped(Story()))))),
    "or examined": (1, lambda: found(found(flipped(Story())).fault("examine"))),
    "and only damage": (1, lambda: died(found(flipped(Story()).fault("crash-loop")))),
    "nor does a sync that failed explain what is found": (
        1,
        lambda: found(found(Story().fault("failing-sync"))),
    ),
    "who finds damage that nobody did": (2, lambda: found(found(Story().fault("crash-loop")))),
    "damage that comes later is not": (
        0,
        lambda: died(flipped(died(heal(flipped(Story())), err="exit 65"))),
    ),
    "damage waits while the disk is full": (
        0,
        lambda: died(
            died(Story().on("n1", "status", status()).fault("full-disk").fault("deletion", "n1"))
        ),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_fault_excuses_what_it_explains(name: str) -> None:
    count, story = STORIES[name]
    assert judged(story().history())["C18"].count == count
