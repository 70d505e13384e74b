"""Views and what they keep in memory."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from dledger_proto.rpc.views import SHOWN_SHARE_MIN, compacted, kept_bytes


@given(st.data())
def test_compacted_views_show_the_same_and_keep_little_more(data: st.DataObject) -> None:
    buffers = [bytes([i]) * size for i, size in enumerate(data.draw(st.lists(st.integers(1, 99))))]
    views: list[memoryview] = []
    for buffer in buffers:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(buffer)), min_size=2, max_size=6)))
        pieces = [memoryview(buffer)[a:b] for a, b in itertools.pairwise(cuts)]
        views += data.draw(st.lists(st.sampled_from(pieces), unique_by=id))
    found = compacted(views)
    assert found == views
    assert kept_bytes(found) <= SHOWN_SHARE_MIN * sum(map(len, views))


def test_a_buffer_of_which_most_is_shown_is_not_copied() -> None:
    frame = memoryview(bytes(range(100)))
    halves = [frame[10:50], frame[50:90]]
    assert compacted(halves)[1] is halves[1], "together they show enough"
    assert kept_bytes(halves) == 100
    small = frame[10:20]
    (copy,) = compacted([small])
    assert copy == small
    assert (kept_bytes([small]), kept_bytes([copy])) == (100, 10)
