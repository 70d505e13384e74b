"""Which queue an ordering key goes to: the rule, and how evenly keys of one shape spread."""

from collections import Counter
from collections.abc import Callable
from math import sqrt

import pytest
from crc32c import crc32c

from dledger_proto.keyhash import mixed, queue_of_key

SHAPES: dict[str, Callable[[int], str]] = {
    "tenant": lambda i: f"tenant-{i}",
    "padded": lambda i: f"tenant-{i:05}",
    "bare": str,
    "hexadecimal": lambda i: f"{i:08x}",
    "prefix": lambda i: f"{i}@example.org",
    "middle": lambda i: f"eu/{i}/orders",
    "letters": lambda i: f"user-{chr(97 + i // 26 % 26)}{chr(97 + i % 26)}{i // 676}",
    "even": lambda i: f"order-{2 * i}",
    "eights": lambda i: f"order-{8 * i:07}",
    "dates": lambda i: f"2026-{i // 28 % 12 + 1:02}-{i % 28 + 1:02}/{i // 336}",
    "binary": lambda i: i.to_bytes(4, "little").decode("latin-1"),
}
TOTALS = (2, 3, 4, 6, 8, 12, 16, 32, 64)


def queues(shape: str, count: int, total: int) -> Counter[int]:
    return Counter(queue_of_key(SHAPES[shape](i).encode("latin-1"), total) for i in range(count))


def test_the_rule_is_what_other_languages_compute() -> None:
    # fmix32 by its published vectors: https://github.com/aappleby/smhasher, as other ports test it.
    assert [mixed(value) for value in (0, 1, 0xFFFFFFFF)] == [0, 0x514E28B7, 0x81F16F39]
    assert crc32c(b"123456789") == 0xE3069283
    for total in TOTALS:
        assert queue_of_key(b"123456789", total) == mixed(0xE3069283) % total


def test_no_two_checksums_mix_to_one() -> None:
    assert len({mixed(value << 12) for value in range(1 << 16)}) == 1 << 16


def test_eight_tenants_use_every_queue_they_can() -> None:
    assert len(queues("tenant", 8, 4)) == 4
    assert len(queues("tenant", 8, 8)) >= 5
    assert len(queues("tenant", 32, 16)) >= 13


@pytest.mark.parametrize("total", [total for total in TOTALS if total >= 4])
def test_few_keys_of_any_shape_reach_as_many_queues_as_random_ones(total: int) -> None:
    count = 2 * total
    found = sum(len(queues(shape, count, total)) for shape in SHAPES)
    random = len(SHAPES) * total * (1 - (1 - 1 / total) ** count)
    assert found >= 0.9 * random
    assert min(len(queues(shape, count, total)) for shape in SHAPES) > total / 2


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("total", TOTALS)
def test_many_keys_of_one_shape_spread_evenly(shape: str, total: int) -> None:
    count = 300 * total
    found = queues(shape, count, total)
    # Five deviations of the binomial distribution.
    allowed = 5 * sqrt(count / total)
    assert all(abs(found[queue] - count / total) <= allowed for queue in range(total)), found
