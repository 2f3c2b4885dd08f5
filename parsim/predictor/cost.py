"""What scoring costs, as the simulator charges it: seconds a batch, measured, and when each request has its
score.

Importing this module loads no torch. `python -m parsim.predictor.cost [NAME]` measures a predictor on this
machine and writes the figures that come with the package.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from traces.atomic import replacing
from traces.errors import UserError

Floats = npt.NDArray[np.float64]

SHIPPED_COST = Path(__file__).parent / "shipped" / "cost.json"


class ScoringCost(BaseModel):
    """Seconds to score a batch: base_s + prompt_s * prompts + token_s * tokens that the encoder sees.

    Attributes:
        base_s: a batch, whatever is in it.
        prompt_s: a prompt.
        token_s: a token of the encoder, at most `max_tokens` of a prompt.
        max_tokens: tokens of a prompt that the encoder sees.
        max_batch: prompts a batch at most.
        fit_error: mean error of the fit, as a share of the measured seconds.
        provenance: what was measured where.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_s: float = Field(ge=0)
    prompt_s: float = Field(ge=0)
    token_s: float = Field(ge=0)
    max_tokens: int = Field(default=128, ge=1)
    max_batch: int = Field(default=64, ge=1)
    fit_error: float | None = None
    provenance: str = "given"

    def seconds(self, prompt_tokens: Sequence[int] | npt.NDArray[np.integer]) -> float:
        """Seconds for one batch of prompts of so many tokens each."""
        tokens = np.minimum(np.asarray(prompt_tokens), self.max_tokens)
        return self.base_s + self.prompt_s * len(tokens) + self.token_s * float(tokens.sum())

    def ready_s(self, arrival_s: Floats, prompt_tokens: npt.NDArray[np.integer]) -> Floats:
        """When each request's score is there, (requests,), for one worker beside the engine.

        As `parsim.predictor.scorer.BatchScorer` works: the worker takes whatever has arrived when it is free,
        at most `max_batch` prompts, and answers all of them at the end of the batch.

        Args:
            arrival_s: sorted, (requests,).
            prompt_tokens: (requests,).
        """
        tokens = np.minimum(prompt_tokens, self.max_tokens)
        totals = np.concatenate([[0], np.cumsum(tokens)])
        ready = np.empty(len(arrival_s))
        first, free_s = 0, 0.0
        while first < len(arrival_s):
            start_s = max(free_s, arrival_s[first])
            arrived = int(np.searchsorted(arrival_s, start_s, side="right"))
            end = min(arrived, first + self.max_batch)
            batch_tokens = totals[end] - totals[first]
            free_s = (
                start_s + self.base_s + self.prompt_s * (end - first) + self.token_s * float(batch_tokens)
            )
            ready[first:end] = free_s
            first = end
        return ready

    def busy_s(self, arrival_s: Floats, prompt_tokens: npt.NDArray[np.integer]) -> float:
        """Seconds that the worker spends scoring these requests; over the run's span, its share of one core."""
        batches = len(np.unique(self.ready_s(arrival_s, prompt_tokens)))
        tokens = np.minimum(prompt_tokens, self.max_tokens)
        return batches * self.base_s + self.prompt_s * len(tokens) + self.token_s * float(tokens.sum())


def read_cost(path: Path = SHIPPED_COST) -> ScoringCost:
    """Figures written by this module; by default those that come with the package.

    Raises:
        UserError: no such file, or not of this form.
    """
    try:
        return ScoringCost.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read; measure with: python -m parsim.predictor.cost") from error
    except ValueError as error:
        raise UserError(f"{path}: not a scoring cost ({str(error).splitlines()[0]})") from error


def fit_cost(
    prompts: Floats, tokens: Floats, seconds: Floats, provenance: str, max_tokens: int = 128
) -> ScoringCost:
    """Least squares without negative terms of batch seconds on prompts and tokens, all (batches,)."""
    from scipy.optimize import nnls

    terms = np.stack([np.ones_like(prompts), prompts, tokens], axis=1)
    weights, _ = nnls(terms / seconds[:, None], np.ones_like(seconds))
    base_s, prompt_s, token_s = (float(f"{weight:.4g}") for weight in weights)
    error = float(np.abs(terms @ weights / seconds - 1).mean())
    return ScoringCost(
        base_s=base_s,
        prompt_s=prompt_s,
        token_s=token_s,
        max_tokens=max_tokens,
        fit_error=round(error, 3),
        provenance=provenance,
    )


def measure_cost(name: str) -> ScoringCost:
    """Fit the CPU seconds that a predictor takes on one thread, over batches of 1 to 64 prompts of 8 to 128
    tokens.

    CPU seconds, not the wall clock: other load on the machine does not spoil them.
    """
    import platform
    import time

    import torch

    from parsim.predictor.predictor import load_predictor

    torch.set_num_threads(1)
    predictor = load_predictor(name)
    rows: list[tuple[float, float, float]] = []
    for words in (6, 30, 60, 120):
        for size in (1, 4, 16, 64):
            spent = []
            for turn in range(4):
                batch = [" ".join(["word"] * (words - 1) + [str(turn * 64 + row)]) for row in range(size)]
                cpu = time.process_time()
                predictor.score(batch)
                spent.append(time.process_time() - cpu)
            tokens = sum(len(row) for row in predictor.ranker.tokenize(batch))
            rows.append((size, tokens, float(np.median(spent[1:]))))
    sizes, tokens_, seconds = np.array(rows).T
    precision = str(predictor.ranker.precision).removeprefix("torch.")
    about = f"{name}: CPU seconds, 1 thread, {precision}, {platform.machine()}, torch {torch.__version__}"
    return fit_cost(sizes, tokens_, seconds, about, predictor.card.recipe.max_length)


if __name__ == "__main__":
    try:
        cost = measure_cost(sys.argv[1] if len(sys.argv) > 1 else "pars")
    except UserError as error:
        sys.exit(f"error: {error}")
    with replacing(SHIPPED_COST) as temporary:
        temporary.write_text(json.dumps(cost.model_dump(), indent=2) + "\n", encoding="utf-8")
    print(cost)
