"""Prompts with recorded response lengths: one row a (prompt, model), however the file was laid out.

Layouts that `read_corpus` takes, JSONL or Parquet:

- `prompt` and `output_tokens`, a number or a list of numbers (repeated samples); optional `id`, `model`,
  `dataset`, `censored` (the response was cut off: its length is a lower bound). Several rows of one prompt
  and one model are repeated samples of it.
- `prompt` and `len`, an object of model -> number or list of numbers.
- the paper's four corpora, see `parsim.predictor.corpora.paper_corpora`.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from parsim.errors import UserError
from parsim.predictor.corpora.corpus_file import read_rows, read_table
from parsim.predictor.corpora.corpus_row import ModelsRow, ResponseRow, Row, check_rows, names_of

__all__ = ["UNNAMED_MODEL", "Corpus", "Labelled", "read_corpus", "read_table"]

UNNAMED_MODEL = "recorded"
"""Model name of rows that state none."""

_NAMES = {
    "id": ("id", "prompt_id"),
    "dataset": ("dataset", "source", "category"),
    "censored": ("censored", "truncated"),
}
"""Field of a row -> columns that may hold it; the first that the file has does."""

_READ = ("prompt", "output_tokens", "len", "model", *itertools.chain(*_NAMES.values()))


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

    def digest(self) -> str:
        """Of the prompts with their lengths, in order: 16 hexadecimal digits."""
        found = hashlib.sha256("\0".join(self.prompts).encode("utf-8", "surrogatepass"))
        found.update(self.lengths.tobytes() + self.censored.tobytes())
        return found.hexdigest()[:16]

    def followed_by(self, other: Labelled) -> Labelled:
        """These prompts, then the other's."""
        return Labelled(
            prompts=self.prompts + other.prompts,
            lengths=np.concatenate([self.lengths, other.lengths]),
            censored=np.concatenate([self.censored, other.censored]),
            datasets=self.datasets + other.datasets,
        )

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
                f"{self.source}: has lengths of {len(available)} models ({_some(available)}); name one"
                " (several, separated by commas, are averaged; 'all' averages all)"
            )
        if "all" in chosen:
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

    A length of zero is a failed generation, an empty list one that was never made: such are left out and counted in
    `Corpus.dropped`.

    Raises:
        UserError: no such file, not JSONL or Parquet, a broken line (with its number), no `prompt` column, no lengths,
            or a row that does not hold what `corpus_row` asks for (with its line, field and value).
    """
    file = Path(path)
    found: dict[str, None] = {}
    records = []
    for place, record in read_rows(file):
        found |= dict.fromkeys(record)
        records.append((place, {name: record[name] for name in _READ if name in record}))
    if not records:
        raise UserError(f"{file}: no rows; expected some with 'prompt' and 'output_tokens'")
    if "prompt" not in found:
        raise UserError(f"{file}: no column 'prompt'; it has {_some([*found])}")
    objects = any(isinstance(record.get("len"), dict) for _, record in records)
    if not objects and "output_tokens" not in found and "len" not in found:
        raise UserError(
            f"{file}: no lengths: expected a column 'output_tokens' (a number or a list) or 'len'"
            f" (model -> number); it has {_some([*found])}"
        )
    if objects and (
        row := next((one for one in records if "output_tokens" in one[1] and not one[1].get("len")), None)
    ):
        raise UserError(f"{file}: {row[0]} has 'output_tokens', others have 'len'; lay all rows out alike")
    kind: type[Row] = ModelsRow if objects or "output_tokens" not in found else ResponseRow
    columns = {
        field: next((name for name in names if name in found), field) for field, names in _NAMES.items()
    }
    return _build(check_rows(records, kind, str(file), columns), file, numbered=columns["id"] not in found)


def _build(rows: Sequence[Row], file: Path, *, numbered: bool) -> Corpus:
    """One row a sample of checked rows, then one a (prompt, model). `numbered`: the rows' numbers are their ids."""
    # Models stand in one order, that of the fullest row: a mean over them is the same to the last bit every time.
    fullest = sorted((row.models() for row in rows), key=len, reverse=True)
    order = {model: place for place, model in enumerate(dict.fromkeys(itertools.chain(*fullest)))}
    prompts = pl.DataFrame(
        {
            "row": range(len(rows)),
            "id": [str(number) for number in range(1, len(rows) + 1)]
            if numbered
            else names_of(row.id for row in rows),
            "dataset": names_of(row.dataset for row in rows).fill_null(file.stem),
            "prompt": [row.prompt for row in rows],
            "censored": [bool(row.censored) for row in rows],
        }
    )
    answers = [
        (number, model, length)
        for number, row in enumerate(rows)
        for model, lengths in sorted(row.lengths().items(), key=lambda answer: order[answer[0]])
        for length in lengths
    ]
    samples = pl.DataFrame(
        {
            "row": [number for number, _, _ in answers],
            "model": names_of(model for _, model, _ in answers).fill_null(UNNAMED_MODEL),
            "lengths": [length for _, _, length in answers],
        },
        schema_overrides={"row": pl.Int64, "lengths": pl.Float64},
    ).join(prompts, on="row", how="left", maintain_order="left")
    kept = samples.filter(pl.col("lengths") > 0)
    if kept.is_empty():
        raise UserError(f"{file}: no row has a response length of at least 1")
    frame = kept.group_by("prompt", "model", maintain_order=True).agg(
        pl.col("id").first(), pl.col("dataset").first(), pl.col("lengths"), pl.col("censored").any()
    )
    left_out = {
        "response length 0": len(samples) - len(kept),
        "no response length": len(rows) - samples["row"].n_unique(),
    }
    columns = ["id", "dataset", "prompt", "model", "lengths", "censored"]
    dropped = {reason: count for reason, count in left_out.items() if count}
    return Corpus(frame=frame.select(columns), source=str(file), dropped=dropped)


def _some(names: Sequence[str], most: int = 8) -> str:
    """The first names, and how many more."""
    shown = ", ".join(names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
