"""Ports that members listen on: never one that an outgoing connection could get."""

import socket
import struct

import pytest

from dledger_proto.network import ports
from dledger_proto.network.ports import (
    HIGHEST,
    HOST,
    LOWEST,
    candidates,
    free_ports,
    outgoing_range,
)

IP_LOCAL_PORT_RANGE = 51
"""Linux 6.3: the lowest, and in the upper half the highest port that `connect` may choose."""


def test_ports_are_outside_of_those_of_outgoing_connections() -> None:
    first, last = outgoing_range()
    assert not any(first <= port <= last for port in free_ports(5))


def test_no_port_is_given_out_twice() -> None:
    found = free_ports(20) + free_ports(20)
    assert len(set(found)) == 40


def test_one_that_somebody_listens_on_is_not_given_out() -> None:
    (port,) = free_ports(1)
    with socket.socket() as listener:
        listener.bind((HOST, port + 1))
        listener.listen()
        assert port + 1 not in free_ports(3)


def test_another_process_of_ours_does_not_get_it() -> None:
    (port,) = free_ports(1)
    with socket.socket(socket.AF_UNIX) as other, pytest.raises(OSError, match="in use"):
        other.bind(f"\0dledger-port-{port}")


def test_ports_in_a_row_are_free_all_of_them() -> None:
    (port,) = free_ports(1)
    with socket.socket() as listener:
        listener.bind((HOST, port + 2))
        listener.listen()
        rows = free_ports(2, width=3)
    given = [one for first in rows for one in range(first, first + 3)]
    assert len(set(given)) == 6
    assert port + 2 not in given
    assert not set(given) & set(free_ports(10))


def test_candidates_begin_anywhere_are_all_there_and_those_outside_come_first() -> None:
    first, last = 32_768, 60_999
    every = candidates(first, last, 0)
    outside = [port for port in every if not first <= port <= last]
    assert every[0] == LOWEST
    assert every[: len(outside)] == outside
    assert every[-1] == last
    turned = candidates(first, last, len(outside) + 7)
    assert turned[0] == every[7]
    assert sorted(turned) == sorted(every) == list(range(LOWEST, HIGHEST + 1))
    assert len(candidates(0, HIGHEST, 5)) == HIGHEST - LOWEST + 1


def test_where_every_port_may_be_an_outgoing_ones_those_given_out_are_kept_from_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, last = outgoing_range()
    monkeypatch.setattr(ports, "candidates", lambda *_: list(range(first, last + 1)))
    mine, others = free_ports(2)
    for _ in range(2):  # a member listens, ends, and comes back
        with socket.create_server((HOST, mine)) as listener:
            assert listener.getsockname()[1] == mine
    only = struct.pack("I", mine << 16 | mine)
    with socket.create_server((HOST, others)) as target, socket.socket() as outgoing:
        try:
            outgoing.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, only)
        except OSError:
            pytest.skip("this kernel cannot be asked for one port")
        with pytest.raises(OSError, match="Cannot assign requested address"):
            outgoing.connect(target.getsockname())
