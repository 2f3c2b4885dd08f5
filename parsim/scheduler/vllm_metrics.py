"""The scheduler's counters for Prometheus."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Gauge, start_http_server
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


SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable: where processes leave their metrics for one that serves them all; vLLM's API server does."""
EVERY_S = 1.0

_gauges: dict[str, Gauge] = {}


class SharedGauges:
    """Leaves the scheduler's counters where vLLM's own `/metrics` finds them, once a second."""

    def __init__(self) -> None:
        self._next_s = 0.0

    @staticmethod
    def wanted() -> bool:
        """Whether there is a folder to leave them in: without one no other process can see them."""
        return bool(os.environ.get(SHARED_FOLDER))

    def update(self, stats: Callable[[], dict[str, float]]) -> None:
        """Set the gauges, if a second has passed."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + EVERY_S
        for name, value in stats().items():
            gauge = _gauges.get(name)
            if gauge is None:
                gauge = _gauges[name] = Gauge(
                    f"parsim_{name}", f"parsim scheduler: {name}", multiprocess_mode="mostrecent"
                )
            gauge.set(value)
