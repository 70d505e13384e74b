"""What follows from a user's policies: a yes or a no. Pure.

Owns: how policies meet a wish. A policy that denies wins; without one that allows, the answer is
no. GET comes with every other right to a topic or consumer group. Not owned: who asks (`logins`),
what a call wishes (`rules`), how a no leaves (`gate`).
"""

import ipaddress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dledger.state.users.values import ALL_ACTIONS, Action, Match, Policy, ResourceKind, User
from dledger_proto.names import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX

UNKNOWN: Final = "\0"
"""A name that nobody knows, or any: what allows it is about all names; each denial may mean it."""
SOME: Final = "\1"
"""Any one thing of a kind: what allows one of them allows it, and what denies all denies it."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Resource:
    """What something is done to."""

    kind: ResourceKind
    name: str = ""


CLUSTER: Final = Resource(ResourceKind.CLUSTER)


def topic(name: str) -> Resource:
    """Return what a topic's name stands for: retries and dead letters belong to their group."""
    for prefix in (RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX):
        if name.startswith(prefix):
            return group(name.removeprefix(prefix))
    return Resource(ResourceKind.TOPIC, name)


def group(name: str) -> Resource:
    """Return a consumer group."""
    return Resource(ResourceKind.GROUP, name)


def rights(user: User, resource: Resource, address: Address | None) -> int:
    """Return bits of `Action`: all that a user may do, from an address; None: in no network."""
    if not user.is_enabled:
        return 0
    if user.is_admin:
        return ALL_ACTIONS.value
    allowed = denied = 0
    for policy in user.policies:
        if _meets(policy, resource) and _is_from(policy, address):
            if policy.allows:
                allowed |= policy.actions
            else:
                denied |= policy.actions
    may = allowed & ~denied
    if may and resource.kind is not ResourceKind.CLUSTER:
        may |= Action.GET & ~denied  # whoever may do something with it may look at it
    return may


def _meets(policy: Policy, resource: Resource) -> bool:
    if policy.kind not in (ResourceKind.ANY, resource.kind):
        return False
    if policy.match is Match.ALL or (resource.name == UNKNOWN and not policy.allows):
        return True
    if resource.name == SOME:
        return policy.allows
    if policy.match is Match.PREFIX:
        return resource.name.startswith(policy.pattern)
    return resource.name == policy.pattern


def _is_from(policy: Policy, address: Address | None) -> bool:
    if not policy.networks:
        return True
    if address is None:
        # Nobody knows where the caller is: a denial holds, a permission does not.
        return not policy.allows
    return any(address in _network(each) for each in policy.networks)


@lru_cache(4_096)
def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(text)
