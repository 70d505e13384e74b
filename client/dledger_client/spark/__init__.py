"""Spark reads committed logs, `format("dledger")`, and exports of them.

Needs the extra `spark`, and Java 17 or 21, or else the extra `java`.

    batch     The batch reader: freezes a plan where Spark plans, reads ranges where tasks run
    exports   A version of an export as a DataFrame
    failures  Errors as Spark gets them: as text
    java      A Java for Spark: the machine's, or else the one of a wheel (extra `java`)
    options   The options of `format("dledger")`: names, values, the sentence about a wrong one
    session   A Spark session that can read dledger, set up so that a first session works
    source    `spark.read.format("dledger")`: what Spark sees first. The reading is in `batch.py`
    stream    The streaming reader: offsets by queue, limits for each batch
"""

from dledger_client.spark.exports import read_export
from dledger_client.spark.java import NoJavaError
from dledger_client.spark.session import register, session
from dledger_client.spark.source import DledgerSource

__all__ = ["DledgerSource", "NoJavaError", "read_export", "register", "session"]
