"""What only members of the cluster may call, and register."""

import pytest

from dledger_broker.security.access import OPEN, Access
from dledger_namesrv.service import _check_proof
from dledger_proto.errors import Code, DledgerError
from dledger_proto.network.tls import client_name, member_name
from dledger_proto.v1.routes_pb2 import Registration


class Context:
    """A call of somebody with a certificate."""

    def __init__(self, *names: str) -> None:
        self._names = [name.encode() for name in names]

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"peer_uri": self._names}


def test_only_members_make_calls_between_members() -> None:
    access = Access("c", proves=True)
    access.check_member(Context(member_name("c", "g", "a")))
    for stranger in (
        Context(),
        Context(client_name("c", "a")),
        Context(member_name("d", "g", "a")),
    ):
        with pytest.raises(DledgerError) as caught:
            access.check_member(stranger)
        assert caught.value.code is Code.NO_PERMISSION


def test_without_tls_nobody_can_prove_anything() -> None:
    OPEN.check_member(Context())


def test_a_member_registers_under_its_own_name() -> None:
    registration = Registration(cluster="c", group="g", member="a")
    _check_proof(registration, frozenset({member_name("c", "g", "a")}))
    _check_proof(registration, None)
    for names in (
        frozenset[str](),
        frozenset({member_name("c", "g", "b")}),
        frozenset({member_name("c", "g2", "a")}),
        frozenset({client_name("c", "a")}),
    ):
        with pytest.raises(DledgerError) as caught:
            _check_proof(registration, names)
        assert caught.value.code is Code.WRONG_CLUSTER
