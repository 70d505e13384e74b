"""Cutting a full registration, as members do it, so that no message holds back a heartbeat (S6)."""

from collections.abc import Iterator

from dledger_proto.limits import FRAME_SIZE_TARGET
from dledger_proto.v1.routes_pb2 import Registration


def chunks_of(registration: Registration) -> Iterator[Registration]:
    """Cut a full registration of any size into messages of about 1 MiB, numbered consecutively.

    What members do, and the form in which tests and tools make registrations.
    """
    part = Registration()
    part.CopyFrom(registration)
    del part.topics[:]
    size = base = part.ByteSize()
    sequence = registration.sequence
    for topic in registration.topics:
        topic_size = topic.ByteSize() + 8
        if part.topics and size + topic_size > FRAME_SIZE_TARGET:
            yield part
            sequence += 1
            rest = Registration()
            rest.CopyFrom(part)
            del rest.topics[:]
            rest.full, rest.sequence = False, sequence
            part, size = rest, base
        part.topics.append(topic)
        size += topic_size
    yield part
