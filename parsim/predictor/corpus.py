"""Prompts with recorded response lengths: one row a (prompt, model), however the file was laid out.

Layouts that `read_corpus` takes, JSONL or Parquet:

- `prompt` and `output_tokens`, a number or a list of numbers (repeated samples); optional `id`, `model`,
  `dataset`, `censored` (the response was cut off: its length is a lower bound). Several rows of one prompt
  and one model are repeated samples of it.
- `prompt` and `len`, an object of model -> number or list of numbers.
- the paper's four corpora, see `parsim.predictor.paper_corpora`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from traces.errors import UserError

MOST = 10**9
"""No response is longer: a larger number is damage."""

UNNAMED_MODEL = "recorded"
"""Model name of rows that state none."""

_CENSORED_NAMES = ("censored", "truncated")
_DATASET_NAMES = ("dataset", "source", "category")


@dataclass(frozen=True)
class Labelled:
    """One number a prompt, ready for training or evaluation; all arrays have one entry a prompt.

    Attributes:
        prompts: the texts.
        lengths: response length in tokens (or the corpus's unit), > 0; a geometric mean where there were
            several.
        censored: the recorded length is a lower bound.
        datasets: where each prompt came from.
    """

    prompts: list[str]
    lengths: npt.NDArray[np.float64]
    censored: npt.NDArray[np.bool_]
    datasets: list[str]

    def __len__(self) -> int:
        return len(self.prompts)

    def take(self, rows: npt.NDArray[np.integer]) -> Labelled:
        """The given rows, in the given order."""
        return Labelled(
            prompts=[self.prompts[row] for row in rows],
            lengths=self.lengths[rows],
            censored=self.censored[rows],
            datasets=[self.datasets[row] for row in rows],
        )


@dataclass(frozen=True)
class Corpus:
    """Recorded lengths.

    Attributes:
        frame: columns id (str), dataset (str), prompt (str), model (str), lengths (list[f64], one entry a
            sample), censored (bool: one of the samples was cut off).
        source: the file or data set it was read from.
        unit: what lengths count: tokens, words or chars.
        dropped: rows left out while reading, by reason.
    """

    frame: pl.DataFrame
    source: str
    unit: str = "tokens"
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """Model names, those with most prompts first."""
        counts = self.frame.group_by("model").len().sort("len", "model", descending=[True, False])
        return counts["model"].to_list()

    def label(self, models: Sequence[str] = ()) -> Labelled:
        """One length a prompt, for the named models (may be left out where the corpus has only one).

        Several samples, or several models, are averaged on the log scale. Models differ in how much they
        write, so each one's mean log length is set to the common mean before averaging: a prompt that only a
        terse model answered does not look short for that. Prompts keep the order of the file.

        Raises:
            UserError: the corpus has several models and none was named, or a named one is not there.
        """
        available = self.models
        chosen = list(models) or available
        if not models and len(available) > 1:
            raise UserError(
                f"{self.source}: has lengths of {len(available)} models ({_some(available)}); name one with"
                " --model (several, separated by commas, are averaged; 'all' averages all)"
            )
        if chosen == ["all"]:
            chosen = available
        for model in chosen:
            if model not in available:
                raise UserError(f"{self.source}: no lengths of model '{model}'; it has {_some(available)}")
        rows = self.frame.filter(pl.col("model").is_in(chosen)).with_columns(
            log_length=pl.col("lengths").list.eval(pl.element().log()).list.mean()
        )
        if len(chosen) > 1:
            centred = pl.col("log_length") - pl.col("log_length").mean().over("model")
            rows = rows.with_columns(log_length=centred + pl.col("log_length").mean())
        rows = rows.group_by("prompt", maintain_order=True).agg(
            pl.col("log_length").mean(), pl.col("censored").any(), pl.col("dataset").first()
        )
        return Labelled(
            prompts=rows["prompt"].to_list(),
            lengths=np.exp(rows["log_length"].to_numpy()),
            censored=rows["censored"].to_numpy(),
            datasets=rows["dataset"].to_list(),
        )

    def samples(self, models: Sequence[str]) -> pl.DataFrame:
        """Repeated lengths a prompt: columns prompt, samples (list[f64]); each named model adds its own
        samples.
        """
        return (
            self.frame.filter(pl.col("model").is_in(list(models)))
            .group_by("prompt", maintain_order=True)
            .agg(pl.col("lengths").explode().alias("samples"))
        )


def read_corpus(path: str | Path) -> Corpus:
    """Read prompts with lengths from a JSONL or Parquet file.

    A length of zero is a failed generation: the row is left out and counted in `Corpus.dropped`.

    Raises:
        UserError: no such file, not JSONL or Parquet, a broken line (with its number), no `prompt` column, an
            empty prompt, or a length that is negative or not a number (with its row).
    """
    file = Path(path)
    rows = read_table(file)
    if "prompt" not in rows.columns:
        raise UserError(f"{file}: no column 'prompt'; it has {_some(rows.columns)}")
    rows = rows.with_row_index("row", offset=1)
    empty = rows.filter(pl.col("prompt").cast(pl.String).fill_null("").str.strip_chars() == "")
    if len(empty):
        raise UserError(
            f"{file}: row {empty['row'][0]}: empty prompt ({len(empty)} in all); remove such rows"
        )
    if "len" in rows.columns and isinstance(rows.schema["len"], pl.Struct):
        long = _unpivot_models(rows)
    elif "output_tokens" in rows.columns:
        model = pl.col("model").cast(pl.String) if "model" in rows.columns else pl.lit(UNNAMED_MODEL)
        long = rows.with_columns(model=model.fill_null(UNNAMED_MODEL), length=pl.col("output_tokens"))
    else:
        if "len" in rows.columns:
            raise UserError(
                f"{file}: 'len' holds {rows.schema['len']}; expected an object of model -> number (or list of numbers)"
            )
        raise UserError(
            f"{file}: no lengths: expected a column 'output_tokens' (a number or a list) or 'len'"
            f" (model -> number); it has {_some([name for name in rows.columns if name != 'row'])}"
        )
    return _build(long, file)


def read_table(file: Path) -> pl.DataFrame:
    """A JSONL or Parquet file as a frame.

    Raises:
        UserError: the file is missing, a folder, empty or broken.
    """
    if file.is_dir() or not file.exists():
        raise UserError(
            f"{file}: {'is a folder' if file.is_dir() else 'no such file'}; expected JSONL or Parquet"
        )
    if file.stat().st_size == 0:
        raise UserError(
            f"{file}: empty file; expected JSONL or Parquet rows with 'prompt' and 'output_tokens'"
        )
    with file.open("rb") as handle:
        parquet = handle.read(4) == b"PAR1"
    try:
        return pl.read_parquet(file) if parquet else pl.read_ndjson(file, infer_schema_length=None)
    except pl.exceptions.PolarsError as error:
        raise UserError(f"{file}: {_first_broken_line(file) or str(error).splitlines()[0]}") from error


class _NoNumberError(ValueError):
    """NaN or Infinity, which Python's reader takes."""


def _no_number(name: str) -> None:
    raise _NoNumberError(name)


def _first_broken_line(file: Path) -> str | None:
    """What is wrong with the first line that is no JSON object, or None."""
    with file.open(encoding="utf-8", errors="replace") as handle:
        for number, line in enumerate(handle, start=1):
            try:
                if not isinstance(json.loads(line, parse_constant=_no_number), dict):
                    return f"line {number}: not a JSON object"
            except json.JSONDecodeError as error:
                return (
                    f"line {number}: not valid JSON ({error.msg} at column {error.colno}); mend or remove it"
                )
            except _NoNumberError as error:
                return f"line {number}: {error} is no number in JSON; mend or remove it"
            except (ValueError, RecursionError):
                return f"line {number}: nested too deeply or a number of too many digits; mend or remove it"
    return None


def _unpivot_models(rows: pl.DataFrame) -> pl.DataFrame:
    """`len: {model: lengths}` to one row a (prompt, model)."""
    models = [model.name for model in rows.schema["len"].fields]  # type: ignore[attr-defined]
    keep = [name for name in rows.columns if name not in ("len", "model")]
    parts = [
        rows.select(
            *keep, pl.lit(model).alias("model"), pl.col("len").struct.field(model).alias("length")
        ).filter(pl.col("length").is_not_null())
        for model in models
    ]
    return pl.concat(parts, how="vertical_relaxed").sort("row", maintain_order=True)


def _build(long: pl.DataFrame, file: Path) -> Corpus:
    """Check lengths, gather repeated samples, and give every column its type."""
    dataset = next((name for name in _DATASET_NAMES if name in long.columns), None)
    censored = next((name for name in _CENSORED_NAMES if name in long.columns), None)
    listed = isinstance(long.schema["length"], pl.List)
    if not listed and not long.schema["length"].is_numeric():
        texts = long.filter(pl.col("length").cast(pl.Float64, strict=False).is_null())
        where = f"row {texts['row'][0]}: " if len(texts) else ""
        raise UserError(
            f"{file}: {where}response lengths must be numbers or lists of numbers, found {long.schema['length']}"
        )
    identity = next((name for name in ("id", "prompt_id") if name in long.columns), "row")
    rows = long.select(
        pl.col(identity).cast(pl.String).alias("id"),
        (pl.col(dataset).cast(pl.String) if dataset else pl.lit(None, pl.String))
        .fill_null(file.stem)
        .alias("dataset"),
        pl.col("prompt").cast(pl.String),
        pl.col("model"),
        pl.col("length").alias("lengths"),
        (pl.col(censored).cast(pl.Boolean).fill_null(False) if censored else pl.lit(False)).alias("censored"),
        pl.col("row"),
    )
    if listed:
        rows = rows.explode("lengths")
    rows = rows.with_columns(pl.col("lengths").cast(pl.Float64, strict=False))
    bad = rows.filter(~pl.col("lengths").is_between(0, MOST).fill_null(False))
    if len(bad):
        found = bad["lengths"][0]
        raise UserError(
            f"{file}: row {bad['row'][0]}: response length is {found}; expected a number of tokens from 1 to {MOST:,}"
        )
    kept = rows.filter(pl.col("lengths") > 0)
    if kept.is_empty():
        raise UserError(f"{file}: no row has a response length of at least 1")
    frame = kept.group_by("prompt", "model", maintain_order=True).agg(
        pl.col("id").first(), pl.col("dataset").first(), pl.col("lengths"), pl.col("censored").any()
    )
    dropped = {"response length 0": len(rows) - len(kept)} if len(kept) < len(rows) else {}
    columns = ["id", "dataset", "prompt", "model", "lengths", "censored"]
    return Corpus(frame=frame.select(columns), source=str(file), dropped=dropped)


def _some(names: Sequence[str], most: int = 8) -> str:
    """The first names, and how many more."""
    shown = ", ".join(names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
