"""Whom a member asks for what it has lost: the other members, in a drawn order, the leader last."""

from dataclasses import dataclass
from random import Random

from dledger.raft.links.greeting import LinkIdentity
from dledger.types import MemberId
from dledger_broker.group.group_view import GroupView
from dledger_proto.network.tls import Callee


@dataclass(frozen=True, slots=True)
class Giver:
    """Who gives, and how the member that asks greets it."""

    member: MemberId
    callee: Callee
    greeting: tuple[tuple[str, str], ...]


def givers_of(view: GroupView, identity: LinkIdentity, random: Random) -> list[Giver]:
    """Return the other members in a drawn order, the leader last."""
    names, leader = view.names, view.host.group.leader
    peers = [member for member in names.addresses if member != names.member]
    random.shuffle(peers)
    peers.sort(key=lambda member: member == leader)
    return [Giver(member, names.callee(member), identity.greeting(member)) for member in peers]
