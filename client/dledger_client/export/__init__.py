"""Exports: a topic's committed log as Parquet files, each record exactly once. Extra `arrow`.

cluster_source  A cluster as the log of an export
compact         Merges small files that lie side by side
errors          Errors of exports: a stable code, what was found, what helps. Pure
holder          The name under which an exporter holds the log
layout          Names of files, and where the log is cut into them. Pure
planning        Makes a plan of a frozen log. Pure
reading         Reading a version of an export back, by its manifests alone
run             The protocol: freeze a plan, make its files, publish a manifest
source          What an export reads from, as an interface
task            A range of the log becomes a file
upkeep          Looks after an export: compaction, verification, collection
engines/        Engines of exports: who runs the tasks of a plan
files/          Files of exports: Parquet, publishing, checksums of content
manifests/      Plans and manifests of exports, and what an export holds by them
"""

from dledger_client.export.errors import ExportCode, ExportError
from dledger_client.export.reading import ExportVersion, read_export

__all__ = ["ExportCode", "ExportError", "ExportVersion", "read_export"]
