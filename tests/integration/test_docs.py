"""The examples of the client's pages and of README, in order, against a real group of three."""

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from dledger_broker.local.cluster import LocalCluster
from dledger_client import Admin

ROOT = Path(__file__).parents[2]
PAGES = ("docs/client.md", "docs/consuming.md", "README.md")
WRITTEN = "127.0.0.1:9876"
"""The address that the pages show."""
ELSEWHERE = ("dledger_client.spark", "read_export")
"""What Spark and exports need is tried by their own tests."""


def examples(text: str) -> Generator[tuple[int, str]]:
    """Yield the Python blocks of a page that need a group and nothing else, with their lines."""
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if not any(name in found[1] for name in ELSEWHERE):
            yield text.count("\n", 0, found.start(1)), found[1]


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    cluster = LocalCluster(tmp_path_factory.mktemp("docs") / "data", die_with_owner=True)
    cluster.prepare()
    try:
        cluster.start_all()
        with Admin(cluster.name_server) as admin:
            admin.create_topic("orders", queues_per_group=4)
        yield cluster.name_server
    finally:
        cluster.stop_all()


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(name_server: str, page: str) -> None:
    text = (ROOT / page).read_text().replace(WRITTEN, name_server)
    found = list(examples(text))
    assert found, f"{page} has no example that needs a group alone"
    names: dict[str, object] = {"__name__": "__main__"}
    for line, example in found:
        exec(compile("\n" * line + example, page, "exec"), names)
