"""Writes the pages that follow from code: settings, errors, commands, metrics.

    python docs/generate.py            write them
    python docs/generate.py --check    say which of them is not what the code says; write nothing

What a setting means is in the docstring of its class, under `Attributes:`. A setting without a
meaning, or a meaning without a setting, ends the program with an AssertionError.
"""

import enum
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final

from dledger.state.commands.registry import COMMANDS, FORMS
from dledger_broker.config.checks import LEAST_BYTES
from dledger_broker.config.load import environment_name, type_name
from dledger_broker.config.model import GroupConfig, MemberConfig
from dledger_broker.config.sections import Section
from dledger_broker.metrics import catalogue as of_member
from dledger_broker.rpc.table import ROWS, STREAMS
from dledger_client.config import ConnectionConfig, ConsumerConfig, ProducerConfig, PushConfig
from dledger_client.errors import error_of
from dledger_client.latency import LatencyTable
from dledger_monitoring import certificates
from dledger_monitoring.series import Series
from dledger_namesrv import metrics as of_name_server
from dledger_namesrv.service import NameServerSettings
from dledger_proto.errors import MEANINGS, Code
from dledger_proto.exit_codes import EXIT_CODES, Exit
from dledger_proto.limits import GIB, KIB, MIB
from dledger_proto.remedies import remedy_of

DOCS: Final = Path(__file__).parent
NOTE: Final = "<!-- Made by docs/generate.py from the code. Do not edit. -->"
UNITS: Final = {"ms": "milliseconds", "bytes": "bytes", "seconds": "seconds"}
OF_MEMBERS: Final = """\
A member reads a TOML file (`dledger broker --config FILE`), then the environment. A variable
overrides the file, the file overrides the default. An empty variable sets nothing. `dledger config
check FILE` prints the values that a member would run with, and refuses a key that it does not know.

In variables, lists are written `a,b`, and tables of members `a=host:port,b=host:port`. Variables
cannot set one of several `[[groups]]`."""
OF_CLIENTS: Final = """\
`dledger_client` has one frozen class for each kind of settings. A value outside its limits raises
ValueError with the field, the value and the limits. `help(ProducerConfig)` shows the same meanings.
"""
OF_CODES: Final = """\
Every answer of a member or of a name server has one of these codes. **Definite**: the operation
certainly did not take effect. **Retriable**: the same call may succeed later, and its repeat does
no harm. After `UNKNOWN_OUTCOME` a call is retriable only when doing it twice is doing it once. A
program that repeats a send may store the message twice. (A producer repeats its own sends safely
within their budget, because members recognise its repeats.) The client raises the classes of
`dledger_client.errors`, which have `definite` and `retriable` as attributes."""
OF_ENDS: Final = """\
Every command and every process ends with one of these. Numbers from 64 on are those of sysexits.h.
A process that a signal ends has no code of its own; a shell shows 128 plus the number of the
signal. `dledger namesrv` and `python -m dledger_namesrv` end alike."""
OF_COMMANDS: Final = """\
A command is the only way to change the replicated state. One payload of a COMMANDS entry of the log
is one command; [formats](formats.md#command) draws its bytes. A number is never used again: 1, 3 to
5 and 14 are withdrawn."""
OF_CALLS: Final = """\
Each call of a member, and the right that it needs where `users = true` is configured.
`tests/unit/broker/test_table.py` tries each of them without a login, and those that name something
without the right. A member of the cluster may make every call. [Users](decisions/users.md) says
what rights are; SECURITY.md of the repository has the other ports."""
OF_METRICS: Final = """\
What `/metrics` says. [Monitoring](monitoring.md) says how to ask, and what to look at. Where
RocketMQ 5 has a series for the same thing, the name, the unit and the labels are RocketMQ's; the
other names begin with `dledger_`. A counter begins at 0 with its process. A histogram has
`_bucket`, `_sum` and `_count`. Every process also has `process_cpu_seconds_total`,
`process_resident_memory_bytes`, `process_open_fds` and their like, as all programs with Prometheus'
library."""
CONTINUED: Final = re.compile(r"\n {4,}")


def meanings(kind: type) -> dict[str, str]:
    """Return what each field of a class means, from its docstring."""
    text = inspect.cleandoc(kind.__doc__ or "").partition("\nAttributes:\n")[2]
    rows = re.split(r"\n {4}(?! )", "\n" + text.rstrip())[1:]
    parts = (CONTINUED.sub(" ", row).partition(": ") for row in rows)
    return {name: meaning for name, _, meaning in parts}


def summary(kind: type) -> str:
    """Return the first paragraph of a class's docstring."""
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


