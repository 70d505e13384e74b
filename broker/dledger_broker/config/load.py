"""Reads a member's configuration: TOML file, then environment, into one checked `MemberConfig`.

Owns where values come from, the two short forms, and the wording of refusals. `model` owns what is
allowed. The environment overrides the file, and the file overrides the defaults. The variable
`DLEDGER_STORAGE_FLUSH` sets the key `storage.flush`; lists are written `a,b`, members
`a=host:1,b=host:2`. An empty variable sets nothing, so that `${X:-}` works in compose files.

Short forms, for a process of one group: `group = "name"` with top-level tables `[members]`,
`[clients]` and `[links]`, or `[group]`. Several groups are `[[groups]]`, which the environment
cannot set.
"""

import difflib
import enum
import re
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dledger_broker.config.checks import ConfigError, Problem, unprotected
from dledger_broker.config.model import GroupConfig, MemberConfig
from dledger_broker.config.sections import Section
from dledger_broker.config.toml_file import Raw, read_toml
from dledger_proto.network.exposure import numbers_of

ENVIRONMENT_PREFIX: Final = "DLEDGER_"
VALUE_SHOWN_LENGTH_MAX: Final = 80
REQUIRED: Final = "required"
_MEANS_GROUP: Final = {"groups", "DLEDGER_MEMBERS", "DLEDGER_GROUP_MEMBERS"}
"""Keys and variables that name the members under another name than `group.members`."""
_TABLES: Final = ("members", "clients", "links")
"""Tables that a file of one group may hold beside the name of its group."""
_SHORT_KEYS: Final = {"group.name": "group"} | {f"group.{name}": name for name in _TABLES}
"""The short names of the keys of the one group in variables."""
INSIDE_VARIABLE: Final = ENVIRONMENT_PREFIX + "INSIDE"
"""Tells commands that they run where the members run. A member ignores it."""

_DERIVED: Final = {
    "control_group", "group.member", "group.clients", "group.links", "group.folder", "link_listen",
}  # fmt: skip
"""Keys whose defaults follow from other keys."""
_KUBERNETES: Final = re.compile(r"DLEDGER_(?:.*_)?(?:SERVICE_HOST|SERVICE_PORT.*|PORT(?:_\d+_.*)?)")
"""Kubernetes sets these variables for a service called "dledger..."; no user wrote them."""

_ROCKETMQ_KEYS: Final = {
    "brokerclustername": "cluster",
    "brokername": "group.name",
    "brokerid": "member",
    "namesrvaddr": "name_servers",
    "listenport": "listen",
    "halistenport": "link_listen",
    "brokerip1": "group.clients",
    "storepathrootdir": "folder",
    "storepathcommitlog": "folder",
    "flushdisktype": "storage.flush",
    "flushintervalcommitlog": "storage.flush_interval_ms",
    "mappedfilesizecommitlog": "storage.segment_size_bytes",
    "autocreatetopicenable": "topics.auto_create",
    "autocreatesubscriptiongroup": "consumer_groups.auto_create",
    "defaulttopicqueuenums": "topics.default_queues_per_group",
    "dlegergroup": "group.name",
    "dledgergroup": "group.name",
    "dlegerpeers": "group.members",
    "dledgerpeers": "group.members",
    "dlegerselfid": "member",
    "dledgerselfid": "member",
    "advertise": "group.clients",  # not of RocketMQ: an older name in dledger
}

