"""The two addresses of a member: the published one, and the one its peers use."""

import pytest

from dledger_namesrv.registry import Registry
from dledger_proto.errors import DledgerError
from tests.unit.namesrv.helpers import LEASE, FakeMember, FakeWatcher


def test_both_are_told_and_a_change_of_either() -> None:
    registry = Registry(lease=LEASE)
    a = FakeMember(registry, address="published:1", peer_address="n1:1")
    a.join(0)
    watcher = FakeWatcher(registry)

    def seen() -> tuple[str, str]:
        watcher.catch_up()
        (member,) = watcher.groups["g"].members
        return member.address, member.peer_address

    assert seen() == ("published:1", "n1:1")
    a.peer_address = "elsewhere:1"
    a.send(1)
    assert seen() == ("published:1", "elsewhere:1")
    a.address = "published:2"
    a.send(2)
    assert seen() == ("published:2", "elsewhere:1")


@pytest.mark.parametrize("text", ["x" * 301, "n1\x1b:1"])
def test_that_of_the_peers_has_the_limits_of_the_other(text: str) -> None:
    registry = Registry(lease=LEASE)
    with pytest.raises(DledgerError, match=r"peer_address: .* must be "):
        FakeMember(registry, peer_address=text).join(0)
    assert registry.status().groups == 0
