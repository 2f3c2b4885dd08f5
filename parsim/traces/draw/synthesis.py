"""Synthesise: drawn arrivals with drawn lengths."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import polars as pl

from parsim.errors import UserError
from parsim.seeds import generator
from parsim.traces.draw.arrivals import HELP, Arrivals, parse_arrivals
from parsim.traces.draw.lengths import Lognormal, Resampled, parse_lengths
from parsim.traces.trace import Trace


def synthesize(
    arrivals: Arrivals | str, lengths: Lognormal | Resampled | Mapping[str, Any], n: int, seed: int = 0
) -> Trace:
    """A trace of `n` requests; the same arguments give the same trace.

    Args:
        arrivals: a process, or its text (`"poisson(rate=10)"`).
        lengths: distributions, or their settings (`parse_lengths`).
        n: requests.
        seed: of arrivals and lengths.

    The metadata's `recipe` says how it was drawn, so that `traces.redraw` can draw it anew under another
    seed.

    Raises:
        UserError: `n` is below 1, or the text or the settings are not understood.
    """
    if not isinstance(arrivals, Arrivals | str):
        raise UserError(f"arrivals: {arrivals!r} is no arrival process; {HELP}")
    if not isinstance(lengths, Lognormal | Resampled | Mapping):
        raise UserError(f"lengths: {lengths!r} is no set of settings such as prompt_mean: 500")
    if not isinstance(n, int):
        raise UserError(f"n: {n!r} is no whole number")
    arrivals = parse_arrivals(arrivals) if isinstance(arrivals, str) else arrivals
    lengths = parse_lengths(lengths) if isinstance(lengths, Mapping) else lengths
    times = arrivals.draw(n, seed)
    prompt, output = lengths.draw(n, generator(seed, 1))  # apart from the stream of the arrivals
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
