"""The process: admission, calls, refusals."""

from collections.abc import Callable, Iterator

from dledger_broker.metrics import catalogue as series
from dledger_broker.rpc.admission import AdmissionControl
from dledger_monitoring.series import Sheet
from dledger_proto import __version__


class OfProcess:
    """The series of the process."""

    def __init__(self, admission: AdmissionControl, not_ready: Callable[[], str]) -> None:
        self._admission = admission
        self._not_ready = not_ready

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Write all values; see `exposition.Source`."""
        admission = self._admission
        sheet.put(series.BUILD, 1, __version__)
        sheet.put(series.READY, not self._not_ready())
        for bound in admission.bounds:
            name = bound.name.removeprefix("admission.")
            sheet.put(series.WATERMARK, bound.used, name)
            sheet.put(series.ADMISSION_LIMIT, bound.limit, name)
        sheet.put(series.PRODUCERS, admission.append_streams.used)
        sheet.put(series.CONSUMERS, admission.sessions.used)
        for code, count in sorted(admission.meters.refused.items()):
            sheet.put(series.REFUSED, count, code.name)
        yield
        for name, calls in sorted(admission.meters.calls.items()):
            sheet.put_all(series.RPC_LATENCY, calls, name)
            yield
