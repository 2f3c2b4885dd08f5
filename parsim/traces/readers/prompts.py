"""Prompt corpora: rows with a response length, or with several models' lengths, and no arrival times.

One row a prompt, JSONL or Parquet: `prompt_tokens` and `output_tokens`, or `len` = `{model: tokens}` of
which one model is taken; optionally `id` or `request_id`, `prompt`, `client_id`, `score.NAME`. Where
`prompt_tokens` is absent it is estimated from the text. A column `model` beside `output_tokens` is filtered
by the model asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from parsim.errors import UserError
from parsim.traces.checks import Draft
from parsim.traces.readers.format import Format
from parsim.traces.readers.sharegpt import BYTES_PER_TOKEN
from parsim.traces.readers.source import Source
from parsim.traces.trace import SCORE_PREFIX

CARRIED = ("prompt", "prompt_tokens", "client_id", "session_id")


def read(source: Source, model: str | None = None) -> Draft:
    """A row a response; of those that name their model (`model`), only `model`'s if one is asked for."""
    columns = [*_carried(source), "output_tokens"]
    if model is None:
        return _draft(_table(source, columns), source)
    if "model" not in source.columns:
        raise UserError(f"{source.path}: has one length a prompt and names no model; leave --model out")
    frame = _table(source, [*columns, "model"])
    kept = frame.filter(pl.col("model") == model)
    if kept.is_empty():
        models = frame["model"].drop_nulls().unique(maintain_order=True)
        raise UserError(f"{source.path}: no row of model {model!r}; found: {_few(models)}")
    return _draft(kept.drop("model"), source, model)


def read_model(source: Source, model: str | None = None) -> Draft:
    """A row a prompt, with the length that `model` gave; rows without one are dropped and counted."""
    models = _models(source)
    if model is None:
        raise UserError(
            f"{source.path}: has several models' lengths; choose one with --model: {_few(models)}"
        )
    frame = _table(source, [*_carried(source), "len"], model)
    frame = frame.with_columns(output_tokens=pl.col("len").struct.field(model)).drop("len")
    kept = frame.filter(pl.col("output_tokens").is_not_null())
    if kept.is_empty():
        raise UserError(f"{source.path}: no lengths of model {model!r}; its first row has: {_few(models)}")
    lost = frame.height - kept.height
    notes = [f"dropped {lost:,} of {frame.height:,} prompts without a length of {model}"] if lost else []
    return _draft(kept, source, model, notes)


def _carried(source: Source) -> list[str]:
    have = source.columns
    if "prompt_tokens" not in have and "prompt" not in have:
        raise UserError(f"{source.path}: has neither prompt_tokens nor prompt; found: {_few(have)}")
    identity = [name for name in ("request_id", "id") if name in have][:1]
    return identity + [name for name in have if name in CARRIED or name.startswith(SCORE_PREFIX)]


def _table(source: Source, columns: list[str], model: str | None = None) -> pl.DataFrame:
    """The columns; of `len` only the field of `model`."""
    if source.kind == "parquet":
        kind = source.parquet_schema.get("len")
        if model is not None and not (isinstance(kind, pl.Struct) and model in {f.name for f in kind.fields}):
            raise UserError(f"{source.path}: no lengths of model {model!r}; found: {_few(_models(source))}")
        return source.parquet(columns)
    one = pl.Struct({model or "": pl.String()})
    return source.jsonl({column: one if column == "len" else pl.String() for column in columns})


def _draft(frame: pl.DataFrame, source: Source, model: str | None = None, notes: Iterable[str] = ()) -> Draft:
    metadata = {"source": f"corpus {source.path.name}", "licence": "not stated", "tokenizer": "not stated"}
    if model is not None:
        metadata["model"] = model
    if "prompt_tokens" not in frame.columns:
        frame = frame.with_columns(prompt_tokens=(pl.col("prompt").str.len_bytes() / BYTES_PER_TOKEN).ceil())
        metadata["tokenizer"] = f"prompt tokens estimated: UTF-8 bytes / {BYTES_PER_TOKEN:g}"
    return Draft(frame.rename({"id": "request_id"}, strict=False), metadata=metadata, notes=list(notes))


def _models(source: Source) -> list[str]:
    """Models with lengths: of the whole file (Parquet), or of its first row (JSONL)."""
    if source.kind == "parquet":
        kind = source.parquet_schema["len"]
        return [field.name for field in kind.fields] if isinstance(kind, pl.Struct) else []
    lengths = (source.first_object or {}).get("len")
    return list(lengths) if isinstance(lengths, dict) else []


def _few(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(found[:20]) + (f" and {len(found) - 20} more" if len(found) > 20 else "")


FORMAT = Format(
    "prompts",
    "a prompt corpus",
    ("jsonl", "parquet"),
    ("output_tokens",),
    read,
    has_arrivals=False,
    by_model=True,
)
MODELS_FORMAT = Format(
    "prompts-models",
    "a prompt corpus of several models",
    ("jsonl", "parquet"),
    ("len",),
    read_model,
    has_arrivals=False,
    by_model=True,
)
