"""Whether one process answers, in a sentence: for the health checks of containers.

`python -m dledger_broker.process.health [HOST:PORT]` exits with 0 and says what the process is, or
with 1 and says what is wrong. `dledger health` does the same. This module starts in a third of the
time, since it loads no other module of the broker: it runs every few seconds beside every member.

A process is healthy when it answers. A member without a leader, or in quarantine, answers and says
so: a restart would not help it.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import Final

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the printed sentence says what gRPC would log

import grpc
from google.protobuf.message import DecodeError

from dledger_proto.errors import Code, DledgerError
from dledger_proto.names import NO_SUCH_TOPIC, printable
from dledger_proto.network.tls import TlsError, TlsFolder
from dledger_proto.network.tls_files import FOLDER_VARIABLE
from dledger_proto.rpc.raw import CHANNEL_OPTIONS, open_sync_channel, sync_unary
from dledger_proto.rpc.status import from_rpc_error
from dledger_proto.v1.broker_pb2 import StatusReply, StatusRequest
from dledger_proto.v1.routes_pb2 import RoutesReply, RoutesRequest

TIMEOUT_SECONDS: Final = 3.0
MEMBER: Final = "127.0.0.1:10911"
NAME_SERVER: Final = "127.0.0.1:9876"


class Unhealthy(Exception):
    """No process answers, or not as a healthy one; the message says which."""


def look(address: str = "", timeout: float = TIMEOUT_SECONDS) -> str:
    """Return what the process at "host:port" is and how it is; Unhealthy when it does not answer.

    Without an address, ask a member at its usual port on this host, then a name server at its port.
    `timeout` is in seconds, for all questions together.
    """
    now = time.monotonic()
    if address:
        return _ask(address, now + timeout)
    try:
        return _ask(MEMBER, now + timeout / 2)
    except Unhealthy as no_member:
        try:
            return _ask(NAME_SERVER, now + timeout)
        except Unhealthy as no_name_server:
            raise Unhealthy(f"{no_member}; {no_name_server}") from None


def _tls() -> TlsFolder | None:
    """Return the files for TLS that the environment names, as for a member."""
    folder = os.environ.get(FOLDER_VARIABLE, "")
    try:
        return TlsFolder(folder) if folder else None
    except TlsError as error:
        raise Unhealthy(f"{FOLDER_VARIABLE}: {error}") from None


def _ask(address: str, deadline: float) -> str:
    with open_sync_channel(address, CHANNEL_OPTIONS, _tls()) as channel:
        try:
            return printable(_answer(address, channel, deadline))
        except DledgerError as error:
            why = error.detail or error.code.name
        except DecodeError as error:
            why = f"the answer is garbled: {error}"
        raise Unhealthy(printable(f"{address}: {why}"))


def _answer(address: str, channel: grpc.Channel, deadline: float) -> str:
    try:
        return _member(channel, deadline)
    except DledgerError as error:
        if error.code is Code.INVALID_ARGUMENT:
            return f"{address}: a member of several groups, answers"
        if error.code in (Code.UNAUTHENTICATED, Code.NO_PERMISSION):
            return f"{address}: a member that asks for users, answers"
        if error.code is not Code.UNIMPLEMENTED:
            raise
    return _name_server(channel, deadline)


def _call(channel: grpc.Channel, method: str, request: bytes, deadline: float) -> bytes:
    try:
        return sync_unary(channel, method)(request, max(deadline - time.monotonic(), 0))
    except grpc.RpcError as error:
        raise from_rpc_error(error, write=False) from error


def _member(channel: grpc.Channel, deadline: float) -> str:
    request = StatusRequest().SerializeToString()
    status = StatusReply.FromString(_call(channel, "/dledger.v1.Admin/Status", request, deadline))
    if not status.member:
        raise DecodeError("a status of no member")
    led = f"leader {status.leader}" if status.leader else "no leader"
    reason = f"; {status.reason}" if status.reason else ""
    return f"{status.member}: {status.role} of {status.group}, term {status.term}, {led}{reason}"


def _name_server(channel: grpc.Channel, deadline: float) -> str:
    request = RoutesRequest(topics=[NO_SUCH_TOPIC]).SerializeToString()
    routes = RoutesReply.FromString(_call(channel, "/dledger.v1.Routes/Get", request, deadline))
    names = ", ".join(group.group for group in routes.groups) or "none"
    return f"name server of {routes.cluster or 'no cluster yet'}, groups: {names}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the sentence; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m dledger_broker.process.health", description=__doc__
    )
    parser.add_argument("address", nargs="?", default="", metavar="HOST:PORT")
    given = parser.parse_args(arguments)
    try:
        print(look(given.address))  # noqa: T201
    except Unhealthy as error:
        print(f"unhealthy: {error}")  # noqa: T201 - Docker shows what a check prints
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
