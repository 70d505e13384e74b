"""A Spark cluster reads and exports: a master, two workers, and who submits, each a process.

As docs/spark.md tells it: the Python of the executors has the packages that we need, and ours goes
along as a wheel. Or ours is installed there as well, and `--master` is enough.
"""

import json
import subprocess
import sys
from pathlib import Path

from dledger_client.export import read_export
from tests.integration.test_reading import addresses, cluster_in, fill
from tests.spark.standalone import SPARK, bare_python, environment, shipped, standalone

JOB = """
import json, os, sys
from pyspark.sql import SparkSession
from dledger_client.spark import register

spark = SparkSession.builder.appName("job").getOrCreate()
register(spark)
frame = spark.read.format("dledger").option("endpoints", sys.argv[1]).option("topic", "wide")
rows, octets = frame.option("minPartitions", 4).load().selectExpr(
    "count(*)", "sum(octet_length(body))").first()

def where(_numbers):
    import dledger_client
    yield os.getcwd(), dledger_client.__file__

places = spark.sparkContext.parallelize(range(8), 8).mapPartitions(where).collect()
print("JOB", json.dumps({"rows": rows, "octets": octets, "places": places}))
spark.stop()
"""
AT_ONCE = (
    "--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0",
    "--conf", "spark.scheduler.maxRegisteredResourcesWaitingTime=60s",
    "--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=ERROR",
    "--conf", "spark.executor.memory=512m",
)  # fmt: skip
"""No task before both workers are there: each must have some."""


def test_a_cluster_of_sparks_reads_and_exports(tmp_path: Path) -> None:
    """Submitted with the wheel, where nobody has us; then exported by those who have us."""
    job = tmp_path / "job.py"
    job.write_text(JOB)
    python, ours = bare_python(tmp_path / "bare"), shipped(tmp_path)
    with cluster_in(tmp_path / "group") as local, standalone(tmp_path) as master:
        sent = fill(addresses(local), "wide", 3_000, 1_000)
        submitted = subprocess.run(
            [SPARK / "bin" / "spark-submit", "--master", master, *AT_ONCE, "--py-files", ours,
             job, addresses(local)],
            env=environment(python), cwd=tmp_path, capture_output=True, text=True, check=False,
            timeout=240,
        )  # fmt: skip
        assert submitted.returncode == 0, submitted.stdout + submitted.stderr
        (told,) = [line for line in submitted.stdout.splitlines() if line.startswith("JOB ")]
        found = json.loads(told.removeprefix("JOB "))
        assert (found["rows"], found["octets"]) == (3_000, 3_000 * 1_008)
        workers = {Path(cwd).parents[1].name for cwd, _module in found["places"]}
        assert workers == {"work0", "work1"}
        assert all("dledger.zip" in module for _cwd, module in found["places"])
        exported = subprocess.run(
            [sys.executable, "-m", "dledger_broker.cli", "export", "--topic", "wide",
             "--to", tmp_path / "lake", "--engine", "spark", "--master", master,
             "--name-servers", addresses(local)],
            env=environment(Path(sys.executable)), cwd=tmp_path, capture_output=True, text=True,
            check=False, timeout=240,
        )  # fmt: skip
        assert exported.returncode == 0, exported.stdout + exported.stderr
    rows = read_export(tmp_path / "lake").read().to_pylist()
    by_queue: dict[int, list[bytes]] = {queue: [] for queue in sent}
    for row in sorted(rows, key=lambda row: (row["queue_id"], row["queue_offset"])):
        by_queue[row["queue_id"]].append(row["body"])
    assert by_queue == sent
