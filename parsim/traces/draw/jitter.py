"""Time stamps that were rounded to ticks, and arrivals spread inside the tick."""

from __future__ import annotations

from parsim.seeds import generator
from parsim.traces.trace import Trace

ZERO_SHARE = 0.5
ON_TICK_SHARE = 0.9
TOLERANCE = 0.01


def tick_s(trace: Trace) -> float | None:
    """Seconds between the ticks that the arrivals stand on; None if they do not.

    They do when more than half of the gaps are zero and nine in ten of the others are within 1% of a
    multiple of their median.
    """
    gaps = trace.frame["arrival_s"].diff().drop_nulls()
    steps = gaps.filter(gaps > 0)
    if steps.is_empty() or (gaps == 0).mean() < ZERO_SHARE:  # type: ignore[operator]
        return None
    tick = float(steps.quantile(0.5, "lower"))  # type: ignore[arg-type]
    off = (steps / tick - (steps / tick).round()).abs()
    return tick if float((off < TOLERANCE).mean()) >= ON_TICK_SHARE else None  # type: ignore[arg-type]


def jitter(trace: Trace, seed: int = 0, tick: float | None = None) -> Trace:
    """Each arrival moved later by a uniform draw from [0, tick) seconds; then sorted again, the first at 0.

    A trace that stands on no tick is returned as it is.

    Args:
        tick: seconds; found by `tick_s` when None.
    """
    tick = tick if tick is not None else tick_s(trace)
    if tick is None:
        return trace
    moved = trace.frame["arrival_s"] + generator(seed).uniform(0, tick, len(trace))
    frame = trace.frame.with_columns(arrival_s=moved - moved.min()).sort("arrival_s", maintain_order=True)
    return Trace(frame, trace.noting(f"arrivals spread uniformly inside ticks of {tick:.3f} s, seed {seed}"))
