"""What the commands of `parsim.cli.predictor_options` do."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError
from rich.console import Console

from parsim.cli.reading import say
from parsim.errors import UserError, first_problem, nearest
from parsim.predictor.corpora.corpus import Corpus
from parsim.predictor.corpora.data import HUB, read_data
from parsim.predictor.ranker.recipe import Recipe
from parsim.traces.reading import Reading

PAPER_OVERHEAD = 0.0008
"""Scoring and sorting as a share of serving time, as the paper states it."""

console = Console(stderr=True, highlight=False)


def train_command(
    data: Path,
    out: Path,
    *,
    changes: dict[str, Any],
    settings: Sequence[str],
    models: Sequence[str],
    corpus: str | None,
    unit: str | None,
    name: str | None,
    test_share: float,
    overwrite: bool,
    threads: int | None,
    progress: bool,
) -> None:
    """`parsim train`: see `parsim.predictor.store.fit.fit`."""
    from parsim.predictor.corpora.split import SPLIT_SEED, split
    from parsim.predictor.store.card import check_name
    from parsim.predictor.store.fit import fit

    recipe = make_recipe(changes, settings)
    called = out.resolve().name if name is None else name
    check_name(called, f"{out}, without --name" if name is None else "--name")
    read = read_data(data, corpus, unit, recipe.encoder)
    labelled = read.label(models)
    _tell_dropped(read)
    parts = split(labelled, test_share=test_share)
    _set_threads(threads)
    fitted = fit(
        labelled,
        parts,
        recipe,
        name=called,
        source={
            "source": Path(read.source).name,
            "models": list(models) or read.models,
            "unit": read.unit,
            "dropped": read.dropped,
        },
        held_out={
            "rule": "by normalised prompt",
            "seed": SPLIT_SEED,
            "test_share": test_share,
            "validation": 0.1,
        },
        folder=out,
        overwrite=overwrite,
        progress=progress,
    )
    history = fitted.history
    baselines = fitted.card.results["baseline_tau_b"]
    print(f"{out}: {recipe.objective} on {len(parts.train):,} prompts, best epoch {history.best_epoch}")
    print(f"training: {history.cpu_s:.0f} CPU seconds, {history.wall_s:.0f} seconds")
    print(f"tau_b on {len(parts.test):,} held-out prompts: {fitted.test:.3f}")
    for label, found in baselines.items():
        value = found["value"]
        print(f"  {label}: {'undefined' if value is None else f'{value:.3f}'}")


def evaluate_command(
    predictor: str,
    data: Path,
    *,
    models: Sequence[str],
    ceiling: Sequence[str],
    corpus: str | None,
    unit: str | None,
    unseen: bool,
    allow_seen: bool,
    as_json: bool,
    threads: int | None,
) -> None:
    """`parsim evaluate`: every measure of `parsim.predictor.quality.evaluate` on one corpus."""
    from parsim.predictor.corpora.split import refuse_overlap, seen
    from parsim.predictor.quality.measures import measure, print_report
    from parsim.predictor.scoring.predictor import load_predictor

    _set_threads(threads)
    loaded = load_predictor(predictor)
    own = str(loaded.card.data.get("unit", "tokens")) if corpus is not None else None
    read = read_data(data, corpus, unit or own, loaded.card.recipe.encoder)
    _tell_dropped(read)
    if not models and set(loaded.card.data.get("models", [])) <= set(read.models):
        models = list(loaded.card.data.get("models", []))
    labelled = read.label(models)
    if unseen and allow_seen:
        raise UserError(
            "--unseen and --allow-seen: one leaves out what training saw, the other does not; give one"
        )
    unknown = next((name for name in ceiling if name not in read.models), None)
    if unknown is not None:
        raise UserError(f"--ceiling: {read.source} has no lengths of model '{unknown}'")
    known = seen(labelled.prompts, loaded.training_keys)
    training = labelled.take(np.flatnonzero(known))
    if unseen:
        labelled = labelled.take(np.flatnonzero(~known))
        if len(labelled) < 2:
            raise UserError(
                f"{data}: all {len(known)} prompts were seen in training; nothing is left to evaluate"
            )
    elif not allow_seen:
        refuse_overlap(labelled.prompts, loaded.training_keys, str(data))
    scores = loaded.score(labelled.prompts)
    judges = models or read.models
    alone = judges if len(judges) == 1 and judges != ["all"] else []
    report = measure(scores, labelled, read, ceiling or alone, training=training if unseen else None)
    report |= {"predictor": loaded.name, "seen_prompts_left_out": int(known.sum()) if unseen else 0}
    from parsim.predictor.scoring.score import score_latency

    report["latency"] = score_latency(loaded, labelled.prompts).to_dicts()
    if as_json:
        print(json.dumps(_plain(report)))
    else:
        print_report(report)


def score_command(
    predictor: str,
    trace: Path,
    out: Path,
    how: Reading,
    *,
    precision: str,
    threads: int | None,
    progress: bool,
) -> None:
    """`parsim score`: adds the column and says what it cost."""
    from parsim.predictor.scoring.predictor import load_predictor
    from parsim.predictor.scoring.score import score_trace
    from parsim.traces import write_trace
    from parsim.traces.readers import trace_of
    from parsim.traces.write import check_trace_target

    check_trace_target(out)
    read = trace_of(trace, how)
    say(read)
    loaded = load_predictor(predictor, precision=precision)
    scored = score_trace(read, loaded, workers=threads, progress=progress)
    write_trace(scored.trace, out)
    each = 1000 * scored.wall_s / max(1, scored.prompts)
    print(
        f"{out}: {scored.prompts:,} prompts scored ({scored.distinct:,} distinct) in {scored.wall_s:.1f} s,"
    )
    print(f"  {each:.2f} ms a prompt, {scored.cpu_s:.1f} CPU seconds")
    span_s = float(read.frame["arrival_s"].max() or 0.0)  # type: ignore[arg-type]
    if span_s > 0:
        print(
            f"  scoring took {scored.wall_s / span_s:.2%} of the {span_s:,.0f} s from the first arrival to the last;"
            f" the paper's {PAPER_OVERHEAD:.2%} is another share: scoring and sorting in the time spent serving"
        )
    if f"score.{loaded.name}" in read.frame.columns:
        print(f"  the scores that {trace} had in score.{loaded.name} are replaced")
    if scored.empty:
        print(f"  {scored.empty:,} prompts are empty; they got the score of an empty text")


def compare_command(
    data: Path,
    *,
    folder: Path | None,
    models: Sequence[str],
    corpus: str | None,
    unit: str | None,
    out: Path | None,
    seeds: int | None,
    ablate: bool,
    settings: Sequence[str],
    limit: int | None,
    threads: int | None,
    jobs: int,
    progress: bool,
) -> None:
    """`parsim compare`: see `parsim.studies.comparison.compare.run_comparison`."""
    from parsim.studies.comparison.compare import run_comparison
    from parsim.studies.comparison.spec import (
        ABLATIONS,
        Comparison,
        DataSet,
        read_comparison,
        shipped_spec,
        shipped_specs,
    )
    from parsim.studies.comparison.table import markdown

    spec = shipped_spec(str(data)) or (data if data.suffix in (".yaml", ".yml") else None)
    if spec is not None:
        given = {"--model": models, "--seeds": seeds, "--set": settings, "--limit": limit}
        given |= {"--corpus": corpus, "--unit": unit}
        idle = next((option for option, value in given.items() if value), None)
        if idle is not None:
            raise UserError(
                f"{idle}: {spec.name} says this itself; leave the option out, or change a copy of that file"
            )
        comparison = read_comparison(spec)
    else:
        if data.exists() or (corpus is not None and str(data) == HUB):
            folder = data.parent
        elif not (file := (folder or data.parent) / data.name).exists():
            hint = nearest(str(data), shipped_specs())
            raise UserError(f"{file}: no such file, and no comparison of that name{hint}")
        name = data.stem.lstrip(".") or "compare"
        one = DataSet(
            name=name, file=data.name or ".", corpus=corpus, unit=unit, train_on=list(models), limit=limit
        )
        chosen = list(range(1, (seeds or 3) + 1))
        try:
            comparison = Comparison(name=name, seeds=chosen, recipe=make_recipe({}, settings), datasets=[one])
        except ValidationError as error:
            raise UserError(first_problem(error)) from error
    if ablate:
        known = {variant.name for variant in comparison.variants}
        variants = [*comparison.variants, *(one for one in ABLATIONS if one.name not in known)]
        comparison = comparison.model_copy(update={"variants": variants})
    _set_threads(threads)
    target = out or Path("reports") / comparison.name
    say = partial(console.print, markup=False, soft_wrap=True)
    results = run_comparison(comparison, target, folder or data.parent, say=say, progress=progress, jobs=jobs)
    print(markdown(results))
    print(f"written to {target}: results.parquet, table.md, runs/")


def make_recipe(changes: dict[str, Any], settings: Sequence[str]) -> Recipe:
    """A recipe from changed fields and `key=value` settings.

    Raises:
        UserError: a setting without '=', an unknown field (with the nearest name) or a wrong value.
    """
    fields = dict(changes)
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign:
            raise UserError(f"--set {setting}: expected key=value")
        fields[key.strip()] = value.strip()
    for key in fields:
        if key not in Recipe.model_fields:
            raise UserError(
                f"recipe: no field {key!r}{nearest(key, Recipe.model_fields)} (there are"
                f" {', '.join(Recipe.model_fields)})"
            )
    try:
        return Recipe.model_validate(fields)
    except ValidationError as error:
        raise UserError(f"recipe: {first_problem(error)}") from error


def _tell_dropped(corpus: Corpus) -> None:
    for reason, count in corpus.dropped.items():
        console.print(f"{corpus.source}: {count:,} rows left out: {reason}")


def _set_threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def _plain(value: Any) -> Any:
    """The same with nan as null, which JSON has."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value
