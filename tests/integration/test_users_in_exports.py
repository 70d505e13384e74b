"""`dledger export` in a cluster that asks for users: the right, no right, a right that ends.

Goal: an export logs in wherever it calls, its processes too, and keeps no secret. Method: a real
cluster with TLS; the command with two processes, compared with what was sent.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from dledger_client import AsyncProducer, ProducerConfig
from dledger_client.export import read_export
from dledger_proto.exit_codes import Exit
from tests.integration.cluster import Cluster
from tests.integration.test_users import (
    PUBLISH,
    SUBSCRIBE,
    connection,
    create_topics,
    in_cluster,
    put,
    secret_file,
    topic_policy,
)

COUNT = 200


async def fill_topics(cluster: Cluster, *topics: str) -> list[bytes]:
    """Create topics; send each the same bodies, which are returned."""
    await create_topics(cluster, *topics)
    await put(cluster, "shop", topic_policy("*", PUBLISH))
    bodies = [b"%d" % number for number in range(COUNT)]
    config = ProducerConfig(connection=connection(cluster, "shop"))
    async with AsyncProducer(cluster.local.name_server, config) as producer:
        for topic in topics:
            sends = [producer.send(topic, body, queue=0) for body in bodies]
            await asyncio.gather(*sends)
    return bodies


async def export(
    cluster: Cluster, user: str, topic: str, lake: Path, secret: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `dledger export` as a user."""
    path = secret_file(cluster, f"{user}-given", secret or f"secret of {user}")
    environment = os.environ | {
        "DLEDGER_NAME_SERVERS": cluster.local.name_server,
        "DLEDGER_TLS_FOLDER": cluster.local.tls_folder,
        "DLEDGER_USER": user,
        "DLEDGER_SECRET_FILE": path,
    }
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "dledger_broker.cli", "export", "--topic", topic,
         "--to", str(lake), "--jobs", "2", "--json"],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def exported(lake: Path) -> list[bytes]:
    rows = read_export(lake).read().to_pylist()
    return [row["body"] for row in sorted(rows, key=lambda row: row["queue_offset"])]


def test_only_users_with_the_right_export(tmp_path: Path) -> None:
    in_cluster(tmp_path / "cluster", only_users_with_the_right)


async def only_users_with_the_right(cluster: Cluster) -> None:
    lakes = cluster.local.folder.parent
    bodies = await fill_topics(cluster, "orders", "bank")
    await put(cluster, "lake", topic_policy("orders", SUBSCRIBE))

    done = await export(cluster, "lake", "orders", lakes / "orders")
    assert done.returncode == 0, done.stderr
    assert exported(lakes / "orders") == bodies

    # What a user may not know answers as what does not exist.
    hidden = await export(cluster, "lake", "bank", lakes / "bank")
    missing = await export(cluster, "lake", "none", lakes / "bank")
    assert hidden.returncode == missing.returncode != 0
    assert hidden.stderr.replace("bank", "none") == missing.stderr
    for user, secret in (("lake", "guessed"), ("nobody", "")):
        refused = await export(cluster, user, "orders", lakes / "bank", secret)
        assert refused.returncode not in (0, Exit.NOTHING_NEW)
        assert "UNAUTHENTICATED" in refused.stderr, refused.stderr
    assert not (lakes / "bank").exists() or not any((lakes / "bank").rglob("*.parquet"))

    # A user that sends there knows the topic, and still may not read it.
    refused = await export(cluster, "shop", "orders", lakes / "shop")
    assert "NO_PERMISSION" in refused.stderr, refused.stderr

    # The right ends: a lake keeps what it has, and gets no more.
    config = ProducerConfig(connection=connection(cluster, "shop"))
    async with AsyncProducer(cluster.local.name_server, config) as producer:
        await producer.send("orders", b"later", queue=0)
    await put(cluster, "lake", create=False)
    refused = await export(cluster, "lake", "orders", lakes / "orders")
    assert refused.returncode not in (0, Exit.NOTHING_NEW), refused.stdout
    assert exported(lakes / "orders") == bodies
    await put(cluster, "lake", topic_policy("orders", SUBSCRIBE), create=False)
    done = await export(cluster, "lake", "orders", lakes / "orders")
    assert done.returncode == 0, done.stderr
    assert exported(lakes / "orders") == [*bodies, b"later"]

    for path in lakes.rglob("*"):
        if path.is_file() and cluster.local.folder not in path.parents:
            assert b"secret of" not in path.read_bytes(), path
