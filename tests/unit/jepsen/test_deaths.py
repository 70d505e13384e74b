"""How many deaths of a member its faults explain, and of which of its lives."""

from collections.abc import Callable

import pytest

from jepsen_tests.history.events import BROKEN_OFF, NEMESIS, Kind
from tests.unit.jepsen.member_anomalies import status
from tests.unit.jepsen.stories import Story, judged


def failed(story: Story, how: str = "exit 74, life 1") -> Story:
    """It ends as a storage that fails ends it, and no folder is set aside."""
    return story.died("n1", how)


def died(story: Story) -> Story:
    """It ends as nothing should end it."""
    return failed(story, "exit 70, life 1")


def examined(story: Story, told: str = "n1 sound") -> Story:
    return story.fault("examine", told)


def broken_off(story: Story) -> Story:
    story.row(NEMESIS, Kind.INVOKE, "stale-blocks")
    story.row(NEMESIS, Kind.OK, "stale-blocks", "n1", err=f"{BROKEN_OFF}data.mdb did not change")
    return story


def heal(story: Story) -> Story:
    return story.fault("heal", "")


def flipped(story: Story) -> Story:
    return story.fault("bit-flips", "n1, state 3 bits flipped")


def found(story: Story) -> Story:
    return failed(story, "exit 65, life 2")


def found_between() -> Story:
    """Damage is found while the next fault has begun and not damaged anything yet."""
    story = flipped(Story())
    story.row(NEMESIS, Kind.INVOKE, "truncation")
    found(story)
    story.row(NEMESIS, Kind.OK, "truncation", "n1, state/mark cut to 26 bytes")
    return found(heal(story))


STORIES: dict[str, tuple[int, Callable[[], Story]]] = {
    "no fault at all": (1, lambda: failed(Story())),
    "a fault that ends nobody": (1, lambda: failed(Story().fault("isolate"))),
    "a fault of another": (1, lambda: failed(Story().fault("full-disk", "n2"))),
    "a fault that came later": (1, lambda: failed(Story()).fault("full-disk")),
    "a sync fails once": (0, lambda: failed(Story().fault("failing-sync"))),
    "and not again": (1, lambda: failed(failed(Story().fault("failing-sync")))),
    "nor once healed": (1, lambda: failed(heal(failed(Story().fault("failing-sync"))))),
    "and says so": (1, lambda: died(Story().fault("failing-sync"))),
    "a full disk is no damage": (1, lambda: found(Story().fault("full-disk"))),
    "too little memory": (0, lambda: failed(Story().fault("starve"), "exit -9, life 1")),
    "is not too little disk": (1, lambda: failed(Story().fault("starve"))),
    "a power cut ends nobody": (1, lambda: failed(Story().fault("power-cut"))),
    "nor is there damage after it": (1, lambda: found(heal(Story().fault("power-cut")))),
    "or after another's": (
        1,
        lambda: found(heal(Story().fault("next-quorum", "n2 late, n1 forgot, n3 knew"))),
    ),
    "or where it was wiped": (
        1,
        lambda: found(heal(Story().fault("next-quorum-wiped", "n2 late, n1 forgot, n3 knew"))),
    ),
    "syncs that fail before one": (0, lambda: failed(Story().fault("power-cut-before-sync"))),
    "two syncs fail": (
        0,
        lambda: failed(heal(failed(Story().fault("failing-sync"))).fault("failing-sync")),
    ),
    "each life while a disk is full": (0, lambda: failed(failed(Story().fault("full-disk")))),
    "a sync that fails serves when the disk is full no longer": (
        0,
        lambda: failed(heal(failed(Story().fault("failing-sync").fault("full-disk")))),
    ),
    "one more when it has room": (0, lambda: failed(heal(failed(Story().fault("full-disk"))))),
    "but no other life": (2, lambda: failed(failed(failed(heal(Story().fault("full-disk")))))),
    "a life that a kill began": (1, lambda: failed(heal(Story().fault("full-disk")).fault("kill"))),
    "a kill of another begins none": (
        0,
        lambda: failed(heal(Story().fault("full-disk")).fault("kill", "n2")),
    ),
    "nor one of another while it was slow": (
        0,
        lambda: failed(
            heal(Story().fault("full-disk")).fault("kill-while-slow", "n2 killed, n1 slow")
        ),
    ),
    "damage is found once": (0, lambda: failed(heal(flipped(Story())))),
    "and told as what it is": (1, lambda: died(heal(flipped(Story())))),
    "and not twice": (1, lambda: failed(heal(failed(heal(flipped(Story())))))),
    "a folder hurt twice": (0, lambda: failed(heal(failed(heal(flipped(flipped(Story()))))))),
    "is not found damaged thrice": (
        1,
        lambda: failed(failed(failed(heal(flipped(flipped(Story())))))),
    ),
    "all damage is gone with the folder": (
        1,
        lambda: failed(failed(heal(flipped(flipped(Story()))), "exit 65, life 2")),
    ),
    "who is started in a damaged folder again and again finds it again": (
        0,
        lambda: found(found(found(flipped(Story()).fault("crash-loop")))),
    ),
    "but only until it is healed": (1, lambda: found(heal(found(flipped(Story()))))),
    "or repaired where nothing is healed any more": (
        2,
        lambda: found(found(examined(found(flipped(heal(Story()))), "n1 repaired"))),
    ),
    "or examined": (1, lambda: found(examined(found(flipped(Story())), "n1"))),
    "damage that is examined and not found": (1, lambda: found(examined(flipped(Story())))),
    "nor when it is mended": (1, lambda: found(examined(flipped(Story()), "n1 repaired"))),
    "an examination that was broken off": (0, lambda: found(examined(flipped(Story()), "n1"))),
    "damage after an examination": (0, lambda: found(flipped(examined(flipped(Story()))))),
    "an examination of another": (0, lambda: found(examined(flipped(Story()), "n2 sound"))),
    "damage that was never done": (1, lambda: found(broken_off(Story()))),
    "and only damage": (1, lambda: died(found(flipped(Story()).fault("crash-loop")))),
    "nor does a sync that failed explain what is found": (
        2,
        lambda: found(found(Story().fault("failing-sync"))),
    ),
    "who finds damage that nobody did": (2, lambda: found(found(Story().fault("crash-loop")))),
    "damage that comes later is not": (
        0,
        lambda: failed(flipped(failed(heal(flipped(Story())), "exit 65"))),
    ),
    "nor damage of a fault that was begun before": (0, found_between),
    "damage waits while the disk is full": (
        0,
        lambda: failed(
            failed(Story().on("n1", "status", status()).fault("full-disk").fault("deletion", "n1"))
        ),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_fault_excuses_what_it_explains(name: str) -> None:
    count, story = STORIES[name]
    assert judged(story().history())["C18"].count == count
