"""`dledger health`: whether one process answers."""

from typing import Annotated

import typer

from dledger_broker.cli.connect import check_option_address
from dledger_broker.cli.output import CommandFailed, print_line
from dledger_broker.process.health import TIMEOUT_SECONDS, Unhealthy, look
from dledger_proto.exit_codes import Exit


def health(
    address: Annotated[
        str,
        typer.Argument(
            help="host:port of a member or name server; default: whoever listens here at a "
            "member's usual port, 10911, else at a name server's, 9876."
        ),
    ] = "",
    timeout: Annotated[float, typer.Option(min=0.1, max=60, help="Seconds.")] = TIMEOUT_SECONDS,
) -> None:
    """Ask one process whether it answers, and print what it is.

    For health checks. A check that runs often costs less as
    `python -m dledger_broker.process.health`.
    """
    if address:
        check_option_address(address)
    try:
        print_line(look(address, timeout))
    except Unhealthy as error:
        raise CommandFailed(str(error), code=Exit.FAILED) from error
