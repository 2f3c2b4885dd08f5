"""The trainings of a comparison: each is made once and kept as two files, so that an interrupted comparison goes on
where it stopped and its table can be remade without training.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import BaseModel, Field

from parsim.files import replacing
from parsim.pool import in_processes
from parsim.predictor.corpora.corpus import Labelled
from parsim.predictor.ranker.encoder import load_encoder
from parsim.predictor.ranker.recipe import Recipe
from parsim.studies.comparison.spec import Variant
from parsim.studies.comparison.task import Task

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """One training: the scores that it gives the held-out prompts depend on nothing but these."""

    task: Task
    variant: Variant
    recipe: Recipe

    @cached_property
    def data(self) -> Labelled:
        also = self.variant.also_train_on
        return self.task.relabelled(also) if also else self.task.data

    @cached_property
    def key(self) -> str:
        """The same for the same recipe on the same rows in the same order, however the run is called."""
        learned = np.concatenate([self.task.parts.train, self.task.parts.validation])
        held_out = self.data.take(self.task.parts.test).prompts
        rows = [self.data.take(learned).digest(), len(self.task.parts.train), held_out]
        identity = json.dumps(
            [rows, self.recipe.model_dump(), *_weights(self.recipe.encoder)], sort_keys=True
        )
        digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return f"{Path(self.task.spec.file).stem}-{digest}"

    def __str__(self) -> str:
        recipe = self.recipe
        return (
            f"{self.task.spec.name}: {self.variant.name}, learning rate {recipe.rate:g}, seed {recipe.seed}"
        )

    def train(self, progress: bool = False) -> tuple[Floats, dict[str, Any]]:
        """Scores of the held-out prompts, and facts of the training."""
        from parsim.predictor.store.fit import fit

        fitted = fit(
            self.data,
            self.task.parts,
            self.recipe,
            name=self.variant.name,
            source={"source": self.task.corpus.source},
            held_out={},
            progress=progress,
        )
        history = fitted.history
        return fitted.scores, {
            "variant": self.variant.name,
            "seed": self.recipe.seed,
            "cpu_s": round(history.cpu_s, 1),
            "wall_s": round(history.wall_s, 1),
            "epochs": history.epochs,
            "best_epoch": history.best_epoch,
        }


@dataclass(frozen=True)
class Runs:
    """Makes what is missing in `folder`, `jobs` at a time."""

    folder: Path
    say: Callable[[str], None]
    progress: bool = False
    jobs: int = 1

    def make(self, runs: Sequence[Run]) -> None:
        """Train those that are not there; each is kept as soon as it is finished."""
        missing = {run.key: run for run in runs if self._kept(run) is None}
        for done, (run, scores, facts) in enumerate(self._train([*missing.values()]), start=1):
            facts_file, scores_file = self._files(run)
            with replacing(scores_file) as temporary:
                pl.DataFrame({"score": scores}).write_parquet(temporary)
            with replacing(facts_file) as temporary:
                temporary.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
            self.say(f"  {facts['cpu_s']:.0f} CPU s, {facts['wall_s']:.0f} s; {done} of {len(missing)}")

    def get(self, run: Run) -> tuple[Floats, dict[str, Any]]:
        """Scores of the held-out prompts and facts of a run that was made."""
        kept = self._kept(run)
        assert kept is not None, f"{run} was not made"
        return kept

    def _train(self, runs: Sequence[Run]) -> Iterator[tuple[Run, Floats, dict[str, Any]]]:
        if min(self.jobs, len(runs)) <= 1:
            for run in runs:
                self.say(str(run))
                yield run, *run.train(self.progress)
            return
        for place, scores, facts in in_processes(_train_beside_others, [*enumerate(runs)], self.jobs):
            self.say(str(runs[place]))
            yield runs[place], scores, facts

    def _kept(self, run: Run) -> tuple[Floats, dict[str, Any]] | None:
        """A run made before; None where there is none, or what is there is damaged: it is then made again."""
        facts_file, scores_file = self._files(run)
        try:
            facts = _Facts.model_validate(json.loads(facts_file.read_text(encoding="utf-8")))
            scores = pl.read_parquet(scores_file)["score"].cast(pl.Float64).to_numpy()
        except (OSError, ValueError, RecursionError, pl.exceptions.PolarsError):
            return None
        whole = facts.best_epoch <= len(facts.epochs) and len(scores) == len(run.task.parts.test)
        return (scores, facts.model_dump()) if whole and np.isfinite(scores).all() else None

    def _files(self, run: Run) -> tuple[Path, Path]:
        """Facts and scores of a run."""
        return self.folder / f"{run.key}.json", self.folder / f"{run.key}.parquet"


class _Epoch(BaseModel):
    loss: float
    validation_tau_b: float
    """nan where it is undefined."""


class _Facts(BaseModel):
    """What is kept of a training beside its scores."""

    variant: str
    seed: int
    cpu_s: float = Field(ge=0, allow_inf_nan=False)
    wall_s: float = Field(ge=0, allow_inf_nan=False)
    epochs: list[_Epoch]
    best_epoch: int = Field(ge=1)


@cache
def _weights(encoder: str) -> list[str]:
    """The sha256 of an encoder that is a folder, whose weights may change under its name; nothing of another."""
    return [load_encoder(encoder).sha256] if Path(encoder).is_dir() else []


def _train_beside_others(numbered: tuple[int, Run]) -> tuple[int, Floats, dict[str, Any]]:
    """In a process of its own, on one core of those that the processes share."""
    import torch

    torch.set_num_threads(1)
    place, run = numbered
    return place, *run.train()
