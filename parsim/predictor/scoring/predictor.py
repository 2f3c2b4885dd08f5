"""A trained predictor ready to score prompts, by the name of a shipped one or from a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

import numpy as np
import numpy.typing as npt

from parsim.errors import UserError, nearest
from parsim.predictor.ranker.lexical import Lexical
from parsim.predictor.ranker.model import Ranker
from parsim.predictor.ranker.recipe import Precision
from parsim.predictor.shipped import SHIPPED, shipped_folder
from parsim.predictor.store.checkpoint import Card, load

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Predictor:
    """What scores prompts: higher = longer expected response.

    Attributes:
        ranker: encoder and head.
        lexical: bag-of-words part, or None.
        card: what it was trained on and how well it ranks.
        training_keys: `split.prompt_keys` of the prompts that it has seen.
    """

    ranker: Ranker
    lexical: Lexical | None
    card: Card
    training_keys: npt.NDArray[np.int64]

    @property
    def name(self) -> str:
        """The column it writes is `score.NAME`."""
        return self.card.name

    def score(self, prompts: Sequence[str], workers: int = 1) -> Floats:
        """One score a prompt, (prompts,), in their order. Each distinct prompt is encoded once.

        Several `workers` help where torch itself is held to one thread (`torch.set_num_threads(1)`): that
        scales better than torch's own threads, which wait for one another, and on a busy machine wait long.

        Raises:
            UserError: a score is no finite number.
        """
        distinct = list(dict.fromkeys(prompts))
        scores = self.score_each(distinct, workers)
        broken = np.flatnonzero(~np.isfinite(scores))
        if len(broken):
            raise UserError(
                f"predictor {self.name}: gives no finite score to {len(broken)} of {len(distinct)} prompts, such as"
                f" {distinct[broken[0]][:40]!r}; compute in 32 bits (precision fp32), or train or copy it again"
            )
        by_prompt = dict(zip(distinct, scores, strict=True))
        return np.array([by_prompt[prompt] for prompt in prompts], dtype=float)

    def score_each(self, prompts: Sequence[str], workers: int = 1) -> Floats:
        """The same with each prompt encoded, repeated ones too, and scores as they come out, finite or not."""
        scores = self.ranker.score(prompts, workers)
        return scores if self.lexical is None else self.lexical.combine(scores, prompts)


def load_predictor(name: str, *, precision: str = "auto") -> Predictor:
    """Load a shipped predictor by name, or a folder that `parsim train` wrote; merged for fast
    scoring.

    Args:
        name: a name in `parsim.predictor.shipped.SHIPPED`, or a folder.
        precision: what to compute in, one of `Precision`: auto is bf16 where the processor has instructions for it.

    Raises:
        UserError: neither; or no such precision; or a corrupted predictor; or its encoder cannot be had.
    """
    choices = get_args(Precision)
    if precision not in choices:
        raise UserError(f"precision {precision!r}: expected one of {', '.join(choices)}")
    folder = shipped_folder(name)
    if folder is None and not Path(name).exists():
        raise UserError(
            f"{name}: no folder, and no shipped predictor{nearest(name, SHIPPED)} (shipped are "
            f"{', '.join(SHIPPED)}; make one with: parsim train)"
        )
    ranker, lexical, card, keys = load(folder or Path(name))
    if card.recipe.tuning == "lora":
        ranker.encoder = ranker.encoder.merge_and_unload()
    ranker.recipe = card.recipe.model_copy(update={"precision": cast(Precision, precision)})
    ranker.requires_grad_(False)
    return Predictor(ranker.use(ranker.device), lexical, card, keys)
