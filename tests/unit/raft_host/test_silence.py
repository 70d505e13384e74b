"""How long a peer is silent, as those who ask are told."""

from dledger.raft.driver.silence import Silences
from dledger.types import MemberId

A, B = MemberId("a"), MemberId("b")


def test_silence_begins_with_the_start_and_with_each_end_of_a_link() -> None:
    silences = Silences(10.0)
    assert (silences.of(A, 10.0), silences.of(A, 13.0)) == (0.0, 3.0)
    silences.link_up(A)
    assert silences.of(A, 20.0) == 0.0
    assert silences.of(B, 20.0) == 10.0
    silences.link_down(A, 21.0)
    assert silences.of(A, 24.0) == 3.0
    silences.link_up(A)
    assert silences.of(A, 99.0) == 0.0
