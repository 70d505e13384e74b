"""Where the data source meets the tools of the broker: reading a stopped member's folder.

The client knows only the shared contract, but only the state's tables say what a folder holds. So
this module is apart from both. It is imported when the option `path` is given. It needs the extra
`broker`, and its error says so.
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
