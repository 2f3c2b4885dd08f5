"""The card of a predictor: what it is and how good, in words and numbers, as `card.json` beside its weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, with_config
from typing_extensions import TypedDict

from parsim.errors import UserError, first_problem
from parsim.predictor.ranker.recipe import Recipe

CARD = "card.json"

_NAME = re.compile(r"[\w.-]*\w[\w.-]*")

_TauB = Annotated[float, Field(ge=-1, le=1, strict=True)]


class Reached(TypedDict, total=False):
    """tau_b with its 95% interval; None where it is undefined."""

    value: _TauB | None
    low: _TauB | None
    high: _TauB | None


@with_config(ConfigDict(extra="allow"))
class Results(TypedDict, total=False):
    """On held-out prompts: the predictor, and the plain baselines by name."""

    test_tau_b: Reached
    baseline_tau_b: dict[str, Reached]


@with_config(ConfigDict(extra="allow"))
class Data(TypedDict, total=False):
    """What it was trained on: `models` are those whose lengths were learned, or corpus -> model."""

    source: str
    models: list[str] | dict[str, str]


class Card(BaseModel):
    """What a predictor is, in words and numbers. Holds no times, so that a rerun writes the same bytes.

    Attributes:
        format: of the card and the weights.
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
        weights_sha256: of the file of weights; empty on a card that was written without it.
    """

    model_config = ConfigDict(extra="forbid")

    format: Literal[1] = 1
    name: str
    recipe: Recipe
    data: Data
    split: dict[str, Any]
    encoder: dict[str, str]
    results: Results = Field(default_factory=Results)
    target: tuple[FiniteFloat, FiniteFloat] = (0.0, 1.0)
    licence: str = "as the training data"
    notes: list[str] = Field(default_factory=list)
    weights_sha256: str = Field(default="", pattern="^([0-9a-f]{64})?$")


def read_card(folder: Path) -> Card:
    """The card of a predictor.

    Raises:
        UserError: no predictor there, or its card is broken.
    """
    file = folder / CARD
    if not file.is_file():
        raise UserError(f"{folder}: holds no predictor (no {CARD}); make one with: parsim train")
    try:
        card = Card.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise UserError(
            f"{file}: broken card ({first_problem(error)}); train or copy the predictor again"
        ) from error
    check_name(card.name, f"{file}: name")
    return card


def check_name(name: str, where: str) -> None:
    """Make sure that `score.NAME` is a column that a policy, a file and a command line can name.

    Raises:
        UserError: other characters than letters, digits, `-`, `_` and `.`, or none but marks.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{where}: {name!r} cannot be a predictor's name (its column is score.NAME);"
            " use letters, digits, '-', '_' and '.'"
        )
