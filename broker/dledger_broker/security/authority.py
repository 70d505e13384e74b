"""Makes the keys and certificates of a cluster, and the folders of its processes.

Owns: what a certificate of ours looks like, file modes, the layout of an authority's folder. Does
not own: the names in certificates and the files of a process (`dledger_proto.network.tls`).

    FOLDER/authority/ca.crt, ca.key     the authority; it belongs on no server
    FOLDER/authority-new, authority-old another one beside it, while one takes over from the other
    FOLDER/NAME/ca.crt, tls.crt, tls.key
"""

import datetime as dt
import ipaddress
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dledger_monitoring.certificates import Certificate, certificates_in
from dledger_proto.network.tls import TlsError, proof_host
from dledger_proto.network.tls_files import AUTHORITY, CERTIFICATE, KEY

AUTHORITY_FOLDER: Final = "authority"
NEW_FOLDER: Final = "authority-new"
"""Trusted already, and makes no certificates yet."""
OLD_FOLDER: Final = "authority-old"
"""Trusted still, and makes no certificates any more."""
AUTHORITY_FOLDERS: Final = (AUTHORITY_FOLDER, NEW_FOLDER, OLD_FOLDER)
AUTHORITY_KEY: Final = "ca.key"
AUTHORITY_DAYS: Final = 3_650
DAYS: Final = 397
"""Of a process's certificate. What browsers allow."""
DAYS_MAX: Final = 3_650
EARLIER: Final = dt.timedelta(minutes=5)
"""A certificate holds from so long before now: other machines' clocks are not ours."""
SECRET_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


@dataclass(frozen=True, slots=True)
class Wanted:
    """A certificate to make."""

    folder: str
    """Of the process, below the authority's."""
    names: Sequence[str]
    """URIs (`dledger_proto.network.tls`)."""
    hosts: Sequence[str] = ()
    """Host names and addresses. Without any the holder cannot be a server."""


class Authority:
    """Whoever has a certificate of it belongs to the cluster."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def make(cls, cluster: str, days: int = AUTHORITY_DAYS) -> Self:
        """Make a new authority for a cluster."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, cluster),
                x509.NameAttribute(NameOID.COMMON_NAME, f"dledger cluster {cluster}"),
            ]
        )
        usage = _usage(key_cert_sign=True, crl_sign=True)
        builder = (
            _begun(name, name, key, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the authority of a folder; TlsError when there is none."""
        inner = folder / AUTHORITY_FOLDER
        try:
            certificate = x509.load_pem_x509_certificate((inner / AUTHORITY).read_bytes())
            key = load_pem_private_key((inner / AUTHORITY_KEY).read_bytes(), None)
        except OSError as error:
            raise TlsError(f"{error.filename}: {error.strerror}") from error
        except (ValueError, TypeError) as error:
            raise TlsError(f"{inner}: no authority: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TlsError(f"{inner / AUTHORITY_KEY}: no elliptic key")
        return cls(certificate, key)

    @property
    def cluster(self) -> str:
        """The cluster that the authority was made for."""
        found = self._certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        return str(found[0].value) if found else ""

    @property
    def ends(self) -> dt.datetime:
        """Until when its certificates can hold."""
        return self._certificate.not_valid_after_utc

    def store(self, folder: Path, name: str = AUTHORITY_FOLDER) -> None:
        """Write the authority below a folder; OSError."""
        inner = folder / name
        _make_folder(folder)
        _make_folder(inner)
        _write(inner / AUTHORITY_KEY, _key_pem(self._key), SECRET_MODE)
        _write(inner / AUTHORITY, self._pem, 0o644)

    @property
    def _pem(self) -> bytes:
        return self._certificate.public_bytes(Encoding.PEM)

    def issue(
        self, folder: Path, wanted: Wanted, days: int = DAYS, begins: dt.datetime | None = None
    ) -> Path:
        """Make key and certificate of a process, in a folder of its own; return that. OSError.

        The certificate holds for so many days from `begins` on; None: now.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, wanted.folder)])
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if wanted.hosts:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        alternative = [
            *(x509.UniformResourceIdentifier(name) for name in wanted.names),
            *(_host(host) for host in wanted.hosts),
            *(x509.DNSName(proof_host(name)) for name in wanted.names if wanted.hosts),
        ]
        certificate = (
            _begun(subject, self._certificate.subject, key, days, begins)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternative), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        inner = folder / wanted.folder
        _make_folder(inner)
        _write(inner / AUTHORITY, _bundle(folder, self._pem), 0o644)
        _write(inner / KEY, _key_pem(key), SECRET_MODE)
        _write(inner / CERTIFICATE, certificate.public_bytes(Encoding.PEM), 0o644)
        return inner


def spread(folder: Path) -> None:
    """Give every process's folder the certificates of all authorities that are there; OSError."""
    for process in processes(folder):
        _write(process / AUTHORITY, _bundle(folder), 0o644)


def processes(folder: Path) -> list[Path]:
    """Return the folders of processes below an authority's."""
    return sorted(each.parent for each in folder.glob(f"*/{CERTIFICATE}"))


def _bundle(folder: Path, *first: bytes) -> bytes:
    """Return the certificates of all authorities of a folder, each once."""
    paths = [folder / name / AUTHORITY for name in AUTHORITY_FOLDERS]
    found = [path.read_bytes() for path in paths if path.exists()]
    return b"".join(dict.fromkeys([*first, *found]))


def begin_change(folder: Path, days: int = AUTHORITY_DAYS) -> None:
    """Make a new authority beside the one that is there, and let all trust both; OSError."""
    Authority.make(Authority.load(folder).cluster, days).store(folder, NEW_FOLDER)
    spread(folder)


def change(folder: Path) -> None:
    """Let the new authority make certificates from here on; OSError.

    Once more after an end between the two moves it goes on with the second.
    """
    if (folder / AUTHORITY_FOLDER).exists():
        (folder / AUTHORITY_FOLDER).rename(folder / OLD_FOLDER)
    (folder / NEW_FOLDER).rename(folder / AUTHORITY_FOLDER)


def end_change(folder: Path) -> None:
    """Forget the old authority, its key too, and let nobody trust it any more; OSError."""
    shutil.rmtree(folder / OLD_FOLDER)
    spread(folder)


def is_due(folder: Path, wanted: Wanted, now: dt.datetime) -> bool:
    """Tell whether a certificate must be made: missing, of less, or half of its life is over."""
    try:
        said = held(folder / wanted.folder)
    except TlsError:
        return True
    proofs = {proof_host(name) for name in wanted.names} if wanted.hosts else set[str]()
    lacks = {*wanted.names, *wanted.hosts, *proofs} - {*said.names, *said.hosts, *said.proofs}
    return bool(lacks) or said.ends - now < (said.ends - said.starts) / 2


def held(folder: Path) -> Certificate:
    """Return what the certificate of a process says; TlsError when there is none."""
    path = folder / CERTIFICATE
    try:
        return certificates_in(path.read_bytes())[0]
    except OSError as error:
        raise TlsError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise TlsError(f"{path}: no certificate: {error}") from error


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    days: int,
    begins: dt.datetime | None = None,
) -> x509.CertificateBuilder:
    now = begins or dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    """Return a host as a certificate has it; ValueError when it is neither name nor address."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _make_folder(path: Path) -> None:
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file as a whole; nobody may read a secret in between."""
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    beside.replace(path)
