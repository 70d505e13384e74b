"""What a series is, and the sheet on which sources write values. Pure.

Owns: the declaration of a series, of which code, documentation and tests read the same one; and
families of `prometheus_client` made of values. Not: which series there are
(`dledger_broker.metrics.catalogue`, `dledger_namesrv.metrics`), when values are asked for
(`exposition.py`).
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric

from dledger_monitoring.histogram import Histogram


class Kind(enum.StrEnum):
    """What Prometheus may do with a series."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Series:
    """A name with its labels. The labels that all series of a process share are not among them."""

    name: str
    """As it is exposed; a counter's ends with `_total`."""
    kind: Kind
    labels: tuple[str, ...]
    meaning: str

    def __post_init__(self) -> None:
        is_counter = self.kind is Kind.COUNTER
        assert self.name.endswith("_total") == is_counter, f"{self.name} is a {self.kind}"


def gauge(name: str, meaning: str, *labels: str) -> Series:
    """Return a series that goes up and down."""
    return Series(name, Kind.GAUGE, labels, meaning)


def counter(name: str, meaning: str, *labels: str) -> Series:
    """Return a series that only grows while the process lives."""
    return Series(name, Kind.COUNTER, labels, meaning)


def histogram(name: str, meaning: str, *labels: str) -> Series:
    """Return a distribution."""
    return Series(name, Kind.HISTOGRAM, labels, meaning)


class Sheet:
    """The values of one scrape."""

    def __init__(self, common: Mapping[str, str]) -> None:
        """`common`: the labels of every series, with their values."""
        self._common = dict(common)
        self._families: dict[str, Metric] = {}

    def families(self) -> Iterable[Metric]:
        """Return what was put, a family for each series."""
        return self._families.values()

    def put(self, series: Series, value: float, *labels: str) -> None:
        """Write the value of a series with these values of its labels."""
        assert series.kind is not Kind.HISTOGRAM, f"{series.name} is a histogram"
        self._family(series).add_sample(series.name, self._labels(series, labels), value)

    def put_all(self, series: Series, found: Histogram, *labels: str) -> None:
        """Write a histogram."""
        assert series.kind is Kind.HISTOGRAM, f"{series.name} is a {series.kind}"
        family, own = self._family(series), self._labels(series, labels)
        count = 0
        for bound, count in found.buckets():
            family.add_sample(f"{series.name}_bucket", {**own, "le": bound}, count)
        family.add_sample(f"{series.name}_count", own, count)
        family.add_sample(f"{series.name}_sum", own, found.total)

    def _family(self, series: Series) -> Metric:
        family = self._families.get(series.name)
        if family is None:
            name = series.name.removesuffix("_total")
            family = self._families[series.name] = Metric(name, series.meaning, series.kind)
        return family

    def _labels(self, series: Series, values: tuple[str, ...]) -> dict[str, str]:
        return {**self._common, **dict(zip(series.labels, values, strict=True))}
