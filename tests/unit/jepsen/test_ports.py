"""Ports that members listen on: never one that an outgoing connection could get."""

import socket

from jepsen_tests import ports
from jepsen_tests.ports import HIGHEST, HOST, LOWEST, candidates, free_ports, outgoing_range


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
    claim = ports._held[-1].getsockname()
    assert claim == f"\0dledger-port-{port}".encode()


def test_candidates_begin_anywhere_and_are_all_there() -> None:
    every = candidates(32_768, 60_999, 0)
    assert every[0] == LOWEST
    assert every[-1] == HIGHEST
    turned = candidates(32_768, 60_999, len(every) + 7)
    assert turned[0] == every[7]
    assert sorted(turned) == every
    assert candidates(0, HIGHEST, 5) == []
