"""The change log: the base of deltas."""

from dledger_namesrv.changes import ChangeLog


def test_since_lists_each_key_once_in_the_order_of_its_last_change() -> None:
    log: ChangeLog[str] = ChangeLog(10)
    for key in "abcab":
        log.mark(key)
    assert log.since(0) == ["c", "a", "b"]
    assert log.since(3) == ["a", "b"]
    assert log.since(log.version) == []


def test_forgotten_keys_are_not_mentioned() -> None:
    log: ChangeLog[str] = ChangeLog(10)
    log.mark("a")
    log.mark("b")
    log.forget("a")
    log.forget("never")
    assert log.since(0) == ["b"]


def test_whoever_is_behind_a_dropped_key_is_told_so() -> None:
    log: ChangeLog[str] = ChangeLog(2)
    for key in "abc":
        log.mark(key)
    assert log.since(0) is None
    assert log.since(1) == ["b", "c"]
