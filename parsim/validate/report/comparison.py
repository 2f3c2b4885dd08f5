"""Model against reality: errors with intervals, the order of the policies, speed-ups, and where an error comes from.

Real and model see the same requests. Every error is `model / real - 1`, of the means over repeats where there are
several. Its 95% interval comes from repeats
(Student t over the repeats' errors) where there are several, else from a moving-block bootstrap over requests in
order of arrival, the same blocks for real and model: requests of one run are dependent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from parsim.metrics import METRICS, latency_columns
from parsim.stats import Interval, block_indices, percentile_interval, t_interval

LATENCIES = ("ttft", "tpot", "e2el", "per_token_latency")
STATISTICS = ("mean", "p90", "p99")
PARTS = {
    "queue": pl.col("first_scheduled_s") - pl.col("arrival_s"),
    "prefill": pl.col("first_token_s") - pl.col("first_scheduled_s"),
    "decode": pl.col("finish_s") - pl.col("first_token_s"),
}
"""What an end-to-end latency is made of; the first two need the engine's own clock."""

Array = np.ndarray


@dataclass(frozen=True)
class Pair:
    """One policy's runs: `real[i]` and `model[i]` are frames over the same requests, one pair a repeat."""

    policy: str
    label: str
    real: Sequence[pl.DataFrame]
    model: Sequence[pl.DataFrame]


def errors(pairs: Sequence[Pair], seed: int = 0) -> pl.DataFrame:
    """One row a policy and metric: policy, label, metric, unit, real, model, error, low, high, repeats."""
    rows = []
    for pair in pairs:
        real = [_values(frame) for frame in pair.real]
        model = [_values(frame) for frame in pair.model]
        bootstrap = _bootstrap(pair.real[0], pair.model[0], seed) if len(real) == 1 else {}
        for name in real[0]:
            ratios = np.array(
                [m[name] / r[name] - 1 if r[name] else np.nan for r, m in zip(real, model, strict=True)]
            )
            measured, made = (float(np.mean([values[name] for values in side])) for side in (real, model))
            interval = _interval(made / measured - 1, ratios, bootstrap.get(name))
            rows.append(
                {
                    "policy": pair.policy,
                    "label": pair.label,
                    "metric": name,
                    "unit": METRICS[name].unit,
                    "real": measured,
                    "model": made,
                    "error": interval.value,
                    "low": interval.low,
                    "high": interval.high,
                    "repeats": len(real),
                }
            )
    return pl.DataFrame(rows)


def _interval(value: float, ratios: Array, replicates: Array | None) -> Interval:
    if len(ratios) > 1:
        plain = t_interval(ratios + 1)
        return Interval(value, plain.low - 1, plain.high - 1)
    if replicates is None:
        return Interval(value, float("nan"), float("nan"))
    return percentile_interval(value, replicates)


def speedups(
    pairs: Sequence[Pair], metric: str = "mean_per_token_latency_ms", base: str = "fcfs"
) -> pl.DataFrame:
    """How many times better than `base` each policy is: policy, label, real, low, high (over repeats), model, error.

    Empty where `base` was not run.
    """
    start = next((pair for pair in pairs if pair.policy == base), None)
    if start is None:
        return pl.DataFrame()
    reference = [
        (_values(r)[metric], _values(m)[metric]) for r, m in zip(start.real, start.model, strict=True)
    ]
    rows = []
    for pair in pairs:
        own = [(_values(r)[metric], _values(m)[metric]) for r, m in zip(pair.real, pair.model, strict=True)]
        interval = t_interval(np.array([b[0] / o[0] for b, o in zip(reference, own, strict=False)]))
        real, model = (
            base_mean / own_mean for base_mean, own_mean in zip(_means(reference), _means(own), strict=True)
        )
        rows.append(
            {
                "policy": pair.policy,
                "label": pair.label,
                "real": real,
                "low": interval.low,
                "high": interval.high,
                "model": model,
                "error": model / real - 1,
            }
        )
    return pl.DataFrame(rows)


