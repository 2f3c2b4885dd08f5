"""Train the shipped predictors: `python -m parsim.studies.ship FOLDER [NAME...]`.

FOLDER holds the corpora's `*_lengths.jsonl`. Only corpora whose licence (Apache-2.0) allows redistribution
are used, and no prompt with `parsim.studies.bundle.is_held_out(id)`: the bundled trace consists of such prompts. An
interrupted run is continued. `python -m parsim.studies.score_bundled FOLDER` then puts the scores on the
bundled trace.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from parsim.errors import UserError
from parsim.predictor import shipped
from parsim.predictor.corpora.corpus import Labelled, read_corpus
from parsim.predictor.corpora.split import Split, prompt_keys
from parsim.predictor.ranker.recipe import Recipe
from parsim.predictor.shipped import SHIPPED
from parsim.studies.bundle import is_held_out

LLAMA = {
    "mmlu_pro": "Meta-Llama-3_1-8B-Instruct",
    "zeroeval_gsm": "Meta-Llama-3.1-8B-Instruct",
    "zeroeval_math-l5": "Meta-Llama-3.1-8B-Instruct",
    "arena_hard": "all",
}
"""Corpus -> model whose lengths are learned. Arena-Hard has no Llama-3.1-8B: the mean of its models stands
in.
"""

MIXTRAL = {
    "mmlu_pro": "Mixtral-8x7B-Instruct-v0.1",
    "zeroeval_gsm": "Mixtral-8x7B-Instruct-v0.1",
    "arena_hard": "Mixtral-8x7B-Instruct-v0.1",
}
"""For `pars-cross`: another family's model, so that its transfer to Llama-3.1-8B is what the bundled trace
shows.
"""

CAPS = {"mmlu_pro": 2048, "zeroeval_gsm": 4096, "zeroeval_math-l5": 4096}
"""Responses were cut at so many of the model's tokens; a recorded length of 95% of that or more counts as
cut.
"""

_COMMON: dict[str, Any] = {
    "tuning": "lora",
    "lora_layers": 3,
    "learning_rate": 2e-3,
    "batch_size": 64,
    "epochs": 1,
    "pooling": "mean",
}
RECIPES = {
    "pars": Recipe(objective="pairwise", **_COMMON),
    "pointwise": Recipe(objective="pointwise", **_COMMON),
    "listwise": Recipe(objective="listwise", **_COMMON),
    "pars-cross": Recipe(objective="pairwise", **_COMMON),
    "pars-plus": Recipe(objective="pairwise", lexical=True, **_COMMON),
}
NOTES = [
    "Trained on exam questions (MMLU-Pro), grade-school and competition mathematics (ZeroEval) and hard chat prompts"
    " (Arena-Hard), in English. On other traffic expect less; train on your own lengths with parsim train.",
    "Lengths are cl100k_base tokens of published outputs; responses cut at a cap count as at least that long.",
]


def training_data(folder: Path, models: dict[str, str]) -> tuple[Labelled, Split]:
    """Prompts, and their parts: the held-out third tests, a tenth of the rest validates.

    Raises:
        UserError: a corpus is not in the folder.
    """
    parts, tests = [], []
    for corpus, model in models.items():
        file = folder / f"{corpus}_lengths.jsonl"
        if not file.is_file():
            raise UserError(f"{file}: no such file; name the folder with {', '.join(models)}_lengths.jsonl")
        read = read_corpus(file)
        labelled = read.label([model])
        by_prompt = read.frame.group_by("prompt", maintain_order=True).agg(pl.col("id").unique())
        ids = dict(zip(by_prompt["prompt"].to_list(), by_prompt["id"].to_list(), strict=True))
        tests += [any(map(is_held_out, ids[prompt])) for prompt in labelled.prompts]
        cap = CAPS.get(corpus, np.inf)
        parts.append(
            Labelled(
                labelled.prompts,
                labelled.lengths,
                labelled.censored | (labelled.lengths >= 0.95 * cap),
                [corpus] * len(labelled),
            )
        )
    data = Labelled(
        prompts=[prompt for part in parts for prompt in part.prompts],
        lengths=np.concatenate([part.lengths for part in parts]),
        censored=np.concatenate([part.censored for part in parts]),
        datasets=[name for part in parts for name in part.datasets],
    )
    keys = prompt_keys(data.prompts)
    test = np.isin(keys, keys[np.array(tests)])
    rest = np.unique(keys[~test])
    chosen = np.random.default_rng(42).permutation(rest)[: len(rest) // 10]
    validation = np.isin(keys, chosen)
    return data, Split(np.flatnonzero(~test & ~validation), np.flatnonzero(validation), np.flatnonzero(test))


def ship(folder: Path, name: str, out: Path) -> None:
    """Train one shipped predictor into `out` / name; `pars-plus` takes the encoder of `pars`, whose recipe it
    shares.
    """
    from parsim.predictor.quality.evaluate import tau_by_group
    from parsim.predictor.store.checkpoint import load, read_history
    from parsim.predictor.store.fit import fit

    models = MIXTRAL if name == "pars-cross" else LLAMA
    data, parts = training_data(folder, models)
    trained = None
    if name == "pars-plus":
        ranker, _, _, _ = load(out / "pars")
        trained = (ranker, read_history(out / "pars"))
    fitted = fit(
        data,
        parts,
        RECIPES[name],
        name=name,
        source={"source": "MMLU-Pro, ZeroEval, Arena-Hard", "models": models, "unit": "tokens"},
        held_out={
            "rule": "test: first byte of sha256(id) < 0x55; validation: a tenth of the rest",
            "seed": 42,
        },
        folder=out / name,
        overwrite=True,
        licence="Apache-2.0",
        notes=NOTES,
        trained=trained,
        progress=True,
    )
    test = data.take(parts.test)
    print(
        name, f"{fitted.test:.3f}", f"{fitted.history.cpu_s:.0f} CPU s", fitted.card.results["baseline_tau_b"]
    )
    print(tau_by_group(fitted.scores, test.lengths, test.datasets))


def main(arguments: Sequence[str]) -> None:
    folder, *names = arguments or ["."]
    for name in names or list(SHIPPED):
        ship(Path(folder), name, Path(shipped.__file__).parent)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"error: {error}")
