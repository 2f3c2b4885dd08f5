"""The traces of a sweep: one for each seed."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parsim.errors import UserError, nearest
from parsim.sweep.spec import TraceSource
from parsim.traces import Trace
from parsim.traces.draw.resampling import resample


@dataclass(frozen=True)
class Workload:
    """The traces of a sweep as files, each written when it is first asked for.

    Attributes:
        source: where they come from.
        folder: where they are written.
        seeds: of the grid, ascending; the first one's trace is `first`.
        first: the trace of the lowest seed.
    """

    source: TraceSource
    folder: Path
    seeds: tuple[int, ...]
    first: Trace
    _files: dict[tuple[int, int], tuple[Path, str]] = field(default_factory=dict)

    @property
    def redrawn(self) -> bool:
        """Whether every seed draws its own trace by a recipe; else the lowest seed replays the recorded trace as it is,
        and the others draw its requests again in blocks."""
        return "recipe" in self.first.metadata

    @property
    def rate_rps(self) -> float:
        """Requests per second of the first trace at load 1; NaN where all arrive at once (a burst has no rate)."""
        return (len(self.first) - 1) / self.first.span_s if self.first.span_s > 0 else math.nan

    def file(self, seed: int, requests: int | None = None) -> tuple[Path, str]:
        """The trace of a seed, of its own length or of `requests` requests, and the hash of the file."""
        count = len(self.first) if requests is None else requests
        if (seed, count) not in self._files:
            from parsim.traces import write_trace

            own = "trace" if not self.redrawn and seed == self.seeds[0] else f"seed-{seed}"
            path = self.folder / (f"{own}.parquet" if count == len(self.first) else f"{own}-{count}.parquet")
            write_trace(self.trace(seed, count), path)
            self._files[seed, count] = path, hashlib.sha256(path.read_bytes()).hexdigest()[:24]
        return self._files[seed, count]

    def trace(self, seed: int, requests: int) -> Trace:
        """The trace of a seed: the first `requests` of it, or as many drawn from it where it has fewer."""
        if self.redrawn:
            trace = self.first if seed == self.seeds[0] else load_trace(self.source, seed)
        else:
            trace = self.first if seed == self.seeds[0] else resample(self.first, seed, requests)
        return trace.head(requests) if requests <= len(trace) else resample(trace, seed, requests)

    @property
    def paths(self) -> dict[int, Path]:
        """Seed of the grid -> file."""
        return {seed: self.file(seed)[0] for seed in self.seeds}


def load_trace(source: TraceSource, seed: int) -> Trace:
    """The trace of one seed.

    Raises:
        UserError: the file is not a trace, or an argument of `synthesize` or `join` does not exist.
    """
    from parsim import traces

    if source.path is not None:
        trace = traces.redraw(traces.read_trace(source.path, source.format), seed)
    elif source.bundled:
        trace = traces.redraw(traces.bundled_trace(), seed)
    elif source.synthesize is not None:
        trace = _call(traces.synthesize, "trace.synthesize", source.synthesize, seed)
    else:
        trace = _call(traces.join, "trace.join", source.join or {}, seed)
    if source.requests is not None and len(trace) > source.requests:
        trace = Trace(trace.frame.head(source.requests), trace.noting(f"first {source.requests} requests"))
    if len(trace) < 2:
        raise UserError(f"{source.path or 'trace'}: {len(trace)} requests, a sweep needs at least 2")
    return trace


def _call(make: Callable[..., Trace], where: str, arguments: dict[str, Any], seed: int) -> Trace:
    known = [name for name in inspect.signature(make).parameters if name != "seed"]
    for name in arguments:
        if name not in known:
            raise UserError(
                f"{where}.{name}: no such argument{nearest(name, known)} (known: {', '.join(known)})"
            )
    try:
        return make(**arguments, seed=seed)
    except TypeError as error:
        raise UserError(f"{where}: {error}") from error
