"""What Spark finds by itself: it imports every top-level module named `pyspark_*`."""

from dledger_client.spark.source import DledgerSource as DefaultSource

__all__ = ["DefaultSource"]