_ROCKETMQ_ALONE: Final[Mapping[str, str]] = dict.fromkeys(
    ("deletewhen",),
    "RocketMQ's; dledger deletes messages as they expire, see topics.retention_ms",
) | {
    "filereservedtime": "RocketMQ's, in hours; here topics.retention_ms, in milliseconds: 72 hours "
    "are 259200000",
}
"""Keys that nothing in dledger is like, and what to say about them."""


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """One value that the process uses."""

    key: str
    value: str
    """The value as people write it."""
    typed: object
    """The value in JSON: a number, a bool, a string, a list, or an object of strings."""
    source: str
    """"default", "file NAME", "environment NAME" or "derived"."""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A checked configuration, and where each of its values came from."""

    config: MemberConfig
    sources: Mapping[str, str]

    def effective_values(self) -> list[EffectiveValue]:
        """Return every value in the order of the sections."""
        rows: list[EffectiveValue] = []
        _collect(self.config, "", len(self.config.groups) == 1, rows, self.sources)
        return rows


def load_config(
    path: Path | None,
    environment: Mapping[str, str],
    resolve: Callable[[str], Collection[str]] = numbers_of,
) -> LoadedConfig:
    """Read the file (when given) and the environment; ConfigError lists everything wrong.

    `resolve` returns the numbers of a host by name; it is asked only without TLS.
    """
    raw: Raw = {}
    sources: dict[str, str] = {}
    if path is not None:
        raw = read_toml(path)
        raw = _one_shape(raw)
        _note_sources(raw, "", f"file {path.name}", sources)
    problems = _drop_unknown_keys(raw)
    problems += _overlay_environment(raw, environment, sources)
    _resolve_folders(raw, path.resolve().parent if path else Path.cwd(), sources)
    _group_to_list(raw)
    unread = {problem.key for problem in problems}
    config: MemberConfig | None = None
    try:
        config = MemberConfig.model_validate(raw)
        problems += unprotected(config, resolve)
    except ConfigError as error:
        problems += error.problems
    except ValidationError as error:
        problems += [each for each in _invalid(error) if not _follows(each, unread)]
    if config is None or problems:
        raise ConfigError(_with_sources(problems, sources))
    return LoadedConfig(config, sources)


def _invalid(error: ValidationError) -> list[Problem]:
    """Return what pydantic found, in the words of dledger."""
    details = error.errors()
    if any(detail["loc"][:1] == ("groups",) and len(detail["loc"]) > 1 for detail in details):
        # An invalid group also makes pydantic count too few groups: leave that line out.
        details = [detail for detail in details if detail["loc"] != ("groups",)]
    return [_from_pydantic(detail) for detail in details]


def _follows(problem: Problem, unread: set[str]) -> bool:
    """Tell whether a value is missing only because it, or a part of it, could not be read."""
    if problem.limit != REQUIRED:
        return False
    if problem.key in {"group", "group.members"} and unread & _MEANS_GROUP:
        return True
    return any(key == problem.key or key.startswith(f"{problem.key}.") for key in unread)


def known_keys() -> dict[str, type[Any]]:
    """Return every key that a file of one group may hold, with the type of its value."""
    keys: dict[str, type[Any]] = {}
    _add_keys(MemberConfig, "", keys)
    del keys["groups"]
    _add_keys(GroupConfig, "group.", keys)
    return keys


def environment_name(key: str) -> str:
    """Return the variable that sets the key; the short one where there are two."""
    return _variable(_SHORT_KEYS.get(key, key))


def _variable(key: str) -> str:
    return ENVIRONMENT_PREFIX + key.replace(".", "_").upper()


def type_name(kind: type[Any]) -> str:
    """Return what a key holds, in words."""
    origin = typing.get_origin(kind)
    if origin is tuple:
        return "list of addresses"
    if origin is not None:
        return "table of addresses by member id"
    if issubclass(kind, enum.Enum):
        return " or ".join(str(choice.value) for choice in kind)
    return {bool: "true or false", int: "whole number", Path: "folder"}.get(kind, "text")


def nearest_key(unknown: str, known: Sequence[str]) -> str:
    """Return the known key that the writer most likely meant; empty without a similar one."""
    last = unknown.rpartition(".")[2]
    rocketmq = _rocketmq_name(unknown)
    if rocketmq in _ROCKETMQ_KEYS:
        return _ROCKETMQ_KEYS[rocketmq]
    if rocketmq in _ROCKETMQ_ALONE:
        return ""
    by_full = {key.lower(): key for key in known}
    by_last = {key.rpartition(".")[2].lower(): key for key in reversed(known)}
    for wanted, names in ((unknown, by_full), (last, by_last)):
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|-", "_", wanted).lower()
        close = difflib.get_close_matches(snake, names, n=1, cutoff=0.6)
        if close:
            return names[close[0]]
        starting = [names[name] for name in names if name.startswith(snake)]
        if len(snake) >= 4 and len(starting) == 1:
            return starting[0]
    return ""


def _rocketmq_name(key: str) -> str:
    """Return a key as the tables of RocketMQ's keys have it."""
    return key.rpartition(".")[2].replace("_", "").lower()


