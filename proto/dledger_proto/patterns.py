r"""Topic patterns: regular expressions whose match takes time proportional to the name. Pure.

Owns: the syntax, its compilation to an automaton, the match of whole names. Python's `re` goes back
and tries again: a pattern of twelve characters can hold the loop for hours. This matcher never goes
back. It has no references to groups and no look around; all else that names need is there:

    a b 1 _ % -       themselves; any other character behind a backslash
    .  \d  \w          any character, a digit, a letter, digit or _
    [a-f_]  [^0-9]    one of these, none of these
    ( )  (?: )  |     groups, alternatives
    * + ? {2} {2,} {2,5}
    ^ at the begin, $ at the end: allowed, and nothing more, since the whole name must match

The set of states that a name may be in is computed once and remembered, up to `KNOWN_SETS_MAX`
sets and `KNOWN_STATES_MAX` states. `work` counts the states that were looked at, so that who
matches many names knows when to give way.
"""

import string
from collections.abc import Callable
from typing import Final

from dledger_proto.errors import DledgerError, invalid
from dledger_proto.limits import TOPIC_NAME_LENGTH_MAX

ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "%|_-")
"""Of topic names (`dledger_proto.names`)."""
_DIGITS: Final = frozenset(string.digits)
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_ESCAPES: Final = {"d": _DIGITS, "D": ALPHABET - _DIGITS, "w": _WORD, "W": ALPHABET - _WORD}
STATES_MAX: Final = 4_096
"""States of a pattern: what counted repetitions may grow to."""
KNOWN_SETS_MAX: Final = 1_024
KNOWN_STATES_MAX: Final = 65_536
"""States of all sets that are remembered of a pattern: some MiB."""

Begin = Callable[[int], int]
"""Adds the states of an expression in front of a state; returns the state where it begins."""


class Pattern:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        """Compile; INVALID_ARGUMENT says where the pattern is wrong."""
        if not 1 <= len(text) <= TOPIC_NAME_LENGTH_MAX:
            raise invalid(f"pattern has {len(text)} characters, 1 to {TOPIC_NAME_LENGTH_MAX}")
        self._chars: list[frozenset[str]] = [frozenset()]
        self._next: list[list[int]] = [[]]
        self._known: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._known_states = 0
        self.work = 0
        """States that were looked at so far."""
        begin = _Parser(text, self).whole()(0)
        self._begin = self._closure([begin])

    @property
    def size(self) -> int:
        """How many states it has."""
        return len(self._chars)

    def matches(self, name: str) -> bool:
        """Tell whether the whole name matches."""
        states = self._begin
        for character in name:
            after = self._known.get((states, character))
            if after is None:
                after = self._step(states, character)
            states = after
            if not states:
                return False
        return 0 in states

    def add(self, chars: frozenset[str], after: list[int]) -> int:
        """Add a state that takes one of these characters; with none it takes nothing."""
        if len(self._chars) >= STATES_MAX:
            raise invalid(f"pattern is too large: its repetitions make over {STATES_MAX} states")
        self._chars.append(chars)
        self._next.append(after)
        return len(self._chars) - 1

    def loop(self, state: int, begin: int) -> None:
        """Let a state that takes nothing also go on where a repetition begins."""
        self._next[state].append(begin)

    def _step(self, states: frozenset[int], character: str) -> frozenset[int]:
        after = [
            each
            for state in sorted(states)
            if character in self._chars[state]
            for each in self._next[state]
        ]
        if len(self._known) >= KNOWN_SETS_MAX or self._known_states >= KNOWN_STATES_MAX:
            self._known.clear()
            self._known_states = 0
        found = self._known[states, character] = self._closure(after)
        self._known_states += len(found)
        self.work += len(states) + len(found)
        return found

    def _closure(self, states: list[int]) -> frozenset[int]:
        """Return the states, and those that they reach without a character."""
        found: set[int] = set()
        left = list(states)
        while left:
            state = left.pop()
            if state not in found:
                found.add(state)
                if not self._chars[state]:
                    left += self._next[state]
        return frozenset(found)


