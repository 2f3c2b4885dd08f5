"""Objectives against each other at equal budget, over seeds and data sets, beside three plain baselines.

Every run of a spec is kept as two files, so that an interrupted comparison goes on where it stopped and the
table can be remade without training.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from parsim.predictor.baselines import prompt_length, tfidf_ridge
from parsim.predictor.comparison import BASELINES, Comparison, DataSet, Variant
from parsim.predictor.corpus import Corpus, Labelled, read_corpus
from parsim.predictor.encoder import MissingEncoder
from parsim.predictor.recipe import Recipe
from parsim.predictor.split import Split, split
from parsim.predictor.table import judge, markdown
from traces.atomic import check_target, replacing
from traces.errors import UserError

Floats = npt.NDArray[np.float64]

TUNING_SEED = 0
"""Of the trainings that settle a recipe on the validation prompts; no row of a table is made with it by default."""


@dataclass(frozen=True)
class _Job:
    """One data set, read and split once for all its runs."""

    spec: DataSet
    corpus: Corpus
    data: Labelled
    parts: Split


def run_comparison(
    comparison: Comparison,
    out: Path,
    base: Path,
    say: Callable[[str], None] = print,
    *,
    progress: bool = False,
) -> pl.DataFrame:
    """Train what is not yet trained, then write `results.parquet` and `table.md` to `out` and return the
    results.

    Args:
        comparison: what to run.
        out: where to write; finished runs there are reused.
        base: the folder that `DataSet.file` is relative to.
        say: told of each run.
        progress: show a progress bar for each training.

    Returns:
        One row a (data set, test model, method): tau_b, low, high (95%, over prompts; mean over seeds),
        seeds, spread (largest less smallest over seeds), training prompts, cpu_s and wall_s a run, and in `settled`
        what was chosen on the validation prompts.

    Raises:
        UserError: a file or a model that is not there, before anything is trained. A variant whose encoder cannot be
            had is left out.
    """
    rows: list[dict[str, Any]] = []
    jobs = [_prepare(spec, base, spec.limit) for spec in comparison.datasets]
    for job in jobs:
        _check_models(job, _variants(comparison, job.spec))
    runs = _Runs(out / "runs", say, progress)
    check_target(out / "table.md")
    for job in jobs:
        spec = job.spec
        prompts = job.data.take(job.parts.test).prompts
        scores: dict[str, list[Floats]] = {}
        facts: dict[str, list[dict[str, Any]]] = {}
        for variant in _variants(comparison, spec):
            try:
                settled = _settle(comparison, job, base, variant, runs)
                recipe = _recipe(comparison, job, variant, settled)
                for seed in variant.seeds or spec.seeds or comparison.seeds:
                    found, fact = runs.get(job, variant, recipe.model_copy(update={"seed": seed}))
                    scores.setdefault(variant.name, []).append(found)
                    facts.setdefault(variant.name, []).append(fact | {"settled": settled})
            except MissingEncoder as error:
                say(f"  left out: {error}")
        training = job.data.take(job.parts.train)
        plain = (prompt_length(prompts), tfidf_ridge(training.prompts, training.lengths, prompts))
        scores |= {name: [found] for name, found in zip(BASELINES, plain, strict=True)}
        about = {
            "dataset": spec.name,
            "trained_on": ", ".join(spec.train_on) or "its only model",
            "training_prompts": len(training),
        }
        for test in _tests(job):
            rows += judge(job.corpus, test, prompts, scores, facts, ceiling=spec.ceiling, about=about)
    results = pl.DataFrame(rows, infer_schema_length=None)
    with replacing(out / "results.parquet") as temporary:
        results.write_parquet(temporary)
    with replacing(out / "table.md") as temporary:
        temporary.write_text(markdown(results), encoding="utf-8")
    return results


def _prepare(spec: DataSet, base: Path, limit: int | None) -> _Job:
    file = base / spec.file
    if not file.exists():
        raise UserError(f"{file}: no such file; name the folder of the data with --data")
    corpus = read_corpus(file)
    if spec.only_dataset is not None:
        frame = corpus.frame.filter(pl.col("dataset") == spec.only_dataset)
        if frame.is_empty():
            raise UserError(f"{corpus.source}: no rows of data set '{spec.only_dataset}'")
        corpus = Corpus(frame, corpus.source, corpus.unit, corpus.dropped)
    data = corpus.label(spec.train_on)
    parts = split(data, test_share=spec.test_share)
    if limit is not None and limit < len(parts.train):
        order = np.random.default_rng(0).permutation(parts.train)[:limit]
        parts = Split(np.sort(order), parts.validation, parts.test)
    return _Job(spec, corpus, data, parts)


def _tests(job: _Job) -> list[str]:
    """The models whose lengths judge."""
    return job.spec.test_on or job.spec.train_on or job.corpus.models[:1]


def _check_models(job: _Job, variants: list[Variant]) -> None:
    """Find a model that is not there, or judges too few prompts, before hours of training.

    Raises:
        UserError: one of these.
    """
    available = job.corpus.models
    named = [*job.spec.ceiling, *(name for variant in variants for name in variant.also_train_on)]
    unknown = next((name for name in named if name not in available), None)
    if unknown is not None:
        raise UserError(
            f"{job.corpus.source}: no lengths of model '{unknown}'; it has {', '.join(available)}"
        )
    held_out = set(job.data.take(job.parts.test).prompts)
    for test in _tests(job):
        answered = len(held_out & {*job.corpus.label([test]).prompts})
        if answered < 2:
            raise UserError(
                f"{job.corpus.source}: model '{test}' answered {answered} of the {len(held_out)} held-out prompts, too "
                "few to judge by"
            )


def _variants(comparison: Comparison, spec: DataSet) -> list[Variant]:
    return [one for one in comparison.variants if spec.variants is None or one.name in spec.variants]


def _recipe(comparison: Comparison, job: _Job, variant: Variant, changes: dict[str, Any]) -> Recipe:
    fields = {**comparison.recipe.model_dump(), **job.spec.recipe, **variant.recipe, **changes}
    return Recipe.model_validate(fields)


def _settle(comparison: Comparison, job: _Job, base: Path, variant: Variant, runs: _Runs) -> dict[str, Any]:
    """The combination of the variant's grid that ranks the validation prompts best; nothing without a grid."""
    spec = job.spec
    grid = next(one for one in (variant.tune, spec.tune, comparison.tune) if one is not None)
    if not grid:
        return {}
    if spec.tune_limit is not None:
        job = replace(job, parts=_prepare(spec, base, spec.tune_limit).parts)
    choices = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]

    def reached(choice: dict[str, Any]) -> float:
        _, facts = runs.get(job, variant, _recipe(comparison, job, variant, choice | {"seed": TUNING_SEED}))
        return float(facts["epochs"][facts["best_epoch"] - 1]["validation_tau_b"])

    best = max(choices, key=reached)
    runs.say(f"{spec.name}: {variant.name}: {best} ranks the validation prompts best of {len(choices)}")
    return best


