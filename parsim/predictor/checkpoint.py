"""A predictor on disk: `model.safetensors` (what training changed) and `card.json` (what it is and how good).

The card is written last: a folder with a card is a whole predictor. The encoder's own weights are not in it;
they are loaded by name and, where the card states a sha256, must be the same.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parsim.engine.load import first_problem
from parsim.predictor.encoder import load_encoder
from parsim.predictor.lexical import Lexical
from parsim.predictor.model import Ranker
from parsim.predictor.recipe import Recipe
from parsim.predictor.train import History
from traces.atomic import replacing
from traces.errors import UserError

WEIGHTS = "model.safetensors"
CARD = "card.json"
HISTORY = "training.json"
_KEYS = "training_prompt_keys"
_LEXICAL = "lexical."


class Card(BaseModel):
    """What a predictor is, in words and numbers. Holds no times, so that a rerun writes the same bytes.

    Attributes:
        name: the score column is `score.NAME`.
        recipe: every training choice.
        data: source, models, unit, prompts a part, censored and dropped rows.
        split: seed and shares, or the rule by which prompts were held out.
        encoder: name, source, sha256, licence.
        results: tau_b with interval on held-out prompts, and the baselines on the same prompts.
        target: mean and standard deviation of log length in training: a pointwise score s expects exp(mean +
            s * std).
        licence: of these weights.
        notes: what a user must know.
    """

    model_config = ConfigDict(extra="forbid")

    format: int = 1
    name: str
    recipe: Recipe
    data: dict[str, Any]
    split: dict[str, Any]
    encoder: dict[str, str]
    results: dict[str, Any] = Field(default_factory=dict)
    target: tuple[float, float] = (0.0, 1.0)
    licence: str = "as the training data"
    notes: list[str] = Field(default_factory=list)


def halve(ranker: Ranker) -> None:
    """Round trained weights to 16 bits, as they are saved, so that what is measured is what is loaded later."""
    with torch.no_grad():
        for value in ranker.parameters():
            if value.requires_grad:
                value.copy_(value.half().float())


def save(
    folder: Path,
    ranker: Ranker,
    card: Card,
    *,
    training_keys: npt.NDArray[np.int64],
    lexical: Lexical | None = None,
) -> None:
    """Write a predictor; the card last, each file whole or not at all.

    Args:
        folder: created if need be.
        ranker: the trained model.
        card: its card.
        training_keys: `split.prompt_keys` of every prompt that training or validation saw.
        lexical: the bag-of-words part, if any.
    """
    from safetensors.torch import save_file

    tensors = {
        name: (
            value.half() if value.is_floating_point() and name not in ("mean", "spread") else value
        ).contiguous()
        for name, value in ranker.trained_state().items()
    }
    tensors[_KEYS] = torch.from_numpy(np.unique(training_keys))
    if lexical is not None:
        tensors |= {_LEXICAL + name: torch.from_numpy(value) for name, value in lexical.arrays().items()}
    (folder / CARD).unlink(missing_ok=True)
    with replacing(folder / WEIGHTS) as temporary:
        save_file(tensors, temporary)
    with replacing(folder / CARD) as temporary:
        temporary.write_text(card.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_card(folder: Path) -> Card:
    """The card of a predictor.

    Raises:
        UserError: no predictor there, or its card is broken.
    """
    file = folder / CARD
    if not file.is_file():
        raise UserError(f"{folder}: holds no predictor (no {CARD}); make one with: python -m parsim train")
    try:
        return Card.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise UserError(f"{file}: broken card ({first_problem(error)}); train the predictor again") from error


def load(folder: Path) -> tuple[Ranker, Lexical | None, Card, npt.NDArray[np.int64]]:
    """(ranker, lexical part or None, card, keys of the prompts that training saw).

    Raises:
        UserError: no predictor, a corrupted file, weights that do not fit the encoder, or another encoder
            than the one it was trained on.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    card = read_card(folder)
    file = folder / WEIGHTS
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{file}: corrupted or missing weights ({error}); train or copy the predictor again"
        ) from error
    keys = tensors.pop(_KEYS, torch.empty(0, dtype=torch.int64)).numpy()
    words = {
        name.removeprefix(_LEXICAL): tensors.pop(name).numpy() for name in list(tensors) if _LEXICAL in name
    }
    encoder = load_encoder(card.recipe.encoder)
    expected = card.encoder.get("sha256", "")
    if expected and encoder.sha256 and encoder.sha256 != expected:
        raise UserError(
            f"{folder}: trained on an encoder with sha256 {expected}, found {encoder.sha256};"
            " mend the encoder"
        )
    ranker = Ranker(encoder, card.recipe)
    wanted = ranker.trained_state()
    if wanted.keys() != tensors.keys() or any(wanted[name].shape != tensors[name].shape for name in wanted):
        raise UserError(
            f"{file}: weights do not fit encoder '{card.recipe.encoder}'; train the predictor again"
        )
    if not all(torch.isfinite(value).all() for value in tensors.values()):
        raise UserError(f"{file}: weights are not finite numbers; train or copy the predictor again")
    ranker.load_state_dict({name: value.float() for name, value in tensors.items()}, strict=False)
    ranker.eval()
    return ranker, Lexical.from_arrays(words) if words else None, card, keys


def write_history(folder: Path, history: History, about: dict[str, str]) -> None:
    """Losses, validation tau_b and seconds of the run, beside the card."""
    with replacing(folder / HISTORY) as temporary:
        temporary.write_text(json.dumps(asdict(history) | about, indent=2) + "\n", encoding="utf-8")


def read_history(folder: Path) -> History:
    """What `write_history` wrote."""
    written = json.loads((folder / HISTORY).read_text(encoding="utf-8"))
    known = {field.name for field in fields(History)}
    return History(**{name: value for name, value in written.items() if name in known})
