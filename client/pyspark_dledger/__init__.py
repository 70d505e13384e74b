"""What Spark finds by itself: it imports every top-level module named `pyspark_*`.

folders  Where the data source meets the tools of the broker: reading a stopped member's folder
"""

from dledger_client.spark.source import DledgerSource as DefaultSource

__all__ = ["DefaultSource"]
