"""An export by Spark's tasks from a real group, while members die and somebody trims.

Goal: the exported rows are what was committed, each once, whoever dies, and nothing is taken away
that is still to be exported. Method: many small files, and what happens to the group is tied to how
many of them are done.
"""

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dledger_broker.local.cluster import LocalCluster
from dledger_client import Admin
from dledger_client.errors import Held, UnknownOutcome
from dledger_client.export.cluster_source import ClusterSource
from dledger_client.export.engines.spark import SparkEngine
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.planning import MIB, Options
from dledger_client.export.run import export_once
from tests.integration.test_export import check
from tests.integration.test_reading import addresses, fill, leader_of, until

TOPIC = "storm"
MESSAGES = 8_000
"""Of 2 kB: four files of a MiB in each of four queues."""


class Export(threading.Thread):
    """One run, and how many files it has made."""

    def __init__(self, spark: SparkSession, where: str, lake: Path) -> None:
        super().__init__()
        self._spark, self._where, self._lake = spark, where, lake
        self.files = 0
        self.error: BaseException | None = None

    def _progress(self, files: int, _rows: int, _bytes: int) -> None:
        self.files = files

    def run(self) -> None:
        """Export all that is new."""
        engine = SparkEngine(lambda: self._spark, self._progress)
        try:
            with ClusterSource(self._where, self._lake) as source:
                options = Options(TOPIC, file_bytes=MIB)
                export_once(ExportStorage(self._lake), source, engine, options, lambda: 5)
        except BaseException as error:  # told by the test's own thread
            self.error = error

    def reaches(self, files: int) -> None:
        """Wait until so many files are made; fail when it ends before."""
        until(lambda: self.files >= files or not self.is_alive(), f"{files} files are made")
        assert self.is_alive(), self.error or "it was quicker than what was to happen to it"


def test_members_die_and_heads_are_trimmed_while_tasks_export(
    spark: SparkSession, group: LocalCluster, tmp_path: Path
) -> None:
    """The leader, then a follower; a trim is refused while the export goes on, and then not."""
    where, lake = addresses(group), tmp_path / "lake"
    sent = fill(where, TOPIC, MESSAGES)
    run = Export(spark, where, lake)
    run.start()
    run.reaches(1)
    leader = leader_of(group)
    group.kill(leader)
    # Its first try may have reached who was just killed: then that is told with it.
    with Admin(where) as admin, pytest.raises((Held, UnknownOutcome), match="HELD: export-"):
        admin.trim(TOPIC, 0, MESSAGES // 4)
    run.reaches(4)
    group.start(leader)
    follower = next(name for name in group.member_names if name not in (leader, leader_of(group)))
    group.kill(follower)
    run.join(120)
    group.start(follower)
    assert run.error is None, run.error
    assert not run.is_alive()
    check(lake, sent)
    with Admin(where) as admin:
        assert admin.trim(TOPIC, 0, MESSAGES // 4) == MESSAGES // 4
    more = fill(where, TOPIC, 400)
    again = Export(spark, where, lake)
    again.start()
    again.join(120)
    assert again.error is None, again.error
    check(lake, {queue: sent[queue] + more[queue] for queue in sent})
