"""What a registration may look like. Pure.

Owns the bounds of every field. So no process can make a name server keep, or send to its watchers,
more than a member needs to say. Not owned: whether what a member says is true (`groups`).
"""

from typing import Final

from dledger_proto.errors import DledgerError, invalid
from dledger_proto.limits import (
    GROUP_NAME_LENGTH_MAX,
    MEMBERS_MAX,
    QUEUES_PER_TOPIC_MAX,
    TOPIC_NAME_LENGTH_MAX,
)
from dledger_proto.network.addresses import check_address
from dledger_proto.v1.broker_pb2 import Topic
from dledger_proto.v1.routes_pb2 import Registration

ADDRESS_SHOWN_LENGTH_MAX: Final = 80
TOPIC_ID_SIZE: Final = 16
NUMBER_MAX: Final = (1 << 63) - 1
"""The largest term and index that members send to each other."""
LAYOUT_PARTS_MAX: Final = QUEUES_PER_TOPIC_MAX
"""Each part has at least one queue."""
PERMISSION_MAX: Final = 6
"""Read 4 and write 2."""


def check_registration(registration: Registration) -> None:
    """Raise INVALID_ARGUMENT naming the field, its value and the limit."""
    _check_name("cluster", registration.cluster)
    _check_name("group", registration.group)
    _check_name("member", registration.member)
    if registration.leader:
        _check_name("leader", registration.leader)
    _check_address("address", registration.address)
    if registration.peer_address:
        _check_address("peer_address", registration.peer_address)
    _check_number("term", registration.term, NUMBER_MAX)
    _check_number("applied_index", registration.applied_index, NUMBER_MAX)
    configured = registration.configured_members
    _check_number("configured_members", len(configured), MEMBERS_MAX)
    for name in configured:
        _check_name("configured_members", name)
    if len(set(configured)) != len(configured):
        raise _illegal("configured_members", f"{list(configured)}", "different names")
    for topic in registration.topics:
        _check_topic(topic)


def _check_topic(topic: Topic) -> None:
    if len(topic.id) != TOPIC_ID_SIZE:
        raise _illegal("topic.id", f"{len(topic.id)} bytes", f"{TOPIC_ID_SIZE} bytes")
    _check_name("topic.name", topic.name, TOPIC_NAME_LENGTH_MAX)
    _check_number("topic.control_index", topic.control_index, NUMBER_MAX)
    _check_number("topic.permission", topic.permission, PERMISSION_MAX)
    _check_number("topic.layout", len(topic.layout), LAYOUT_PARTS_MAX)
    queues = 0
    for part in topic.layout:
        _check_name("topic.layout.group", part.group)
        queues += part.queues
    _check_number("topic.layout.queues", queues, QUEUES_PER_TOPIC_MAX)
    _check_number("topic.read_queues", topic.read_queues, queues)
    _check_number("topic.write_queues", topic.write_queues, queues)


def _check_name(field: str, name: str, limit: int = GROUP_NAME_LENGTH_MAX) -> None:
    if not 1 <= len(name) <= limit:
        raise _illegal(field, f"length {len(name)}", f"1 to {limit} characters")
    if not name.isprintable():
        raise _illegal(field, repr(name), "printable")


def _check_number(field: str, number: int, most: int) -> None:
    if number > most:
        raise _illegal(field, str(number), f"at most {most}")


def _check_address(field: str, address: str) -> None:
    try:
        check_address(address)
    except ValueError as error:
        shown = repr(address[:ADDRESS_SHOWN_LENGTH_MAX])
        raise invalid(f"{field}: {shown}, {error}") from None


def _illegal(field: str, value: str, limit: str) -> DledgerError:
    return invalid(f"{field}: {value}, must be {limit}")
