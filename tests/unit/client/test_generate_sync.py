"""The synchronous classes are what their generator writes, and have the same surface."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import dledger_client

ROOT = Path(__file__).resolve().parents[3]
GENERATOR = ROOT / "client" / "generate_sync.py"


def test_generated_files_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(GENERATOR), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin"])
def test_twins_have_the_same_surface(name: str) -> None:
    renamed = {
        "submit": "send_async",
        "__aenter__": "__enter__",
        "__aexit__": "__exit__",
        "__aiter__": "__iter__",
        "__anext__": "__next__",
    }
    asynchronous = getattr(dledger_client, f"Async{name}")
    blocking = getattr(dledger_client, name)
    own = [
        name
        for name in vars(asynchronous)
        if callable(getattr(asynchronous, name)) and (name[0] != "_" or name.endswith("__"))
    ]
    for method in own:
        twin = getattr(blocking, renamed.get(method, method))
        original = getattr(asynchronous, method)
        assert list(inspect.signature(twin).parameters) == list(
            inspect.signature(original).parameters
        )
        assert not inspect.iscoroutinefunction(twin)
        if not method.startswith("_"):
            assert twin.__doc__, f"{method} has no docstring"
            assert "await " not in twin.__doc__
            assert "async " not in twin.__doc__


def test_public_names() -> None:
    for name in dledger_client.__all__:
        assert hasattr(dledger_client, name)
    assert len(set(dledger_client.__all__)) == len(dledger_client.__all__)
