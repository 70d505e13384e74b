"""Valid concurrent histories never complain; with one anomaly in them exactly it is named."""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jepsen_tests.checkers import CHECKERS, judge
from jepsen_tests.checkers.shared.judgement import Valid, merged
from tests.unit.jepsen import delivery_injections, member_injections, stored_injections
from tests.unit.jepsen.injections import INJECTIONS, Broken, Injection
from tests.unit.jepsen.model import valid_story
from tests.unit.jepsen.stories import kinds_of, texts_of

assert delivery_injections, "it registers its injections"
assert member_injections, "it registers its injections"
assert stored_injections, "it registers its injections"
SEEDS = st.integers(0, 1 << 32)
TRIES = 300
"""Histories that are tried until one has what an injection needs."""


@given(SEEDS, st.integers(0, 500))
@example(53, 52)  # a delayed message is delivered, and trimmed before the final reads
@settings(max_examples=200)
def test_a_valid_history_never_complains(seed: int, steps: int) -> None:
    history = valid_story(seed, steps).history()
    judgements = judge(history)
    assert not kinds_of(history), texts_of(history)
    assert merged(judgements) is Valid.YES, [each.why for each in judgements if each.why]


def test_model_histories_look_at_everything() -> None:
    """A generator that never comes near a rule proves nothing of it."""
    looked_at = dict.fromkeys((checker.number for checker in CHECKERS), 0.0)
    for seed in range(20):
        for judgement in judge(valid_story(seed).history()):
            looked_at[judgement.checker] += float(judgement.facts["looked_at"])
    assert all(count > 20 for count in looked_at.values()), looked_at


def broken(injection: Injection, seed: int) -> Broken:
    for attempt in range(TRIES):
        valid = valid_story(seed + attempt, with_kept=injection.with_kept)
        story = Broken(valid, Random(seed + attempt))
        if injection.into(story):
            return story
    raise AssertionError(f"no history of {TRIES} has what it takes")


@pytest.mark.parametrize("name", INJECTIONS)
@given(seed=SEEDS)
@settings(max_examples=15)
def test_an_injected_anomaly_is_named(name: str, seed: int) -> None:
    injection = INJECTIONS[name]
    history = broken(injection, seed).story.history()
    kinds = kinds_of(history)
    assert injection.must <= kinds <= injection.must | injection.may, texts_of(history)


def test_every_class_is_injected() -> None:
    known = {kind for checker in CHECKERS for kind in checker.kinds}
    assert known == {kind for injection in INJECTIONS.values() for kind in injection.must}
