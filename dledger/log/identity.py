"""Who a data folder belongs to: cluster, group, member, and which life of that member (D18).

Owns: the identity file's contents, `DLI1` version 1 in the frame of `atomic_file.py`:
blob cluster, blob group, blob member, blob incarnation (16), blob group_id (16, or empty until the
group's genesis entry is durable here).
"""

from dataclasses import dataclass
from typing import Final

from dledger.log.atomic_file import CorruptFile, FieldReader, FieldWriter, frame, unframe
from dledger.types import MemberId

INCARNATION_SIZE: Final = 16
GROUP_ID_SIZE: Final = 16
_MAGIC: Final = b"DLI1"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose data a folder holds."""

    cluster: str
    group: str
    member: MemberId
    incarnation: bytes
    """16 random bytes, drawn when the folder was made: a wiped member gets new ones. A member that
    is told that its data is an old copy begins a later life, which its hard state names."""
    group_id: bytes = b""
    """16 bytes fixed by the genesis entry; empty until that entry is durable here."""

    def encode(self) -> bytes:
        """Return the identity file's bytes."""
        assert len(self.incarnation) == INCARNATION_SIZE, self.incarnation
        assert len(self.group_id) in (0, GROUP_ID_SIZE), self.group_id
        writer = FieldWriter()
        for name in (self.cluster, self.group, self.member):
            writer.blob(name.encode())
        writer.blob(self.incarnation)
        writer.blob(self.group_id)
        return frame(_MAGIC, _VERSION, writer.body())


def parse_identity(content: bytes) -> Identity:
    """Return what an identity file says; CorruptFile when it is none."""
    reader = FieldReader(unframe(_MAGIC, _VERSION, content))
    cluster, group, member = reader.text(), reader.text(), reader.text()
    incarnation, group_id = reader.blob(), reader.blob()
    reader.end()
    if len(incarnation) != INCARNATION_SIZE or len(group_id) not in (0, GROUP_ID_SIZE):
        raise CorruptFile(f"incarnation {incarnation!r}, group id {group_id!r}")
    return Identity(cluster, group, MemberId(member), incarnation, group_id)
