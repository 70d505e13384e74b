"""The fields of commands as bytes and as text: a codec for each type of field.

Owns: the form of every type, and which form a field's type asks for. Not: the fields themselves
(their commands declare them) and the frame around them (`registry.py`). Little-endian:

    type of the field                bytes
    -------------------------------  --------------------------------------------------------
    bytes                            an id: 16 bytes
    UInt8, UInt32, UInt64, Int64     a number of that size
    bool, an IntEnum                 u8
    str                              u16 size, UTF-8
    tuple[item, ...]                 u16 count, the items one after the other
    a dataclass or NamedTuple        its fields one after the other
"""

import enum
import struct
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Final, Protocol, cast, get_args, get_origin, get_type_hints

from dledger_proto.errors import Code, DledgerError

ID_SIZE: Final = 16
TEXT_SIZE_MAX: Final = 0xFFFF
LIST_ITEMS_MAX: Final = 0xFFFF


class Body:
    """Bytes that are taken one field after the other; any misfit is a ValueError."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        data = self._data[self._at : self._at + size]
        if len(data) != size:
            raise ValueError(f"ends at {len(self._data)}, {size} bytes wanted at {self._at}")
        self._at += size
        return data

    def finish(self) -> None:
        """Check that nothing is left."""
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes are left over")


class FieldCodec(Protocol):
    """The form of one type."""

    @property
    def kind(self) -> str:
        """What docs/formats.md calls it."""
        ...

    def write(self, name: str, value: Any, out: list[bytes]) -> None:
        """Append the bytes of a value; INVALID_ARGUMENT, naming the field, when none fit."""
        ...

    def read(self, body: Body) -> Any:
        """Take a value; ValueError when the bytes hold none."""
        ...


class Number:
    """An integer of a fixed size."""

    def __init__(self, form: str, kind: str) -> None:
        self._form = struct.Struct(form)
        self.kind = kind
        self._least = -(1 << 8 * self._form.size - 1) if form[-1].islower() else 0

    def write(self, name: str, value: int, out: list[bytes]) -> None:
        """See `FieldCodec.write`."""
        try:
            out.append(self._form.pack(value))
        except struct.error:
            most = self._least + (1 << 8 * self._form.size) - 1
            raise _misuse(f"{name} {value}, must be {self._least} to {most}") from None

    def read(self, body: Body) -> int:
        """See `FieldCodec.read`."""
        value: int = self._form.unpack(body.take(self._form.size))[0]
        return value


_U8: Final = Number("<B", "u8")
_U16: Final = Number("<H", "u16")
UInt8 = Annotated[int, _U8]
UInt32 = Annotated[int, Number("<I", "u32")]
UInt64 = Annotated[int, Number("<Q", "u64")]
Int64 = Annotated[int, Number("<q", "i64")]


class _Id:
    kind = "id"

    def write(self, name: str, value: bytes, out: list[bytes]) -> None:
        if len(value) != ID_SIZE:
            raise _misuse(f"{name} has {len(value)} bytes, an id has {ID_SIZE}")
        out.append(value)

    def read(self, body: Body) -> bytes:
        return body.take(ID_SIZE)


class _Text:
    kind = "text"

    def write(self, name: str, value: str, out: list[bytes]) -> None:
        data = value.encode()
        if len(data) > TEXT_SIZE_MAX:
            raise _misuse(f"{name} has {len(data)} bytes, at most {TEXT_SIZE_MAX}")
        _U16.write(name, len(data), out)
        out.append(data)

    def read(self, body: Body) -> str:
        return body.take(_U16.read(body)).decode()


class _Enum:
    kind = "u8"

    def __init__(self, of: type[enum.IntEnum] | type[bool]) -> None:
        self._of = of

    def write(self, name: str, value: int, out: list[bytes]) -> None:
        _U8.write(name, value, out)

    def read(self, body: Body) -> int:
        number = _U8.read(body)
        value = self._of(number)
        if value != number:  # bool takes any number
            raise ValueError(f"flag {number}")
        return value


class _List:
    def __init__(self, item: FieldCodec) -> None:
        self._item = item
        self.kind = f"list of {item.kind}"

    def write(self, name: str, value: Sequence[Any], out: list[bytes]) -> None:
        if len(value) > LIST_ITEMS_MAX:
            raise _misuse(f"{name} has {len(value)} items, at most {LIST_ITEMS_MAX}")
        _U16.write(name, len(value), out)
        for item in value:
            self._item.write(name, item, out)

    def read(self, body: Body) -> tuple[Any, ...]:
        return tuple([self._item.read(body) for _ in range(_U16.read(body))])


class Record:
    """Named fields, as bytes in an order of their own."""

    def __init__(self, of: type, order: Sequence[str] = ()) -> None:
        self._of = of
        hints = get_type_hints(of, include_extras=True)
        names = order or names_of(of)
        assert sorted(names) == sorted(names_of(of)), f"{of.__name__}: {names}"
        self.fields = tuple((name, codec_of(hints[name])) for name in names)
        self.kind = f"({', '.join(f'{name} {codec.kind}' for name, codec in self.fields)})"

    def write(self, name: str, value: Any, out: list[bytes]) -> None:
        """See `FieldCodec.write`."""
        prefix = f"{name}." if name else ""
        for field, codec in self.fields:
            codec.write(prefix + field, getattr(value, field), out)

    def read(self, body: Body) -> Any:
        """See `FieldCodec.read`."""
        return self._of(**{field: codec.read(body) for field, codec in self.fields})


def codec_of(hint: Any) -> FieldCodec:
    """Return the codec of a field's type."""
    if get_origin(hint) is Annotated:
        return cast("FieldCodec", hint.__metadata__[0])
    if get_origin(hint) is tuple:
        return _List(codec_of(get_args(hint)[0]))
    if hint is bytes:
        return _Id()
    if hint is str:
        return _Text()
    if issubclass(hint, bool | enum.IntEnum):
        return _Enum(hint)
    return Record(hint)


def names_of(of: type) -> list[str]:
    """Return the names of the fields of a dataclass or NamedTuple, in order."""
    if is_dataclass(of):
        return [field.name for field in fields(of)]
    return list(cast("tuple[str, ...]", of._fields))  # type: ignore[attr-defined]


def shown(value: object) -> str:
    """Return a value as one word of a line."""
    if describe := getattr(value, "describe", None):
        return cast("str", describe())
    match value:
        case bytes():
            return value.hex()
        case tuple():
            return ",".join(map(shown, cast("tuple[object, ...]", value))) or "-"
        case enum.Enum():
            return value.name
        case _ if is_dataclass(value):
            return f"({shown_fields(value)})"
        case _:
            return str(value)


def shown_fields(value: object) -> str:
    """Return the fields of a value with their names, in the order of its class."""
    return " ".join(f"{name}={shown(getattr(value, name))}" for name in names_of(type(value)))


def _misuse(sentence: str) -> DledgerError:
    return DledgerError(Code.INVALID_ARGUMENT, sentence)
