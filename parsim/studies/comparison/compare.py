"""Objectives against each other at equal budget, over seeds and data sets, beside three plain baselines."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from parsim.errors import UserError
from parsim.files import check_target, replacing
from parsim.predictor.quality.baselines import prompt_length, tfidf_ridge
from parsim.predictor.ranker.encoder import MissingEncoder, load_encoder
from parsim.studies.comparison.runs import Run, Runs
from parsim.studies.comparison.spec import BASELINES, Comparison, Variant
from parsim.studies.comparison.table import judge, markdown
from parsim.studies.comparison.task import Task, prepare

Floats = npt.NDArray[np.float64]

TUNING_SEED = 0
"""Of the trainings that settle a recipe on the validation prompts; no row of a table is made with it by default."""


@dataclass(frozen=True)
class _Method:
    """A variant on a data set: what has to be trained for it."""

    comparison: Comparison
    task: Task
    tuning_task: Task
    variant: Variant

    def tunings(self) -> list[tuple[dict[str, Any], Run]]:
        """Every combination of the grid with the training that judges it; none without a grid."""
        choices = self.comparison.choices(self.task.spec, self.variant)
        return [(choice, self._run(self.tuning_task, choice, TUNING_SEED)) for choice in choices]

    def settle(self, runs: Runs) -> dict[str, Any]:
        """The combination that ranks the validation prompts best."""
        tunings = self.tunings()
        if not tunings:
            return {}

        def reached(run: Run) -> float:
            _, facts = runs.get(run)
            tau = float(facts["epochs"][facts["best_epoch"] - 1]["validation_tau_b"])
            return tau if math.isfinite(tau) else -math.inf

        best, _ = max(tunings, key=lambda tuning: reached(tuning[1]))
        return best

    def runs(self, settled: dict[str, Any]) -> list[Run]:
        """One training a seed."""
        seeds = self.variant.seeds or self.task.spec.seeds or self.comparison.seeds
        return [self._run(self.task, settled, seed) for seed in seeds]

    def _run(self, task: Task, choice: dict[str, Any], seed: int) -> Run:
        return Run(
            task, self.variant, self.comparison.recipe_of(task.spec, self.variant, choice | {"seed": seed})
        )


def run_comparison(
    comparison: Comparison,
    out: Path,
    base: Path,
    say: Callable[[str], None] = print,
    *,
    progress: bool = False,
    jobs: int = 1,
) -> pl.DataFrame:
    """Train what is not yet trained, then write `results.parquet` and `table.md` to `out` and return the
    results.

    Args:
        comparison: what to run.
        out: where to write; finished runs there are reused.
        base: the folder that `DataSet.file` is relative to.
        say: told of each run.
        progress: show a progress bar for each training, where one runs at a time.
        jobs: so many trainings at a time, each on one core.

    Returns:
        One row a (data set, test model, method): tau_b, low, high (95%, over prompts; mean over seeds),
        seeds, spread (largest less smallest over seeds), training prompts, cpu_s and wall_s a run, and in `settled`
        what was chosen on the validation prompts.

    Raises:
        UserError: a file or a model that is not there, before anything is trained; or no variant whose encoder can be
            had. A variant whose encoder cannot be had is left out where others can.
    """
    counting = comparison.recipe.encoder
    tasks = [prepare(spec, base, spec.limit, counting) for spec in comparison.datasets]
    for task in tasks:
        task.check(comparison.variants_of(task.spec))
    for source, dropped in {task.corpus.source: task.corpus.dropped for task in tasks}.items():
        for reason, count in dropped.items():
            say(f"{source}: {count:,} rows left out: {reason}")
    check_target(out / "table.md")
    methods = {task.spec.name: _methods(comparison, task, base, say) for task in tasks}
    every = [method for some in methods.values() for method in some]
    runs = Runs(out / "runs", say, progress, jobs)
    runs.make([run for method in every for _, run in method.tunings()])
    settled = {id(method): method.settle(runs) for method in every}
    runs.make([run for method in every for run in method.runs(settled[id(method)])])
    rows: list[dict[str, Any]] = []
    for task in tasks:
        scores: dict[str, list[Floats]] = {}
        facts: dict[str, list[dict[str, Any]]] = {}
        for method in methods[task.spec.name]:
            choice = settled[id(method)]
            found = [runs.get(run) for run in method.runs(choice)]
            scores[method.variant.name] = [one for one, _ in found]
            facts[method.variant.name] = [fact | {"settled": choice} for _, fact in found]
        rows += _judged(task, scores, facts)
    results = pl.DataFrame(rows, infer_schema_length=None)
    with replacing(out / "results.parquet") as temporary:
        results.write_parquet(temporary)
    with replacing(out / "table.md") as temporary:
        temporary.write_text(markdown(results), encoding="utf-8")
    return results


def _methods(comparison: Comparison, task: Task, base: Path, say: Callable[[str], None]) -> list[_Method]:
    """The variants of a data set whose encoders can be had.

    Raises:
        UserError: that is none of them.
    """
    spec, found, missing = task.spec, [], None
    tuning = task
    if spec.tune_limit is not None:
        parts = prepare(spec, base, spec.tune_limit, comparison.recipe.encoder).parts
        tuning = replace(task, parts=parts)
    for variant in comparison.variants_of(spec):
        choices = comparison.choices(spec, variant) or [{}]
        lacking = [_lacking(comparison.recipe_of(spec, variant, choice).encoder) for choice in choices]
        if any(lacking):
            missing = next(filter(None, lacking))
            say(f"{spec.name}: {variant.name} is left out: {missing}")
        else:
            found.append(_Method(comparison, task, tuning, variant))
    if not found:
        raise UserError(f"{spec.name}: no variant is left to train: {missing}")
    return found


@cache
def _lacking(encoder: str) -> MissingEncoder | None:
    """Why an encoder cannot be had; None where it can."""
    try:
        load_encoder(encoder)
    except MissingEncoder as error:
        return error
    return None


def _judged(
    task: Task, scores: dict[str, list[Floats]], facts: dict[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """The rows of one data set, with the baselines."""
    spec = task.spec
    prompts = task.data.take(task.parts.test).prompts
    training = task.data.take(task.parts.train)
    plain = (prompt_length(prompts), tfidf_ridge(training.prompts, training.lengths, prompts))
    scores = scores | {name: [found] for name, found in zip(BASELINES, plain, strict=True)}
    about = {
        "dataset": spec.name,
        "trained_on": ", ".join(spec.train_on) or "its only model",
        "training_prompts": len(training),
    }
    rows: list[dict[str, Any]] = []
    for test in task.test_models:
        rows += judge(task.judges, test, prompts, scores, facts, ceiling=spec.ceiling, about=about)
    return rows
