"""A new secret of a user: drawn or chosen, and where it goes.

Owns: that a secret is in no argument, in no file that others may read, and shown once. Not owned:
the keys that follow from it (`dledger_client`).
"""

import os
import secrets
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger_broker.cli.output import CommandFailed, bad_input, note, print_json, print_line, say
from dledger_client.errors import ClientError
from dledger_proto.login.credentials import SECRET_SIZE_MAX

SECRET_BYTES: Final = 32
SECRET_LENGTH_MIN: Final = 16
"""Of a secret that a person chose."""
SECRET_MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A secret that a user is to get."""

    text: str
    is_drawn: bool
    file: Path | None = None
    """Where it goes; None: a drawn one is printed, a chosen one is known already."""

    @contextmanager
    def kept(self) -> Generator[None]:
        """Write the secret before the block gives it to a user, so that it cannot be lost.

        The file goes again when the user certainly has not got the secret.
        """
        if self.file is None:
            yield
            return
        _write(self.file, self.text)
        try:
            yield
        except ClientError as error:
            if error.definite:
                self.file.unlink(missing_ok=True)
            else:
                note(f"the secret that may have been set is in {self.file}")
            raise

    def show(self, done: str, row: Mapping[str, object], *, as_json: bool) -> None:
        """Say what was done, and show the secret if it went nowhere else."""
        is_shown = self.is_drawn and self.file is None
        if as_json:
            print_json({**row, "secret": self.text} if is_shown else row)
        elif is_shown:
            note(f"{done}; this is its secret, which nobody can show again:")
            print_line(self.text)
        elif self.file is not None:
            say(f"{done}; its secret is in {self.file}")
        else:
            say(done)


def new_secret(file: Path | None, chosen_from: str) -> NewSecret:
    """Return the secret that the options ask for; end the command when it cannot be had."""
    if chosen_from and file is not None:
        bad_input("--secret-file and --secret-from exclude each other")
    if chosen_from:
        return NewSecret(_chosen(chosen_from), is_drawn=False)
    if file is not None and file.exists():
        bad_input(f"--secret-file: {file} exists", "give another one: no secret is overwritten")
    return NewSecret(secrets.token_urlsafe(SECRET_BYTES), is_drawn=True, file=file)


def _chosen(source: str) -> str:
    try:
        if source == "-":
            data = sys.stdin.buffer.read(SECRET_SIZE_MAX + 1)
        else:
            with Path(source).open("rb") as file:
                data = file.read(SECRET_SIZE_MAX + 1)
        text = data.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        bad_input(f"--secret-from: {source}, cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        bad_input(f"--secret-from: {source}, is no UTF-8")
    if len(data) > SECRET_SIZE_MAX:
        bad_input(f"--secret-from: more than {SECRET_SIZE_MAX} bytes")
    if len(text) < SECRET_LENGTH_MIN:
        bad_input(f"--secret-from: {len(text)} characters, must be at least {SECRET_LENGTH_MIN}")
    return text


def _write(path: Path, text: str) -> None:
    """Write a file that is new, and that nobody else may read."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, SECRET_MODE)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise CommandFailed(f"--secret-file: {path}: {error.strerror}") from error
