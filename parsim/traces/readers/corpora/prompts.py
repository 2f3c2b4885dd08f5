"""A prompt corpus of several models: one row a prompt, `len` = `{model: tokens}` (or a list of samples) of which
one model is taken; optionally `id`, `prompt`, `prompt_tokens`, `client_id`, `score.NAME`. Where `prompt_tokens`
is absent it is estimated from the text.
"""

from __future__ import annotations

import polars as pl

from parsim.errors import UserError
from parsim.traces.readers.format import Format, Rows
from parsim.traces.readers.rows import few
from parsim.traces.readers.source import Source
from parsim.traces.reading import Reading


def rows(source: Source, reading: Reading) -> Rows:
    """A row a prompt, with the length that the model gave; rows without one are dropped and counted."""
    models = [name.removeprefix("len.") for name in source.names if name.startswith("len.")]
    model = reading.model
    if model is None:
        raise UserError(f"{source.path}: has several models' lengths; choose one: {few(models)}")
    if model not in models:
        raise UserError(f"{source.path}: no lengths of model {model!r}; found: {few(models)}")
    own = [
        name
        for name in source.names
        if not name.startswith("len.") and name not in ("model", "output_tokens")
    ]
    frame = source.table([*own, f"len.{model}"]).rename({f"len.{model}": "output_tokens"})
    kept = frame.filter(pl.col("output_tokens").is_not_null())
    lost = frame.height - kept.height
    notes = [f"dropped {lost:,} of {frame.height:,} prompts without a length of {model}"] if lost else []
    return Rows(kept, notes, {"model": model})


FORMAT = Format(
    name="prompts-models",
    title="a prompt corpus of several models",
    origin="a prompt corpus",
    signature=("len.",),
    kinds=("jsonl", "json", "parquet"),
    lengths_only=True,
    by_model=True,
    rows=rows,
)