def _remedy(unknown: str, near: str, otherwise: str) -> str:
    """Return what to say about a name that is unknown; `near` is the name that was meant."""
    alone = _ROCKETMQ_ALONE.get(_rocketmq_name(unknown))
    if alone:
        return alone
    return f'did you mean "{near}"?' if near else otherwise


def _one_shape(raw: Raw) -> Raw:
    """Turn the short forms into a `group` table."""
    raw = dict(raw)
    if "group" in raw and "groups" in raw:
        raise ConfigError([Problem("groups", "", "give either [group] or [[groups]], not both")])
    if isinstance(raw.get("group"), str):
        raw["group"] = {"name": raw["group"]}
    for name in _TABLES:
        group = raw.get("group", {})
        if name not in raw or "groups" in raw or not isinstance(group, dict):
            continue
        if name in group:
            limit = f"give either [{name}] or [group] {name}, not both"
            raise ConfigError([Problem(name, _shown(raw[name]), limit)])
        raw["group"] = {**typing.cast("Raw", group), name: raw.pop(name)}
    return raw


def _group_to_list(raw: Raw) -> None:
    if "group" in raw:
        raw["groups"] = [raw.pop("group")]


def _add_keys(section: type[Section], prefix: str, keys: dict[str, type[Any]]) -> None:
    for name, field in section.model_fields.items():
        annotation: Any = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, Section):
            _add_keys(annotation, f"{prefix}{name}.", keys)
        else:
            keys[prefix + name] = annotation


def _drop_unknown_keys(raw: Raw) -> list[Problem]:
    """Take out unknown keys, with a problem for each, so that the rest can be checked."""
    known = known_keys()
    sections = {key.partition(".")[0] for key in known if "." in key}
    problems: list[Problem] = []

    def keep(key: str, value: object) -> bool:
        if key in known:
            return True
        shown = _shown(value)
        if isinstance(value, dict) and (value or key in sections):
            table = typing.cast("Raw", value)
            for name in [name for name in table if not keep(f"{key}.{name}", table[name])]:
                del table[name]
            return key in sections
        if key in sections:
            problems.append(Problem(key, shown, "must be a table"))
            return False
        near = nearest_key(key, list(known))
        remedy = _remedy(key, near, "see the list of keys: dledger config keys")
        problems.append(Problem(key, shown, f"unknown key; {remedy}"))
        return False

    for name in list(raw):
        if name == "groups":
            if not _are_tables(raw[name]):
                problems.append(Problem(name, _shown(raw[name]), "must be tables: [[groups]]"))
                del raw[name]
                continue
            for group in typing.cast("list[Raw]", raw[name]):
                keep("group", group)
        elif not keep(name, raw[name]):
            del raw[name]
    return problems


def _are_tables(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict) for each in typing.cast("list[object]", value)
    )


def _overlay_environment(
    raw: Raw, environment: Mapping[str, str], sources: dict[str, str]
) -> list[Problem]:
    known = known_keys()
    by_variable = {name(key): key for key in known for name in (environment_name, _variable)}
    problems: list[Problem] = []
    for variable, text in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == INSIDE_VARIABLE:
            continue
        key = by_variable.get(variable)
        if key is None:
            if not _KUBERNETES.fullmatch(variable):
                name = variable.removeprefix(ENVIRONMENT_PREFIX)
                near = nearest_key(name, list(known))
                meant = environment_name(near) if near else ""
                remedy = _remedy(name, meant, "no key is similar")
                problems.append(Problem(variable, _shown(text), f"unknown variable; {remedy}"))
            continue
        if not text:
            continue
        if key.startswith("group.") and "groups" in raw:
            limit = "cannot set one of several [[groups]]; write it in the file"
            problems.append(Problem(variable, _shown(text), limit))
            continue
        try:
            value = _parse(text, known[key])
        except ValueError as error:
            problems.append(Problem(variable, _shown(text), str(error)))
            continue
        kind, _, other = sources.get(key, "").partition(" ")
        if kind == "environment":
            problems.append(Problem(variable, _shown(text), f"{other} sets the same value"))
            continue
        table = raw
        *path, last = key.split(".")
        for name in path:
            table = table.setdefault(name, {})
        table[last] = value
        sources[key] = f"environment {variable}"
    return problems


