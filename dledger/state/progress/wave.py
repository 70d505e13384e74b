"""A wave of failures pauses a consumer group, instead of emptying a topic into the dead letters.

Owns: the row, the rule. Not: what a pause stops (`claims.py`).

    45 consumer group id -> begun_ms i64, failures u64, done u64, paused_ms i64, why, UTF-8

The first failure begins a window of WINDOW_MS by leader stamps. In it this broker group counts the
group's failures and the records that are done. When `pause_failures` of them have failed, and
`pause_share` percent of all that came to an end, the group is paused here until somebody resumes
it. Nothing is counted while no window lasts: who has no failures pays one look into the table.
"""

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from dledger.state.commands.command import Command
from dledger.state.progress.group import Group, existing_group
from dledger.state.results import GroupResumed, Refused
from dledger.state.tables import PREFIX, Table, Writer
from dledger.types import Entry

if TYPE_CHECKING:
    from dledger.state.state import State

WINDOW_MS: Final = 60_000
_HEAD: Final = struct.Struct("<qQQq")


class Pause(NamedTuple):
    """Since when a group is paused, by leader time, and why."""

    since_ms: int
    why: str


class Window(NamedTuple):
    """What was counted since the first failure."""

    begun_ms: int
    failures: int = 0
    done: int = 0
    paused_ms: int = 0
    why: str = ""

    def encode(self) -> bytes:
        """Return the value of the row."""
        return _HEAD.pack(*self[:4]) + self.why.encode()


class Waves:
    """The failures of the consumer groups in this broker group."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def read(self, group_id: bytes) -> Window | None:
        """Return the window of a group, also one that is over."""
        value = self._writer.store.get(_key(group_id))
        return None if value is None else decode_window(value)

    def pause_of(self, group: Group) -> Pause | None:
        """Return why a group is handed nothing, by a wave of failures or by its settings."""
        if group.settings.paused:
            return Pause(0, "its settings say so")
        window = self.read(group.id)
        return Pause(window.paused_ms, window.why) if window and window.paused_ms else None

    def finished(self, group: Group, count: int, time_ms: int) -> None:
        """Count records that are done."""
        window = self.read(group.id)
        if window is not None and not window.paused_ms and _lasts(window, time_ms):
            self._write(group.id, window._replace(done=window.done + count))

    def failed(self, group: Group, time_ms: int) -> None:
        """Count a failure; pause the group when it was one too many."""
        most, share = group.settings.pause_failures, group.settings.pause_share
        if not most:
            return
        window = self.read(group.id)
        if window is None or not _lasts(window, time_ms):
            window = Window(time_ms)
        failures, ended = window.failures + 1, window.failures + 1 + window.done
        window = window._replace(failures=failures)
        if failures >= most and failures * 100 >= share * ended:
            seconds = (time_ms - window.begun_ms) / 1_000
            why = f"{failures} of {ended} records failed within {seconds:.1f} seconds"
            window = window._replace(paused_ms=max(time_ms, 1), why=why)
        self._write(group.id, window)

    def resume(self, group_id: bytes) -> Pause | None:
        """Begin anew; return the pause that this ends."""
        window = self.read(group_id)
        if window is None:
            return None
        self._writer.delete(_key(group_id))
        return Pause(window.paused_ms, window.why) if window.paused_ms else None

    def _write(self, group_id: bytes, window: Window) -> None:
        self._writer.put(_key(group_id), window.encode())


@dataclass(frozen=True, slots=True)
class ResumeGroup(Command[GroupResumed]):
    """End the pause that a wave of failures began in this broker group."""

    NUMBER: ClassVar = 54

    consumer_group: str

    def apply(self, state: "State", entry: Entry) -> GroupResumed | Refused:
        """Forget the failures; no effect when there are none."""
        group = existing_group(state.topics, self.consumer_group)
        pause = state.waves.resume(group.id)
        return GroupResumed("" if pause is None else pause.why)


def decode_window(value: bytes) -> Window:
    """Return the values of a row."""
    begun_ms, failures, done, paused_ms = _HEAD.unpack_from(value)
    return Window(begun_ms, failures, done, paused_ms, value[_HEAD.size :].decode())


def _lasts(window: Window, time_ms: int) -> bool:
    return time_ms - window.begun_ms < WINDOW_MS


def _key(group_id: bytes) -> bytes:
    return PREFIX[Table.FAILURE_WAVE] + group_id
