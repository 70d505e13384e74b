"""The files of deploy/ agree with each other and with the product; no engine is needed."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from dledger_broker.config.load import load_config

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
COMPOSE = Path(sys.prefix) / "bin" / "docker-compose"
FILES: dict[str, dict[str, tuple[str, ...]]] = {
    "compose": {"g1": ("n1", "n2", "n3")},
    "compose.groups": {name: tuple(f"{name}{number}" for number in (1, 2, 3)) for name in "abc"},
}
PIN = re.compile(r"^([a-z0-9-]+==[^ ;\\]+)", re.MULTILINE)


def services(file: str, *profiles: str, **variables: str) -> dict[str, Any]:
    """What compose makes of a file, given these variables."""
    chosen = [word for name in profiles for word in ("--profile", name)]
    done = subprocess.run(
        [COMPOSE, "--file", DEPLOY / f"{file}.yaml", *chosen, "config", "--format", "json"],
        env={"PATH": "/usr/bin:/bin", **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


def published(service: dict[str, Any]) -> str:
    (port,) = service["ports"]
    return f"{port['host_ip']}:{port['published']}"


@pytest.mark.parametrize("file", FILES)
def test_every_member_is_told_where_it_is_published(file: str) -> None:
    made = services(file, PUBLISHED_HOST="here", PUBLISHED_ON="10.1.2.3", A1_PORT="7", N1_PORT="7")
    control = next(iter(FILES[file]))
    for group, members in FILES[file].items():
        for member in members:
            config = load_config(DEPLOY / "member.toml", made[member]["environment"]).config
            (one,) = config.groups
            assert (one.name, one.member, config.control_group) == (group, member, control)
            assert dict(one.members) == {name: f"{name}:10911" for name in members}
            clients = {
                name: where.replace("here", "10.1.2.3") for name, where in one.clients.items()
            }
            assert clients == {name: published(made[name]) for name in members}
            assert config.name_servers == ("ns1:9876", "ns2:9876")
            (volume,) = [each for each in made[member]["volumes"] if each["type"] == "volume"]
            assert (volume["source"], Path(volume["target"])) == (member, config.folder)
            for name_server in ("ns1", "ns2"):
                command = made[name_server]["command"]
                assert f"--cluster={config.cluster}" in command
                (port,) = made[name_server]["ports"]
                assert f"--listen=0.0.0.0:{port['target']}" in command
    assert set(made) == {"ns1", "ns2"}.union(*FILES[file].values())


def test_with_tls_every_process_has_its_own_certificate_and_the_rest_is_the_same() -> None:
    made, plain = (services(file, PUBLISHED_HOST="here") for file in ("compose.tls", "compose"))
    maker = made.pop("certificates")
    (script,) = maker["command"]
    hosts = dict(re.findall(r"--member (\w+)=(\S+)", script))
    hosts["ns1"] = hosts["ns2"] = re.findall(r"--name-server (\S+)", script)[0]
    assert set(made) == set(plain) == set(hosts)
    for name, service in made.items():
        assert {name, "here"} <= set(hosts[name].split(",")), "others reach it by these"
        (mount,) = [each for each in service["volumes"] if each["target"] == "/etc/dledger/tls"]
        inner = "name-server" if name.startswith("ns") else name
        assert mount["read_only"]
        assert Path(mount["source"]) == DEPLOY / "tls" / inner
        with_tls = {"DLEDGER_TLS_FOLDER": mount["target"], "DLEDGER_SECURITY": "auto"}
        assert service["environment"] == plain[name]["environment"] | with_tls
        for key in ("command", "ports", "mem_limit", "cpus", "pids_limit", "cap_drop", "read_only"):
            assert service[key] == plain[name][key], f"{name} {key}"
        after = service["depends_on"]["certificates"]
        assert after["condition"] == "service_completed_successfully"
    config = load_config(DEPLOY / "member.toml", made["n1"]["environment"]).config
    assert f"--cluster {config.cluster} --group {config.groups[0].name} " in script
    assert maker["network_mode"] == "none"
    assert "ports" not in maker


def test_keys_are_not_committed() -> None:
    assert (DEPLOY / "tls" / ".gitignore").read_text().splitlines()[1:] == ["*", "!.gitignore"]


@pytest.mark.parametrize("file", FILES)
def test_every_container_is_bounded_and_for_this_machine_alone(file: str) -> None:
    made = services(file)
    ports = [published(service) for service in made.values()]
    assert len(set(ports)) == len(ports)
    for name, service in made.items():
        assert published(service).startswith("127.0.0.1:"), name
        assert int(service["mem_limit"]) > 0, name
        assert float(service["cpus"]) > 0, name
        assert service["pids_limit"] == 256, name
        assert service["ulimits"]["nofile"] == 16384, name
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}, name
        assert (service["restart"], service["pull_policy"]) == ("unless-stopped", "never"), name


def test_what_watches_is_bounded_pinned_and_scrapes_every_process() -> None:
    made = services("compose", "monitoring")
    watching = {name: made[name] for name in ("prometheus", "grafana")}
    for name, service in watching.items():
        assert published(service).startswith("127.0.0.1:"), name
        assert int(service["mem_limit"]) > 0, name
        assert service["pids_limit"] == 256, name
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), f"{name} has no version"
        for mount in service["volumes"]:
            if mount["type"] == "bind":
                assert Path(mount["source"]).exists(), mount
                assert mount["read_only"], mount
    config = yaml.safe_load((DEPLOY / "monitoring" / "prometheus.yml").read_text())
    targets = {
        target
        for job in config["scrape_configs"]
        for group in job["static_configs"]
        for target in group["targets"]
    }
    listen = load_config(DEPLOY / "member.toml", made["n1"]["environment"]).config.metrics.listen
    port = listen.rpartition(":")[2]
    assert targets == {f"{name}:{port}" for name in set(made) - set(watching)}
    assert f"--metrics-listen={listen}" in made["ns1"]["command"]
    for file in config["rule_files"]:
        assert (DEPLOY / "monitoring" / file).exists()


@pytest.mark.parametrize("name", ["requirements.lock", "build.lock"])
def test_the_image_holds_the_versions_that_are_tested(name: str) -> None:
    """`make lock` writes them together."""
    tested = (ROOT / "requirements.lock").read_text()
    held = (DEPLOY / name).read_text()
    assert PIN.findall(held)
    assert set(PIN.findall(held)) <= set(PIN.findall(tested))
    assert set(re.findall("sha256:[0-9a-f]{64}", held)) <= set(
        re.findall("sha256:[0-9a-f]{64}", tested)
    )
    assert "://" not in held


def test_the_image_holds_what_a_member_needs_and_no_more() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["broker"], *extras["speed"]]
    names = {re.split("[>=[]", each)[0] for each in needed} - {"dledger"}
    pins = PIN.findall((DEPLOY / "requirements.lock").read_text())
    held = {pin.partition("==")[0] for pin in pins}
    assert names <= held
    assert not {"pytest", "ruff", "matplotlib", "setuptools"} & held
