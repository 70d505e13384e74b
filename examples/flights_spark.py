"""A year of flights: written, exported while the leader is killed, then asked by Spark SQL.

    python examples/flights_spark.py [--folder data/flights] [--picture flights.png]

1  A producer writes the departures of 2013 to a group of three members, in order of time, with the
   tail number as ordering key.
2  Meanwhile `dledger export` runs again and again. Halfway the example kills the leader.
3  `dledger export verify` compares the export with the log. Spark SQL answers three questions. The
   example compares all counts with the source file.

Needs the extras `broker`, `demo` and `spark`, and Java 17 or 21; the extra `java` brings one.
Exit codes: 0 all counts agree, 1 they do not, or a command failed.
"""

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Annotated, Final, NamedTuple

import matplotlib as mpl
import typer
from pyspark.sql import Row, SparkSession
from rich.console import Console
from rich.table import Table

from dledger_broker.demo.flights import ROWS, Departure, departures
from dledger_broker.local.cluster import LocalCluster
from dledger_client import Admin, Producer, ProducerConfig, SendFuture
from dledger_client.spark import read_export, session
from dledger_proto.exit_codes import Exit

TOPIC: Final = "departures"
QUEUES: Final = 8
EXPORT_SECONDS: Final = 0.5
"""Pause between two exports until half of the rows are written."""
"""Exit code of `dledger export`."""
FLIGHTS_OF_THE_WORST: Final = 100
"""An aircraft with fewer flights is left out of the list of the worst."""
NONE: Final = float("nan")
"""Delay of a carrier in a month without flights."""
COLUMNS: Final = (
    "row INT, month INT, hour INT, carrier STRING, tailnum STRING, dep_delay INT, arr_delay INT"
)
DELAY_BY_CARRIER: Final = """
    SELECT carrier, month, count(*) AS flights, avg(dep_delay) AS delay
    FROM flights GROUP BY carrier, month ORDER BY carrier, month
"""
WORST_AIRCRAFT: Final = """
    SELECT tailnum, count(*) AS flights, avg(arr_delay) AS delay
    FROM flights WHERE tailnum IS NOT NULL
    GROUP BY tailnum HAVING flights >= :least
    ORDER BY delay DESC, tailnum LIMIT 10
"""
HOURLY: Final = "SELECT hour, count(*) AS flights FROM flights GROUP BY hour ORDER BY hour"
WHOLE: Final = "SELECT count(*) AS rows, count(DISTINCT row) AS distinct FROM flights"


class Answers(NamedTuple):
    """What Spark SQL found."""

    whole: Row
    by_carrier: Sequence[Row]
    worst: Sequence[Row]
    hourly: Sequence[Row]


class Writer:
    """Writes all rows; `run` is for a thread of its own and raises the error of any row."""

    def __init__(self, cluster: LocalCluster, rows: Sequence[Departure]) -> None:
        self._cluster = cluster
        self._rows = rows
        self._acknowledged = 0
        self.halfway = Event()

    def run(self) -> None:
        """Send every row; return when all of them are acknowledged."""
        config = ProducerConfig(name="flights", timeout_ms=120_000)
        with Producer(self._cluster.name_server, config) as producer:
            futures = [
                producer.send_async(
                    TOPIC, row.body, key=row.tail, ordering_key=row.tail, on_done=self._settled
                )
                for row in self._rows
            ]
            producer.flush()
        for future in futures:
            future.wait()

    def _settled(self, _future: SendFuture) -> None:
        self._acknowledged += 1
        if self._acknowledged >= len(self._rows) // 2:
            self.halfway.set()


def dledger(*arguments: str, may_end: Sequence[int] = (0,)) -> int:
    """Run the `dledger` command in a process; return its exit code, end on one not expected."""
    command = [sys.executable, "-m", "dledger_broker.cli", *arguments]
    code = subprocess.run(command, check=False).returncode
    if code not in may_end:
        raise SystemExit(f"{' '.join(command)} ended with {code}")
    return code


def leader_of(cluster: LocalCluster) -> str:
    """Return the name of the leading member; empty while nobody knows a leader."""
    with Admin(cluster.name_server) as admin:
        return next(each.leader for each in admin.groups() if each.name == cluster.group)


def export_while_written(cluster: LocalCluster, written: Future[None], halfway: Event) -> int:
    """Export until all rows are written and exported; return how many versions that took.

    The leader is killed once half of the rows are acknowledged, and started again at the end.
    """
    killed = ""
    versions = 0
    while True:
        was_written = written.done()
        code = dledger(
            "export", "--topic", TOPIC, "--to", str(cluster.folder / "export"),
            "--name-servers", cluster.name_server, may_end=(0, Exit.NOTHING_NEW),
        )  # fmt: skip
        versions += code == 0
        if was_written and code == Exit.NOTHING_NEW:
            break
        if halfway.wait(EXPORT_SECONDS) and not killed:
            killed = leader_of(cluster)
            if killed:
                cluster.kill(killed)
    written.result()
    if killed:
        cluster.start(killed)
    return versions


