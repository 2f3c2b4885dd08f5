"""The paper's four data sets by their public layouts, from the Hugging Face hub or from a local file.

They carry responses, not lengths, so a response is measured in `unit`: tokens of a tokenizer, words or
characters (the paper's scripts count words or characters).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import BaseModel, BeforeValidator, Field

from parsim.errors import UserError
from parsim.predictor.corpora.corpus import UNNAMED_MODEL, Corpus
from parsim.predictor.corpora.corpus_file import read_rows, rows_of
from parsim.predictor.corpora.corpus_row import Label, Text, check_rows, names_of

Unit = Literal["tokens", "words", "chars"]


def _first_turn(value: Any) -> Any:
    return value[:2] if isinstance(value, list) else value


class PublicRow(BaseModel):
    """A row of a public data set; what it leaves out is null."""

    model: Label = Field(default=None, description="text or a number")

    def texts(self) -> dict[str, str | None]:
        """What the expressions of a layout are made of."""
        return {}


class InstructionRow(PublicRow):
    """An instruction and the response to it."""

    instruction: Text | None = Field(default=None, description="text")
    input: Text | None = Field(default=None, description="text")
    output: Text | None = Field(default=None, description="text")

    def texts(self) -> dict[str, str | None]:
        return {"instruction": self.instruction, "input": self.input, "output": self.output}


class Message(BaseModel):
    """One message of a conversation."""

    content: Text | None = None


class ConversationRow(PublicRow):
    """Messages, the user's first; only the first two are read."""

    conversation: Annotated[list[Message | None] | None, BeforeValidator(_first_turn)] = Field(
        default=None, description='a list of messages {"role": ..., "content": text}'
    )

    def texts(self) -> dict[str, str | None]:
        said = [message.content if message else None for message in self.conversation or []]
        first, second, *_ = [*said, None, None]
        return {"first": first, "second": second}


@dataclass(frozen=True)
class Layout:
    """How a public data set is laid out.

    Attributes:
        hub: its name on the Hugging Face hub.
        prompt: polars expression for the prompt.
        response: polars expression for the response.
        row: what a row of it may hold.
        columns: what a file of this layout has at least.
        model: the model that wrote the responses, as far as its card says; a `model` column goes first.
    """

    hub: str
    prompt: pl.Expr
    response: pl.Expr
    row: type[PublicRow]
    columns: tuple[str, ...]
    model: str


_INSTRUCTION = pl.col("instruction")
_INPUT = pl.col("input").fill_null("")

LAYOUTS = {
    "alpaca-gpt4": Layout(
        hub="vicgalle/alpaca-gpt4",
        prompt=pl.when(_INPUT.str.strip_chars() == "")
        .then(_INSTRUCTION)
        .otherwise(pl.concat_str(_INSTRUCTION, _INPUT, separator="\n")),
        response=pl.col("output"),
        row=InstructionRow,
        columns=("instruction", "input", "output"),
        model="gpt-4",
    ),
    "lmsys-chat-1m": Layout(
        hub="lmsys/lmsys-chat-1m",
        prompt=pl.col("first"),
        response=pl.col("second"),
        row=ConversationRow,
        columns=("conversation", "model"),
        model="several",
    ),
    "math-plus": Layout(
        hub="TIGER-Lab/MATH-plus",
        prompt=_INSTRUCTION,
        response=pl.col("output"),
        row=InstructionRow,
        columns=("instruction", "output"),
        model="gpt-4",
    ),
    "evol-codealpaca-v1": Layout(
        hub="theblackcat102/evol-codealpaca-v1",
        prompt=_INSTRUCTION,
        response=pl.col("output"),
        row=InstructionRow,
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
        UserError: the hub cannot be reached, the file has another layout, or a row does not hold what it must (with
            its line, field and value).
    """
    layout = LAYOUTS[name]
    source = str(file or layout.hub)
    fields = layout.row.model_fields
    records = rows_of(_from_hub(layout.hub, limit), fields) if file is None else read_rows(file, fields)
    found: dict[str, None] = {}
    checked = check_rows(_noting_columns(itertools.islice(records, limit), found), layout.row, source)
    missing = [column for column in layout.columns if column not in found]
    if missing:
        raise UserError(
            f"{source}: no column {', '.join(missing)}: not the layout of {name} ({', '.join(layout.columns)})"
        )
    columns = layout.row().texts()
    rows = pl.DataFrame([row.texts() for row in checked], schema=dict.fromkeys(columns, pl.String))
    models = names_of(row.model for row in checked) if "model" in found else pl.lit(layout.model)
    texts = rows.with_row_index("row", offset=1).select(
        pl.col("row").cast(pl.String).alias("id"),
        pl.lit(name).alias("dataset"),
        layout.prompt.alias("prompt"),
        models.fill_null(UNNAMED_MODEL).alias("model"),
        layout.response.alias("response"),
    )
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
        raise UserError(f"{source}: no row has both a prompt and a response")
    dropped = {"no prompt or no response": len(texts) - len(kept)} if len(kept) < len(texts) else {}
    return Corpus(frame=frame, source=source, unit=unit, dropped=dropped)


def _noting_columns(
    records: Iterable[tuple[str, dict[str, Any]]], found: dict[str, None]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The same; the columns of each are added to `found`."""
    for place, record in records:
        found |= dict.fromkeys(record)
        yield place, record


def _from_hub(hub: str, limit: int | None) -> pl.DataFrame:
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            "datasets is not installed: pip install datasets, or give a local file as DATA"
        ) from error
    try:
        loaded = datasets.load_dataset(hub, split="train" if limit is None else f"train[:{limit}]")
        frame = pl.from_arrow(loaded.data.table)
    except Exception as error:
        raise UserError(
            f"{hub}: cannot be had from the Hugging Face hub ({type(error).__name__}); download it and give"
            " the local file (JSONL or Parquet) as DATA instead of hub"
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
        raise UserError(
            "unit 'tokens' needs a tokenizer, the encoder's: count words or chars, or name an encoder that "
            "has one"
        )
    encode: Callable[..., Any] = tokenizer
    ids = encode(list(responses), add_special_tokens=False, verbose=False)["input_ids"]
    return [float(len(row)) for row in ids]
