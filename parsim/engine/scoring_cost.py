"""What a predictor's scores cost: seconds a batch, as measured by `parsim.predictor.scoring.cost`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from parsim.errors import UserError, first_problem, nearest
from parsim.settings_file import read_settings

SHIPPED_COST = Path(__file__).parent.parent / "predictor" / "shipped" / "cost.json"

MAX_BATCH = 64
"""Prompts scored in one go; what arrives meanwhile waits for the next."""

MAX_WAIT_S = 60.0
"""A request that the scorer did not get to within this time stays without a score."""

MOST_S = 3600.0
"""More seconds for one prompt are no scoring cost but another unit; beside them the clock would lose the steps."""

_MOST_COUNT = 1_000_000_000
"""The most that a count may be: as good as no bound, and no number that overflows."""


class ScoringCost(BaseModel):
    """Seconds to score a batch: base_s + prompt_s * prompts + token_s * tokens that the encoder sees.

    Attributes:
        base_s: a batch, whatever is in it.
        prompt_s: a prompt.
        token_s: a token of the encoder, at most `max_tokens` of a prompt.
        max_tokens: tokens of a prompt that the encoder sees.
        max_batch: prompts a batch at most.
        shares_core: the scorer computes on the core that the engine computes on, which stands still meanwhile; as on
            the CPU clock of an engine in the same process. Else it works beside the engine.
        fit_error: mean error of the fit, as a share of the measured seconds.
        provenance: what was measured where.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    base_s: float = Field(ge=0)
    prompt_s: float = Field(ge=0)
    token_s: float = Field(ge=0)
    max_tokens: int = Field(default=128, ge=1, le=_MOST_COUNT)
    max_batch: int = Field(default=MAX_BATCH, ge=1, le=_MOST_COUNT)
    shares_core: bool = False
    fit_error: float | None = None
    provenance: str = "given"

    @model_validator(mode="after")
    def _in_seconds(self) -> ScoringCost:
        longest_s = self.seconds([self.max_tokens])
        if longest_s > MOST_S:
            raise ValueError(
                f"one prompt of max_tokens takes {longest_s:.3g} s, at most {MOST_S:g} are allowed; base_s, prompt_s "
                "and token_s are seconds"
            )
        return self

    def seconds(self, prompt_tokens: Sequence[int]) -> float:
        """Seconds for one batch of prompts of so many tokens each."""
        seen = sum(min(tokens, self.max_tokens) for tokens in prompt_tokens)
        return self.base_s + self.prompt_s * len(prompt_tokens) + self.token_s * seen


def read_cost(name_or_path: str) -> ScoringCost | None:
    """The cost of that name: `shipped` (the figures that come with the predictors), `free` (None), or a JSON or
    YAML file.

    Raises:
        UserError: no such file, or not of this form.
    """
    if name_or_path == "free":
        return None
    path = SHIPPED_COST if name_or_path == "shipped" else Path(name_or_path)
    if not path.exists() or path.is_dir():
        raise UserError(
            f"scoring cost {name_or_path!r}: expected shipped, free or a file; measure one with "
            "parsim.predictor.scoring.cost PREDICTOR FILE"
        )
    fields = read_settings(path, "scoring cost")
    known = list(ScoringCost.model_fields)
    unknown = next((name for name in fields if name not in known), None)
    if unknown is not None:
        raise UserError(
            f"{path}: scoring cost has no field {unknown!r}{nearest(unknown, known)} (there are {', '.join(known)})"
        )
    try:
        return ScoringCost.model_validate(fields)
    except ValidationError as error:
        raise UserError(f"{path}: not a scoring cost ({first_problem(error)})") from error
