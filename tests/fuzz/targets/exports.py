"""Targets: what an export keeps in files."""

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from dledger_client.export.errors import ExportError
from dledger_client.export.files.parquet import read_footer
from dledger_client.export.manifests.checkpoint import dump_checkpoint, load_checkpoint
from dledger_client.export.manifests.history import load
from dledger_client.export.manifests.records import (
    Manifest,
    dump,
    load_manifest,
    load_plan,
    manifest_name,
    plan_name,
)
from tests.fuzz.target import Target
from tests.fuzz.targets import reseal
from tests.fuzz.targets.small import JSON_WORDS
from tests.fuzz.targets.state import scratch
from tests.unit.export.fakes import FakeLog
from tests.unit.export.test_files import run, storage_in


@cache
def _made() -> tuple[bytes, bytes, bytes, Manifest, bytes]:
    """Return a plan, a manifest and a checkpoint; the manifest once more, read; a file."""
    with tempfile.TemporaryDirectory() as folder:
        storage = storage_in(Path(folder))
        run(storage, FakeLog({0: 30, 1: 3}, gone={1: frozenset({1})}))
        plan, manifest = (storage.path(name(0)).read_bytes() for name in (plan_name, manifest_name))
        version = load(storage)
        checkpoint = dump_checkpoint(version, manifest)
        file = storage.path(next(iter(version.files))).read_bytes()
        return plan, manifest, checkpoint, version.last, file


def _plan(data: bytes) -> None:
    plan = load_plan("plan", data)
    assert load_plan("plan", dump(plan)) == plan


def _manifest(data: bytes) -> None:
    manifest = load_manifest("manifest", data)
    assert load_manifest("manifest", dump(manifest)) == manifest


def _checkpoint(data: bytes) -> None:
    _, manifest, _, last, _ = _made()
    version = load_checkpoint("checkpoint", data, last, manifest)
    again = load_checkpoint("checkpoint", dump_checkpoint(version, manifest), last, manifest)
    assert again.files == version.files


def _footer(data: bytes) -> None:
    read_footer(scratch("one.parquet", data))


def _seed(place: int) -> Sequence[bytes]:
    found = _made()[place]
    assert isinstance(found, bytes)
    return [found]


WORDS: Final = (
    *JSON_WORDS, b'"queue"', b'"start"', b'"merges"', b'"compact"', b'"2026-01-31"', b'"gaps"',
)  # fmt: skip
_RECORDS: Final = "dledger_client.export.manifests.records"
TARGETS: Final = (
    Target(
        "export-plan", _plan, (ExportError,), lambda: _seed(0),
        (f"{_RECORDS}:load_plan",), reseal.summed_json, multiple=256, tokens=WORDS,
    ),
    Target(
        "export-manifest", _manifest, (ExportError,), lambda: _seed(1),
        (f"{_RECORDS}:load_manifest",), reseal.summed_json, multiple=256, tokens=WORDS,
    ),
    Target(
        "export-checkpoint", _checkpoint, (ExportError,), lambda: _seed(2),
        ("dledger_client.export.manifests.checkpoint:load_checkpoint",), reseal.summed_json,
        multiple=256, tokens=WORDS,
    ),
    Target(
        "export-footer", _footer, (ValueError, ExportError), lambda: _seed(4),
        ("dledger_client.export.files.parquet:read_footer",), tokens=WORDS, tries=300,
    ),
)  # fmt: skip
