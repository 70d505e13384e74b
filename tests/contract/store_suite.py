"""What every state store keeps, whatever lies below it: one suite, run for LMDB and for memory."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dledger.store.store import Flush, StateStore

MakeStore = Callable[[], AbstractContextManager[StateStore]]
EXAMPLES_MAX = 40
KEYS = [bytes((first, second)) for first in (1, 2, 0xFF) for second in range(6)]

Step = tuple[str, bytes, bytes]
steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "put",
                "append",
                "delete",
                "put all",
                "delete all",
                "freeze",
                "execute",
                "finish",
                "scan",
            ]
        ),
        st.sampled_from(KEYS),
        st.binary(max_size=5),
    ),
    max_size=60,
)
any_steps = settings(
    max_examples=EXAMPLES_MAX,
    deadline=None,
    # One test in two subclasses: nothing of an example is kept on the instance or in the fixture.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


@dataclass
class Driven:
    """A store and the plain dictionary it must equal."""

    store: StateStore
    rows: dict[bytes, bytes]
    flush: Flush | None = None
    executed: bool = False

    def step(self, step: Step) -> None:
        name, key, value = step
        match name:
            case "put":
                self.store.put(key, value)
                self.rows[key] = value
            case "append":
                # What is known to be missing is said, as the product's tables do.
                self.store.append(key, value, is_new=key not in self.rows)
                self.rows[key] = self.rows.get(key, b"") + value
            case "delete":
                self.store.delete(key)
                self.rows.pop(key, None)
            case "put all":
                rows = dict.fromkeys(KEYS[: 1 + len(value)], value)
                self.store.put_all(rows.items())
                self.rows.update(rows)
            case "delete all":
                self.store.delete_all(KEYS[: 1 + len(value)])
                for gone in KEYS[: 1 + len(value)]:
                    self.rows.pop(gone, None)
            case "freeze" if self.flush is None:
                self.flush, self.executed = self.store.freeze(), False
            case "execute" if self.flush is not None and not self.executed:
                self.flush.execute()
                self.executed = True
            case "finish" if self.executed and self.flush is not None:
                self.store.flush_finished(self.flush)
                self.flush, self.executed = None, False
            case _:
                self.check(key, value)

    def check(self, start: bytes, end: bytes) -> None:
        stop = start + end
        inside = sorted(item for item in self.rows.items() if start <= item[0] < stop)
        if inside:
            assert self.store.scan(start, stop, 3) == inside[:3]
        everything = sorted(self.rows.items())
        assert self.store.scan(b"\0", b"\xff" * 9, 1000) == everything
        assert self.store.scan(b"\0", b"\xff" * 9, 1000, reverse=True) == everything[::-1]
        assert (
            self.store.scan(b"\0", start, 1, reverse=True)
            == [item for item in everything if item[0] < start][-1:]
        )
        for key in KEYS:
            assert self.store.get(key) == self.rows.get(key)


class StoreSuite:
    """Subclasses give a fixture `make_store`: a context manager that opens an empty store."""

    @any_steps
    @given(steps=steps)
    def test_equals_a_dictionary(self, make_store: MakeStore, steps: Sequence[Step]) -> None:
        """Reads see overlay, frozen overlay and base as one, wherever a flush stands."""
        with make_store() as store:
            driven = Driven(store, dict(store.scan(b"\0", b"\xff", 10)))
            for step in steps:
                driven.step(step)
                driven.check(step[1], step[2])

    def test_scan_pages_through_the_base(self, make_store: MakeStore) -> None:
        """More rows than a page below, every third deleted above."""
        with make_store() as store:
            keys = [b"k%04d" % number for number in range(500)]
            for key in keys:
                store.put(key, key)
            save(store)
            for key in keys[::3]:
                store.delete(key)
            left = [(key, key) for at, key in enumerate(keys) if at % 3]
            assert store.scan(b"k", b"l", 1000) == left
            assert store.scan(b"k", b"l", 1000, reverse=True) == left[::-1]
            assert (
                store.scan(b"k0100", b"k0400", 150)
                == [row for row in left if b"k0100" <= row[0] < b"k0400"][:150]
            )

    def test_reads_go_on_while_a_flush_is_executed(self, make_store: MakeStore) -> None:
        """The worker writes what the loop's thread keeps reading and covering."""
        with make_store() as store:
            random = Random(5)
            rows: dict[bytes, bytes] = {}
            for _ in range(5):
                for _ in range(300):
                    key = b"k%03d" % random.randrange(400)
                    rows[key] = random.randbytes(20)
                    store.put(key, rows[key])
                flush = store.freeze()
                assert flush is not None
                worker = Thread(target=flush.execute)
                worker.start()
                while worker.is_alive():
                    key = b"k%03d" % random.randrange(400)
                    assert store.get(key) == rows.get(key)
                    store.append(key, b"+")
                    rows[key] = rows.get(key, b"") + b"+"
                worker.join()
                store.flush_finished(flush)
                assert store.scan(b"k", b"l", 1000) == sorted(rows.items())

    def test_unsaved_bytes(self, make_store: MakeStore) -> None:
        """Counted while unsaved, also while frozen; nothing is left after the flush."""
        with make_store() as store:
            assert store.unsaved_bytes == 0
            assert store.freeze() is None
            store.put(b"a", b"x" * 1000)
            store.append(b"a", b"x" * 500)
            size = store.unsaved_bytes
            assert size >= 1500
            flush = store.freeze()
            assert flush is not None
            assert store.unsaved_bytes == size
            flush.execute()
            store.delete(b"a")
            store.flush_finished(flush)
            assert 0 < store.unsaved_bytes < size
            assert store.get(b"a") is None
            save(store)
            assert store.unsaved_bytes == 0
            assert store.get(b"a") is None

    def test_many_rows_count_as_each_by_itself(self, make_store: MakeStore) -> None:
        """Also where they replace rows that are longer, shorter, deleted, or were appended to."""
        sizes: list[list[int]] = [[], []]
        for together in (False, True):
            with make_store() as store:
                for at, value in enumerate((b"short", b"much longer than before", b"", b"again")):
                    store.append(b"appended", b"x" * 9)
                    rows = [(b"appended", value)] + [(key, value) for key in KEYS[at : at + 4]]
                    if together:
                        store.put_all(rows)
                    for key, _ in () if together else rows:
                        store.put(key, value)
                    sizes[together].append(store.unsaved_bytes)
                    gone = KEYS[at + 1 : at + 6]
                    if together:
                        store.delete_all(gone)
                    for key in () if together else gone:
                        store.delete(key)
                    sizes[together].append(store.unsaved_bytes)
        assert sizes[True] == sizes[False]

    def test_misuse_is_an_assertion(self, make_store: MakeStore) -> None:
        """One flush at a time, finished only after it was executed, keys within their limit."""
        with make_store() as store:
            with pytest.raises(AssertionError, match="key of 0 bytes"):
                store.put(b"", b"x")
            with pytest.raises(AssertionError, match="key of 512 bytes"):
                store.append(b"k" * 512, b"x")
            with pytest.raises(AssertionError, match="key of 512 bytes"):
                store.put_all([(b"k" * 512, b"x")])
            store.put(b"a", b"1")
            flush = store.freeze()
            assert flush is not None
            with pytest.raises(AssertionError, match="one flush at a time"):
                store.freeze()
            with pytest.raises(AssertionError, match="not been executed"):
                store.flush_finished(flush)
            flush.execute()
            store.flush_finished(flush)

    def test_saved_rows_are_those_of_one_save(self, make_store: MakeStore) -> None:
        """What is unsaved, or saved while somebody iterates, is not among them."""
        with make_store() as store:
            wanted = [(b"k%04d" % number, b"v%d" % number) for number in range(300)]
            for key, value in reversed(wanted):
                store.put(key, value)
            assert list(store.saved_rows()) == []
            save(store)
            store.put(b"k0000", b"unsaved")
            rows = store.saved_rows()
            found = [next(rows)]
            store.delete(b"k0200")
            save(store)
            assert [*found, *rows] == wanted
            newer = dict(store.saved_rows())
            assert (newer[b"k0000"], b"k0200" in newer) == (b"unsaved", False)


def save(store: StateStore) -> None:
    """Freeze, execute and finish a flush."""
    flush = store.freeze()
    if flush is not None:
        flush.execute()
        store.flush_finished(flush)
