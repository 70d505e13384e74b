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


@pytest.mark.parametrize("field", ["address", "peer_address"])
@pytest.mark.parametrize(
    "text", ["nonsense", "unix:/tmp/x", "a..b:1", "x:\u00b2", " ", "n1\x1b:1", "x" * 301]
)
def test_either_must_be_an_address(field: str, text: str) -> None:
    registry = Registry(lease=LEASE)
    member = FakeMember(registry).connect()
    message = member.message(full=True)
    setattr(message, field, text)
    with pytest.raises(DledgerError, match=rf" {field}: .* must be ") as caught:
        registry.register(member.session, message, 0)
    assert repr(text[:80]) in caught.value.detail
    assert not registry.snapshot()[0].groups


def test_only_that_of_the_peers_may_be_missing() -> None:
    registry = Registry(lease=LEASE)
    member = FakeMember(registry).connect()
    message = member.message(full=True)
    message.address = ""
    with pytest.raises(DledgerError, match=" address: '', must be "):
        registry.register(member.session, message, 0)
    FakeMember(registry, peer_address="").join(0)
