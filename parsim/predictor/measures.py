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

from parsim.predictor.baselines import prompt_length, tfidf_ridge_folds
from parsim.predictor.corpus import Corpus, Labelled
from parsim.predictor.evaluate import (
    Interval,
    calibration,
    noise_ceiling,
    pair_accuracy,
    tau_b,
    tau_by_group,
    tau_interval,
)

MODELS_SHOWN = 40
"""`evaluate` judges by the lengths of so many models of a corpus, those with most prompts."""


def measure(
    scores: npt.NDArray[np.float64], labelled: Labelled, corpus: Corpus, models: Sequence[str]
) -> dict[str, Any]:
    """tau_b overall, by data set and by model; baselines; ceiling; pair accuracy; calibration."""
    prompts = labelled.prompts
    ceiling = noise_ceiling(
        corpus.samples(list(models) or corpus.models).filter(pl.col("prompt").is_in(prompts))
    )
    mine = pl.DataFrame({"prompt": prompts, "score": scores})
    by_model = {}
    for model in corpus.models[:MODELS_SHOWN]:
        truth = corpus.label([model])
        both = mine.join(pl.DataFrame({"prompt": truth.prompts, "length": truth.lengths}), on="prompt")
        if len(both) > 1:
            by_model[model] = tau_b(both["score"].to_numpy(), both["length"].to_numpy())
    return {
        "prompts": len(labelled),
        "censored": int(labelled.censored.sum()),
        "tau_b": dataclasses.asdict(tau_interval(scores, labelled.lengths)),
        "prompt_length_tau_b": dataclasses.asdict(tau_interval(prompt_length(prompts), labelled.lengths)),
        "tfidf_tau_b": dataclasses.asdict(
            tau_interval(tfidf_ridge_folds(prompts, labelled.lengths), labelled.lengths)
        ),
        "ceiling": None if ceiling is None else dataclasses.asdict(ceiling),
        "by_dataset": tau_by_group(scores, labelled.lengths, labelled.datasets).to_dicts(),
        "by_model": by_model,
        "pair_accuracy": pair_accuracy(scores, labelled.lengths).to_dicts(),
        "calibration": calibration(scores, labelled.lengths).to_dicts(),
    }


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
    out.print(f"TF-IDF + ridge, five folds of these prompts: {_escaped(words)}")
    ceiling = report["ceiling"]
    if ceiling is None:
        out.print("noise ceiling: unknown, there is one sample a prompt")
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
    models = [{"model": name, "tau_b": value} for name, value in report["by_model"].items()]
    out.print(_table("by model whose lengths judge", models))


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in rows[0] if rows else []:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def _escaped(value: object) -> str:
    return str(value).replace("[", r"\[")


def _cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return "undefined" if math.isnan(value) else f"{value:.3f}"
