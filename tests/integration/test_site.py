"""The documentation site: it builds strictly, holds every page, loads nothing from elsewhere."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dledger_client
from docs import site

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?([^\"\s>]+)|<link\b[^>]*>")
LEADS = re.compile(r"\brel=\"?(?:canonical|next|prev)\b")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there(built: Path) -> None:
    pages = [path.relative_to(site.DOCS) for path in site.DOCS.rglob("*.md")]
    pages += [Path(place) for place in site.ROOT_PAGES.values()]
    for page in pages:
        name = "index" if page.stem == "README" else page.stem
        assert (built / page.with_name(f"{name}.html")).is_file(), page
    assert not list(built.rglob("*.py"))


def test_the_reference_of_the_client_has_every_public_name(built: Path) -> None:
    page = (built / "api" / "client.html").read_text()
    for name in set(dledger_client.__all__) - {"__version__"}:
        assert re.search(rf'id="[a-z_.]*\.{name}"', page), name


def test_no_page_loads_anything_from_elsewhere(built: Path) -> None:
    for page in built.rglob("*.html"):
        for found in LOADED.finditer(page.read_text()):
            if not LEADS.search(found[0]):
                assert "//" not in html.unescape(found[1] or found[0]), (page, found[0])
    for sheet in built.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", sheet.read_text()), sheet


def test_no_markdown_is_left(built: Path) -> None:
    """MkDocs wants what belongs to an item of a list indented by four, where others take two."""
    for page in set(built.rglob("*.html")) - set((built / "api").iterdir()):
        article = page.read_text().partition("<article")[2].partition("</article>")[0]
        text = re.sub(r"<(pre|code)\b.*?</\1>|<[^>]+>", "", article, flags=re.DOTALL)
        left = re.findall(r"^(?:.*(?:\]\(|\*\*|```).*|[-*] .*|\|.*)$", text, re.MULTILINE)
        assert not left, (page, left)


def test_links_to_the_pages_of_the_root_stay_within_the_site(built: Path) -> None:
    start = (built / "start.html").read_text()
    assert 'href="operating.html"' in start
    for place in site.ROOT_PAGES.values():
        page = (built / place).with_suffix(".html").read_text()
        assert not re.search(r'href="(docs/|[A-Z])', page), place


def test_the_order_is_that_of_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "DOCS", tmp_path)
    (tmp_path / "decisions").mkdir()
    (tmp_path / "decisions" / "README.md").write_text("# D\n\n## A\n[1](d1.md)\n## B\n[2](d2.md)\n")
    (tmp_path / "index.md").write_text(
        "[not here](none.md)\n\n## First\n[b](b.md), [a](a.md#x)\n## None\n[b](b.md) [c](https://c)\n"
        "## Last\n[d](decisions/README.md)\n"
    )
    within = ["decisions/README.md", {"A": ["decisions/d1.md"]}, {"B": ["decisions/d2.md"]}]
    assert site.linked("index.md") == [
        {"First": ["b.md", "a.md"]},
        {"Last": [{"Decisions": within}]},
    ]
