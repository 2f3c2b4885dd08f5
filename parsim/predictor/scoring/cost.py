"""Measure what a predictor's scores cost on this machine: `parsim.predictor.scoring.cost PREDICTOR FILE`.

The file is what `--scoring-cost` of `simulate` and `scoring_cost` of a sweep take.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

from parsim.command import run_cli
from parsim.engine.scoring_cost import ScoringCost
from parsim.files import replacing

Floats = npt.NDArray[np.float64]


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

    from parsim.predictor.scoring.predictor import load_predictor

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


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    predictor: Annotated[
        str, typer.Argument(help="folder, or pars, pointwise, listwise, pars-cross, pars-plus")
    ],
    file: Annotated[Path, typer.Argument(help="where to write the cost, as JSON")],
) -> None:
    """Measure what a predictor's scores cost on this machine: seconds a batch, a prompt and a token."""
    with replacing(file) as temporary:
        cost = measure_cost(predictor)
        temporary.write_text(json.dumps(cost.model_dump(), indent=2) + "\n", encoding="utf-8")
    print(cost)


if __name__ == "__main__":
    run_cli(app)