def _parse(text: str, kind: type[Any]) -> object:
    """Read a variable as the type of its key; ValueError says what the type is."""
    if kind is bool:
        if text.lower() not in {"true", "false"}:
            raise ValueError("must be true or false")
        return text.lower() == "true"
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise ValueError("must be a whole number") from None
    origin = typing.get_origin(kind)
    if origin is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    if origin is not None:  # a table of addresses
        pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
        if any(not equals for _, equals, _ in pairs):
            raise ValueError('must be "a=host:port,b=host:port"')
        table = {name.strip(): value.strip() for name, _, value in pairs}
        if len(table) < len(pairs):
            raise ValueError("must name each member once")
        return table
    return text


def _resolve_folders(raw: Raw, base: Path, sources: Mapping[str, str]) -> None:
    """Make relative folders of a file relative to the file, those of variables to this place.

    So no folder that somebody names is `Path()`, which stands for none: a dot is a folder, too.
    """
    tables: list[tuple[str, Raw]] = [("folder", raw), ("group.folder", raw.get("group", {}))]
    tables += [("tls.folder", raw.get("tls", {}))]
    tables += [("groups", group) for group in raw.get("groups", []) if isinstance(group, dict)]
    for key, table in tables:
        value = table.get("folder")
        if not isinstance(value, str) or not value:
            continue
        of_shell = sources.get(key, "").startswith("environment")
        table["folder"] = str((Path.cwd() if of_shell else base) / value)


def _note_sources(value: object, key: str, source: str, sources: dict[str, str]) -> None:
    if isinstance(value, dict) and key.removeprefix("group.") not in _TABLES:
        for name, inner in typing.cast("Raw", value).items():
            _note_sources(inner, f"{key}.{name}" if key else name, source, sources)
    else:
        sources[key] = source


def _with_sources(problems: Sequence[Problem], sources: Mapping[str, str]) -> list[Problem]:
    def source(key: str) -> str:
        while key and key not in sources:
            key = key.rpartition(".")[0]
        return sources.get(key, "")

    return [
        Problem(problem.key, problem.value, problem.limit, source(problem.key))
        for problem in problems
    ]


def _from_pydantic(detail: ErrorDetails) -> Problem:
    location = [str(part) for part in detail["loc"] if part != "[key]"]
    if location[:1] == ["groups"]:
        location = ["group" if location[1:2] == ["0"] else "groups", *location[2:]]
    key = ".".join(location)
    if detail["type"] == "missing":
        return Problem("group" if key == "groups" else key, "", REQUIRED)
    message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    message = re.sub(r"^(Tuple|Dictionary|Mapping) should have", "must have", message)
    if detail["type"] == "dict_type":
        message = 'must be a table of names and addresses, like { a = "host:port" }'
    return Problem(key, _shown(detail["input"]), message)


def _shown(value: object) -> str:
    text = "{}" if value == {} else str(value)
    if len(text) > VALUE_SHOWN_LENGTH_MAX:
        return text[:VALUE_SHOWN_LENGTH_MAX] + "..."
    return text or '""'


def _collect(
    section: Section,
    prefix: str,
    one_group: bool,
    rows: list[EffectiveValue],
    sources: Mapping[str, str],
) -> None:
    for name in type(section).model_fields:
        value: object = getattr(section, name)
        if isinstance(value, Section):
            _collect(value, f"{prefix}{name}.", one_group, rows, sources)
        elif name == "groups":
            for place, group in enumerate(typing.cast("tuple[GroupConfig, ...]", value)):
                key = "group." if one_group else f"groups[{place}]."
                _collect(group, key, one_group, rows, sources)
        else:
            key = prefix + name
            default = "derived" if _is_derived(key) else "default"
            source = sources.get(key, "file" if key.startswith("groups[") else default)
            rows.append(EffectiveValue(key, _written(value), _typed(value), source))


def _is_derived(key: str) -> bool:
    return key in _DERIVED


def _typed(value: object) -> object:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple):
        return [str(item) for item in typing.cast("tuple[object, ...]", value)]
    if isinstance(value, Mapping):
        return dict(typing.cast("Mapping[str, str]", value))
    return _written(value)


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in typing.cast("tuple[object, ...]", value))
    if isinstance(value, Mapping):
        pairs = typing.cast("Mapping[str, str]", value).items()
        return ", ".join(f"{name}={address}" for name, address in pairs)
    return str(value)
