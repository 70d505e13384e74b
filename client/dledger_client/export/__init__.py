"""Exports: a topic's committed log as Parquet files, each record exactly once. Extra `arrow`.

```
layout    names and cuts (pure)             planning  what is frozen becomes a plan (pure)
records, checkpoint   what files say (pure)   history   versions, from manifests
storage   put-if-absent, staging, syncs     parquet, content   one file; the sum of its rows
task      a range becomes a file            run       the protocol
compact, upkeep, reading, engine_local, cluster_source, holder
```
"""

from dledger_client.export.errors import ExportCode, ExportError
from dledger_client.export.reading import ExportVersion, read_export

__all__ = ["ExportCode", "ExportError", "ExportVersion", "read_export"]
