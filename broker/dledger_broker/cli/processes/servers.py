"""`dledger broker` and `dledger namesrv`: one process of a real cluster, in the foreground."""

import os
from pathlib import Path
from typing import Annotated

import typer

from dledger_broker.cli.output import bad_input
from dledger_proto.network.exposure import VARIABLE, Security
from dledger_proto.network.tls_files import FOLDER_VARIABLE


def broker(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="TOML file; default: read only the environment."),
    ] = None,
) -> None:
    """Run one member of its broker group (or groups) until SIGTERM."""
    _silence_grpc()
    # Imported here: the server's machinery is not worth loading for any other command.
    from dledger_broker.config.load import load_config
    from dledger_broker.process.member import run_member

    raise typer.Exit(run_member(load_config(config, os.environ).config))


def namesrv(
    listen: Annotated[str, typer.Option(help="host:port")] = "127.0.0.1:9876",
    cluster: Annotated[
        str,
        typer.Option(
            help="Serve only this cluster; default: that of the certificate, without TLS the first "
            "one that registers."
        ),
    ] = "",
    lease_seconds: Annotated[
        float,
        typer.Option(min=0.1, max=3600, help="Drop a member that is silent for longer than this."),
    ] = 10.0,
    tls_folder: Annotated[
        Path | None,
        typer.Option(
            envvar=FOLDER_VARIABLE, help="Folder with ca.crt, tls.crt and tls.key; default: no TLS."
        ),
    ] = None,
    security: Annotated[
        Security,
        typer.Option(
            envvar=VARIABLE, help="off: without TLS, though other machines may reach --listen."
        ),
    ] = Security.AUTO,
    metrics_listen: Annotated[
        str, typer.Option(help="host:port of metrics and health by HTTP; default: none.")
    ] = "",
    log_format: Annotated[str, typer.Option(help="console or json")] = "console",
) -> None:
    """Run a name server until SIGTERM. It stores nothing: run as many as you like."""
    _silence_grpc()
    from dledger_namesrv.__main__ import run
    from dledger_namesrv.logs import set_up_logs
    from dledger_namesrv.service import NameServerSettings
    from dledger_proto.network.addresses import check_address

    for option, address in (("--listen", listen), ("--metrics-listen", metrics_listen)):
        try:
            if address or option == "--listen":
                check_address(address)
        except ValueError as error:
            bad_input(f"{option}: {address}, {error}")
    if log_format not in {"console", "json"}:
        bad_input(f"--log-format: {log_format}, must be console or json")
    set_up_logs(json=log_format == "json")
    folder = str(tls_folder or "")
    raise typer.Exit(
        run(
            NameServerSettings(
                listen, cluster, lease_seconds, folder, security.value, metrics_listen
            )
        )
    )


def _silence_grpc() -> None:
    """Keep gRPC's own lines out of the log: strangers cause one with every call that is refused.

    What matters of them reaches us as errors. It is read when gRPC is imported.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
