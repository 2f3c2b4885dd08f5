"""The table of a comparison: each method's tau_b with interval, beside the plain baselines and the noise
ceiling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from parsim.predictor.corpora.corpus import Corpus
from parsim.predictor.quality.evaluate import (
    RESAMPLES,
    noise_ceiling,
    pair_accuracy,
    tau_interval,
)
from parsim.stats import Floats, Interval, bootstrap, tau_b

REFERENCES = ("pointwise", "pairwise")
"""Methods over which the gains of the others are given, on the same resampled prompts."""


def judge(
    corpus: Corpus,
    test: str,
    prompts: list[str],
    scores: dict[str, list[Floats]],
    facts: dict[str, list[dict[str, Any]]],
    *,
    ceiling: list[str],
    about: dict[str, Any],
) -> list[dict[str, Any]]:
    """One row a method: the scores of held-out prompts judged by the lengths of one model, and the ceiling.

    Args:
        corpus: has the lengths.
        test: the model that judges; prompts that it did not answer are left out.
        prompts: the held-out prompts.
        scores: method -> one array (prompts,) a seed.
        facts: method -> one record a run, with cpu_s, wall_s and settled.
        ceiling: models that are repeated samples of one another; by default `test` alone.
        about: fields that every row repeats.
    """
    truth = corpus.label([test])
    by_prompt = dict(zip(truth.prompts, truth.lengths.tolist(), strict=True))
    known = np.array([prompt in by_prompt for prompt in prompts])
    lengths = np.array([by_prompt[prompt] for prompt in prompts if prompt in by_prompt])
    common = about | {"test_model": test, "test_prompts": len(lengths)}
    references = {name: [one[known] for one in scores[name]] for name in REFERENCES if name in scores}
    rows = []
    for method, found in scores.items():
        several = [one[known] for one in found]
        interval = _mean_interval(several, lengths)
        gains = {
            name: _mean_interval(several, lengths, reference) if method != name else None
            for name, reference in references.items()
        }
        taus = [tau_b(one, lengths) for one in several]
        runs = facts.get(method, [])
        accuracy = float(pair_accuracy(several[0], lengths)["accuracy"][-1])
        rows.append(
            common
            | {
                "method": method,
                **_named(interval, ("tau_b", "low", "high")),
                **_gains(gains),
                "pair_accuracy": accuracy,
                "seeds": len(runs),
                "spread": float(max(taus) - min(taus)),
                "cpu_s": float(np.mean([run["cpu_s"] for run in runs])) if runs else None,
                "wall_s": float(np.mean([run["wall_s"] for run in runs])) if runs else None,
                "settled": _words(runs[0]["settled"]) if runs else None,
            }
        )
    samples = corpus.samples(ceiling or [test]).filter(pl.col("prompt").is_in(prompts))
    return rows + _ceiling_rows(samples, common)


def _ceiling_rows(samples: pl.DataFrame, common: dict[str, Any]) -> list[dict[str, Any]]:
    ceiling = noise_ceiling(samples)
    empty = dict.fromkeys(("pair_accuracy", "cpu_s", "wall_s", "settled"))
    blank = common | _gains({}) | empty | {"seeds": 0, "spread": 0.0}
    if ceiling is None:
        name = "noise ceiling: unknown, one sample a prompt"
        return [blank | {"method": name, "tau_b": None, "low": None, "high": None}]
    sample = _named(ceiling.sample, ("tau_b", "low", "high"))
    expected = {"tau_b": ceiling.expected, "low": None, "high": None}
    return [
        blank | {"method": "noise ceiling: another sample", **sample},
        blank | {"method": "noise ceiling: expected length known (estimate)", **expected},
    ]


def _mean_interval(several: Sequence[Floats], lengths: Floats, reference: Sequence[Floats] = ()) -> Interval:
    """Mean tau_b over seeds, less that of the reference, with an interval over prompts resampled for all at
    once.
    """

    def figure(rows: npt.NDArray[np.int64]) -> float:
        mean = float(np.mean([tau_b(one[rows], lengths[rows]) for one in several]))
        return mean - (
            float(np.mean([tau_b(one[rows], lengths[rows]) for one in reference])) if reference else 0.0
        )

    if len(several) == 1 and not reference:
        return tau_interval(several[0], lengths)
    return bootstrap(figure, len(lengths), RESAMPLES // 2)


def _named(interval: Interval | None, names: tuple[str, str, str]) -> dict[str, float | None]:
    values = (interval.value, interval.low, interval.high) if interval is not None else (None, None, None)
    return {
        name: None if value is None or math.isnan(value) else value
        for name, value in zip(names, values, strict=True)
    }


def _gains(gains: dict[str, Interval | None]) -> dict[str, float | None]:
    """Gains over each of `REFERENCES`, as columns over_NAME, over_NAME_low and over_NAME_high."""
    columns: dict[str, float | None] = {}
    for name in REFERENCES:
        columns |= _named(gains.get(name), (f"over_{name}", f"over_{name}_low", f"over_{name}_high"))
    return columns


def _words(settled: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settled.items())


def _gain(row: dict[str, Any], over: str) -> str:
    value, low, high = (row[f"over_{over}{bound}"] for bound in ("", "_low", "_high"))
    if value is None or low is None or high is None:
        return ""
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"


def markdown(results: pl.DataFrame) -> str:
    """The results as Markdown tables, one a data set and test model, the best method first."""
    lines: list[str] = []
    for (name, test), part in results.group_by("dataset", "test_model", maintain_order=True):
        first = part.row(0, named=True)
        lines += [
            f"### {name}: lengths of {test}",
            "",
            f"{first['training_prompts']:,} prompts to train on, {first['test_prompts']:,} held out.",
            "",
            "| method | tau_b [95% interval] | over pointwise [paired] | over pairwise [paired] | pair accuracy"
            " | seeds (spread) | CPU s a run | settled on validation |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in part.sort("tau_b", descending=True, nulls_last=True).iter_rows(named=True):
            seeds = f"{row['seeds']} ({row['spread']:.3f})" if row["seeds"] > 1 else str(row["seeds"] or "")
            cpu = f"{row['cpu_s']:.0f}" if row["cpu_s"] is not None else ""
            gains = " | ".join(_gain(row, over) for over in REFERENCES)
            accuracy = f"{row['pair_accuracy']:.3f}" if row["pair_accuracy"] is not None else ""
            bounds = [math.nan if row[key] is None else row[key] for key in ("tau_b", "low", "high")]
            tau = Interval(*bounds)
            settled = row["settled"] or ""
            lines.append(
                f"| {row['method']} | {tau:.3f} | {gains} | {accuracy} | {seeds} | {cpu} | {settled} |"
            )
        lines.append("")
    return "\n".join(lines)
