"""What `make docs` does beyond MkDocs: the order of the pages, and those of the repository's root.

The order is that of `index.md`, and below its link to the decisions that of `decisions/README.md`:
a page that neither names is missing from the navigation, which fails a strict build. Pages of the
root join the site under names of their own, and links to them are turned to those.
"""

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS: Final = Path(__file__).parent
ROOT: Final = DOCS.parent
ROOT_PAGES: Final = {
    "README.md": "start.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
LINK: Final = re.compile(r"\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)]*)?\)")
DECISIONS: Final = "decisions/README.md"

Nav = list[Any]
"""Paths of pages, and sections of them: `{title: [...]}`."""


def linked(page: str) -> Nav:
    """Return the pages that a page names, by its headings, each page once."""
    text = (DOCS / page).read_text()
    sections: Nav = []
    seen: set[str] = {page}
    for part in text.partition("\n## ")[2].split("\n## "):
        paths: Nav = []
        for found in LINK.finditer(part):
            path = str(Path(page).parent / found["path"])
            if path.endswith(".md") and path not in seen and not path.startswith(".."):
                seen.add(path)
                paths.append({"Decisions": [path, *linked(path)]} if path == DECISIONS else path)
        if paths:
            sections.append({part.partition("\n")[0]: paths})
    return sections


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the navigation."""
    first, *others = ROOT_PAGES.values()
    starts = ["index.md", {"Ten minutes": first}]
    config.nav = [*starts, *linked("index.md"), {"This repository": others}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's root."""
    for name, place in ROOT_PAGES.items():
        files.append(File.generated(config, place, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to the root's pages, and those of the root's pages, to where they are here."""
    del config
    here = page.file.src_uri
    is_of_root = here in ROOT_PAGES.values()
    folder = Path() if is_of_root else Path("docs") / Path(here).parent

    def turned(found: re.Match[str]) -> str:
        target = (ROOT / folder / found["path"]).resolve().relative_to(ROOT.resolve())
        inside = str(target).removeprefix("docs/")
        if (place := ROOT_PAGES.get(str(target), inside)) == inside and not is_of_root:
            return found[0]
        if files.get_file_from_path(place) is None:
            return found["text"]  # a file of the repository that is no page
        up = "../" * (len(Path(here).parts) - 1)
        return f"[{found['text']}]({up}{place}{found['anchor'] or ''})"

    return LINK.sub(turned, markdown)
