"""Where nobody looked, or too little happened, nothing is known: never that all is well."""

import pytest
from msgspec.structs import replace

from jepsen_tests.checkers import judge
from jepsen_tests.checkers.shared.judgement import Valid, merged
from jepsen_tests.history.events import NEMESIS, SKIPPED, Kind
from tests.unit.jepsen.anomalies import three_sent
from tests.unit.jepsen.member_anomalies import entries, status
from tests.unit.jepsen.stories import NODES, Story, judged, kinds_of, texts_of
from tests.unit.jepsen.test_legal import nothing_at_all


def looked_at() -> Story:
    """All that a final phase does, of members too."""
    story = three_sent().poll(2, (0, "1-1 1-2")).poll(2, (2, "1-3"))
    story.final("1-1 1-2 1-3", nodes=NODES).send(1, "1-4", 3)
    for node in NODES:
        story.on(node, "entries", entries([7]))
        story.on(node, "status", status("leader" if node == "n1" else "follower"))
    return story


USED = {"rss": 1000, "files": 10, "threads": 9}


def looked_at_but(functions: str, node: str = "") -> Story:
    """The same, but some operations were not done, at a member or at all."""
    story, whole = Story(), looked_at()
    gone = {
        row.p
        for row in whole.rows
        if row.f in functions.split() and (row.node == node or not node) and row.node
    }
    kept = [row for row in whole.rows if row.f not in functions.split() or row.p not in gone]
    for number, row in enumerate(kept, 1):
        row.i = number
    story.rows, story._t = kept, whole._t
    return story


def test_a_whole_good_history_is_valid() -> None:
    assert merged(judge(looked_at().history())) is Valid.YES
    assert merged(judge(nothing_at_all().history())) is Valid.UNKNOWN
    assert all(each.facts["looked_at"] == 0 for each in judge(nothing_at_all().history()))


def guessing(unknown: int, known: int) -> Story:
    """Enough is ok for what the workload asks, and more than half is unknown."""
    story = Story(least_ok={"send": [1, 0.1]})
    for number in range(unknown):
        story.lose(1, f"1-{number}")
    for number in range(known):
        story.send(2, f"2-{number}", number)
    return story


def faultless() -> Story:
    """A run that was to pause somebody, and never did."""
    story = Story().send(1, "1-1", 0)
    story.head = replace(story.head, nemeses=("pause",))
    story.row(NEMESIS, Kind.INVOKE, "pause")
    story.row(NEMESIS, Kind.INFO, "pause", err=f"{SKIPPED}nobody runs")
    return story


@pytest.mark.parametrize(
    "missing", [("drain", ""), ("drain", "n1"), ("entries", "n3"), ("status entries", "")]
)
def test_a_run_in_which_nobody_looked_is_not_valid(missing: tuple[str, str]) -> None:
    history = looked_at_but(*missing).history()
    assert kinds_of(history) == set(), texts_of(history)
    assert merged(judge(history)) is Valid.UNKNOWN


@pytest.mark.parametrize(("f", "verdict"), [("commit", Valid.UNKNOWN), ("poll", Valid.YES)])
def test_what_a_run_was_there_to_show_and_did_not_is_unknown(f: str, verdict: Valid) -> None:
    story = looked_at()
    story.head.notes["least_ok"] = {f: [0, 0.0]}
    assert merged(judge(story.history())) is verdict


def test_a_log_that_no_member_can_tell_is_no_flaw_of_the_run() -> None:
    story = looked_at_but("entries")
    for node in NODES:
        story.invoke(100 + int(node[1:]), "entries", node=node)
        story.end(
            100 + int(node[1:]),
            kind=Kind.FAIL,
            err="INVALID_ARGUMENT: more than 9 entries follow",
        )
    assert judged(story.history())["C15"].valid is Valid.UNKNOWN
    assert merged(judge(story.history())) is Valid.YES


@pytest.mark.parametrize(
    ("checker", "story", "why"),
    [
        ("C1", three_sent(), "there was no final phase"),
        ("C3", three_sent(), "there was no final phase"),
        ("C18", three_sent(), "there was no final phase"),
        (
            "C1",
            three_sent().poll(2, (0, "1-1 1-2 1-3")).phase("final"),
            "nobody read the places of",
        ),
        ("C18", three_sent().phase("final"), "nobody sent to t/0"),
        ("C18", three_sent().phase("final"), "nobody asked the members"),
        ("C1", looked_at_but("drain", "n3"), "there is no complete drain of n3"),
        ("C15", looked_at_but("entries", "n2"), "there was no log of n2 to compare"),
        ("C16", three_sent(), "there was nothing to look at"),
        ("C18", looked_at_but("status entries"), "nobody asked the members"),
        (
            "C20",
            Story().on("n1", "resources", USED).phase("final"),
            "nobody looked at the resources of n1",
        ),
        ("C20", Story().phase("final"), "there was nothing to look at"),
        ("C2", three_sent(), "nobody polled anything"),
        ("C14", three_sent(), "there was nothing to look at"),
        ("C17", three_sent(), "there was nothing to look at"),
        ("C19", Story(least_ok={"send": [5, 0.1]}).send(1, "1-1", 0), "only 1 of 1 send are ok"),
        ("C19", Story(least_ok={"send": [0, 0.9]}).lose(1, "1-1").send(2, "2-1", 0), "1 of 2 send"),
        ("C19", guessing(5, 4), "the outcomes of 5 of 9 operations are unknown"),
        ("C19", faultless(), "the nemesis did none of the faults of this run"),
        ("C19", nothing_at_all(), "no operation succeeded"),
        ("C19", Story().lose(1, "1-1"), "no operation succeeded"),
        ("C19", Story(least_ok={"poll": [1, 0.0]}).send(1, "1-1", 0), "only 0 of 0 poll"),
    ],
)
def test_too_little_to_tell(checker: str, story: Story, why: str) -> None:
    judgement = judged(story.history())[checker]
    assert judgement.valid is Valid.UNKNOWN
    assert why in judgement.why
