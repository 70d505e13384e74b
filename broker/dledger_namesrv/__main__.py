"""`python -m dledger_namesrv`: run a name server. Also what `dledger namesrv` calls."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence

import structlog

from dledger_namesrv.service import NameServerSettings, PortTaken, serve
from dledger_proto.exit_codes import Exit, exit_codes_help
from dledger_proto.names import printable


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
    parser.add_argument("--cluster", default="", help="serve only this cluster")
    parser.add_argument(
        "--lease-seconds",
        type=float,
        default=defaults.lease_seconds,
        help="a member silent for longer is dropped (%(default)s)",
    )
    parser.add_argument("--log-format", choices=("console", "json"), default="console")
    given = parser.parse_args(arguments)
    if not 0.1 <= given.lease_seconds <= 3600:
        parser.error(f"--lease-seconds: {given.lease_seconds}, must be 0.1 to 3600")
    set_up_logs(json=given.log_format == "json")
    return run(NameServerSettings(given.listen, given.cluster, given.lease_seconds))


def run(settings: NameServerSettings) -> int:
    """Serve until a signal; return the exit code."""
    try:
        asyncio.run(serve(settings))
    except PortTaken as error:
        remedy = "stop the process that uses it or choose another --listen"
        print(f"error: {error}; {remedy}", file=sys.stderr)  # noqa: T201
        return Exit.PORT_TAKEN
    return Exit.OK


def _printable_values(
    _logger: object, _name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Keep what strangers send from moving a terminal's cursor or beginning a line of its own."""
    return {
        key: printable(value) if isinstance(value, str) else value for key, value in event.items()
    }


def set_up_logs(*, json: bool) -> None:
    """Log to standard error. A name server does not import the broker and its `process/logs.py`."""
    renderers: list[structlog.typing.Processor] = (
        [structlog.processors.JSONRenderer()]
        if json
        else [_printable_values, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


if __name__ == "__main__":
    sys.exit(main())
