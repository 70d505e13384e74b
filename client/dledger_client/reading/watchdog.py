"""Ends a call whose next answer does not come. Owns: the thread that watches the wait.

gRPC's blocking streams have one deadline for the whole call. A call that reads a large range cannot
have one. Without this module a reader would wait for ever for a member that hangs. A connection's
keepalive notices a dead host, but not a process that hangs.
"""

import time
from collections.abc import Callable
from threading import Condition, Thread

import grpc

from dledger_proto.rpc.raw import SyncCall


class Watchdog:
    """Waits for answers, one at a time, for each at most a given time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._changed = Condition()
        self._until: float | None = None
        """When the awaited answer is late; None: nobody waits."""
        self._cancel: Callable[[], object] = bool
        self._is_late = False
        self._is_closed = False
        self._thread: Thread | None = None

    def next_of(self, call: SyncCall) -> bytes | None:
        """Return a call's next answer, None behind the last one.

        TimeoutError when it did not come in time, and the call is cancelled; grpc.RpcError.
        """
        with self._changed:
            self._cancel, self._is_late = call.cancel, False
            self._until = time.monotonic() + self._seconds
            if self._thread is None:
                self._thread = Thread(target=self._watch, name="dledger watchdog", daemon=True)
                self._thread.start()
            self._changed.notify()
        try:
            return next(call, None)
        except grpc.RpcError:
            if self._is_late:
                raise TimeoutError(f"silent for {self._seconds:g} s") from None
            raise
        finally:
            with self._changed:
                self._until = None

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        with self._changed:
            while not self._is_closed:
                if self._until is None:
                    self._changed.wait()
                elif (left := self._until - time.monotonic()) > 0:
                    self._changed.wait(left)
                else:
                    self._until, self._is_late = None, True
                    self._cancel()
