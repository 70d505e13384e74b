"""Known bugs of decoding by columns."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

DECODER: Final = "dledger_client.arrow.decode:Decoder"
SCRIPTS: Final = "test_columns"

COLUMN_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "columns-without-crc",
        "batches are decoded by columns without their checksum (I15)",
        [
            Edit(
                f"{DECODER}._checked",
                "header = check_envelope(span.batch)",
                'header = __import__("dledger_proto.batch.header").batch.header'
                ".parse_header(span.batch)",
            )
        ],
        [f"{SCRIPTS}.test_a_flipped_bit_is_never_handed_out"],
    ),
    Mutant(
        "columns-pass-over-a-gap",
        "records that a member left out are left out of the answer (I8)",
        [Edit(f"{DECODER}._check_follows", "if span.base_offset > expected:", "if False:")],
        [f"{SCRIPTS}.test_a_gap_is_never_passed_over"],
    ),
    Mutant(
        "columns-take-a-loss-for-compaction",
        "what a member left out without a word is passed over before offsets that are compacted",
        [Edit(f"{DECODER}._behind_gone", "self._check_follows(span, expected)", "pass")],
        [f"{SCRIPTS}.test_only_what_a_row_says_is_compacted"],
    ),
    Mutant(
        "columns-hand-out-twice",
        "what a second member sends again is handed out again",
        [
            Edit(
                f"{DECODER}._checked",
                "skipped = expected - span.base_offset",
                "expected, skipped = span.base_offset, 0",
            ),
            Edit(
                f"{DECODER}.decode",
                "if span.base_offset + span.record_count <= expected or span",
                "if span",
            ),
        ],
        [f"{SCRIPTS}.test_what_was_handed_out_is_not_handed_out_again"],
    ),
    Mutant(
        "columns-trust-their-sizes",
        "sizes of bodies are followed without being added up",
        [Edit("dledger_client.arrow.columns:Joined._check_sums", "if len(wrong):", "if False:")],
        [f"{SCRIPTS}.test_sizes_that_lie_are_never_followed"],
    ),
)
