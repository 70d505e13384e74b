"""Engines of exports: who runs the tasks of a plan.

local  The local engine: a plan's files made by a pool of processes
spark  Spark as a scheduler of exports: its tasks write Parquet with pyarrow
"""
