"""Known bugs of parsers: what is not checked of bytes that somebody else may have made."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

KEEPS: Final = "fuzz.test_replay.keeps"

PARSER_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "fetch-rows-unchecked",
        "the number of rows that a fetch frame announces is not compared with its bytes",
        [
            Edit(
                "dledger_proto.rpc.frames:_fetch_frame",
                "if count > FRAME_ROWS_MAX or at + detail_size > len(view):",
                "if count > FRAME_ROWS_MAX:",
            )
        ],
        [f'{KEEPS}:"frame-fetch"'],
    ),
    Mutant(
        "entry-size-unchecked",
        "the payloads of an entry are not added up",
        [
            Edit(
                "dledger_proto.entry:parse_entry_header",
                "if parts_size != size:",
                "if parts_size > size:",
            )
        ],
        [f'{KEEPS}:"entry"'],
    ),
    Mutant(
        "dump-row-unbounded",
        "room for a row of a dump is made before its size is looked at",
        [
            Edit(
                "dledger.refill.state_dump:read_dump",
                "if value_size > ROW_BYTES_MAX:",
                "if bytes(min(value_size, ROW_BYTES_MAX)) and value_size > ROW_BYTES_MAX:",
            )
        ],
        [f'{KEEPS}:"state-dump"'],
    ),
    Mutant(
        "large-frame-offset",
        "a frame that is larger than a link's buffer begins with bytes of the frame before",
        [
            Edit(
                "dledger.raft.links.frame_stream:FrameStream._keep",
                "self._buffer[at + SIZE.size : end]",
                "self._buffer[SIZE.size : end - at]",
            )
        ],
        [f'{KEEPS}:"peer-stream"'],
    ),
)
