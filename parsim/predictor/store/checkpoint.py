"""A predictor on disk: `model.safetensors` (what training changed) and `card.json` (what it is and how good).

The card is written last and has the checksum of the weights: a folder with a card is a whole predictor. The
encoder's own weights are not in it; they are loaded by name and, where the card states a sha256, must be the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from parsim.errors import UserError
from parsim.files import replacing
from parsim.predictor.ranker.encoder import load_encoder
from parsim.predictor.ranker.lexical import Lexical
from parsim.predictor.ranker.model import Ranker
from parsim.predictor.ranker.state import History
from parsim.predictor.store.card import CARD, Card, check_name, read_card

WEIGHTS = "model.safetensors"
HISTORY = "training.json"
_KEYS = "training_prompt_keys"
_LEXICAL = "lexical."


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
        card: its card; takes the checksum of the weights.
        training_keys: `split.prompt_keys` of every prompt that training or validation saw.
        lexical: the bag-of-words part, if any.

    Raises:
        UserError: a name that is none, or weights that would give scores that are no numbers; nothing is written.
    """
    import safetensors.torch

    check_name(card.name, str(folder))
    tensors = {
        name: (
            value.half() if value.is_floating_point() and name not in ("mean", "spread") else value
        ).contiguous()
        for name, value in ranker.trained_state().items()
    }
    flaw = _flaw(tensors) or (lexical.flaw() if lexical is not None else "")
    if flaw:
        raise UserError(
            f"{folder}: what was trained is not usable ({flaw}), so it is not saved; lower the learning rate,"
            " compute in 32 bits (precision fp32), or train on more prompts"
        )
    tensors[_KEYS] = torch.from_numpy(np.unique(training_keys))
    if lexical is not None:
        tensors |= {_LEXICAL + name: torch.from_numpy(value) for name, value in lexical.arrays().items()}
    weights = safetensors.torch.save(tensors)
    card.weights_sha256 = hashlib.sha256(weights).hexdigest()
    (folder / CARD).unlink(missing_ok=True)
    with replacing(folder / WEIGHTS) as temporary:
        temporary.write_bytes(weights)
    with replacing(folder / CARD) as temporary:
        temporary.write_text(card.model_dump_json(indent=2) + "\n", encoding="utf-8")


def load(folder: Path) -> tuple[Ranker, Lexical | None, Card, npt.NDArray[np.int64]]:
    """(ranker, lexical part or None, card, keys of the prompts that training saw).

    Raises:
        UserError: no predictor, a corrupted file, weights that do not fit the card or the encoder, or another encoder
            than the one it was trained on.
    """
    card = read_card(folder)
    file = folder / WEIGHTS
    tensors = _read_weights(file, card.weights_sha256)
    keys = tensors.pop(_KEYS, torch.empty(0))
    if keys.dtype != torch.int64 or keys.ndim != 1 or not len(keys):
        raise UserError(
            f"{file}: no list of the prompts that training saw ('{_KEYS}'), without which a flattering figure cannot be"
            " told; train or copy the predictor again"
        )
    lexical = _read_lexical(tensors, card, file)
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
    flaw = _flaw(tensors)
    if flaw:
        raise UserError(f"{file}: unusable weights ({flaw}); train or copy the predictor again")
    ranker.load_state_dict({name: value.float() for name, value in tensors.items()}, strict=False)
    ranker.eval()
    return ranker, lexical, card, keys.numpy()


def _read_weights(file: Path, sha256: str) -> dict[str, torch.Tensor]:
    """The tensors of a file with that checksum; an empty one is not compared."""
    import safetensors.torch

    try:
        data = file.read_bytes()
        found = hashlib.sha256(data).hexdigest()
        if sha256 and found != sha256:
            raise ValueError(f"sha256 is {found}, the card says {sha256}")
        return safetensors.torch.load(data)
    except Exception as error:  # safetensors has an error of its own, and lets some of Python's through
        raise UserError(
            f"{file}: corrupted or missing weights ({error}); train or copy the predictor again"
        ) from error


def _read_lexical(tensors: dict[str, torch.Tensor], card: Card, file: Path) -> Lexical | None:
    """Take the bag-of-words part out of `tensors`: there is one where the recipe has one, and nowhere else."""
    words = {name: tensors.pop(name) for name in [*tensors] if name.startswith(_LEXICAL)}
    if not words and not card.recipe.lexical:
        return None
    try:
        if not card.recipe.lexical:
            raise ValueError("the card's recipe has none")
        return Lexical.from_arrays(
            {name.removeprefix(_LEXICAL): value.numpy() for name, value in words.items()}
        )
    except (TypeError, ValueError) as error:  # NumPy lacks some types of torch
        raise UserError(
            f"{file}: unusable bag-of-words part, '{_LEXICAL}*' ({error}); train or copy the predictor again"
        ) from error


def _flaw(tensors: Mapping[str, torch.Tensor]) -> str:
    """Why a ranker with these weights gives scores that are no numbers, or nothing."""
    for name, value in tensors.items():
        if not value.is_floating_point() or not torch.isfinite(value.float()).all():
            return f"'{name}' holds something other than finite numbers"
    return "'spread' holds numbers that are not above 0" if not (tensors["spread"] > 0).all() else ""


def write_history(folder: Path, history: History, about: dict[str, str]) -> None:
    """Losses, validation tau_b and seconds of the run, beside the card."""
    with replacing(folder / HISTORY) as temporary:
        temporary.write_text(json.dumps(asdict(history) | about, indent=2) + "\n", encoding="utf-8")


def read_history(folder: Path) -> History:
    """What `write_history` wrote.

    Raises:
        UserError: there is none, or it is broken.
    """
    file = folder / HISTORY
    try:
        written = json.loads(file.read_bytes())
        known = {field.name for field in fields(History)}
        return History(**{name: value for name, value in written.items() if name in known})
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{file}: no history of a training ({error!r}); train the predictor again") from error
