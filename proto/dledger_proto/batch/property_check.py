"""The check of all properties of a batch, before a member stores the batch.

Owns: the structure of all records' properties, the limits of names, the check that texts are UTF-8.
Does not own: the columns' sums and limits (`codec.py`), and decoding.

A member's loop does this check for each batch. So two quick checks only tell whether all is well;
a thorough check then looks at a batch that fails them, and names what is wrong. The first quick
check is a bare loop. The second uses numpy: it looks at the first property of all records at once,
then at the second ones, and so on. Its cost hardly grows up to some hundred records.
"""

import importlib.util
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from dledger_proto.batch.properties import PROPERTY_SIZES
from dledger_proto.errors import Code, DledgerError, unreadable
from dledger_proto.limits import (
    PROPERTIES_PER_RECORD_MAX,
    PROPERTY_NAME_SIZE_MAX,
    PROPERTY_SIZE_MIN,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Places = NDArray[np.int64]

MANY: Final = 80
"""Records from which on numpy is the faster one."""
_SIZES: Final = PROPERTY_SIZES.size
_FEW_SIZE: Final = PROPERTY_SIZE_MIN * PROPERTIES_PER_RECORD_MAX
"""A record that is not larger cannot have too many properties."""
_HAS_NUMPY: Final = importlib.util.find_spec("numpy") is not None


def check_properties(area: bytes, sizes: Sequence[int]) -> None:
    """Check the properties of all records, of `sizes` bytes each, back to back in `area`.

    The sizes add up to that of the area. Raises UNREADABLE_BATCH when a record's properties need
    more bytes than it has or hold text that is not UTF-8, MESSAGE_ILLEGAL for the length of a name
    or the number of properties.
    """
    if not area:
        return
    if len(sizes) >= MANY and _HAS_NUMPY:
        is_sound = _are_many_sound(area, sizes)
    else:
        is_sound = area.isascii() and max(sizes) <= _FEW_SIZE and _add_up(area, sizes)
    if not is_sound:
        _look_closely(area, sizes)


def _add_up(area: bytes, sizes: Sequence[int]) -> bool:
    sizes_at = PROPERTY_SIZES.unpack_from
    at = 0
    try:
        for size in sizes:
            end = at + size
            while at < end:
                name_size, value_size = sizes_at(area, at)
                at += _SIZES + name_size + value_size
                if not 0 < name_size <= PROPERTY_NAME_SIZE_MAX:
                    return False
            if at != end:
                return False
    except struct.error:  # no room for two more sizes
        return False
    return True


def _are_many_sound(area: bytes, sizes: Sequence[int]) -> bool:
    import numpy as np

    column = np.array(sizes, np.int64)
    ends: Places = np.cumsum(column)
    at: Places = ends - column
    if 0 in sizes:
        kept = np.flatnonzero(column)
        at, ends = at[kept], ends[kept]
    # So that two sizes can be read wherever a record's bytes may end.
    padded = bytearray(area) + bytes(_SIZES)
    words: NDArray[np.uint32] = np.ndarray(len(area) + 1, "<u4", padded, strides=(1,))
    """Both sizes of the property that begins at a byte, for each byte of the area."""
    starts: list[Places] = []
    name_sizes: list[NDArray[np.integer[Any]]] = []
    while len(at):
        if len(starts) == PROPERTIES_PER_RECORD_MAX:
            return False
        both = words[at]
        names = both & 0xFFFF
        starts.append(at)
        name_sizes.append(names)
        at = at + (names + (both >> 16) + _SIZES)
        left = ends - at
        if left.min() <= 0:
            if left.min() < 0:
                return False
            more = np.flatnonzero(left)
            at, ends = at[more], ends[more]
    names = np.concatenate(name_sizes)
    if names.min() < 1 or names.max() > PROPERTY_NAME_SIZE_MAX:
        return False
    if area.isascii():
        return True
    # With zeros for sizes all is one text. It shows whether each is one, unless a character begins
    # in a name and goes on in its value.
    first = np.concatenate(starts)
    values = np.frombuffer(padded, np.uint8)[first + _SIZES + names]
    words[first] = 0
    try:
        padded.decode()
    except UnicodeDecodeError:
        return False
    return not ((values & 0xC0) == 0x80).any()


def _look_closely(area: bytes, sizes: Sequence[int]) -> None:
    """Check record by record, text by text; raise for the first that is wrong."""
    at = 0
    for record, size in enumerate(sizes):
        end = at + size
        left = PROPERTIES_PER_RECORD_MAX
        while at < end:
            if not left:
                raise DledgerError(
                    Code.MESSAGE_ILLEGAL,
                    f"record {record}: more than {PROPERTIES_PER_RECORD_MAX} properties",
                )
            left -= 1
            if at + _SIZES > end:
                _refuse_overlong(record, size)
            name_size, value_size = PROPERTY_SIZES.unpack_from(area, at)
            name_at = at + _SIZES
            value_at = name_at + name_size
            at = value_at + value_size
            if at > end:
                _refuse_overlong(record, size)
            if not 0 < name_size <= PROPERTY_NAME_SIZE_MAX:
                raise DledgerError(
                    Code.MESSAGE_ILLEGAL,
                    f"record {record}: property name of {name_size} bytes, must have 1 to "
                    f"{PROPERTY_NAME_SIZE_MAX}",
                )
            try:
                area[name_at:value_at].decode()
                area[value_at:at].decode()
            except UnicodeDecodeError as error:
                raise unreadable(
                    f"record {record}: property {area[name_at:value_at]!r}: not UTF-8: "
                    f"{error.reason}"
                ) from None


def _refuse_overlong(record: int, size: int) -> NoReturn:
    raise unreadable(f"record {record}: properties need more than its property_sizes of {size}")
