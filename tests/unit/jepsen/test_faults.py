"""Which links a fault names."""

from jepsen_tests.nemeses.network import between


def test_links_between_two_sets_go_both_ways_and_come_once() -> None:
    assert sorted(between(["a"], ["b", "c"])) == [("a", "b"), ("a", "c"), ("b", "a"), ("c", "a")]
    both = between(["a", "b", "c"], ["a", "b", "c"])
    assert len(both) == len(set(both)) == 6
