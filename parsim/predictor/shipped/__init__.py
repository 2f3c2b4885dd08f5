"""Predictors that come with the package: LoRA and head weights over MiniLM, each folder with its card."""

from __future__ import annotations

from pathlib import Path

SHIPPED = ("pars", "pointwise", "listwise", "pars-cross", "pars-plus")
"""Names that `score` and the engine's scorer take. `pars` has the paper's loss, on a smaller encoder and with pairs
formed in the batch; `pars-plus` adds words to its score; each card states its recipe.
"""


def shipped_folder(name: str) -> Path | None:
    """The folder of the shipped predictor of that name, or None where there is none."""
    folder = Path(__file__).parent / name
    return folder if name in SHIPPED and folder.is_dir() else None
