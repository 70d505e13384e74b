"""Where the data source meets the tools of the broker: reading a stopped member's folder.

The client knows the shared contract alone, and what exists in a folder only the state's tables say.
So this is apart from both, and is imported where the option `path` is given. Needs the extra
`broker`, and says so.
"""

from dledger_client.reading.folders import FolderError, FolderProblem

try:
    from dledger_offline.reading import FolderPlanner, FolderRangeReader
except ImportError as error:
    raise FolderError(
        FolderProblem.UNSUPPORTED,
        f"path: to read a member's folder needs the package {error.name}, here and wherever tasks "
        "run: install dledger with the extras broker,spark",
    ) from error

__all__ = ["FolderPlanner", "FolderRangeReader"]
