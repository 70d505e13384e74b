"""The fields of commands as bytes and as text: a codec for each type of field.

Owns: the form of every type, and which form a field's type asks for. Not: the fields themselves
(their commands declare them) and the frame around them (`registry.py`). Little-endian:

    type of the field                bytes
    -------------------------------  --------------------------------------------------------
    bytes                            an id: 16 bytes
    Blob                             u32 size, bytes
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

ID_SIZE: Final = 16
TEXT_SIZE_MAX: Final = 0xFFFF
LIST_ITEMS_MAX: Final = 0xFFFF


class Misfit(Exception):
    """A value that its form cannot hold: the way to the field, and why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path: list[str] = []

    def __str__(self) -> str:
        """Name the field and the reason."""
        return f"{'.'.join(self.path)}{self.args[0]}"


class Body:
    """Bytes that are taken one field after the other."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def take(self, size: int) -> bytes:
        """Return the next bytes; ValueError when there are fewer."""
        data = self.data[self.at : self.at + size]
        if len(data) != size:
            raise ValueError(f"ends at {len(self.data)}, {size} bytes wanted at {self.at}")
        self.at += size
        return data

    def finish(self) -> None:
        """Check that nothing is left."""
        if self.at != len(self.data):
            raise ValueError(f"{len(self.data) - self.at} bytes are left over")


class FieldCodec(Protocol):
    """The form of one type."""

    @property
    def kind(self) -> str:
        """What docs/formats.md calls it."""
        ...

    def write(self, value: Any, out: list[bytes]) -> None:
        """Append the bytes of a value; Misfit when none can hold it."""
        ...

    def read(self, body: Body) -> Any:
        """Take a value; ValueError or struct.error when the bytes hold none."""
        ...


class Number:
    """An integer of a fixed size."""

    def __init__(self, form: str, kind: str) -> None:
        self._form = struct.Struct(form)
        self._size = self._form.size
        self.kind = kind
        self._least = -(1 << 8 * self._size - 1) if form[-1].islower() else 0

    def write(self, value: int, out: list[bytes]) -> None:
        try:
            out.append(self._form.pack(value))
        except struct.error:
            most = self._least + (1 << 8 * self._size) - 1
            raise Misfit(f" {value}, must be {self._least} to {most}") from None

    def read(self, body: Body) -> int:
        at = body.at
        body.at = at + self._size
        value: int = self._form.unpack_from(body.data, at)[0]
        return value


_U8: Final = Number("<B", "u8")
_U16: Final = Number("<H", "u16")
UInt8 = Annotated[int, _U8]
_U32: Final = Number("<I", "u32")
UInt32 = Annotated[int, _U32]
UInt64 = Annotated[int, Number("<Q", "u64")]
Int64 = Annotated[int, Number("<q", "i64")]


class _Id:
    kind = "id"

    def write(self, value: bytes, out: list[bytes]) -> None:
        if len(value) != ID_SIZE:
            raise Misfit(f" has {len(value)} bytes, an id has {ID_SIZE}")
        out.append(value)

    def read(self, body: Body) -> bytes:
        return body.take(ID_SIZE)


class _Blob:
    kind = "bytes"

    def write(self, value: bytes, out: list[bytes]) -> None:
        _U32.write(len(value), out)
        out.append(value)

    def read(self, body: Body) -> bytes:
        return body.take(_U32.read(body))


Blob = Annotated[bytes, _Blob()]


class _Text:
    kind = "text"

    def write(self, value: str, out: list[bytes]) -> None:
        data = value.encode()
        if len(data) > TEXT_SIZE_MAX:
            raise Misfit(f" has {len(data)} bytes, at most {TEXT_SIZE_MAX}")
        _U16.write(len(data), out)
        out.append(data)

    def read(self, body: Body) -> str:
        return body.take(_U16.read(body)).decode()


class _Enum:
    kind = "u8"

    def __init__(self, of: type[enum.IntEnum] | type[bool]) -> None:
        self._of = of

    def write(self, value: int, out: list[bytes]) -> None:
        _U8.write(value, out)

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

    def write(self, value: Sequence[Any], out: list[bytes]) -> None:
        if len(value) > LIST_ITEMS_MAX:
            raise Misfit(f" has {len(value)} items, at most {LIST_ITEMS_MAX}")
        _U16.write(len(value), out)
        for item in value:
            self._item.write(item, out)

    def read(self, body: Body) -> tuple[Any, ...]:
        return tuple([self._item.read(body) for _ in range(_U16.read(body))])


class Record:
    """Named fields, as bytes in an order of their own."""

    def __init__(self, of: type, order: Sequence[str] = ()) -> None:
        self._of = of
        hints = get_type_hints(of, include_extras=True)
        names = order or names_of(of)
        self._in_order = not order
        assert sorted(names) == sorted(names_of(of)), f"{of.__name__}: {names}"
        self.fields = tuple((name, codec_of(hints[name])) for name in names)
        self.kind = f"({', '.join(f'{name} {codec.kind}' for name, codec in self.fields)})"

    def write(self, value: Any, out: list[bytes]) -> None:
        for name, codec in self.fields:
            try:
                codec.write(getattr(value, name), out)
            except Misfit as misfit:
                misfit.path.insert(0, name)
                raise

    def read(self, body: Body) -> Any:
        if self._in_order:
            return self._of(*[codec.read(body) for _, codec in self.fields])
        return self._of(**{name: codec.read(body) for name, codec in self.fields})


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
        case bytes() if len(value) > ID_SIZE:
            return f"[{len(value)}]"
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
