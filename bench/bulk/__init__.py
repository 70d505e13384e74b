"""Benchmarks of decoding, exports and Spark.

decode         how fast batches of the wire become Arrow columns
exports        exports without a JVM
spark          the Spark source, online and offline, beside tuples and Parquet
spark_sources  the two sources with which the Spark source is compared
"""
