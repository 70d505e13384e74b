"""The wheel: it holds the packages and nothing else, and each extra brings what its modules need.

One installation is real: the client alone, from the package index. The others see, of the packages
in this environment, only those that the extra asks for; pip finds no other, for it has no index.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = PROJECT["tool"]["setuptools"]["packages"]["find"]["where"]
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
SHIPPED = re.compile(r"(?:\./)?(?:dledger|pyspark_dledger)[a-z_]*/.*\.(?:py|pyi|typed)")
METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}
NEEDS = (
    (r"dledger_offline\.reading\b", "broker,arrow"),
    (r"pyspark_dledger\.folders\b", "broker,spark"),
    (r"dledger_broker\.demo\b", "demo"),
    (r"dledger_client\.(spark|export\.engines\.spark)\b|pyspark_dledger\b", "spark"),
    (r"dledger_client\.(arrow|reading|export)\b", "arrow"),
    (r"dledger_(client|proto)\b", ""),
    (r"dledger", "broker"),
)
"""Modules, and the extras that they need; the first row that fits counts."""
IMPORT_ALL = """
import importlib, sys
for name in sys.stdin.read().split():
    try:
        importlib.import_module(name)
    except Exception as error:
        print(name, type(error).__name__, error)
"""


def tracked_and_new() -> list[str]:
    """Return the files of the tree that git would keep."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.splitlines() if (ROOT / name).is_file()]


def shipped(files: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each file that belongs into the wheel, and its place there."""
    for name in files:
        for source in SOURCES:
            inside = name.removeprefix(f"{source}/")
            if (source == "." or inside != name) and SHIPPED.fullmatch(inside):
                yield name, inside


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the tree, so that nothing that an earlier build left is in it."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in tracked_and_new():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tree / name)
    pip(sys.executable, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out, tree)
    (made,) = out.iterdir()
    return made


def pip(python: str | Path, *arguments: str | Path) -> str:
    """Run pip for an environment; return what it says."""
    command = [sys.executable, "-m", "pip", "--python", python, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(*command: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program that sees nothing of the checkout."""
    hidden = {name: os.environ[name] for name in os.environ if not name.startswith("PYTHON")}
    return subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, cwd="/", env=hidden
    )


def make_environment(folder: Path) -> Path:
    """Make a virtual environment with nothing in it; return its folder of programs."""
    venv.create(folder, symlinks=True)
    return folder / "bin"


def closure(requirements: list[str]) -> dict[str, Distribution]:
    """Return the installed packages that these requirements need, with all that those need."""
    found: dict[str, Distribution] = {}
    done: set[tuple[str, str]] = set()
    waiting = [(Requirement(each), "") for each in requirements]
    while waiting:
        wanted, extra = waiting.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(wanted.name)
        for asked in ["", *wanted.extras]:
            if (name, asked) in done:
                continue
            done.add((name, asked))
            if name == "dledger":
                waiting += [(Requirement(each), "") for each in EXTRAS[asked]] if asked else []
                continue
            found[name] = distribution(name)
            waiting += [(Requirement(each), asked) for each in found[name].requires or []]
    return found


def lend(packages: dict[str, Distribution], programs: Path) -> None:
    """Link the files of installed packages into another environment."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    there = programs.parent / "lib" / version / "site-packages"
    for package in packages.values():
        for file in package.files or []:
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (there / file).parent.mkdir(parents=True, exist_ok=True)
                (there / file).symlink_to(Path(str(package.locate_file(file))))


def modules_of(wheel: Path) -> list[str]:
    """Return the names of the modules in the wheel, without those that run when imported."""
    names = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")]
    modules = [name.removesuffix(".py").removesuffix("/__init__") for name in names]
    return [name.replace("/", ".") for name in modules if not name.endswith("__main__")]


def needs_of(module: str) -> str:
    return next(extras for pattern, extras in NEEDS if re.match(pattern, module))


def with_all_they_bring(extras: str) -> set[str]:
    brought = set(extras.split(","))
    for text in [text for extra in brought if extra for text in EXTRAS[extra]]:
        wanted = Requirement(text)
        if wanted.name == "dledger":
            brought |= with_all_they_bring(",".join(wanted.extras))
    return {"", *brought}


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    held = zipfile.ZipFile(wheel)
    info = f"{wheel.name.split('-py3')[0]}.dist-info/"
    expected = {place: name for name, place in shipped(tracked_and_new())}
    assert set(held.namelist()) == {*expected, *(info + name for name in METADATA)}
    assert all(held.read(place) == (ROOT / name).read_bytes() for place, name in expected.items())
    assert held.read(info + "licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    packages = {name.partition("/")[0] for name in expected}
    assert all(f"{package}/py.typed" in expected for package in packages)


def test_the_client_alone_comes_from_the_index_with_its_three_dependencies(
    wheel: Path, tmp_path: Path
) -> None:
    pins = tmp_path / "pins.txt"
    locked = (ROOT / "requirements.lock").read_text().splitlines()
    pins.write_text("\n".join(line.rstrip(" \\") for line in locked if line[:1].isalnum()))
    programs = make_environment(tmp_path / "venv")
    pip(programs / "python", "install", "--quiet", "--constraint", pins, wheel)
    listed = pip(programs / "python", "list", "--format", "freeze")
    names = {line.partition("==")[0] for line in listed.split()}
    assert names >= {"crc32c", "dledger", "grpcio", "protobuf"}
    assert names <= {"crc32c", "dledger", "grpcio", "protobuf", "typing_extensions"}
    imported = run(programs / "python", "-c", "import dledger_client; print(dledger_client.Admin)")
    assert imported.stdout == "<class 'dledger_client.admin.Admin'>\n", imported.stderr
    for arguments in (["--help"], ["--version"], ["status"]):
        told = run(programs / "dledger", *arguments)
        assert (told.returncode, told.stdout) == (1, "")
        assert "the dledger command needs typer" in told.stderr
        assert "install dledger with the extra broker" in told.stderr


@pytest.mark.parametrize("extras", ["", *EXTRAS, "broker,spark"])
def test_an_extra_brings_what_its_modules_need(extras: str, wheel: Path, tmp_path: Path) -> None:
    wanted = f"dledger[{extras}]"
    programs = make_environment(tmp_path / "venv")
    lend(closure([*PROJECT["project"]["dependencies"], wanted]), programs)
    python = programs / "python"
    pip(python, "install", "--quiet", "--no-index", wheel)
    if extras:  # as the messages of the client and of the command say
        pip(python, "install", "--quiet", "--no-index", wanted)

    brought = with_all_they_bring(extras)
    able = [name for name in modules_of(wheel) if set(needs_of(name).split(",")) <= brought]
    failed = run(python, "-c", IMPORT_ALL, given="\n".join(able))
    assert (failed.returncode, failed.stdout) == (0, ""), failed.stderr
    if "broker" in brought:
        told = run(programs / "dledger", "--version")
        assert told.stdout == f"dledger {wheel.name.split('-')[1]}\n", told.stderr
        assert "Usage: dledger" in run(programs / "dledger", "--help").stdout
