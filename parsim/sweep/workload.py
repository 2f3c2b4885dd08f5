"""The traces of a sweep: one for each seed where it is drawn, one for all where it is recorded."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parsim.errors import UserError, nearest
from parsim.sweep.spec import SweepSpec, TraceSource
from parsim.traces import Trace


@dataclass(frozen=True)
class Workload:
    """The traces of a sweep as files.

    Attributes:
        paths: seed -> file of the trace that this seed runs.
        fingerprints: seed -> hash of that file.
        redrawn: whether each seed has its own arrivals and rows: so with every trace that carries the recipe it was
            drawn by; a recorded one is replayed as it is.
        first: the trace of the lowest seed.
    """

    paths: dict[int, Path]
    fingerprints: dict[int, str]
    redrawn: bool
    first: Trace

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that are run, ascending."""
        return tuple(sorted(self.paths))

    @property
    def rate_rps(self) -> float:
        """Requests per second of the trace of the first seed at load 1; a burst counts as one second."""
        return (len(self.first) - 1) / max(self.first.span_s, 1.0)


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


def prepare(spec: SweepSpec, first: Trace, folder: Path) -> Workload:
    """Write the traces of all seeds under `folder` and return where they are. What is there is reused by content.

    `first`: the trace of the lowest seed.
    """
    from parsim.traces import write_trace

    redrawn = "recipe" in first.metadata
    paths: dict[int, Path] = {}
    for seed in sorted(spec.seeds) if redrawn else (min(spec.seeds),):
        trace = first if seed == min(spec.seeds) else load_trace(spec.trace, seed)
        paths[seed] = folder / (f"seed-{seed}.parquet" if redrawn else "trace.parquet")
        write_trace(trace, paths[seed])
    prints = {seed: hashlib.sha256(path.read_bytes()).hexdigest()[:24] for seed, path in paths.items()}
    return Workload(paths, prints, redrawn, first)
