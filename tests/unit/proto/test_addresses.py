"""The rule for addresses: what is taken, how refusals read."""

import pytest

from dledger_proto.limits import ADDRESS_LENGTH_MAX, HOST_LABEL_LENGTH_MAX
from dledger_proto.network.addresses import check_address, split_address

LABEL = "x" * HOST_LABEL_LENGTH_MAX


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("n1:10911", ("n1", 10911)),
        ("my_host.example:1", ("my_host.example", 1)),
        ("[fe80::1%eth0]:65535", ("[fe80::1%eth0]", 65535)),
        (f"{LABEL}.{LABEL}:1", (f"{LABEL}.{LABEL}", 1)),
    ],
)
def test_addresses_that_are_taken(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts
    assert check_address(address) == address


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        ("", 'must be "host:port"'),
        (":1", 'must be "host:port"'),
        ("fe80::1:1", 'must be "host:port" (an IPv6 host in brackets)'),
        ("unix:/tmp/x", 'must be "host:port"'),
        ("x:\u00b2", 'must be "host:port"'),
        ("[fe80::1%\u00e9]:1", 'must be "host:port"'),
        ("x:0", "the port must be 1 to 65535"),
        ("x:65536", "the port must be 1 to 65535"),
        ("a..b:1", f"each part of the host must be 1 to {HOST_LABEL_LENGTH_MAX} characters"),
        (f"{LABEL}x:1", f"each part of the host must be 1 to {HOST_LABEL_LENGTH_MAX} characters"),
        ("x:" + "9" * 5_000, f"has 5002 characters, must be at most {ADDRESS_LENGTH_MAX}"),
    ],
)
def test_everything_else_is_refused(address: str, rule: str) -> None:
    with pytest.raises(ValueError) as refused:
        check_address(address)
    assert rule in str(refused.value)
