"""The pages made from code: complete, and told from stale ones."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from dledger_broker.config.load import environment_name, known_keys
from dledger_proto.errors import Code
from dledger_proto.exit_codes import Exit
from docs import generate


def test_a_stale_page_is_named_and_left_until_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "DOCS", tmp_path)
    assert generate.main(["--check"]) == 1
    assert not list(tmp_path.iterdir())
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    capsys.readouterr()
    (tmp_path / "errors.md").write_text("old")
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().out.startswith("docs/errors.md is not what the code says")
    assert (tmp_path / "errors.md").read_text() == "old"


def test_every_key_and_every_code_has_a_row() -> None:
    page = generate.configuration()
    for key in known_keys():
        assert f"| `{key}`<br>`{environment_name(key)}` |" in page
    page = generate.errors()
    assert all(f"| {code.value} | `{code.name}` |" in page for code in Code)
    assert all(f"\n| {code.value} | " in page.partition("## Exit codes")[2] for code in Exit)


@dataclass
class Settings:
    """What is set.

    Attributes:
        size_bytes: How large
            it is: in bytes.
        wait_ms: How long.
    """

    size_bytes: int = 1
    wait_ms: int = 2


def test_a_docstring_explains_exactly_the_fields() -> None:
    explained = dict(generate.described(Settings, ["size_bytes", "wait_ms"]))
    assert explained == {"size_bytes": "How large it is: in bytes.", "wait_ms": "How long."}
    for names in (["size_bytes"], ["size_bytes", "wait_ms", "more"], ["wait_ms", "size_bytes"]):
        with pytest.raises(AssertionError, match="Settings: Attributes"):
            generate.described(Settings, names)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (64 << 20, "bytes", "`67108864` (64 MiB)"),
        (1000, "bytes", "`1000`"),
        (3_600_000, "milliseconds", "`3600000` (1 h)"),
        (True, "", "`true`"),
        ("", "", "none"),
        (2.5, "seconds", "`2.5`"),
    ],
)
def test_values_are_written_as_one_types_them(value: object, unit: str, text: str) -> None:
    assert generate.written(value, unit) == text
