"""The scheduler's counters for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class StatsCollector(Collector):
    """Reads `ParsScheduler.stats` whenever Prometheus asks; each entry is a gauge `parsim_NAME`."""

    def __init__(self, stats: Callable[[], dict[str, float]]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        for name, value in self._stats().items():
            yield GaugeMetricFamily(f"parsim_{name}", f"parsim scheduler: {name}", value)


def serve_metrics(stats: Callable[[], dict[str, float]], port: int) -> None:
    """Serve the counters over HTTP at this port, on a thread of their own, in the engine's process."""
    registry = CollectorRegistry()
    registry.register(StatsCollector(stats))
    start_http_server(port, registry=registry)