def asked(spark: SparkSession, folder: Path) -> Answers:
    """Ask Spark the questions about the newest version of the export."""
    bodies = read_export(spark, str(folder)).selectExpr(
        f"from_json(CAST(body AS STRING), '{COLUMNS}') AS flight"
    )
    bodies.select("flight.*").cache().createOrReplaceTempView("flights")

    def rows(question: str, **arguments: int) -> list[Row]:
        return spark.sql(question, arguments).collect()

    return Answers(
        rows(WHOLE)[0],
        rows(DELAY_BY_CARRIER),
        rows(WORST_AIRCRAFT, least=FLIGHTS_OF_THE_WORST),
        rows(HOURLY),
    )


def differences(answers: Answers, rows: Sequence[Departure]) -> list[str]:
    """Return one line for each count in which the answers differ from the source."""
    source = [json.loads(row.body) for row in rows]
    counts: list[tuple[str, object, object]] = [
        ("rows", answers.whole["rows"], len(source)),
        ("distinct rows", answers.whole["distinct"], len(source)),
        (
            "flights by carrier and month",
            {(row["carrier"], row["month"]): row["flights"] for row in answers.by_carrier},
            Counter((row["carrier"], row["month"]) for row in source),
        ),
        (
            "flights by hour",
            {row["hour"]: row["flights"] for row in answers.hourly},
            Counter(row["hour"] for row in source),
        ),
        (
            "flights of the worst aircraft",
            [row["flights"] for row in answers.worst],
            [_flights_of(row["tailnum"], source) for row in answers.worst],
        ),
    ]
    return [f"{what}: {found}, the source has {wanted}" for what, found, wanted in counts
            if found != wanted]  # fmt: skip


def _flights_of(tail: str, source: Sequence[dict[str, object]]) -> int:
    return sum(row["tailnum"] == tail for row in source)


def show(answers: Answers, console: Console) -> None:
    """Print the worst aircraft and the delays of the year by carrier."""
    table = Table("aircraft", "flights", "mean delay on arrival", title="worst aircraft")
    for row in answers.worst:
        table.add_row(row["tailnum"], str(row["flights"]), f"{row['delay']:.1f} min")
    console.print(table)
    busiest = max(answers.hourly, key=lambda row: row["flights"])
    console.print(f"busiest hour: {busiest['hour']}:00, {busiest['flights']:,} departures")


def draw(answers: Answers, picture: Path) -> None:
    """Draw the three answers into one picture."""
    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(17, 5), layout="constrained")
    carriers = sorted({row["carrier"] for row in answers.by_carrier})
    delays = {
        (row["carrier"], row["month"]): NONE if row["delay"] is None else row["delay"]
        for row in answers.by_carrier
    }
    months = sorted({month for _, month in delays})
    image = left.imshow(
        [[delays.get((carrier, month), NONE) for month in months] for carrier in carriers],
        cmap="inferno_r",
        aspect="auto",
    )
    left.set_xticks(range(len(months)), [str(month) for month in months])
    left.set_yticks(range(len(carriers)), carriers)
    left.set_title("mean delay at departure, min, by carrier and month")
    figure.colorbar(image, ax=left)
    middle.barh([row["tailnum"] for row in answers.worst], [row["delay"] for row in answers.worst])
    middle.invert_yaxis()
    middle.set_title(f"worst aircraft of {FLIGHTS_OF_THE_WORST} flights or more, min")
    hours = [row for row in answers.hourly if row["hour"] is not None]
    right.bar([row["hour"] for row in hours], [row["flights"] for row in hours])
    right.set_title("departures by scheduled hour")
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=120)
    plt.close(figure)


def main(
    folder: Annotated[
        Path, typer.Option(help="Folder of the cluster and the export; it is emptied first.")
    ] = (Path("data/flights")),
    picture: Annotated[Path, typer.Option(help="File of the picture.")] = Path("flights.png"),
    rows: Annotated[
        int, typer.Option(min=1, max=ROWS, help="Number of rows, from the first one on.")
    ] = ROWS,
) -> None:
    """Write, export, kill the leader, ask, compare, draw."""
    console = Console()
    wanted = departures()[:rows]
    if (folder / "cluster.json").exists():
        shutil.rmtree(folder)
    cluster = LocalCluster(folder, cluster="flights", die_with_owner=True)
    cluster.take_folder()
    cluster.prepare()
    try:
        cluster.start_all()
        with Admin(cluster.name_server) as admin:
            admin.create_topic(TOPIC, queues_per_group=QUEUES)
        writer = Writer(cluster, wanted)
        with ThreadPoolExecutor(1) as pool:
            versions = export_while_written(cluster, pool.submit(writer.run), writer.halfway)
        console.print(f"{rows:,} rows written and exported in {versions} versions")
        export = folder / "export"
        dledger("export", "verify", str(export), "--name-servers", cluster.name_server)
    finally:
        cluster.stop_all()
        cluster.give_folder()
    with session("flights", master="local[*]") as spark:
        answers = asked(spark, export)
    show(answers, console)
    draw(answers, picture)
    console.print(f"picture: {picture}")
    wrong = differences(answers, wanted)
    for each in wrong:
        console.print(each, style="red", markup=False)
    console.print("all counts agree with the source" if not wrong else f"{len(wrong)} differ")
    raise typer.Exit(1 if wrong else 0)


if __name__ == "__main__":
    typer.run(main)
