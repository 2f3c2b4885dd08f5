"""Every measure of a predictor on one corpus, as plain values and as text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from rich.console import Console
from rich.table import Table

from parsim.predictor.corpora.corpus import Corpus, Labelled
from parsim.predictor.quality.baselines import prompt_length, tfidf_ridge, tfidf_ridge_folds
from parsim.predictor.quality.evaluate import (
    calibration,
    noise_ceiling,
    pair_accuracy,
    tau_by_group,
    tau_interval,
)
from parsim.stats import Interval

MODEL_RESAMPLES = 100
"""Bootstrap resamples of each model's interval: there may be forty of them."""

MODELS_SHOWN = 40
"""`evaluate` judges by the lengths of so many models of a corpus, those with most prompts."""


def measure(
    scores: npt.NDArray[np.float64],
    labelled: Labelled,
    corpus: Corpus,
    repeats: Sequence[str],
    *,
    training: Labelled | None = None,
) -> dict[str, Any]:
    """tau_b overall, by data set and by model; baselines; ceiling; pair accuracy; calibration.

    Args:
        scores: one a prompt of `labelled`.
        labelled: what is judged by.
        corpus: where it is from.
        repeats: one model with repeated samples, or several that are repeated samples of one: their lengths give the
            noise ceiling.
        training: prompts that the predictor learned from, if they are known. Where they are more than four fifths of
            `labelled`, TF-IDF learns from them, otherwise from folds of `labelled`.
    """
    prompts = labelled.prompts
    ceiling = noise_ceiling(corpus.samples(repeats).filter(pl.col("prompt").is_in(prompts)))
    words, learned_from = _tfidf(labelled, training)
    return {
        "prompts": len(labelled),
        "censored": int(labelled.censored.sum()),
        "tau_b": tau_interval(scores, labelled.lengths)._asdict(),
        "prompt_length_tau_b": tau_interval(prompt_length(prompts), labelled.lengths)._asdict(),
        "tfidf_tau_b": tau_interval(words, labelled.lengths)._asdict(),
        "tfidf_learned_from": learned_from,
        "ceiling": None
        if ceiling is None
        else dataclasses.asdict(ceiling) | {"sample": ceiling.sample._asdict()},
        "by_dataset": tau_by_group(scores, labelled.lengths, labelled.datasets).to_dicts(),
        "by_model": _by_model(scores, labelled, corpus),
        "pair_accuracy": pair_accuracy(scores, labelled.lengths).to_dicts(),
        "calibration": calibration(scores, labelled.lengths).to_dicts(),
    }


def _tfidf(labelled: Labelled, training: Labelled | None) -> tuple[npt.NDArray[np.float64], str]:
    """Scores of TF-IDF + ridge, and what it learned from."""
    if training is None or 5 * len(training) < 4 * len(labelled):
        return tfidf_ridge_folds(labelled.prompts, labelled.lengths), "five folds of these prompts"
    scores = tfidf_ridge(training.prompts, training.lengths, labelled.prompts)
    return scores, f"the {len(training):,} prompts of this file that the predictor learned from"


def _by_model(scores: npt.NDArray[np.float64], labelled: Labelled, corpus: Corpus) -> list[dict[str, Any]]:
    """tau_b with its interval by each model's lengths, over the prompts that it answered."""
    mine = pl.DataFrame({"prompt": labelled.prompts, "score": scores})
    rows = []
    for model in corpus.models[:MODELS_SHOWN]:
        truth = corpus.label([model])
        both = mine.join(pl.DataFrame({"prompt": truth.prompts, "length": truth.lengths}), on="prompt")
        if len(both) > 1:
            found = tau_interval(
                both["score"].to_numpy(), both["length"].to_numpy(), resamples=MODEL_RESAMPLES
            )
            rows.append({"model": model, "prompts": len(both), **_named(found)})
    return rows


def _named(found: Interval) -> dict[str, float]:
    return {"tau_b": found.value, "low": found.low, "high": found.high}


def print_report(report: dict[str, Any]) -> None:
    """The measures of `measure` as text and tables on stdout."""
    out = Console(highlight=False)
    tau = Interval(**report["tau_b"])
    out.print(
        f"{report['predictor']}: tau_b {_escaped(tau)} on {report['prompts']:,} prompts, none filtered out"
    )
    if math.isnan(tau.value):
        out.print(
            "tau is undefined: all lengths (or all scores) are the same, so there is no order to predict"
        )
    out.print(f"prompt length alone: {_escaped(Interval(**report['prompt_length_tau_b']))}")
    words = Interval(**report["tfidf_tau_b"])
    out.print(f"TF-IDF + ridge, learned from {report['tfidf_learned_from']}: {_escaped(words)}")
    ceiling = report["ceiling"]
    if ceiling is None:
        out.print(
            "noise ceiling: unknown, for it takes repeated samples of one model (--ceiling names models that are such"
            " samples)"
        )
    else:
        sample = Interval(**ceiling["sample"])
        out.print(
            f"noise ceiling: another sample {_escaped(sample)}, expected length {ceiling['expected']:.3f}"
        )
    if report["censored"]:
        out.print(f"{report['censored']:,} responses were cut off: their true lengths, and tau, may differ")
    for title, key in (
        ("by data set", "by_dataset"),
        ("pair accuracy by relative length gap", "pair_accuracy"),
        ("length by tenth of the score", "calibration"),
        ("scoring time on this machine", "latency"),
    ):
        out.print(_table(title, report[key]))
    out.print(_table("by model whose lengths judge", report["by_model"]))


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in rows[0] if rows else []:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def _escaped(value: Interval) -> str:
    return f"{value:.3f}".replace("[", r"\[")


def _cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return "undefined" if math.isnan(value) else f"{value:.3f}"
