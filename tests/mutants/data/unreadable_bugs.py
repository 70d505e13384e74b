"""Known bugs around batches that nobody can decode: stored, passed over unasked, or not told."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

SCRIPTS: Final = "test_unreadable"
TASK: Final = "dledger_client.export.task"
DECODER: Final = "dledger_client.arrow.decode:Decoder"
CONSUMER: Final = "dledger_client._core.consumer.core:ConsumerCore"
FETCHED: Final = "dledger_client._core.consumer.buffer:FetchBuffer"

UNREADABLE_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "unreadable-is-stored",
        "properties that no reader can decode are taken",
        [
            Edit(
                "dledger_proto.batch.codec:check_batch",
                "check_properties(bytes(area), property_sizes)",
                "pass",
            )
        ],
        [f"{SCRIPTS}.test_what_nobody_could_decode_is_not_stored"],
    ),
    Mutant(
        "export-passes-over-unasked",
        "an export leaves out a batch that it cannot decode, and was not asked to",
        [Edit(f"{TASK}:_gap_of", "if work.accept_unreadable:", "if True:")],
        [f"{SCRIPTS}.test_an_export_refuses_it_and_its_open_plan_goes_on_with_the_option"],
    ),
    Mutant(
        "export-keeps-unreadable-to-itself",
        "what an export could not decode is not in its manifest",
        [Edit(f"{TASK}:make_one", "gaps.append(gap)", "pass")],
        [f"{SCRIPTS}.test_an_export_refuses_it_and_its_open_plan_goes_on_with_the_option"],
    ),
    Mutant(
        "export-loses-what-follows",
        "what lies behind a batch that cannot be decoded is left out with it",
        [
            Edit(
                "dledger_client.export.manifests.records:unreadable_gap",
                "Gap(queue, start, end, UNREADABLE",
                "Gap(queue, start, end + 1, UNREADABLE",
            )
        ],
        [f"{SCRIPTS}.test_an_export_refuses_it_and_its_open_plan_goes_on_with_the_option"],
    ),
    Mutant(
        "columns-pass-over-unasked",
        "a bulk read leaves out a batch that it cannot decode, and was not asked to",
        [
            Edit(
                f"{DECODER}._pass_over",
                "self._tell(what)",
                "self._tell and self._tell(what)",
            ),
            Edit(f"{DECODER}._pass_over", "if self._tell is None", "if False"),
        ],
        [f"{SCRIPTS}.test_columns_pass_over_it_only_when_asked_and_tell"],
    ),
    Mutant(
        "columns-pass-over-in-silence",
        "a bulk read does not tell what it left out",
        [Edit(f"{DECODER}._pass_over", "self._tell(what)", "pass")],
        [f"{SCRIPTS}.test_columns_pass_over_it_only_when_asked_and_tell"],
    ),
    Mutant(
        "columns-take-damage-for-unreadable",
        "damage of a disk or a wire is passed over like what a producer sent (I15)",
        [
            Edit(
                f"{DECODER}._checked",
                "header = check_envelope(span.batch)",
                'header = __import__("dledger_proto.batch.header").batch.header'
                ".parse_header(span.batch)",
            )
        ],
        [f"{SCRIPTS}.test_columns_never_pass_over_damage"],
    ),
    Mutant(
        "consumer-takes-damage-for-unreadable",
        "a consumer passes over what a disk or a wire damaged (I15)",
        [
            Edit(
                f"{CONSUMER}._take_row",
                "header = check_envelope(batch)",
                'header = __import__("dledger_proto.batch.header").batch.header'
                ".parse_header(batch)",
            )
        ],
        [f"{SCRIPTS}.test_a_consumer_never_passes_over_damage"],
    ),
    Mutant(
        "consumer-passes-over-in-silence",
        "a consumer does not tell what it left out",
        [
            Edit(
                f"{FETCHED}._next_run",
                "self._passed_over.append((run.place_of(problem), run.gone_before))",
                "pass",
            )
        ],
        [f"{SCRIPTS}.test_a_consumer_tells_what_it_passes_over"],
    ),
    Mutant(
        "consumer-passes-over-unasked",
        "a consumer leaves out what it cannot decode, and was not asked to",
        [
            Edit(
                f"{FETCHED}._next_run",
                "None if self._fail_on_unreadable else run.view.problem",
                "run.view.problem",
            )
        ],
        [f"{SCRIPTS}.test_a_consumer_hands_out_what_it_was_not_asked_to_pass_over"],
    ),
)
