"""`python -m dledger_namesrv`: run a name server. Also what `dledger namesrv` calls."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # a line of it for each stranger; read at import

from dledger_namesrv.logs import set_up_logs
from dledger_namesrv.service import NameServerSettings, PortTaken, serve, unprotected
from dledger_proto.exit_codes import Exit, exit_codes_help
from dledger_proto.network.addresses import check_address
from dledger_proto.network.exposure import VARIABLE, Security
from dledger_proto.network.open_files import ask_for_open_files
from dledger_proto.network.tls import TlsError
from dledger_proto.network.tls_files import FOLDER_VARIABLE


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, serve, return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m dledger_namesrv",
        description=__doc__,
        epilog=exit_codes_help("namesrv"),
        formatter_class=argparse.RawDescriptionHelpFormatter,  # one code in each line
    )
    defaults = NameServerSettings()
    parser.add_argument("--listen", default=defaults.listen, help="host:port (%(default)s)")
    parser.add_argument(
        "--cluster", default="", help="serve only this cluster; with TLS: that of the certificate"
    )
    parser.add_argument(
        "--lease-seconds",
        type=float,
        default=defaults.lease_seconds,
        help="a member silent for longer is dropped (%(default)s)",
    )
    parser.add_argument(
        "--tls-folder",
        default=os.environ.get(FOLDER_VARIABLE, ""),
        help="with ca.crt, tls.crt and tls.key",
    )
    parser.add_argument(
        "--security",
        default=os.environ.get(VARIABLE) or defaults.security,
        help="off: without TLS though other machines may reach it (%(default)s)",
    )
    parser.add_argument(
        "--metrics-listen", default="", help="host:port of metrics and health by HTTP (none)"
    )
    parser.add_argument("--log-format", choices=("console", "json"), default="console")
    given = parser.parse_args(arguments)
    if not 0.1 <= given.lease_seconds <= 3600:
        parser.error(f"--lease-seconds: {given.lease_seconds}, must be 0.1 to 3600")
    if given.security not in set(Security):
        parser.error(f"--security: {given.security}, must be {' or '.join(Security)}")
    for option, address in (("listen", given.listen), ("metrics-listen", given.metrics_listen)):
        try:
            if address or option == "listen":
                check_address(address)
        except ValueError as error:
            parser.error(f"--{option}: {address}, {error}")
    set_up_logs(json=given.log_format == "json")
    return run(
        NameServerSettings(
            given.listen,
            given.cluster,
            given.lease_seconds,
            given.tls_folder,
            given.security,
            given.metrics_listen,
        )
    )


def run(settings: NameServerSettings) -> int:
    """Serve until a signal; return the exit code."""
    problem = unprotected(settings)
    if problem:
        remedies = "leave one out" if settings.tls_folder else "set --tls-folder, or --security off"
        print(f"error: {problem}; {remedies}", file=sys.stderr)  # noqa: T201
        return Exit.BAD_INPUT
    ask_for_open_files()
    try:
        asyncio.run(serve(settings))
    except TlsError as error:
        print(f"error: --tls-folder: {error}", file=sys.stderr)  # noqa: T201
        return Exit.BAD_INPUT
    except PortTaken as error:
        remedy = "stop the process that uses it or choose another --listen"
        print(f"error: {error}; {remedy}", file=sys.stderr)  # noqa: T201
        return Exit.PORT_TAKEN
    return Exit.OK


if __name__ == "__main__":
    sys.exit(main())
