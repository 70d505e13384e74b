"""What the model of a log adds about delivery: consumer groups of each order, delayed messages."""

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from tests.unit.jepsen.stories import MS, Story

if TYPE_CHECKING:
    from tests.unit.jepsen.model import World

ORDERS = ("concurrent", "queue", "key")
RETRIES_MAX = 2
DELAYED = 3
"""Messages of each kind: delivered later, and taken back."""
SENDER, CALLER, LOOKER = 81, 82, 83
WAIT_MS = 11_000


def delay_some(world: "World") -> None:
    """Send messages that are delivered later, and take some back."""
    story = world.story
    for _ in range(2 * DELAYED):
        world.values += 1
        value, place = f"{SENDER}-{world.values}", world.random.choice(list(world.logs))
        story.op(SENDER, "delay", place, [value], story.now + world.random.randrange(9) * MS)
        if world.random.random() < 0.5:
            story.op(SENDER, "recall", place, value)
        else:
            world._append(place, [value])
    story.wait(WAIT_MS)


@dataclass
class Consuming:
    """One consumer group that finishes with two queues of the log."""

    world: "World"
    order: str
    retries: int = 0
    """Offsets of the retry topic that were used."""
    letters: list[list[Any]] = field(default_factory=list[list[Any]])
    epoch: int = 3

    @property
    def group(self) -> str:
        """Its name."""
        return f"group-{self.order}"

    @property
    def _random(self) -> Random:
        return self.world.random

    @property
    def _story(self) -> Story:
        return self.world.story

    def run(self) -> None:
        """Consume, then send the dead letters again."""
        places = self._random.sample(list(self.world.logs), 2)
        for place in places:
            self._consume(place)
        self._story.op(LOOKER, "letters", self.group, result=self.letters)
        dead, self.letters = self.letters, []
        self._story.op(LOOKER, "letters-resent", self.group, result=len(dead))
        for place, offset, *_ in dead:
            self._call(place, offset, 0, self._in_retries(), "done")
        ends = {place: len(self.world.logs[place]) for place in places}
        self._story.op(LOOKER, "caught-up", self.group, result=ends)
        self._story.op(LOOKER, "letters", self.group, result=self.letters)

    def _consume(self, place: str) -> None:
        end, offset = len(self.world.logs[place]), self.world.minimum[place]
        floor = offset
        attempts: dict[int, int] = {}
        """Of the records that failed, until nobody calls for them in their place any more."""
        while offset < end:
            if attempts.get(offset, 0) >= 0:
                self._record(place, offset, attempts)
            offset += 1
            if self._random.random() < 0.3:
                floor = offset
                self._story.op(LOOKER, "floors", self.group, result={place: floor})
            if self._random.random() < 0.1:  # another consumer begins at the floor
                self.epoch += 1
                offset = self._random.randint(floor, offset)

    def _record(self, place: str, offset: int, attempts: dict[int, int]) -> None:
        """Call for a record until the group has finished with it."""
        number, read = attempts.get(offset, 0), [place, offset]
        while True:
            chance = self._random.random()
            if chance < 0.05:
                self._call(place, offset, number, read, "")  # it comes again
                continue
            said = "done" if chance < 0.8 else "failed"
            if said == "failed" and number == RETRIES_MAX:
                said = "dead"
            self._call(place, offset, number, read, said)
            number += said != "done"
            if said == "dead":
                self.letters.append([place, offset, number, 0])
            if said == "dead" or (said == "failed" and self.order == "concurrent"):
                attempts[offset] = -1
            elif said == "failed":
                attempts[offset] = number
            if said != "failed":
                return
            if self.order == "concurrent":
                read = self._in_retries()

    def _in_retries(self) -> list[Any]:
        self.retries += 1
        return [f"%RETRY%{self.group}/0", self.retries]

    def _call(self, place: str, offset: int, attempts: int, read: list[Any], said: str) -> None:
        self._story.handle(
            CALLER, self.group, place, offset, self.world.logs[place][offset], said,
            order=self.order, epoch=self.epoch, attempts=attempts, read=read,
        )  # fmt: skip
