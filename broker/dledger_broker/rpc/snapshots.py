"""Calls about snapshots of this member.

Owns the translation of protobuf. Not owned: what a snapshot is (`dledger.snapshot`), which there
are (`dledger_broker.snapshots`).
"""

from dledger_broker.rpc.calls import Call
from dledger_broker.snapshots.keeping import Kept, Snapshots
from dledger_proto.errors import invalid
from dledger_proto.v1 import snapshots_pb2 as pb


async def create(call: Call, request: pb.CreateSnapshotRequest) -> pb.CreateSnapshotReply:
    """Begin to make a snapshot."""
    await _snapshots(call, request.member).create(request.name)
    return pb.CreateSnapshotReply()


async def list_all(call: Call, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsReply:
    """Return the snapshots, and what is being made."""
    kept = _snapshots(call, request.member)
    making = kept.making
    return pb.ListSnapshotsReply(
        snapshots=[_shown(kept, each) for each in await kept.listed()],
        making="" if making is None else making.name,
        problem="" if making is None else making.problem,
    )


async def delete(call: Call, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotReply:
    """Delete a snapshot."""
    await _snapshots(call, request.member).delete(request.name)
    return pb.DeleteSnapshotReply()


def _snapshots(call: Call, member: str) -> Snapshots:
    own = call.messaging.view.names.member
    if member != own:
        raise invalid(f"this is member {own!r}; send the call to {member!r}")
    kept = call.group.snapshots
    assert kept is not None, "a member keeps snapshots"
    return kept


def _shown(kept: Snapshots, each: Kept) -> pb.Snapshot:
    path, manifest = f"{kept.folder}/{each.name}", each.manifest
    if manifest is None:
        return pb.Snapshot(name=each.name, path=path, problem=each.problem)
    return pb.Snapshot(
        name=each.name,
        path=path,
        first_index=manifest.first_index,
        last_index=manifest.last_index,
        time_ms=manifest.time_ms,
        made_ms=manifest.made_ms,
        size=manifest.size,
        digest=manifest.digest,
    )
