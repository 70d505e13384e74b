"""Which connection makes room when too many wait."""

from dledger.raft.links.strangers import Stage, Strangers


def test_who_is_further_is_never_pushed_out_by_those_behind() -> None:
    strangers: Strangers[str] = Strangers()
    assert strangers.put("member", "h", Stage.SILENT, 2) is None
    assert strangers.put("member", "h", Stage.BEGUN, 2) is None
    gone = [strangers.put(f"{number}", "h", Stage.SILENT, 2) for number in range(5)]
    assert gone == [None, None, "0", "1", "2"]
    assert set(strangers) == {"3", "4", "member"}
    assert strangers.put("member", "h", Stage.PROVEN, 2) is None
    assert len(strangers) == 3


def test_the_host_with_most_makes_room() -> None:
    """Its oldest; so a flood of one host leaves the others alone."""
    strangers: Strangers[str] = Strangers()
    assert strangers.put("member", "quiet", Stage.BEGUN, 3) is None
    gone = [strangers.put(f"{number}", "loud", Stage.BEGUN, 3) for number in range(6)]
    assert gone == [None, None, "0", "1", "2", "3"]
    assert strangers.put("another", "quiet", Stage.BEGUN, 3) == "member"
    strangers.drop("another")
    strangers.drop("nobody")
    assert set(strangers) == {"4", "5"}
