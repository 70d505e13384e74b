"""Targets: texts that people write: settings, patterns, names, times."""

from collections.abc import Callable, Sequence
from typing import Final

from dledger_broker.cli.connect import parse_name_servers
from dledger_broker.cli.output import CommandFailed
from dledger_broker.cli.values import parse_duration, parse_size, parse_time, shown_time
from dledger_broker.config.checks import ConfigError
from dledger_broker.config.load import load_config
from dledger_broker.timers.cron import due_time
from dledger_client._shell.group.broadcast import _offsets_of
from dledger_client._shell.wire import parse_addresses
from dledger_client.spark import options
from dledger_proto.errors import DledgerError
from dledger_proto.names import check_client_id, check_topic_name, escaped, printable
from dledger_proto.network.addresses import check_address, split_address
from dledger_proto.patterns import KNOWN_STATES_MAX, STATES_MAX, Pattern
from tests.fuzz.target import Target
from tests.fuzz.targets.small import JSON_WORDS
from tests.fuzz.targets.state import scratch
from tests.unit.config.support import GOOD

NAMES: Final = ("orders", "%RETRY%g-1", "a" * 127, "", "0_9")
CRON_WORDS: Final = (
    b"*", b"*/5", b"1-5", b"L", b"#2", b"MON", b"JAN", b"?", b" ", b",", b"\n", b"60", b"0",
)  # fmt: skip
_FULL: Final = """
cluster = "c"
member = "a"
folder = "x"

[[groups]]
name = "g1"
members = { a = "h:1" }

[[groups]]
name = "g2"
members = { a = "h:2" }
folder = "y"
"""
TOML_WORDS: Final = (
    b"[", b"[[", b"]", b"=", b'"', b"'''", b"{", b"}", b"\n", b"groups", b"group", b"folder", b".",
    b"[" * 2_000, b"9" * 5_000, b"0x" + b"f" * 5_000, b"1979-05-27", b"nan", b"inf", b"true",
    b'"\\u0000"', b"cluster", b"members", b"{a=" * 500, b"a." * 2_000,
)  # fmt: skip


def _text(read: Callable[[str], object]) -> Callable[[bytes], None]:
    """Return a reader of texts; one with half characters is none that a caller can send."""

    def of_bytes(data: bytes) -> None:
        read(data.decode(errors="replace"))

    return of_bytes


def _config(data: bytes) -> None:
    """Read a file; in the second half of the input stand variables, one a line."""
    file, _, variables = data.partition(b"\0")
    pairs = [line.partition("=") for line in variables.decode(errors="replace").splitlines()]
    environment = {name: text for name, _, text in pairs}
    loaded = load_config(scratch("member.toml", file), environment, lambda _host: [])
    loaded.effective_values()


def _config_seeds() -> Sequence[bytes]:
    variables = b"DLEDGER_CLUSTER=shop\nDLEDGER_MEMBERS=a=h:1,b=h:2\nDLEDGER_FOLDER=/x"
    return [
        GOOD.encode(),
        _FULL.encode(),
        variables and b"\0" + variables,
        GOOD.encode() + b"\0X=1",
    ]


def _pattern(text: str) -> None:
    """The work of a pattern is bounded by the names, however it is built."""
    pattern = Pattern(text)
    assert pattern.size <= STATES_MAX
    for name in NAMES:
        pattern.matches(name)
    letters = sum(map(len, NAMES))
    assert pattern.work <= 2 * letters * STATES_MAX
    assert pattern._known_states <= KNOWN_STATES_MAX + STATES_MAX


def _names(text: str) -> None:
    assert printable(text).isprintable() or " " in printable(text) or not text.isascii()
    escaped(text)
    check_client_id("id", text)
    check_topic_name(text)


def _addresses(text: str) -> None:
    host, port = split_address(check_address(text))
    assert f"{host}:{port}" == text or port == int(text.rpartition(":")[2])


def _cron(text: str) -> None:
    cron, _, zone = text.partition("|")
    due_ms = due_time(cron, zone or "UTC", 1_700_000_000_000, 1_700_000_100_000)
    assert due_ms > 1_700_000_000_000


def _values(text: str) -> None:
    for read in (parse_time, parse_size, parse_duration):
        try:
            shown_time(read(text, "--option"))
        except CommandFailed as error:
            failed = error
    raise failed


