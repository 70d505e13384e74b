"""Spark reads committed logs, `format("dledger")`, and exports of them.

Needs the extra `spark`, and Java 17 or 21, or else the extra `java`.
"""

from dledger_client.spark.exports import read_export
from dledger_client.spark.java import NoJavaError
from dledger_client.spark.session import register, session
from dledger_client.spark.source import DledgerSource

__all__ = ["DledgerSource", "NoJavaError", "read_export", "register", "session"]
