"""Who calls, and what only members of the cluster may call.

Owns the question whether a caller is a member. With TLS its certificate answers; without TLS every
caller passes for one, since nobody can prove anything. Does not own TLS itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from dledger_proto.errors import Code, DledgerError
from dledger_proto.network.tls import is_member_of, names_of_caller


class CallerContext(Protocol):
    """What is used of a `grpc.aio.ServicerContext`."""

    def auth_context(self) -> Mapping[str, Any]:
        """Return what the connection proved."""
        ...


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of one process."""

    cluster: str = ""
    proves: bool = False
    """True with TLS: whoever calls has a certificate."""

    def names(self, context: CallerContext) -> frozenset[str] | None:
        """Return the names in the caller's certificate; None without TLS."""
        return names_of_caller(context.auth_context()) if self.proves else None

    def check_member(self, context: CallerContext) -> None:
        """Raise NO_PERMISSION unless the caller is a member of the cluster."""
        names = self.names(context)
        if names is not None and not is_member_of(names, self.cluster):
            raise DledgerError(Code.NO_PERMISSION, "only members of the cluster may call this")


OPEN: Final = Access()
"""Without TLS."""
