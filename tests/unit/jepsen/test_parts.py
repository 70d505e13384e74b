"""Several broker groups: each is judged as if it were alone, and no other group excuses it."""

from msgspec.structs import replace

from jepsen_tests.checkers.shared.judgement import Valid, merged
from jepsen_tests.checkers.shared.parts import parts_of
from jepsen_tests.history.events import History, Kind
from tests.unit.jepsen.member_anomalies import status
from tests.unit.jepsen.stories import Story, judged

RED, BLUE = ("n1", "n2", "n3"), ("n4", "n5", "n6")
GROUPS = {"red": [list(RED), ["t/0"]], "blue": [list(BLUE), ["t/1"]]}


def history_of(story: Story) -> History:
    history = story.history()
    history.header = replace(history.header, nodes=(*RED, *BLUE))
    return history


def sent() -> Story:
    """One message to each group, both known to a reader."""
    story = Story(groups=GROUPS, least_ok={"send": [1, 0.1], "get": [1, 0.1]})
    story.send(1, "1-1", 0).send(1, "1-2", 0, "t/1")
    story.op(2, "assign", v={"t/0": 0, "t/1": 0}).op(2, "get", "r", None, 1)
    return story.poll(2, (0, "1-1"), (0, "1-2", "t/1"))


def test_each_part_has_its_own_members_queues_and_faults() -> None:
    story = sent().on("n2", "status", status()).on("n5", "status", status())
    story.fault("kill", "n4").fault("heal", "").fault("pause", "n1,n2").died("n6")
    parts = parts_of(history_of(story))
    assert list(parts) == ["red", "blue"]
    for name, nodes, value, place in (
        ("red", RED, "1-1", "t/0"), ("blue", BLUE, "1-2", "t/1"),
    ):  # fmt: skip
        part = parts[name]
        assert part.header.nodes == nodes
        assert [op.asked for op in part.ops if op.f == "send"] == [[value]]
        assert [op.asked for op in part.ops if op.f == "assign"] == [{place: 0}]
        assert [op.result for op in part.ops if op.f == "poll"] == [[[place, 0, [value]]]]
        assert {op.node for op in part.ops if op.node} <= set(nodes)
        assert all(set(row.k.split(",")) <= {*nodes, ""} for row in part.faults)
        assert [row.f for row in part.faults if row.f == "heal"]
    assert [row.f for row in parts["red"].faults if row.type is Kind.INVOKE] == ["heal", "pause"]
    assert [row.f for row in parts["blue"].faults if row.type is Kind.INVOKE] == ["kill", "heal"]
    assert [op.f for op in parts["red"].ops if op.f == "get"], "the control group has registers"
    assert not [op.f for op in parts["blue"].ops if op.f == "get"]
    assert "get" not in parts["blue"].header.notes["least_ok"]


def test_a_history_of_one_group_is_one_part() -> None:
    history = Story().send(1, "1-1", 0).history()
    assert parts_of(history) == {"": history}


def test_a_loss_is_named_with_the_group_and_the_rows_of_the_whole() -> None:
    story = sent().final("1-1").phase("final")
    story.op(9, "assign", v={"t/1": 0}).op(9, "poll", result=[])
    found = judged(history_of(story))
    assert [finding.text.partition(":")[0] for finding in found["C3"].findings] == ["blue"]
    assert found["C3"].findings[0].rows[0] == 3, "the row in the whole history"
    assert found["C3"].count == 1
    assert found["C4"].valid is Valid.YES


def test_no_group_is_excused_by_a_fault_that_hits_another() -> None:
    story = sent().fault("failing-sync", "n4").died("n1", "exit 74").fault("heal", "")
    kinds = {finding.kind for finding in judged(history_of(story))["C18"].findings}
    assert "died" in kinds
    story = sent().fault("failing-sync", "n4").died("n4", "exit 74").fault("heal", "")
    assert "died" not in {f.kind for f in judged(history_of(story))["C18"].findings}


def test_two_groups_may_have_leaders_of_one_term_and_one_of_them_may_not() -> None:
    def leads(node: str) -> dict[str, object]:
        return status() | {"role": "leader", "leader": node}

    story = sent().on("n1", "status", leads("n1")).on("n4", "status", leads("n4"))
    assert not judged(history_of(story))["C16"].findings
    story.on("n5", "status", leads("n5"))
    (finding,) = judged(history_of(story))["C16"].findings
    assert (finding.kind, finding.text.partition(":")[0]) == ("two-leaders", "blue")


def test_the_topics_of_all_groups_are_compared() -> None:
    story = sent().on("n1", "topics", {"t": "01"}).on("n4", "topics", {})
    (finding,) = judged(history_of(story))["C26"].findings
    assert "n1 and n4 differ in t" in finding.text


def test_what_one_group_did_not_show_is_said_with_its_name() -> None:
    story = Story(groups=GROUPS, least_ok={"send": [1, 0.1]}).send(1, "1-1", 0)
    found = judged(history_of(story))["C19"]
    assert found.valid is Valid.UNKNOWN
    assert "blue: " in found.why
    assert merged([found]) is Valid.UNKNOWN
