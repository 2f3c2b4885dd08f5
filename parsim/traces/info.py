"""What a trace demands of an engine, and what it lacks."""

from __future__ import annotations

from typing import Any

import polars as pl

from parsim.traces.corpus import Corpus
from parsim.traces.draw.jitter import tick_s
from parsim.traces.ranking import rankings
from parsim.traces.trace import SCORE_PREFIX, Trace

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def describe(trace: Trace | Corpus) -> dict[str, Any]:
    """Figures of a trace, or of a corpus without those on arrivals.

    Keys:
        requests: rows.
        span_s, rate_per_s: from first to last arrival; (requests - 1) / span. None if all come at once.
        interarrival_cv: standard deviation over mean of the gaps; 1 is Poisson, above 1 bursty. `zero_gaps`:
        the
            share of gaps that are 0. `tick_s`: the step that time stamps are rounded to, or None.
        prompt_tokens, output_tokens: mean, p50, p90, p95, p99, max.
        spearman: rank correlation of prompt and output tokens; None if one of them is constant.
        kv_tokens: sum of prompt and output tokens, what the KV cache must hold in all if nothing is shared;
            `kv_tokens_per_request`: their mean and quantiles; `kv_tokens_max`: of the longest request.
        prompt_tokens_per_s, output_tokens_per_s: demanded at the trace's own rate; None without a rate.
        shared_blocks: share of the prefix hashes that an earlier request (or place) has had; None without.
        rankings: tau_b of each score with the response length, see `parsim.traces.ranking`.
        lacks: what it has not, in words.
        metadata: provenance.
    """
    frame = trace.frame
    total = frame["prompt_tokens"] + frame["output_tokens"]
    found: dict[str, Any] = {"name": trace.metadata.get("name", "trace"), "requests": frame.height}
    rate = None
    if isinstance(trace, Trace):
        found |= _arrivals(trace)
        rate = found["rate_per_s"]
    for column in ("prompt_tokens", "output_tokens"):
        found[column] = _quantiles(frame[column])
    spearman = frame.select(pl.corr("prompt_tokens", "output_tokens", method="spearman")).item()
    found["spearman"] = None if spearman is None or spearman != spearman else spearman
    found["kv_tokens"], found["kv_tokens_per_request"] = int(total.sum()), _quantiles(total)
    for column in ("prompt_tokens", "output_tokens"):
        found[f"{column}_per_s"] = rate * found[column]["mean"] if rate is not None else None
    found["shared_blocks"] = _shared_blocks(frame)
    found["rankings"] = rankings(frame)
    found["lacks"] = _lacks(trace)
    found["metadata"] = dict(trace.metadata)
    return found


def _arrivals(trace: Trace) -> dict[str, float | None]:
    gaps = trace.frame["arrival_s"].diff().drop_nulls()
    span = trace.span_s
    mean, spread = gaps.mean(), gaps.std(ddof=0)
    return {
        "span_s": span,
        "rate_per_s": len(gaps) / span if span > 0 else None,
        "interarrival_cv": float(spread / mean) if span > 0 else None,  # type: ignore[operator, arg-type]
        "zero_gaps": float((gaps == 0).mean()) if len(gaps) else None,  # type: ignore[arg-type]
        "tick_s": tick_s(trace),
    }


def _quantiles(values: pl.Series) -> dict[str, float]:
    """Mean, quantiles (linear interpolation) and maximum."""
    cuts = {name: float(values.quantile(at, "linear")) for name, at in QUANTILES.items()}  # type: ignore[arg-type]
    return {"mean": float(values.mean()), **cuts, "max": float(values.max())}  # type: ignore[arg-type]


def _shared_blocks(frame: pl.DataFrame) -> float | None:
    if "prefix_hashes" not in frame.columns:
        return None
    hashes = frame["prefix_hashes"].explode().drop_nulls()
    return 1 - hashes.n_unique() / len(hashes) if len(hashes) else 0.0


def _lacks(trace: Trace | Corpus) -> list[str]:
    columns = trace.frame.columns
    lacks = [] if isinstance(trace, Trace) else ["no arrivals: cannot be replayed until they are joined"]
    if "prompt" not in columns:
        lacks.append("no prompt text: a predictor cannot score it")
    if "prefix_hashes" not in columns:
        lacks.append("no prefix hashes: a prefix cache shares nothing")
    if not any(column.startswith(SCORE_PREFIX) for column in columns):
        lacks.append("no scores: score policies run emulated, at a stated tau")
    if "client_id" not in columns and "session_id" not in columns:
        lacks.append("no clients or sessions")
    return lacks