class _Parser:
    """Reads a pattern from left to right."""

    def __init__(self, text: str, pattern: Pattern) -> None:
        self._text = text
        self._at = 0
        self._pattern = pattern

    def whole(self) -> Begin:
        begin = self._either()
        if self._at < len(self._text):
            raise self._wrong("a ) without its (")
        return begin

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        self._at += 1
        return character

    def _wrong(self, what: str) -> DledgerError:
        return invalid(f"pattern {self._text!r}: {what} at character {self._at + 1}")

    def _either(self) -> Begin:
        ways = [self._sequence()]
        while self._peek() == "|":
            self._take()
            ways.append(self._sequence())
        if len(ways) == 1:
            return ways[0]
        return lambda after: self._pattern.add(frozenset(), [way(after) for way in ways])

    def _sequence(self) -> Begin:
        items: list[Begin] = []
        while self._peek() not in ("", "|", ")"):
            items.append(self._repeated())

        def begin(after: int) -> int:
            for item in reversed(items):
                after = item(after)
            return after

        return begin

    def _repeated(self) -> Begin:
        if (self._peek() == "^" and self._at == 0) or self._text[self._at :] == "$":
            self._take()
            return lambda after: after
        item = self._item()
        while (mark := self._peek()) and mark in "*+?{":
            self._take()
            least, most = self._counts() if mark == "{" else _MARKS[mark]
            item = self._repeat(item, least, most)
        return item

    def _counts(self) -> tuple[int, int | None]:
        text, closed, _ = self._text[self._at :].partition("}")
        first, comma, last = text.partition(",")
        if not closed or not first.isdecimal() or (last and not last.isdecimal()):
            raise self._wrong("a { that begins no {2}, {2,} or {2,5}")
        least, most = int(first), int(last) if last else None if comma else int(first)
        if most is not None and most < least:
            raise self._wrong(f"{{{text}}} counts backwards")
        if max(least, most or 0) > STATES_MAX:
            raise self._wrong(f"{{{text}}} counts above {STATES_MAX}")
        self._at += len(text) + 1
        return least, most

    def _repeat(self, item: Begin, least: int, most: int | None) -> Begin:
        pattern = self._pattern

        def begin(after: int) -> int:
            if most is None:
                loop = pattern.add(frozenset(), [after])
                pattern.loop(loop, item(loop))
                after = loop
            else:
                end = after
                for _ in range(most - least):
                    after = pattern.add(frozenset(), [item(after), end])
            for _ in range(least):
                first = item(after)
                if first == after:  # The item adds no state, however often it is repeated.
                    break
                after = first
            return after

        return begin

    def _item(self) -> Begin:
        character = self._take()
        if character == "(":
            if self._text.startswith("?:", self._at):
                self._at += 2
            inner = self._either()
            if self._take() != ")":
                raise self._wrong("a ( without its )")
            return inner
        if character == ".":
            chars = ALPHABET
        elif character == "[":
            chars = self._class()
        elif character == "\\":
            chars = self._escape()
        elif character in "*+?{}]^$":
            self._at -= 1
            raise self._wrong(f"{character!r} with nothing to repeat, or not escaped")
        else:
            chars = frozenset(character)
        # No topic name has another character; a state without characters would take nothing.
        chars = chars & ALPHABET or frozenset("\0")
        return lambda after: self._pattern.add(chars, [after])

    def _escape(self) -> frozenset[str]:
        character = self._take()
        if not character or (character.isalnum() and character not in _ESCAPES):
            raise self._wrong(f"\\{character} is not known")
        return _ESCAPES.get(character, frozenset(character))

    def _class(self) -> frozenset[str]:
        negated = self._peek() == "^"
        if negated:
            self._take()
        found: set[str] = set()
        is_first = True
        while (character := self._take()) != "]" or is_first:
            is_first = False
            if not character:
                raise self._wrong("a [ without its ]")
            if character == "\\":
                found |= self._escape()
            elif self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("", "]"):
                self._take()
                last = self._take()
                if last < character:
                    raise self._wrong(f"{character}-{last} counts backwards")
                found.update(each for each in ALPHABET if character <= each <= last)
            else:
                found.add(character)
        return ALPHABET - found if negated else frozenset(found)


_MARKS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}