def _options(text: str) -> None:
    pairs = [line.partition("=") for line in text.splitlines()]
    options.parse({name: value for name, _, value in pairs})


def _offsets(data: bytes) -> None:
    _offsets_of(scratch("offsets.json", data))


_OPTIONS: Final = (
    b"endpoints=h:1\ntopic=orders",
    b'endpoints=h:1,h:2\nassign={"orders": [0, 1]}\nstartingOffsets={"orders": {"0": 5}}',
    b"path=/data\ntopic=o\nmaxBytesPerPartition=12m\nstartingTimestamp=2026-01-31T00:00:00Z",
    b"endpoints=h:1\ntopicsPattern=a.*\ncolumns=body,tag\npushdown=true\nmaxTriggerDelay=5s",
)
TARGETS: Final = (
    Target(
        "config", _config, (ConfigError,), _config_seeds,
        ("dledger_broker.config.load:load_config", "dledger_broker.config.toml_file:read_toml"),
        tokens=TOML_WORDS, tries=250,
        multiple=2_000, allowance=4 << 20,
    ),
    Target(
        "pattern", _text(_pattern), (DledgerError,),
        lambda: [b"a.*", b"(a|b)+c?", b"[a-f_]{2,5}x{3}", b"((a*)*)*b", b"^x$", rb"\d\w\%"],
        ("dledger_proto.patterns:Pattern",),
        tokens=(b"(", b")", b"|", b"*", b"{2,5}", b"{40}", b"[^a]", b"(?:", b"?", b"{,3}", b"{0}"),
        allowance=16 << 20, tries=500,
    ),
    Target(
        "names", _text(_names), (DledgerError,), lambda: [b"orders", b"%DLQ%g|1_-"],
        ("dledger_proto.names:check_name",), tries=400,
    ),
    Target(
        "address", _text(_addresses), (ValueError,),
        lambda: [b"host-1:10911", b"[::1%eth0]:1", b"a.b.c:65535"],
        ("dledger_proto.network.addresses:split_address",),
        tokens=(b":", b".", b"[", b"]", b"%", b"65535", "²".encode(), b"0" * 5_000), tries=400,
    ),
    Target(
        "addresses", _text(parse_addresses), (ValueError,), lambda: [b"a:1, b:2", b"c:3"],
        ("dledger_client._shell.wire:parse_addresses",),
        tokens=(b":", b",", "²".encode(), b"9" * 5_000), tries=400, multiple=128,
    ),
    Target(
        "name-servers", _text(parse_name_servers), (CommandFailed,), lambda: [b"a:1, b:2"],
        ("dledger_broker.cli.connect:parse_name_servers",), tokens=(b":", b","), tries=200,
        multiple=128,
    ),
    Target(
        "cron", _text(_cron), (DledgerError,),
        lambda: [b"*/5 * * * *", b"0 3 * * MON|Europe/Berlin", b"0 0 0 L 2 *", b"1 1 30 2 *"],
        ("dledger_broker.timers.cron:due_time",), tokens=CRON_WORDS, tries=250,
    ),
    Target(
        "values", _text(_values), (CommandFailed,),
        lambda: [b"2026-01-31T12:00:00", b"64m", b"10m", b"0001-01-01T00:00:00+14:00"],
        (
            "dledger_broker.cli.values:parse_time", "dledger_broker.cli.values:parse_size",
            "dledger_broker.cli.values:parse_duration",
        ),
        tokens=("²".encode(), b"9999-12-31", b"-23:59", b"Z", b"+", b"999999999d"),
    ),
    Target(
        "spark-options", _text(_options), (DledgerError,), lambda: _OPTIONS,
        ("dledger_client.spark.options:parse",),
        tokens=(*JSON_WORDS, b"\n", *(f"\n{name}=".encode() for name in options.OPTIONS)),
        multiple=256,
    ),
    Target(
        "broadcast-offsets", _offsets, (DledgerError,),
        lambda: [b'{"group": "g", "offsets": {"00/1": 5, "01/2": 6}}'],
        ("dledger_client._shell.group.broadcast:_offsets_of",), tokens=JSON_WORDS, multiple=128,
    ),
)  # fmt: skip
