"""Makes certificates for commands, and shows them. Not: certificates themselves (`security`)."""

import datetime as dt
from pathlib import Path
from typing import Final

from dledger_broker.cli.output import bad_input, note, print_rows
from dledger_broker.security.authority import AUTHORITY_FOLDER, Authority, Wanted, held
from dledger_monitoring.certificates import certificates_in
from dledger_proto.network.tls import TlsError
from dledger_proto.network.tls_files import AUTHORITY, CERTIFICATE

COLUMNS: Final = ("folder", "names", "hosts", "from", "until", "days_left", "authorities_until")


def issue_all(
    authority: Authority, folder: Path, wanted: list[Wanted], days: int, *, as_json: bool
) -> None:
    """Make certificates and show them; the command ends when one would lose a name."""
    if authority.ends < dt.datetime.now(dt.UTC) + dt.timedelta(days=days):
        bad_input(
            f"--days: {days}, the authority itself holds until {authority.ends:%Y-%m-%d}",
            "give fewer days, or make a new authority",
        )
    for each in wanted:
        _check_kept(folder, each)
    rows = [row_of(authority.issue(folder, each, days)) for each in wanted]
    print_rows(rows, COLUMNS, as_json=as_json, empty="an authority, and no certificates")
    note(f"the folder {folder / AUTHORITY_FOLDER} belongs on no server")


def _check_kept(folder: Path, wanted: Wanted) -> None:
    """End the command when a certificate would lose what the one before it said."""
    if not (folder / wanted.folder / CERTIFICATE).exists():
        return
    before = held(folder / wanted.folder)
    lost = {*before.names, *before.hosts} - {*wanted.names, *wanted.hosts}
    if lost:
        bad_input(
            f"{folder / wanted.folder}: the new certificate would lack {', '.join(sorted(lost))}",
            "give these, too, or remove the folder first",
        )


def row_of(folder: Path) -> dict[str, object]:
    """Return what to show of a process's certificate."""
    try:
        said = held(folder)
        authorities = certificates_in((folder / AUTHORITY).read_bytes())
    except (TlsError, OSError, ValueError) as error:
        bad_input(f"{folder}: {error}")
    left = said.ends - dt.datetime.now(dt.UTC)
    return {
        "folder": str(folder),
        "names": ", ".join(said.names),
        "hosts": ", ".join(said.hosts),
        "from": said.starts.isoformat(timespec="seconds"),
        "until": said.ends.isoformat(timespec="seconds"),
        "days_left": left.days,
        "authorities_until": ", ".join(f"{each.ends:%Y-%m-%d}" for each in authorities),
    }
