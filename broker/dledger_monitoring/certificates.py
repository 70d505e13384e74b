"""What certificates of a process say, and for how long they still hold: in its log, as a metric.

Owns: when the log tells of a certificate that ends, and the series. Does not own: the files
(`dledger_proto.network.tls`), making certificates (`dledger tls`), who takes which certificate.

A process goes on with a certificate that has ended: others refuse it, and only they would say so.
"""

import asyncio
import datetime as dt
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from cryptography import x509

from dledger_monitoring.series import Series, Sheet, gauge
from dledger_proto.network.tls import (
    Keys,
    TlsError,
    TlsFolder,
    is_proof_host,
    name_server_cluster,
    proof_host,
)
from dledger_proto.network.tls_files import AUTHORITY, CERTIFICATE

DAY_SECONDS: Final = 86_400.0
SOON_SECONDS: Final = 30 * DAY_SECONDS
"""The log tells of a certificate that holds for less than this."""
LOOK_SECONDS: Final = 60.0
"""New files are looked at after so long, and so is the clock."""

EXPIRY: Final = gauge(
    "dledger_tls_certificate_expiry_seconds",
    "Seconds until the first certificate in a file of the TLS folder ends (`tls.crt`, `ca.crt`); "
    "negative: it has ended.",
    "file",
)
ALL: Final[tuple[Series, ...]] = (EXPIRY,)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a certificate says."""

    subject: str
    names: tuple[str, ...]
    """URIs, those of `dledger_proto.network.tls` among them."""
    hosts: tuple[str, ...]
    """Host names, then addresses; without proofs."""
    proofs: frozenset[str]
    """Host names that prove names (`dledger_proto.network.tls.proof_host`)."""
    starts: dt.datetime
    ends: dt.datetime


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a certificate that the log must tell."""

    event: str
    is_error: bool
    fields: tuple[tuple[str, str], ...]


class Log(Protocol):
    """What is used of a logger of structlog."""

    def warning(self, event: str, **fields: object) -> object:
        """Write a line."""
        ...

    def error(self, event: str, **fields: object) -> object:
        """Write a line."""
        ...


def certificates_in(pem: bytes) -> list[Certificate]:
    """Return the certificates of a file, in order; ValueError when it has none or one is odd."""
    return [_said(each) for each in x509.load_pem_x509_certificates(pem)]


def name_server_clusters(tls: TlsFolder) -> list[str]:
    """Return the clusters whose name server the own certificate names; TlsError."""
    found = map(name_server_cluster, _own(tls).names)
    return list(dict.fromkeys(cluster for cluster in found if cluster))


def check_names(tls: TlsFolder, names: Iterable[str]) -> None:
    """Check that the certificate of a server proves its names; TlsError says what is missing."""
    path, said = os.path.join(tls.path, CERTIFICATE), _own(tls)
    for name in names:
        if name not in said.names:
            held = ", ".join(said.names) or "no name of dledger"
            raise TlsError(f"{path}: is of {held}, must be of {name}")
        if proof_host(name) not in said.proofs:
            raise TlsError(f"{path}: proves no {name}, must have the DNS name {proof_host(name)}")


def _own(tls: TlsFolder) -> Certificate:
    try:
        return certificates_in(tls.current().certificate)[0]
    except ValueError as error:
        path = os.path.join(tls.path, CERTIFICATE)
        raise TlsError(f"{path}: cannot be read: {error}") from error


def _said(certificate: x509.Certificate) -> Certificate:
    try:
        said = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        said = x509.SubjectAlternativeName([])
    hosts = said.get_values_for_type(x509.DNSName)
    proofs = frozenset(host for host in hosts if is_proof_host(host))
    return Certificate(
        certificate.subject.rfc4514_string(),
        tuple(said.get_values_for_type(x509.UniformResourceIdentifier)),
        (
            *(host for host in hosts if host not in proofs),
            *map(str, said.get_values_for_type(x509.IPAddress)),
        ),
        proofs,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )


def finding(file: str, certificate: Certificate, now: float) -> Finding | None:
    """Return what to tell of a certificate at a time, in seconds since 1970. Pure."""
    starts, ends = certificate.starts, certificate.ends
    what = (("file", file), ("subject", certificate.subject))
    if now < starts.timestamp():
        return Finding("a certificate is not valid yet", True, (*what, ("from", _text(starts))))
    left = ends.timestamp() - now
    until = ("until", _text(ends))
    if left <= 0:
        return Finding("a certificate has ended", True, (*what, until))
    if left < SOON_SECONDS:
        return Finding("a certificate ends soon", False, (*what, until))
    return None


def _text(moment: dt.datetime) -> str:
    return moment.isoformat(timespec="seconds")


class CertificateWatch:
    """Tells of the certificates of one process. Belongs to its loop."""

    def __init__(self, tls: TlsFolder, log: Log, wall: Callable[[], float]) -> None:
        """`wall`: the time in seconds since 1970."""
        self._tls = tls
        self._log = log
        self._wall = wall
        self._version = 0
        self._read: list[tuple[str, Certificate]] = []
        """The certificates of the newest files, each with the name of its file."""
        self._unread: list[Finding] = []
        """Files that cannot be read here."""
        self._told: list[Finding] = []
        self._told_at = 0.0

    async def run(self) -> None:
        """Tell at once, and again each day while something is wrong; until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Tell what is new, and once a day what is not."""
        now = self._wall()
        self._take(self._tls.current())
        found = [*self._unread]
        for file, certificate in self._read:
            said = finding(file, certificate, now)
            found += [] if said is None else [said]
        if found == self._told and abs(now - self._told_at) < DAY_SECONDS:  # clocks may jump
            return
        self._told, self._told_at = found, now
        for each in found:
            tell = self._log.error if each.is_error else self._log.warning
            tell(each.event, **dict(each.fields))

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Write all values; see `exposition.Source`."""
        self._take(self._tls.current())
        now, first = self._wall(), dict[str, float]()
        for file, certificate in self._read:
            left = certificate.ends.timestamp() - now
            first[file] = min(left, first.get(file, left))
        for file, left in first.items():
            sheet.put(EXPIRY, left, file)
        yield

    def _take(self, keys: Keys) -> None:
        if keys.version == self._version:
            return
        self._version, self._read, self._unread = keys.version, [], []
        for file, pem in ((CERTIFICATE, keys.certificate), (AUTHORITY, keys.authority)):
            try:
                self._read += [(file, each) for each in certificates_in(pem)]
            except ValueError as error:
                fields = (("file", file), ("reason", str(error)))
                self._unread.append(Finding("a certificate cannot be read", False, fields))