def _means(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Mean over repeats of real and model."""
    real, model = np.mean(values, axis=0)
    return float(real), float(model)


@dataclass(frozen=True)
class Order:
    """The policies from best to worst by a metric, as measured and as predicted.

    `same` holds also where the two differ only among policies that the measurement cannot tell apart: their measured
    values lie within `margin` of each other, or the 95% interval of their ratio holds 1.
    """

    real: tuple[str, ...]
    model: tuple[str, ...]
    same: bool
    margin: float


def order(
    pairs: Sequence[Pair], metric: str = "mean_per_token_latency_ms", margin: float = 0.03, seed: int = 0
) -> Order:
    """The order of the policies by a metric of which less is better."""
    real = {pair.label: float(np.mean([_values(frame)[metric] for frame in pair.real])) for pair in pairs}
    model = {pair.label: float(np.mean([_values(frame)[metric] for frame in pair.model])) for pair in pairs}
    by_label = {pair.label: pair for pair in pairs}
    measured, predicted = (tuple(sorted(values, key=values.__getitem__)) for values in (real, model))
    rank = {label: i for i, label in enumerate(predicted)}
    same = all(
        rank[better] < rank[worse]
        or real[worse] <= real[better] * (1 + margin)
        or _tied(by_label[better], by_label[worse], metric, seed)
        for i, better in enumerate(measured)
        for worse in measured[i + 1 :]
    )
    return Order(measured, predicted, same, margin)


def _tied(better: Pair, worse: Pair, metric: str, seed: int) -> bool:
    """Whether the measured ratio of two policies may be 1: by repeats, else by a bootstrap over the same blocks."""
    if min(len(better.real), len(worse.real)) > 1:
        repeated = [
            _values(w)[metric] / _values(b)[metric] for b, w in zip(better.real, worse.real, strict=False)
        ]
        return t_interval(np.array(repeated)).low <= 1
    if better.real[0].height != worse.real[0].height or metric not in _names():
        return False
    ratios = _bootstrap(better.real[0], worse.real[0], seed)[metric] + 1
    return bool(np.quantile(ratios, 0.025) <= 1)


def parts(pairs: Sequence[Pair]) -> pl.DataFrame:
    """Mean seconds a request spends in each part: policy, label, part, real, model, share (of the real E2E error).

    A part that was not measured (a client cannot see the queue) is left out; queue and prefill then stand together
    as `first token`.
    """
    rows = []
    for pair in pairs:
        seen = all(frame["first_scheduled_s"].null_count() == 0 for frame in pair.real)
        chosen = (
            PARTS if seen else {"first token": PARTS["queue"] + PARTS["prefill"], "decode": PARTS["decode"]}
        )
        if not seen:
            chosen["first token"] = pl.col("first_token_s") - pl.col("arrival_s")
        for name, expression in chosen.items():
            real = float(np.mean([frame.select(expression.mean()).item() for frame in pair.real]))
            model = float(np.mean([frame.select(expression.mean()).item() for frame in pair.model]))
            rows.append(
                {"policy": pair.policy, "label": pair.label, "part": name, "real_s": real, "model_s": model}
            )
    return pl.DataFrame(rows).with_columns((pl.col("model_s") - pl.col("real_s")).alias("difference_s"))


def scatter(pairs: Sequence[Pair]) -> pl.DataFrame:
    """First repeat of every policy, request by request: label, request_id, latency, real_ms, model_ms."""
    frames = []
    for pair in pairs:
        real, model = (
            frame.with_columns(latency_columns()).select("request_id", *(f"{n}_s" for n in LATENCIES))
            for frame in (pair.real[0], pair.model[0])
        )
        joined = real.join(model, on="request_id", suffix="_model")
        frames += [
            joined.select(
                pl.lit(pair.label).alias("label"),
                "request_id",
                pl.lit(name).alias("latency"),
                (pl.col(f"{name}_s") * 1e3).alias("real_ms"),
                (pl.col(f"{name}_s_model") * 1e3).alias("model_ms"),
            )
            for name in ("ttft", "e2el")
        ]
    return pl.concat(frames)


def _matrix(frame: pl.DataFrame) -> Array:
    """Latencies in ms, shape (latencies, requests); NaN where one is undefined."""
    columns = frame.with_columns(latency_columns()).select(f"{name}_s" for name in LATENCIES)
    return columns.cast(pl.Float64).to_numpy().T * 1e3


def _values(frame: pl.DataFrame) -> dict[str, float]:
    matrix = _matrix(frame)
    values = dict(zip(_names(), _statistics(matrix[:, None, :])[:, :, 0].ravel().tolist(), strict=True))
    span = float(frame["finish_s"].to_numpy().max() - frame["arrival_s"].to_numpy().min())
    values["request_throughput"] = frame.height / span
    values["output_throughput"] = float(frame["output_tokens"].sum()) / span
    return values


def _names() -> list[str]:
    return [f"{statistic}_{latency}_ms" for latency in LATENCIES for statistic in STATISTICS]


def _statistics(samples: Array) -> Array:
    """Mean, p90, p99 over the last axis; (latencies, replicates, requests) to (latencies, 3, replicates)."""
    ninety, ninety_nine = np.nanpercentile(samples, (90, 99), axis=-1)
    return np.stack([np.nanmean(samples, axis=-1), ninety, ninety_nine], axis=1)


def _bootstrap(real: pl.DataFrame, model: pl.DataFrame, seed: int) -> dict[str, Array]:
    index = block_indices(real.height, seed)
    measured, made = (_statistics(_matrix(frame)[:, index]) for frame in (real, model))
    ratios = (made / measured - 1).reshape(len(LATENCIES) * len(STATISTICS), -1)
    return dict(zip(_names(), ratios, strict=True))
