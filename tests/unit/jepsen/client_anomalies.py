"""Every way in which clients do not get on, by hand."""

from jepsen_tests.history.events import Kind
from tests.unit.jepsen.anomalies import shows
from tests.unit.jepsen.stories import Story


def tried(story: Story, p: int, times: int, kind: Kind = Kind.FAIL, *, before: int = -1) -> Story:
    """Poll in vain, under another number after each unknown outcome, while process 2 gets on."""
    for number in range(times):
        story.invoke(p, "poll", before=before).end(p, kind=kind, err="UNAVAILABLE")
        if kind is Kind.INFO:
            before, p = p, p + 1
        else:
            before = -1
        if number % 2:
            story.poll(2)
    return story


@shows("hung")
def a_call_does_not_end() -> Story:
    story = Story().begin_send(1, "1-1").wait(25_000).send(2, "2-1", 0).phase("final")
    return story.final("2-1").send(2, "2-2", 1)


@shows("hung")
def a_call_ends_when_the_run_is_over() -> Story:
    story = Story().invoke(1, "poll").wait(25_000).end(
        1, kind=Kind.INFO, err="CANCELLED: the run is over"
    )  # fmt: skip
    return story.phase("final")


@shows("starved")
def a_client_fails_from_the_first_to_the_last_time() -> Story:
    return tried(Story().poll(2), 1, 12).phase("final")


@shows("starved")
def a_client_never_hears_what_became_of_its_calls() -> Story:
    return tried(Story().poll(2), 11, 12, Kind.INFO).phase("final")


@shows("shut-out")
def a_queue_takes_no_write_after_the_heal() -> Story:
    story = Story().send(1, "1-1", 0).fault("kill").fault("heal", "").lose(2, "2-1")
    return story.lose(3, "3-1").final("1-1")
