"""The alerts and the dashboard of deploy/ speak of series that a running member has.

Where the tools of Prometheus are installed, its own checks run too, and a real Prometheus watches a
real cluster until the alert for a killed member fires.
"""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from dledger_broker.local.cluster import NAME_SERVER
from dledger_monitoring import certificates
from dledger_proto.network.ports import free_ports
from tests.http_page import ask
from tests.integration.cluster import eventually
from tests.integration.test_metrics import used
from tests.integration.watched import Watched, watched_cluster

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
NAME = re.compile(r"\b(?:dledger|rocketmq|process)_[a-z_]+\b")
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
no_tools = pytest.mark.skipif(
    PROMETHEUS is None or PROMTOOL is None,
    reason="prometheus and promtool are not installed (apt-get install prometheus)",
)


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """Yield each expression of the alerts and of the dashboard, with where it stands."""
    for rule in alerts():
        yield rule["alert"], rule["expr"]
    for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def test_every_series_of_alerts_and_dashboard_is_exposed(tmp_path: Path) -> None:
    async def run() -> None:
        async with watched_cluster(tmp_path) as watched:
            leader = await watched.cluster.leader()
            await used(watched.cluster, leader)
            names = (await watched.scrape(leader.name)).names
            names |= (await watched.scrape(NAME_SERVER)).names
        names |= {series.name for series in certificates.ALL}  # with TLS alone
        labels = {"dledger_nameserver"}
        unknown = [
            f"{where}: {name}"
            for where, expression in expressions()
            for name in NAME.findall(expression)
            if name not in names | labels
        ]
        assert not unknown, "\n".join(unknown)

    asyncio.run(run())


def test_each_alert_says_what_is_wrong_and_where_to_read_on() -> None:
    found = alerts()
    names = [rule["alert"] for rule in found]
    assert len(set(names)) == len(names)
    page = (MONITORING.parents[1] / "docs" / "monitoring.md").read_text()
    told = set(re.findall(r"^\| `(Dledger\w+)`", page, re.MULTILINE))
    assert told
    assert told <= set(names)
    manual = (MONITORING.parents[1] / "docs" / "operating.md").read_text()
    for rule in found:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        heading = re.search(r"docs/operating\.md: (.+)\.$", rule["annotations"]["description"])
        if heading:
            assert f"### {heading[1]}\n" in manual, heading[1]


def test_dashboard_has_one_panel_for_each_id() -> None:
    board = json.loads((MONITORING / "dashboard.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    assert {each["name"] for each in board["templating"]["list"]} == {"source", "cluster"}


@no_tools
@pytest.mark.parametrize(("what", "file"), [("rules", "alerts.yml"), ("config", "prometheus.yml")])
def test_prometheus_reads_the_files(what: str, file: str) -> None:
    done = subprocess.run(
        [str(PROMTOOL), "check", what, MONITORING / file],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@no_tools
def test_a_certificate_that_ends_fires(tmp_path: Path) -> None:
    """Two weeks before its end a warning, two days before an alarm, and none of others."""
    labels = 'cluster="c", node_id="n1", file="tls.crt"'
    series = f"dledger_tls_certificate_expiry_seconds{{{labels}}}"

    def expected(minute: int, *fires: str) -> list[dict[str, Any]]:
        shown = {"cluster": "c", "node_id": "n1", "file": "tls.crt"}
        rules = {rule["alert"]: rule for rule in alerts()}
        return [
            {
                "eval_time": f"{minute}m",
                "alertname": name,
                "exp_alerts": [
                    {
                        "exp_labels": shown | rules[name]["labels"],
                        "exp_annotations": {
                            key: text.replace("{{ $labels.file }}", "tls.crt").replace(
                                "{{ $labels.node_id }}", "n1"
                            )
                            for key, text in rules[name]["annotations"].items()
                        },
                    }
                ]
                * (name in fires),
            }
            for name in ("DledgerCertificateEndsSoon", "DledgerCertificateEnds")
        ]

    values = [20 * 86_400, 13 * 86_400, 86_400, -86_400]
    both = ("DledgerCertificateEndsSoon", "DledgerCertificateEnds")
    told: list[dict[str, Any]] = [
        *expected(0), *expected(1, both[0]), *expected(2, *both), *expected(3, *both)
    ]  # fmt: skip
    case = {
        "interval": "1m",
        "input_series": [{"series": series, "values": " ".join(map(str, values))}],
        "alert_rule_test": told,
    }
    file = tmp_path / "test.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(MONITORING / "alerts.yml")], "tests": [case]})
    )
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def configuration(watched: Watched) -> dict[str, Any]:
    """Return the configuration of deploy/ with the addresses and the pace of a test."""
    config: dict[str, Any] = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "200ms", "evaluation_interval": "200ms"}
    for job in config["scrape_configs"]:
        is_server = job["job_name"] == "dledger-nameserver"
        ports = [port for name, port in watched.ports.items() if (name == NAME_SERVER) == is_server]
        job["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in ports]}]
    return config


@contextmanager
def prometheus(folder: Path, watched: Watched) -> Iterator[int]:
    """Run a Prometheus of its own for the length of a block; yield its port."""
    folder.mkdir()
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)  # a test does not wait for minutes
    (folder / "alerts.yml").write_text(yaml.safe_dump(rules))
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration(watched)))
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [
            str(PROMETHEUS),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=(folder / "log").open("wb"),
    )
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


async def firing(port: int) -> set[str]:
    """Return the alerts that fire; none while Prometheus does not answer."""
    try:
        status, text = await ask(port, "/api/v1/alerts", closing=True)
    except OSError:
        return set()
    if status != 200:
        return set()
    found = json.loads(text)["data"]["alerts"]
    return {each["labels"]["alertname"] for each in found if each["state"] == "firing"}


async def up(port: int) -> list[float]:
    """Return how many processes Prometheus scrapes, in one number."""
    try:
        status, text = await ask(port, "/api/v1/query?query=sum(up)", closing=True)
    except OSError:
        return []
    result = json.loads(text)["data"]["result"] if status == 200 else []
    return [float(each["value"][1]) for each in result]


@no_tools
def test_a_real_prometheus_fires_for_a_killed_member(tmp_path: Path) -> None:
    async def run() -> None:
        async with watched_cluster(tmp_path / "cluster") as watched:
            with prometheus(tmp_path / "prometheus", watched) as port:
                await watch(watched, port)

    asyncio.run(run())


async def watch(watched: Watched, port: int) -> None:
    leader = await watched.cluster.leader()
    await used(watched.cluster, leader)

    async def all_up() -> bool:
        return await up(port) == [4.0]

    await eventually(all_up, "all processes are scraped", 60)

    async def quiet() -> bool:
        return not await firing(port)

    await eventually(quiet, "a healthy cluster fires nothing", 60)
    watched.cluster.local.kill(leader.name)

    async def told() -> bool:
        return "DledgerMemberDown" in await firing(port)

    await eventually(told, "the alert fires", 60)
    watched.cluster.local.start(leader.name)

    async def over() -> bool:
        return "DledgerMemberDown" not in await firing(port)

    await eventually(over, "the alert ends", 60)
