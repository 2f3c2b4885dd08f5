"""What is unlikely about a trace's time stamps, each with the option that mends it."""

from __future__ import annotations

from collections.abc import Iterator

from parsim.traces.draw.jitter import tick_s
from parsim.traces.trace import Trace

MOST_RPS, LEAST_RPS = 1_000.0, 0.001
LONG_GAP_S = 10.0
"""Mean gaps from here on are so long that rounding to a second changes nothing."""


def doubts(trace: Trace, *, whole_seconds: bool, unit_sure: bool) -> Iterator[str]:
    """Notes on an implausible rate, and on time stamps that were rounded.

    Args:
        whole_seconds: every time stamp is a whole second in the file.
        unit_sure: the unit was said by the user, the column's name or the calendar.
    """
    if trace.span_s > 0 and trace.metadata.get("request_rate") != "inf":
        rate = (len(trace) - 1) / trace.span_s
        if rate > MOST_RPS * (1 + 1e-9) or rate < LEAST_RPS:
            how = (
                "the unit of its time stamps was assumed"
                if not unit_sure
                else "check the unit of its time stamps"
            )
            shown = f"{rate:,.0f}" if rate >= 1 else f"{rate:.3g}"
            yield f"{shown} requests/s is unlikely: {how}; say it with `--time-unit s`, ms, us or ns"
    tick = tick_s(trace)
    if tick is not None:
        yield (
            f"time stamps stand on ticks of {tick:.3g} s: spread arrivals inside them with `--tick {tick:.3g}` before "
            "speaking of burstiness"
        )
    elif whole_seconds and 0 < trace.span_s < LONG_GAP_S * (len(trace) - 1) and _whole(trace):
        yield (
            "all time stamps are whole seconds: if they were rounded, spread arrivals inside them with `--tick 1` "
            "before speaking of burstiness"
        )


def _whole(trace: Trace) -> bool:
    return bool((trace.frame["arrival_s"] % 1 == 0).all())
