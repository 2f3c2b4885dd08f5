"""The traces of a sweep: one for each seed."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from parsim.engine import EngineConfig
from parsim.engine.work import clairvoyant_score
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
        engine: the engine whose work the load is measured in.
    """

    source: TraceSource
    folder: Path
    seeds: tuple[int, ...]
    first: Trace
    engine: EngineConfig
    _files: dict[tuple[int, int], tuple[Path, str]] = field(default_factory=dict)

    @property
    def redrawn(self) -> bool:
        """Whether every seed draws its own trace by a recipe; else the lowest seed replays the recorded trace as it is,
        and each other draws requests of one part of it again, in blocks."""
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
        if self.redrawn and requests > len(self.first):
            try:
                return load_trace(self.source, seed, requests)
            except UserError:  # arrivals that were recorded: there are no more of them
                return resample(load_trace(self.source, seed), seed, requests)
        if self.redrawn:
            trace = self.first if seed == self.seeds[0] else load_trace(self.source, seed)
        else:
            own = seed == self.seeds[0]
            again = resample(self.first, seed, requests, None if own else seed)
            trace = self.first if own and requests <= len(self.first) else self._alike(again)
        return trace.head(requests)

    def _alike(self, drawn: Trace) -> Trace:
        """Requests of a recorded trace drawn again, at that trace's own load: the verdict is about this load, so that
        heavier requests, or ones that come faster, are spread over as much more time."""
        if not drawn.span_s > 0 or not self.first.span_s > 0:
            return drawn
        offered = [self._work_s(trace) / trace.span_s for trace in (drawn, self.first)]
        stretch = pl.col("arrival_s") * (offered[0] / offered[1])
        return Trace(drawn.frame.with_columns(stretch), drawn.metadata)

    def _work_s(self, trace: Trace) -> float:
        return float(trace.frame.select(clairvoyant_score("work_s", self.engine).sum()).item())

    @property
    def paths(self) -> dict[int, Path]:
        """Seed of the grid -> file."""
        return {seed: self.file(seed)[0] for seed in self.seeds}


def load_trace(source: TraceSource, seed: int, requests: int | None = None) -> Trace:
    """The trace of one seed, with `requests` requests in place of its own number where it is drawn.

    Raises:
        UserError: the file is not a trace, or an argument of `synthesize` or `join` does not exist.
    """
    from parsim import traces
    from parsim.traces.readers import trace_of

    count = {} if requests is None else {"n": requests}
    if source.path is not None:
        trace = traces.redraw(trace_of(source.path, source.reading), seed, requests)
    elif source.bundled:
        trace = traces.redraw(traces.bundled_trace(), seed, requests)
    elif source.synthesize is not None:
        trace = _call(traces.synthesize, "trace.synthesize", {**source.synthesize, **count}, seed)
    else:
        trace = _call(traces.join, "trace.join", {**(source.join or {}), **count}, seed)
    if requests is None and source.requests is not None and len(trace) > source.requests:
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
