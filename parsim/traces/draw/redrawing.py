"""Redraw: the same workload under another seed."""

from __future__ import annotations

import json

from parsim.traces.draw.arrivals import parse_arrivals
from parsim.traces.draw.joining import join
from parsim.traces.draw.lengths import Lognormal
from parsim.traces.draw.synthesis import synthesize
from parsim.traces.trace import Trace


def redraw(trace: Trace, seed: int, requests: int | None = None) -> Trace:
    """What the trace's recipe gives under `seed`; a recorded trace has no recipe and is returned as it is.

    Lognormal lengths are drawn anew. Rows of a joined or resampled trace are drawn with replacement from the
    trace's own rows, so that replicates differ in which requests come as well as in when. Arrivals are drawn
    anew from the process, or kept where they were recorded. `requests`: how many, default as many as the trace has.

    Raises:
        UserError: more requests are asked for than there are recorded arrivals.
    """
    if "recipe" not in trace.metadata:
        return trace
    recipe = json.loads(trace.metadata["recipe"])
    count = len(trace) if requests is None else requests
    carried = {key: value for key, value in trace.metadata.items() if key != "recipe"}
    if "lengths" in recipe:
        drawn = synthesize(parse_arrivals(recipe["arrivals"]), Lognormal(**recipe["lengths"]), count, seed)
        return Trace(drawn.frame, {**drawn.metadata, **carried})
    arrivals = trace if recipe.get("recorded_arrivals") else parse_arrivals(recipe["arrivals"])
    return join(trace.frame, arrivals, seed, count, replace=True, metadata=carried)
