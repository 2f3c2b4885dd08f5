"""Synthesise: drawn arrivals with drawn lengths."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import polars as pl

from traces.arrivals import Arrivals
from traces.lengths import Lognormal, Resampled
from traces.trace import Trace


def synthesize(arrivals: Arrivals, lengths: Lognormal | Resampled, n: int, seed: int = 0) -> Trace:
    """A trace of `n` requests; the same arguments give the same trace.

    The metadata's `recipe` says how it was drawn, so that `traces.redraw` can draw it anew under another
    seed.

    Raises:
        UserError: `n` is below 1.
    """
    times = arrivals.draw(n, seed)
    prompt, output = lengths.draw(
        n, np.random.default_rng([seed, 1])
    )  # apart from the stream of the arrivals
    ids = pl.int_range(n, eager=True).cast(pl.String).str.zfill(len(str(n - 1)))
    frame = pl.DataFrame(
        {"request_id": ids, "arrival_s": times, "prompt_tokens": prompt, "output_tokens": output}
    )
    recipe = {"kind": "synthesize", "arrivals": str(arrivals), "n": n, "seed": seed}
    if isinstance(lengths, Lognormal):
        recipe["lengths"] = asdict(lengths)
        source = "drawn: lognormal lengths"
    else:
        source = "drawn: lengths resampled from a trace"
    metadata = {
        "name": "synthesized",
        "source": source,
        "licence": "none needed",
        "recipe": json.dumps(recipe),
    }
    return Trace(frame, metadata)
