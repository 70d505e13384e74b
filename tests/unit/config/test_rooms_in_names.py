"""The name of a broker group may begin with a machine room (S93, S96)."""

import pytest

from dledger.state.topics.layout import check_layout
from dledger.state.values import LayoutPart
from dledger_broker.config.sections import check_broker_group
from dledger_proto.errors import DledgerError


@pytest.mark.parametrize("name", ["g1", "east@g1", "room-2@g_1"])
def test_a_room_and_a_name(name: str) -> None:
    assert check_broker_group(name) == name
    check_layout((LayoutPart(name, 1),))


@pytest.mark.parametrize(
    "name", ["", "@g1", "east@", "a@b@c", "east@g 1", f"{'r' * 60}@{'g' * 60}"]
)
def test_anything_else_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        check_broker_group(name)


@pytest.mark.parametrize("name", ["@g1", "east@", "a@b@c"])
def test_a_layout_names_no_such_group(name: str) -> None:
    with pytest.raises(DledgerError, match="layout: group"):
        check_layout((LayoutPart(name, 1),))
