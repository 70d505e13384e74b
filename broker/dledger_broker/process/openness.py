"""How open a member is: its files for TLS, and what it warns of at its start.

Owns the warnings. Not owned: the rule that a member others can reach needs TLS (`config.checks`).
"""

import contextlib
import os
import shlex
import stat

import structlog

from dledger_broker.config.model import MemberConfig
from dledger_monitoring.certificates import check_names
from dledger_proto.network.exposure import Security
from dledger_proto.network.tls import TlsFolder, member_name


def warn_of_openness(config: MemberConfig) -> None:
    """Say what stands open that might not be meant to."""
    _warn_of_folders(config)
    if config.security is Security.OFF:
        why = "whoever reaches this member's ports may read and write everything"
        structlog.get_logger().warning("security is off", reason=why, remedy="set tls.folder")


def security_of(config: MemberConfig) -> str:
    """Return what status says of it."""
    if config.users:
        return "users"
    return "on" if config.tls.is_on else "off"


def tls_of(config: MemberConfig) -> TlsFolder | None:
    """Return the files for TLS, if there is a folder; TlsError when they cannot be used."""
    if not config.tls.is_on:
        return None

    def problem(reason: str) -> None:
        structlog.get_logger().warning("changed TLS files are not used", reason=reason)

    tls = TlsFolder(str(config.tls.folder), problem)
    check_names(
        tls, (member_name(config.cluster, each.name, config.member) for each in config.groups)
    )
    return tls


def _warn_of_folders(config: MemberConfig) -> None:
    """Say which data folders other users of the machine may look into.

    A member makes its folders for its own user alone; one that was there before keeps its mode.
    """
    for group in config.groups:
        with contextlib.suppress(OSError):  # it is made at the start
            mode = stat.S_IMODE(os.stat(group.folder).st_mode)
            if mode & 0o077:
                structlog.get_logger().warning(
                    "data folder is open to other users of the machine",
                    folder=str(group.folder),
                    mode=f"{mode:04o}",
                    remedy=f"chmod 700 {shlex.quote(str(group.folder))}",
                )