@dataclass(frozen=True)
class _Runs:
    """Trainings of a comparison, each kept in `folder` as two files and made only once."""

    folder: Path
    say: Callable[[str], None]
    progress: bool

    def get(self, job: _Job, variant: Variant, recipe: Recipe) -> tuple[Floats, dict[str, Any]]:
        """Scores of the held-out prompts and facts of the run, from disk if it was done before."""
        from parsim.predictor.fit import fit

        data = _relabel(job, variant.also_train_on) if variant.also_train_on else job.data
        about = job.spec.model_dump(include={"file", "train_on", "only_dataset", "test_share"})
        about |= {"training_prompts": len(job.parts.train)}
        identity = json.dumps([about, recipe.model_dump(), variant.also_train_on], sort_keys=True)
        digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
        stem = self.folder / f"{Path(job.spec.file).stem}-{digest}"
        facts_file, scores_file = stem.with_suffix(".json"), stem.with_suffix(".parquet")
        kept = _kept(facts_file, scores_file, len(job.parts.test))
        if kept is not None:
            return kept
        self.say(f"{job.spec.name}: {variant.name}, learning rate {recipe.rate:g}, seed {recipe.seed}")
        fitted = fit(
            data,
            job.parts,
            recipe,
            name=variant.name,
            source={"source": job.corpus.source},
            held_out={},
            progress=self.progress,
        )
        history = fitted.history
        facts = {
            "variant": variant.name,
            "seed": recipe.seed,
            "cpu_s": round(history.cpu_s, 1),
            "wall_s": round(history.wall_s, 1),
            "epochs": history.epochs,
            "best_epoch": history.best_epoch,
        }
        with replacing(scores_file) as temporary:
            pl.DataFrame({"score": fitted.scores}).write_parquet(temporary)
        with replacing(facts_file) as temporary:
            temporary.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        self.say(f"  {history.cpu_s:.0f} CPU s, {history.wall_s:.0f} s")
        return fitted.scores, facts


def _kept(facts_file: Path, scores_file: Path, prompts: int) -> tuple[Floats, dict[str, Any]] | None:
    """A run made before; None where there is none, or what is there is damaged: it is then made again."""
    try:
        facts: dict[str, Any] = json.loads(facts_file.read_text(encoding="utf-8"))
        scores = pl.read_parquet(scores_file)["score"].cast(pl.Float64).to_numpy()
        whole = {"cpu_s", "wall_s", "epochs", "best_epoch"} <= facts.keys() and len(scores) == prompts
    except (OSError, ValueError, AttributeError, pl.exceptions.PolarsError):
        return None
    return (scores, facts) if whole else None


def _relabel(job: _Job, models: list[str]) -> Labelled:
    """The same prompts in the same order, labelled by the mean of more models where they have one."""
    wide = job.corpus.label([*job.spec.train_on, *models])
    by_prompt = dict(zip(wide.prompts, wide.lengths.tolist(), strict=True))
    lengths = np.array([by_prompt[prompt] for prompt in job.data.prompts])
    test = job.parts.test
    lengths[test] = job.data.lengths[test]
    return Labelled(job.data.prompts, lengths, job.data.censored, job.data.datasets)
