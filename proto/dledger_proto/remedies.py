"""What to do about an error, in half a sentence: one table for the command line and for Spark.

Owns: the remedies that help for every call. Does not own: remedies that name a value; the code that
raises the error writes those behind the problem.
"""

from collections.abc import Mapping
from typing import Final

from dledger_proto.errors import Code

_REACH: Final = "is the cluster running, and is {addresses} right?"

_REMEDIES: Final[Mapping[Code, str]] = {
    Code.UNAVAILABLE: _REACH,
    Code.NO_LEADER: "look at: dledger status",
    Code.NOT_FORMED: "start every configured member once; look at: dledger status",
    Code.NOT_PROPOSED: _REACH + " if so, try again{longer}",
    Code.BUSY: "slow down and try again",
    Code.DISK_FULL: "make room on the members' disks; it recovers by itself",
    Code.TOPIC_NOT_FOUND: "see: dledger topic list",
    Code.UNKNOWN_OUTCOME: "look whether it happened before repeating it",
    Code.OFFSET_BEHIND: "to go back on purpose, say --reset",
    Code.TOO_MANY_HOLDS: "holds end by themselves: wait, or give readers that come again and again "
    "one name (of Spark's: holdOwner)",
    Code.TOO_MANY_TOPICS: "see: dledger topic list, and delete those that nobody needs",
    Code.HELD: "it ends by itself; see: dledger hold list; to end it now: dledger hold release",
    Code.UNAUTHENTICATED: "name a user and its secret: DLEDGER_USER, DLEDGER_SECRET_FILE",
    Code.USER_NOT_FOUND: "see: dledger acl user list",
    Code.NO_PERMISSION: "see what the user may do: dledger acl user show",
    Code.INTERNAL: "report it with the members' logs, which say more",
}


def remedy_of(code: Code, addresses: str, timeout: str = "") -> str:
    """Return what to do, or nothing where the error itself says so.

    `addresses` and `timeout` name the options that set a cluster's addresses and the time; empty
    `timeout`: there is no such option.
    """
    longer = f", or give it a longer {timeout}" if timeout else ""
    return _REMEDIES.get(code, "").format(addresses=addresses, longer=longer)
