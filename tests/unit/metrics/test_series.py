"""Histograms and sheets: what Prometheus reads is what was counted."""

import pytest
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from dledger_monitoring.histogram import MESSAGE_BYTES, MILLISECONDS, SECONDS, Histogram
from dledger_monitoring.series import Kind, Series, Sheet, counter, gauge, histogram

TERM = gauge("a_term", "The term.", "group")
MESSAGES = counter("a_messages_total", "Messages.", "topic")
SIZES = histogram("a_size", "Sizes.", "group")


def parsed(sheet: Sheet) -> dict[str, Metric]:
    text = b"".join(generate_latest(Families(family)) for family in sheet.families()).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


class Families:
    def __init__(self, family: Metric) -> None:
        self.family = family

    def collect(self) -> list[Metric]:
        return [self.family]


def test_a_bound_holds_its_own_value_and_what_is_above_all_is_counted() -> None:
    found = Histogram((1, 10))
    for value in (0.5, 1, 1.5, 10, 11):
        found.add(value)
    found.add(5, times=3)
    assert found.buckets() == [("1", 2), ("10", 7), ("+Inf", 8)]
    assert found.total == 39


@pytest.mark.parametrize("bounds", [SECONDS, MILLISECONDS, MESSAGE_BYTES])
def test_bounds_grow(bounds: tuple[float, ...]) -> None:
    assert Histogram(bounds).buckets()[-1] == ("+Inf", 0)


def test_what_is_put_is_what_is_read() -> None:
    sheet = Sheet({"node": "n1"})
    sheet.put(TERM, 7, "g")
    sheet.put(MESSAGES, 3, 'or"de\\rs\n')
    sheet.put(MESSAGES, 4, "others")
    sizes = Histogram((1, 10))
    sizes.add(4, times=2)
    sheet.put_all(SIZES, sizes, "g")
    found = parsed(sheet)
    assert [each.type for each in found.values()] == ["gauge", "counter", "histogram"]
    (term,) = found["a_term"].samples
    assert (term.labels, term.value) == ({"node": "n1", "group": "g"}, 7)
    messages = found["a_messages"].samples
    assert [(each.labels["topic"], each.value) for each in messages] == [
        ('or"de\\rs\n', 3),
        ("others", 4),
    ]
    read = {(each.name, each.labels.get("le")): each.value for each in found["a_size"].samples}
    assert read == {
        ("a_size_bucket", "1"): 0,
        ("a_size_bucket", "10"): 2,
        ("a_size_bucket", "+Inf"): 2,
        ("a_size_count", None): 2,
        ("a_size_sum", None): 8,
    }


def test_a_name_that_does_not_fit_its_kind_is_refused() -> None:
    with pytest.raises(AssertionError, match="a_count is a counter"):
        Series("a_count", Kind.COUNTER, (), "")
    with pytest.raises(AssertionError, match="a_total is a gauge"):
        gauge("a_total", "")


def test_labels_must_be_complete() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Sheet({}).put(TERM, 1)
