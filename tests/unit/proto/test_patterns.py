"""Topic patterns: what they match is what `re` matches, and no pattern holds the loop."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_proto.errors import Code, DledgerError
from dledger_proto.patterns import ALPHABET, STATES_MAX, Pattern

ATOMS = st.sampled_from(
    ["a", "b", "-", ".", r"\d", r"\w", r"\|", "[ab]", "[^a]", "[a-c-]", "[]b]", r"[\d_]"]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda ways: f"({'|'.join(ways)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}"])).map(
            lambda parts: f"(?:{parts[0]}){parts[1]}"
        ),
    ),
    max_leaves=6,
).filter(lambda text: 1 <= len(text) <= 127)


@given(PATTERNS, st.lists(st.text("ab1-|_c", max_size=6), min_size=1, max_size=8))
def test_it_matches_what_re_matches(text: str, names: list[str]) -> None:
    pattern = Pattern(text)
    for name in names:
        assert pattern.matches(name) == bool(re.fullmatch(text, name)), name


@pytest.mark.parametrize(
    "text", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*)*(.*)*(.*)*b", "(a?){60}a{60}b"]
)
def test_what_goes_back_for_ever_elsewhere_is_quick_here(text: str) -> None:
    pattern = Pattern(text)
    assert not pattern.matches("a" * 127)
    assert len(pattern._chars) <= STATES_MAX


def test_anchors_are_allowed_where_they_mean_nothing() -> None:
    assert Pattern("^orders-.*$").matches("orders-eu")
    assert not Pattern("^orders$").matches("orders-eu")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has 0 characters, 1 to 127"),
        ("a" * 128, "has 128 characters, 1 to 127"),
        ("(a", "a ( without its ) at character 4"),
        ("a)", "a ) without its ( at character 2"),
        ("[a", "a [ without its ]"),
        ("*a", "'*' with nothing to repeat, or not escaped at character 1"),
        ("a{", "a { that begins no"),
        ("a{3,2}", "{3,2} counts backwards"),
        ("[z-a]", "z-a counts backwards"),
        (r"\1", r"\1 is not known"),
        ("a\\", "\\ is not known"),
        ("a^b", "'^' with nothing to repeat"),
        ("a$b", "'$' with nothing to repeat"),
        ("(?=a)", "'?' with nothing to repeat"),
        ("((((a{99}){99}){99}){99}", "without its"),
        ("(((a{99}){99}){99}){99}", f"over {STATES_MAX} states"),
    ],
)
def test_a_wrong_pattern_says_where(text: str, why: str) -> None:
    with pytest.raises(DledgerError, match=re.escape(why)) as caught:
        Pattern(text)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_characters_that_no_name_has_match_nothing() -> None:
    assert not Pattern("ä").matches("ä")
    assert Pattern("[äa]").matches("a")
    assert "ä" not in ALPHABET


def test_what_it_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger_proto.patterns.KNOWN_SETS_MAX", 3)
    pattern = Pattern("(a|b|c)*d")
    assert pattern.matches("abcabcd")
    assert not pattern.matches("abca")
    assert len(pattern._known) <= 3


@pytest.mark.parametrize("pattern", ["(){999999999999}", "a{4097}", "a{0,4097}", "a{4097,}"])
def test_a_count_above_the_limit_is_refused(pattern: str) -> None:
    with pytest.raises(DledgerError, match="counts above 4096"):
        Pattern(pattern)


def test_an_item_without_states_is_repeated_once() -> None:
    # Repeated in full, the nested counts would make 4096 ** 6 rounds.
    assert Pattern("((((((){4096}){4096}){4096}){4096}){4096}){4096}a").matches("a")


def test_a_range_is_not_longer_than_the_alphabet() -> None:
    assert Pattern("[\0-\U0010ffff]+").matches("orders-1")
    assert not Pattern("[^\0-\U0010ffff]").matches("a")
