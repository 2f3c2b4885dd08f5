"""The paper's four data sets by their public layouts, from the Hugging Face hub or from a local file.

They carry responses, not lengths, so a response is measured in `unit`: tokens of a tokenizer, words or
characters (the paper's scripts count words or characters).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from parsim.predictor.corpus import UNNAMED_MODEL, Corpus, read_table
from traces.errors import UserError

Unit = Literal["tokens", "words", "chars"]


@dataclass(frozen=True)
class Layout:
    """How a public data set is laid out.

    Attributes:
        hub: its name on the Hugging Face hub.
        prompt: polars expression for the prompt.
        response: polars expression for the response.
        columns: what a file of this layout has at least.
        model: the model that wrote the responses, as far as its card says; a `model` column goes first.
    """

    hub: str
    prompt: pl.Expr
    response: pl.Expr
    columns: tuple[str, ...]
    model: str


_INSTRUCTION = pl.col("instruction")
_INPUT = pl.col("input").fill_null("")
_TURN = pl.col("conversation").list

LAYOUTS = {
    "alpaca-gpt4": Layout(
        hub="vicgalle/alpaca-gpt4",
        prompt=pl.when(_INPUT.str.strip_chars() == "")
        .then(_INSTRUCTION)
        .otherwise(pl.concat_str(_INSTRUCTION, _INPUT, separator="\n")),
        response=pl.col("output"),
        columns=("instruction", "input", "output"),
        model="gpt-4",
    ),
    "lmsys-chat-1m": Layout(
        hub="lmsys/lmsys-chat-1m",
        prompt=_TURN.get(0, null_on_oob=True).struct.field("content"),
        response=_TURN.get(1, null_on_oob=True).struct.field("content"),
        columns=("conversation", "model"),
        model="several",
    ),
    "math-plus": Layout(
        hub="TIGER-Lab/MATH-plus",
        prompt=_INSTRUCTION,
        response=pl.col("output"),
        columns=("instruction", "output"),
        model="gpt-4",
    ),
    "evol-codealpaca-v1": Layout(
        hub="theblackcat102/evol-codealpaca-v1",
        prompt=_INSTRUCTION,
        response=pl.col("output"),
        columns=("instruction", "output"),
        model="gpt-4",
    ),
}
"""Name -> layout. LMSYS-Chat-1M: the first turn of each conversation, whose user speaks first."""


def read_paper_corpus(
    name: str,
    file: Path | None = None,
    *,
    unit: Unit = "words",
    tokenizer: Any = None,
    limit: int | None = None,
) -> Corpus:
    """Read one of `LAYOUTS`, from `file` (JSONL or Parquet in its public layout) or from the hub.

    Rows without a prompt or a response are left out and counted.

    Args:
        name: a key of `LAYOUTS`.
        file: a local copy; None asks the hub through `datasets`.
        unit: what a length counts.
        tokenizer: Hugging Face tokenizer, for `unit="tokens"`.
        limit: read no more than so many rows.

    Raises:
        UserError: the hub cannot be reached, or the file has another layout.
    """
    layout = LAYOUTS[name]
    rows = (_from_hub(layout.hub, limit) if file is None else read_table(file)).head(limit or 1 << 62)
    missing = [column for column in layout.columns if column not in rows.columns]
    if missing:
        raise UserError(
            f"{file or layout.hub}: no column {', '.join(missing)}: not the layout of {name}"
            f" ({', '.join(layout.columns)})"
        )
    texts = rows.with_row_index("row", offset=1).select(
        pl.col("row").cast(pl.String).alias("id"),
        pl.lit(name).alias("dataset"),
        layout.prompt.alias("prompt"),
        (pl.col("model") if "model" in rows.columns else pl.lit(layout.model)).fill_null(UNNAMED_MODEL),
        layout.response.alias("response"),
    )
    if "model" not in texts.columns:
        texts = texts.rename({"literal": "model"})
    kept = texts.filter((_blank("prompt") | _blank("response")).not_())
    lengths = _measure(kept["response"].to_list(), unit, tokenizer)
    frame = (
        kept.with_columns(pl.Series("length", lengths, dtype=pl.Float64))
        .filter(pl.col("length") > 0)
        .group_by("prompt", "model", maintain_order=True)
        .agg(pl.col("id", "dataset").first(), pl.col("length").alias("lengths"))
        .with_columns(censored=pl.lit(False))
        .select("id", "dataset", "prompt", "model", "lengths", "censored")
    )
    if frame.is_empty():
        raise UserError(f"{file or layout.hub}: no row has both a prompt and a response")
    dropped = {"no prompt or no response": len(texts) - len(kept)} if len(kept) < len(texts) else {}
    return Corpus(frame=frame, source=str(file or layout.hub), unit=unit, dropped=dropped)


def _from_hub(hub: str, limit: int | None) -> pl.DataFrame:
    try:
        import datasets
    except ImportError as error:
        raise UserError("datasets is not installed: pip install datasets, or name a local file") from error
    try:
        loaded = datasets.load_dataset(hub, split="train" if limit is None else f"train[:{limit}]")
        frame = pl.from_arrow(loaded.data.table)
    except Exception as error:
        raise UserError(
            f"{hub}: cannot be had from the Hugging Face hub ({type(error).__name__}); download it and name"
            " the local file (JSONL or Parquet) with --file"
        ) from error
    assert isinstance(frame, pl.DataFrame)
    return frame


def _blank(column: str) -> pl.Expr:
    return pl.col(column).fill_null("").str.strip_chars() == ""


def _measure(responses: Sequence[str], unit: Unit, tokenizer: Any) -> list[float]:
    if unit == "chars":
        return [float(len(response)) for response in responses]
    if unit == "words":
        return [float(len(response.split())) for response in responses]
    if tokenizer is None:
        raise UserError("unit 'tokens' needs a tokenizer: name one with --tokenizer, or count words or chars")
    encode: Callable[..., Any] = tokenizer
    ids = encode(list(responses), add_special_tokens=False, verbose=False)["input_ids"]
    return [float(len(row)) for row in ids]
