"""Members that end by themselves and may: the list of stories in which there is nothing to find."""

from collections.abc import Callable

from tests.unit.jepsen.member_anomalies import status
from tests.unit.jepsen.stories import Story

STORIES: list[Callable[[], Story]] = []


def legal(story: Callable[[], Story]) -> Callable[[], Story]:
    """Register a story in which there is nothing to find."""
    STORIES.append(story)
    return story


@legal
def a_member_ends_whose_disk_failed() -> Story:
    return Story().fault("failing-sync", "n2").died("n2", "exit 74").fault("heal", "")


@legal
def a_member_was_about_to_end_when_its_disk_was_healed() -> Story:
    # Somebody looks at each heal: this is found at the next one.
    story = Story().fault("hung-sync", "n2").fault("heal", "").fault("pause", "n1")
    return story.died("n2", "exit 74").fault("heal", "")


@legal
def a_member_ends_again_and_again_while_its_disk_is_full() -> Story:
    story = Story().fault("full-disk", "n2").died("n2", "exit 74").died("n2", "exit 74")
    return story.fault("heal", "").died("n2", "exit 74")


@legal
def a_member_finds_its_damage_late() -> Story:
    story = Story().on("n2", "status", status()).fault("stale-blocks", "n2, block at 0 is old")
    for _ in range(3):
        story.fault("heal", "").on("n2", "status", status()).fault("pause", "n1")
    return story.died("n2").fault("heal", "")


@legal
def a_member_that_never_told_its_incarnation_finds_its_damage() -> Story:
    story = Story().fault("deletion", "n2, meta deleted").fault("heal", "")
    story.on("n2", "status", status(incarnation=2)).on("n2", "status", status(incarnation=2))
    return story.died("n2")


@legal
def a_member_is_damaged_again_and_nobody_saw_its_folder_replaced() -> Story:
    story = Story().on("n2", "status", status()).fault("truncation", "n2").died("n2")
    story.fault("heal", "").fault("bit-flips", "n2, state 3 bits flipped").fault("heal", "")
    return story.on("n2", "status", status(incarnation=2)).died("n2")


@legal
def nor_that_it_was_found_damaged_when_it_was_healed() -> Story:
    story = Story().on("n2", "status", status()).fault("truncation", "n2")
    story.on("n2", "status", status()).fault("heal", "").fault("bit-flips", "n2").fault("heal", "")
    return story.on("n2", "status", status(incarnation=2)).died("n2")


@legal
def a_member_is_damaged_and_nobody_saw_that_it_was_wiped() -> Story:
    story = Story().on("n2", "status", status()).fault("wipe", "n2").fault("heal", "")
    story.fault("bit-flips", "n2, state 3 bits flipped").fault("heal", "")
    return story.on("n2", "status", status(incarnation=2)).died("n2")


@legal
def it_is_not_known_whose_disk_failed() -> Story:
    return Story().fault("full-disk", "").died("n3", "exit 74").fault("heal", "")
