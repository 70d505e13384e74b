"""TLS between processes: the files of one process, the names in certificates, what libraries need.

Owns: the three files and when changed ones are taken, the names of holders. Does not own: making
certificates (`dledger tls`), who may do what. docs/decisions/security.md has the decisions.
"""

import base64
import hashlib
import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import grpc

from dledger_proto.network.tls_files import FILES

LOOK_SECONDS: Final = 1.0
"""Files that changed are noticed so long after, when somebody connects."""
FILE_SIZE_MAX: Final = 1 << 20
SCHEME: Final = "dledger://"
PROOF_DOMAIN: Final = ".name.dledger.invalid"
"""No machine has a host name of it (RFC 6761)."""


class TlsError(ValueError):
    """The files of a folder cannot be used; the message names the file and why."""


def member_name(cluster: str, group: str, member: str) -> str:
    """Return what the certificate of a member says."""
    return f"{SCHEME}{cluster}/member/{group}/{member}"


def name_server_name(cluster: str) -> str:
    """Return what the certificate of a name server says."""
    return f"{SCHEME}{cluster}/name-server"


def name_server_cluster(name: str) -> str:
    """Return the cluster of a name server's name; empty for any other name."""
    cluster, slash, kind = name.removeprefix(SCHEME).partition("/")
    is_one = name.startswith(SCHEME) and slash and kind == "name-server"
    return cluster if is_one else ""


def client_name(cluster: str, client: str) -> str:
    """Return what the certificate of a client says."""
    return f"{SCHEME}{cluster}/client/{client}"


def proof_host(name: str) -> str:
    """Return the host name by which a server's certificate proves a name to gRPC.

    gRPC for Python compares host names alone. A name may be longer than a label may, and have
    other characters, so its digest stands for it.
    """
    digest = base64.b32encode(hashlib.sha256(name.encode()).digest())
    return digest.decode().rstrip("=").lower() + PROOF_DOMAIN


def is_proof_host(host: str) -> bool:
    """Tell whether a host name is kept for proofs."""
    return host.lower().rstrip(".").endswith(PROOF_DOMAIN)


@dataclass(frozen=True, slots=True)
class Callee:
    """Whom a call is for."""

    address: str
    name: str
    """What its certificate says; it is asked for with TLS alone."""

    def __str__(self) -> str:
        """Return what people call it by."""
        return self.address


def is_member_of(names: frozenset[str], cluster: str) -> bool:
    """Tell whether one of a holder's names is that of a member of the cluster."""
    return any(name.startswith(f"{SCHEME}{cluster}/member/") for name in names)


@dataclass(frozen=True, slots=True)
class Keys:
    """What the files held when they were read, and what asyncio makes of them."""

    version: int
    """Grows with each change of the files."""
    authority: bytes
    certificate: bytes
    key: bytes
    listening: ssl.SSLContext
    dialling: ssl.SSLContext

    @property
    def contents(self) -> tuple[bytes, bytes, bytes]:
        """What the three files held."""
        return self.authority, self.certificate, self.key

    def for_server(self) -> grpc.ServerCertificateConfiguration:
        """Return what a server of gRPC needs."""
        return grpc.ssl_server_certificate_configuration(
            [(self.key, self.certificate)], self.authority
        )

    def for_channel(self) -> grpc.ChannelCredentials:
        """Return what a channel of gRPC needs."""
        return grpc.ssl_channel_credentials(self.authority, self.key, self.certificate)


class TlsFolder:
    """The files of this process. Any thread may ask."""

    def __init__(
        self,
        path: str,
        on_problem: Callable[[str], None] = lambda _: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the files; TlsError when they cannot be used.

        `on_problem` is told once why changed files are not used; the earlier ones are used on.
        """
        self.path = path
        self._on_problem = on_problem
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._marks = self._stat()
        self._keys = _read(path, 1)
        self._looked_at = monotonic()
        self._problem = ""

    def current(self) -> Keys:
        """Return the newest files that could be used."""
        with self._lock:
            now = self._monotonic()
            if now - self._looked_at >= LOOK_SECONDS:
                self._looked_at = now
                self._look()
            return self._keys

    def _look(self) -> None:
        try:
            marks = self._stat()
            if marks == self._marks:
                return
            keys = _read(self.path, self._keys.version + 1)
            if keys.contents != self._keys.contents:  # touched, or copied once more
                self._keys = keys
        except TlsError as error:  # halfway through a change, or a mistake: look again
            if str(error) != self._problem:
                self._problem = str(error)
                self._on_problem(self._problem)
        else:
            self._marks = marks
            self._problem = ""

    def _stat(self) -> tuple[tuple[int, int, int], ...]:
        try:
            found = [os.stat(os.path.join(self.path, name)) for name in FILES]
        except OSError as error:
            raise TlsError(f"{error.filename}: {error.strerror}") from error
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return what a port of gRPC needs: it asks for the newest files at each handshake."""
        told = self.current().version
        lock = threading.Lock()

        def newest() -> grpc.ServerCertificateConfiguration | None:
            nonlocal told
            keys = self.current()
            with lock:
                if keys.version == told:
                    return None
                told = keys.version
            return keys.for_server()

        return grpc.dynamic_ssl_server_credentials(
            self.current().for_server(),
            cast("Callable[[], grpc.ServerCertificateConfiguration]", newest),  # None: no news
            require_client_authentication=True,
        )


def _read(folder: str, version: int) -> Keys:
    """Read the files, all of one moment, and try them; TlsError."""
    before = _contents(folder)
    paths = [os.path.join(folder, name) for name in FILES]
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.verify_mode = ssl.CERT_REQUIRED
    dialling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (listening, dialling):
        context.minimum_version = ssl.TLSVersion.TLSv1_3  # both ends are ours
        try:
            context.load_verify_locations(paths[0])
        except (ssl.SSLError, OSError) as error:
            raise TlsError(f"{paths[0]}: no certificate of an authority: {error}") from error
        try:
            context.load_cert_chain(paths[1], paths[2], password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise TlsError(
                f"{paths[1]} and {paths[2]}: no certificate with its key: {error}"
            ) from error
    if _contents(folder) != before:
        raise TlsError(f"{folder}: the files change")
    return Keys(version, *before, listening, dialling)


def _no_password() -> str:
    """Refuse a key that is encrypted: the library would ask at the terminal."""
    raise ValueError("the key is encrypted, which is not supported")


def _contents(folder: str) -> tuple[bytes, bytes, bytes]:
    found: list[bytes] = []
    for name in FILES:
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                found.append(file.read(FILE_SIZE_MAX + 1))
        except OSError as error:
            raise TlsError(f"{path}: {error.strerror}") from error
        if len(found[-1]) > FILE_SIZE_MAX:
            raise TlsError(f"{path}: larger than {FILE_SIZE_MAX} bytes")
    return found[0], found[1], found[2]


def names_in(certificate: Mapping[str, object] | None) -> frozenset[str]:
    """Return the names of a holder, from what `ssl` says of a certificate."""
    said = cast("tuple[tuple[str, str], ...]", (certificate or {}).get("subjectAltName", ()))
    return frozenset(value for kind, value in said if kind == "URI" and value.startswith(SCHEME))


def names_of_caller(auth: Mapping[str, object]) -> frozenset[str]:
    """Return the names of a caller, from what gRPC says of its connection."""
    said = cast("Sequence[bytes]", auth.get("peer_uri", ()))
    uris = (value.decode(errors="replace") for value in said)
    return frozenset(uri for uri in uris if uri.startswith(SCHEME))
