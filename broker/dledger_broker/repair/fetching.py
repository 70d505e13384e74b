"""Fetches exactly the damaged entries from one peer. What it sends is not believed yet.

Owns the call, and its bounds in bytes and time. Not owned: whether the entries fit
(`dledger.repair.mend.fitting`).
"""

import asyncio
from typing import Final

import grpc

from dledger.repair.scan import Damage
from dledger_broker.cluster.channels import Channels
from dledger_broker.refill.givers import Giver
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import MIB
from dledger_proto.rpc import raw, status
from dledger_proto.v1 import peers_pb2 as pb

MENDED_BYTES_MAX: Final = 64 * MIB
"""A damage that is longer is not mended alone: it is held in memory while it is checked."""
SLOWEST: Final = MIB
"""Bytes in a second: a peer that is slower is given up."""
PART_SECONDS: Final = 30.0
"""A peer that sends nothing for so long is given up."""


async def fetch(channels: Channels, giver: Giver, damage: Damage) -> bytes:
    """Return the frames of the damaged entries, as a peer has them. DledgerError, TimeoutError."""
    request = pb.ReadEntriesRequest(
        first_index=damage.first,
        last_index=damage.last,
        position=damage.start,
        end_position=damage.end,
    )
    size = damage.end - damage.start
    channel = channels.to(giver.callee)
    call = raw.raw_read(channel, raw.READ_ENTRIES)(
        request.SerializeToString(), metadata=giver.greeting
    )
    frames = bytearray()
    until = asyncio.get_running_loop().time() + PART_SECONDS + size / SLOWEST
    try:
        while len(frames) < size:
            async with asyncio.timeout_at(until), asyncio.timeout(PART_SECONDS):
                data = await raw.read_frame(call)
            part = b"" if data is None else status.parsed(pb.ReadEntriesPart, data).frames
            if not part:
                raise DledgerError(Code.UNAVAILABLE, "the stream ended before its entries")
            frames += part
    except grpc.RpcError as error:
        raise status.from_rpc_error(error, write=False) from error
    finally:
        call.cancel()
    return bytes(frames)
