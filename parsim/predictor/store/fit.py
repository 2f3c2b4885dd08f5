"""From a labelled corpus to a predictor on disk: split, train, measure on the held-out prompts, save."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from parsim.errors import UserError
from parsim.files import check_target
from parsim.predictor.corpora.corpus import Labelled
from parsim.predictor.corpora.split import Split, prompt_keys
from parsim.predictor.quality.baselines import prompt_length, tfidf_ridge
from parsim.predictor.quality.evaluate import tau_interval
from parsim.predictor.ranker.encoder import MINILM_LICENCE, MINILM_SHA256, load_encoder
from parsim.predictor.ranker.lexical import Lexical, check_words
from parsim.predictor.ranker.model import Ranker
from parsim.predictor.ranker.recipe import Recipe
from parsim.predictor.ranker.state import History
from parsim.predictor.ranker.train import train
from parsim.predictor.store.checkpoint import CARD, Card, halve, save, write_history
from parsim.stats import Interval

STATE = "training-state.pt"


@dataclass(frozen=True)
class Fitted:
    """What `fit` measured.

    Attributes:
        card: as saved.
        history: losses and seconds.
        scores: of the held-out prompts, in the order of `split.test`.
        test: tau_b of them.
    """

    card: Card
    history: History
    scores: npt.NDArray[np.float64]
    test: Interval


def fit(
    data: Labelled,
    parts: Split,
    recipe: Recipe,
    *,
    name: str,
    source: dict[str, Any],
    held_out: dict[str, Any],
    folder: Path | None = None,
    overwrite: bool = False,
    licence: str = "as the training data",
    notes: list[str] | None = None,
    trained: tuple[Ranker, History] | None = None,
    progress: bool = False,
) -> Fitted:
    """Train on `parts.train`, choose the epoch on `parts.validation`, measure on `parts.test`, save to
    `folder`.

    Args:
        data: prompts with one length each.
        parts: which rows do what.
        recipe: every training choice.
        name: the score column is `score.NAME`.
        source: for the card: where the data are from.
        held_out: for the card: how the split was made.
        folder: where to write; None writes nothing. An unfinished run in it is continued.
        overwrite: replace a predictor that is already there (only once the new one is trained).
        licence, notes: for the card.
        trained: a ranker that was trained by `recipe` on these parts already; only what comes after it is
            done.
        progress: show a progress bar.

    Raises:
        UserError: a predictor is already there, the folder cannot be written, or see `train`.
    """
    if folder is not None and (folder / CARD).exists() and not overwrite:
        raise UserError(
            f"{folder}: already holds a predictor; choose another folder or allow it to be overwritten"
        )
    if folder is not None:
        check_target(folder / CARD)
    training, validation, test = (data.take(rows) for rows in (parts.train, parts.validation, parts.test))
    if recipe.lexical:
        check_words(training.prompts, validation.prompts)
    encoder = load_encoder(recipe.encoder)
    state = folder / STATE if folder is not None else None
    ranker, history = trained or train(
        training, validation, encoder, recipe, state_file=state, progress=progress
    )
    halve(ranker)
    lexical = _lexical(training, validation, ranker.score(validation.prompts)) if recipe.lexical else None
    scores = ranker.score(test.prompts)
    if lexical is not None:
        scores = lexical.combine(scores, test.prompts)
    reached = tau_interval(scores, test.lengths)
    card = Card(
        name=name,
        recipe=recipe,
        data=source
        | {
            "training_prompts": len(training),
            "validation_prompts": len(validation),
            "test_prompts": len(test),
            "censored_in_training": int(training.censored.sum()),
        },
        split=held_out,
        encoder={
            "name": encoder.name,
            "sha256": encoder.sha256,
            "licence": MINILM_LICENCE if encoder.sha256 == MINILM_SHA256 else "see its own card",
        },
        results=held_out_results(training, test, reached) | {"best_epoch": history.best_epoch},
        target=history.target,
        licence=licence,
        notes=notes or [],
    )
    if folder is not None:
        keys = prompt_keys(training.prompts + validation.prompts)
        save(folder, ranker, card, training_keys=keys, lexical=lexical)
        about = {"encoder_source": encoder.source, "precision": str(ranker.precision)}
        write_history(folder, history, about)
        (folder / STATE).unlink(missing_ok=True)
    return Fitted(card=card, history=history, scores=scores, test=reached)


def held_out_results(training: Labelled, test: Labelled, reached: Interval) -> dict[str, Any]:
    """tau_b on the held-out prompts beside those of the plain baselines on the same ones."""
    words = tfidf_ridge(training.prompts, training.lengths, test.prompts)
    return {
        "test_tau_b": _rounded(reached),
        "baseline_tau_b": {
            "prompt length": _rounded(tau_interval(prompt_length(test.prompts), test.lengths)),
            "TF-IDF + ridge": _rounded(tau_interval(words, test.lengths)),
        },
    }


def _lexical(training: Labelled, validation: Labelled, scores: npt.NDArray[np.float64]) -> Lexical:
    words = Lexical.fit(training.prompts, np.log(training.lengths))
    return words.blend(scores, validation.prompts, validation.lengths)


def _rounded(interval: Interval) -> dict[str, float | None]:
    values = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {name: None if np.isnan(value) else round(value, 4) for name, value in values.items()}
