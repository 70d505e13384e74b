"""A Spark session that can read dledger, set up so that a first session works.

Owns: the interpreter of the workers, registration, time zone, filters. The caller may choose each
of them otherwise. Variables that are set in the environment stay as they are.
"""

import logging
import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from dledger_client.spark.java import JAVA_HOME, find_java
from dledger_client.spark.source import DledgerSource

_LOG: Final = logging.getLogger("dledger_client")


def register(spark: SparkSession) -> None:
    """Make `format("dledger")` known to a session. Calling it again is harmless."""
    spark.dataSource.register(DledgerSource)


def session(
    app: str = "dledger", *, master: str = "", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session with `format("dledger")`; the one that runs already, if one does.

    Workers run this interpreter: Spark would take any `python3` of the PATH, and in a virtual
    environment that is not activated that one lacks these packages. Java is the machine's, or that
    of the extra `java`; NoJavaError without both. Times are UTC. Filters may be pushed down
    (readers take them only with the option `pushdown`). In a session that runs already this changes
    only what `conf` names, and logs when that session has another `master`.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    settings: dict[str, str] = {}
    if _is_running():
        running = SparkSession.active().sparkContext.master
        if master and master != running:
            _LOG.warning(
                "master %s is not used: a Spark session with master %s runs already",
                master,
                running,
            )
    else:
        if home := find_java():
            os.environ[JAVA_HOME] = home
        builder = builder.appName(app)
        if master:
            builder = builder.master(master)
        settings = {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.python.filterPushdown.enabled": "true",
        }
    settings |= conf or {}
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def _is_running() -> bool:
    """Return whether there is a session already, in whatever thread it was begun."""
    try:
        SparkSession.active()
    except PySparkRuntimeError:
        return False
    return True