def described(kind: type, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each field with its meaning; each has one, and each meaning has a field."""
    said, wanted = meanings(kind), list(names)
    assert list(said) == wanted, f"{kind.__name__}: Attributes {list(said)}, fields {wanted}"
    return iter(said.items())


def unit_of(name: str) -> str:
    """Return the unit that a name ends with, or that it has before `_max` or `_min`."""
    words = name.removesuffix("_max").removesuffix("_min").split("_")
    return next((UNITS[word] for word in reversed(words) if word in UNITS), "")


def written(value: object, unit: str = "") -> str:
    """Return a value as the reader writes it, with a rounder word beside a large number."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, enum.Enum):
        return f"`{value.value}`"
    if isinstance(value, float):
        return f"`{value:g}`"
    if value in ("", (), {}) or value == Path():
        return "none"
    if isinstance(value, int) and unit == "bytes":
        for size, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
            if value >= size and value % size == 0:
                return f"`{value}` ({value // size:,} {name})"
    if isinstance(value, int) and unit == "milliseconds" and value >= 60_000:
        for size, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
            if value % size == 0:
                return f"`{value}` ({value // size:,} {name})"
    return f"`{value}`"


def between(least: object, most: object, unit: str) -> str:
    """Return the words for limits, of which each may be missing."""
    if least is None and most is None:
        return ""
    if most is None:
        return f"at least {written(least, unit)}"
    if least is None:
        return f"at most {written(most, unit)}"
    return f"{written(least, unit)} to {written(most, unit)}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# The member and the name server


def limits_of(key: str, field: Any, unit: str) -> str:
    """Return what a key of the configuration may hold."""
    found = {
        name: getattr(each, name)
        for each in field.metadata
        for name in ("ge", "le", "min_length", "max_length")
        if hasattr(each, name)
    }
    words = type_name(field.annotation)
    numbers = between(LEAST_BYTES.get(key, found.get("ge")), found.get("le"), unit)
    counts = between(found.get("min_length"), found.get("max_length"), "")
    return "; ".join(filter(None, [words, numbers, counts and f"{counts} of them"]))


def keys_of(section: type[Section], prefix: str) -> str:
    """Return the table of one section of the configuration."""
    rows: list[list[str]] = []
    for name, meaning in described(section, section.model_fields):
        field, key = section.model_fields[name], prefix + name
        if name == "groups" or isinstance(field.default, Section):
            continue
        unit = unit_of(name)
        default = "**required**" if field.is_required() else written(field.default, unit)
        limits = limits_of(key, field, unit)
        rows.append([f"`{key}`<br>`{environment_name(key)}`", unit, default, limits, meaning])
    return table(["Key, variable", "Unit", "Default", "Holds", "Meaning"], rows)


def configuration() -> str:
    """Return the page of the member's and the name server's configuration."""
    sections = [
        f"## `[group]`\n\n{summary(GroupConfig)} Several are `[[groups]]`, a table each.\n\n"
        'A process with one group may write less: `group = "orders"` at the top level, with\n'
        "tables `[members]`, `[clients]` and `[links]` of their own.\n\n"
        + keys_of(GroupConfig, "group.")
    ]
    for name, field in MemberConfig.model_fields.items():
        kind = type(field.default)
        if isinstance(field.default, Section):
            sections.append(f"## `[{name}]`\n\n{summary(kind)}\n\n{keys_of(kind, f'{name}.')}")
    defaults = NameServerSettings()
    server = [
        [f"`--{name.replace('_', '-')}`", unit_of(name), written(getattr(defaults, name)), meaning]
        for name, meaning in described(NameServerSettings, (f.name for f in fields(defaults)))
    ]
    return "\n\n".join(
        [
            "# Configuration of servers",
            NOTE,
            OF_MEMBERS,
            "```toml\n" + example() + "\n```",
            "## Top level\n\n" + keys_of(MemberConfig, ""),
            *sections,
            "## The name server\n\nA name server has no file. `dledger namesrv` takes options.\n\n"
            + table(["Option", "Unit", "Default", "Meaning"], server),
        ]
    )


def example() -> str:
    """Return the smallest configuration, from the header of the module that defines it."""
    header = inspect.getdoc(sys.modules[MemberConfig.__module__]) or ""
    lines = [line for line in header.split("Minimal file:")[1].splitlines() if line[:4] == " " * 4]
    return "\n".join(line[4:] for line in lines).replace("\n[group]", "\n\n[group]")


# The client


def named(choice: enum.Enum) -> str:
    """Return how Python names a member of an enumeration."""
    return f"{type(choice).__name__}.{choice.name}"


def settings_of(kind: type) -> str:
    """Return the section of one class of settings of the client."""
    rows: list[list[str]] = []
    by_name = {each.name: each for each in fields(kind)}
    for name, meaning in described(kind, by_name):
        each, unit = by_name[name], unit_of(name)
        if isinstance(each.default, ConnectionConfig | LatencyTable):
            default = f"`{type(each.default).__name__}`, see below"
        else:
            default = "**required**" if each.default is MISSING else written(each.default, unit)
        least, most = each.metadata.get("limits", (None, None))
        holds = between(least, most, unit)
        if isinstance(each.default, enum.Enum):  # in Python one writes the member's name
            holds = ", ".join(f"`{choice}`" for choice in map(named, type(each.default)))
            default = f"`{named(each.default)}`"
        rows.append([f"`{name}`", unit, default, holds, meaning])
    heads = ["Field", "Unit", "Default", "Holds", "Meaning"]
    return f"## `{kind.__name__}`\n\n{summary(kind)}\n\n{table(heads, rows)}"


def client_configuration() -> str:
    """Return the page of the client's settings."""
    kinds = (ProducerConfig, ConsumerConfig, PushConfig, ConnectionConfig, LatencyTable)
    return "\n\n".join(
        [
            "# Settings of the client",
            NOTE,
            OF_CLIENTS,
            *map(settings_of, kinds),
        ]
    )


# Errors and exit codes


def errors() -> str:
    """Return the page of error codes and exit codes."""
    yes = {True: "yes", False: "no"}
    rows: list[list[str]] = []
    for answer in sorted(Code):
        about = MEANINGS[answer]
        kind = "" if answer is Code.OK else f"`{type(error_of(answer)).__name__}`"
        retriable = "of some calls" if answer is Code.UNKNOWN_OUTCOME else yes[about.retriable]
        remedy = remedy_of(answer, "the address of the cluster", "timeout")
        row = [
            f"{answer.value}",
            f"`{answer.name}`",
            about.sentence,
            yes[about.definite],
            retriable,
        ]
        rows.append([*row, kind, remedy])
    heads = ["Number", "Name", "Meaning", "Definite", "Retriable", "Class in the client", "Remedy"]
    ends: dict[tuple[Exit, str], list[str]] = {}
    for code in Exit:
        for command, said in EXIT_CODES.items():
            if code in said:
                name = f"`dledger {command}`" if command else "other commands"
                ends.setdefault((code, said[code]), []).append(name)
    codes = [[f"{code.value}", ", ".join(names), text] for (code, text), names in ends.items()]
    return "\n\n".join(
        [
            "# Errors and exit codes",
            NOTE,
            "## Error codes",
            OF_CODES,
            table(heads, rows),
            "## Exit codes",
            OF_ENDS,
            table(["Code", "Ended", "Meaning"], codes),
        ]
    )


def commands() -> str:
    """Return the page of all replicated commands."""
    rows = (
        (
            str(command.NUMBER),
            f"`{command.__name__}`",
            summary(command),
            ", ".join(f"{name} {codec.kind}" for name, codec in FORMS[command].fields),
        )
        for command in COMMANDS
    )
    heads = ["number", "command", "what it does", "fields, in the order of their bytes"]
    return "\n\n".join([NOTE, "# Commands", OF_COMMANDS, table(heads, rows)])


def series_of(all_series: Sequence[Series]) -> str:
    """Return a table of series."""
    rows = (
        [f"`{each.name}`", each.kind, ", ".join(f"`{name}`" for name in each.labels), each.meaning]
        for each in all_series
    )
    return table(["Series", "Kind", "Labels", "Meaning"], rows)


def metrics() -> str:
    """Return the page of all series."""
    return "\n\n".join(
        [
            "# Metrics",
            NOTE,
            OF_METRICS,
            "## A member\n\nAll series also have the labels `cluster`, `node_type` (`broker`) and "
            "`node_id` (the\nmember).\n\n" + series_of(of_member.ALL),
            "## A name server\n\nAll series also have the labels `node_type` (`nameserver`) and "
            "`node_id`\n(the address it listens on).\n\n" + series_of(of_name_server.ALL),
            "## Both, with TLS\n\n" + series_of(certificates.ALL),
        ]
    )


def calls() -> str:
    """Return the page of what each call needs."""
    rows = [(f"`{row.service}/{row.name}`", row.rule.says) for row in ROWS]
    rows += [(f"`{name}`", rule.says) for name, rule in STREAMS.items()]
    heads = ["call", "who may, with users on"]
    return "\n\n".join([NOTE, "# Who may make which call", OF_CALLS, table(heads, sorted(rows))])


PAGES: Final = {
    "calls.md": calls,
    "commands.md": commands,
    "configuration.md": configuration,
    "client-configuration.md": client_configuration,
    "errors.md": errors,
    "metrics.md": metrics,
}


def main(arguments: Sequence[str]) -> int:
    """Write or check all pages; return the exit code."""
    stale: list[str] = []
    for name, make in PAGES.items():
        path, text = DOCS / name, make() + "\n"
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.write_text(text)
    if "--check" in arguments:
        for name in stale:
            print(f"docs/{name} is not what the code says; run: python docs/generate.py")
        return bool(stale)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
