"""Benchmarks of decoding, exports and Spark.

decode         Batches of the wire to Arrow columns
exports        Exports without a JVM
spark          Spark: our source, online and off, beside tuples and Parquet
spark_sources  What our Spark source is compared with
"""
