"""What parsim's scheduler recorded inside vLLM: JSON lines, a request each, in one file or in a folder of them.

The project's own schema with why each request ended (`stop`: `stop`, `length` or `abort`), its limit and its times,
which are no part of a trace. Arrivals are seconds of the serving machine's clock; files of several runs in one folder
follow one another by them. A request that got no score stands at the median, where the scheduler ranks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from parsim.errors import UserError
from parsim.traces.checks import Draft, checked
from parsim.traces.readers.format import Format
from parsim.traces.readers.source import Source
from parsim.traces.trace import OPTIONAL, SCORE_PREFIX, Trace

TEXT = ("request_id", "arrival_s", "prompt_tokens", "output_tokens", "stop", "client_id")
METADATA = {
    "source": "recorded by parsim's scheduler inside vLLM",
    "tokenizer": "the served model's",
}
PATTERN = "trace-*.jsonl"


def read(source: Source) -> Draft:
    """The rows of one file."""
    return _draft(_rows(source))


def read_folder(folder: Path, *, skip_bad: bool = False) -> Trace:
    """All files of a folder as one trace.

    Raises:
        UserError: there are none, or one has bad rows.
    """
    sources = [Source(path) for path in sorted(folder.glob(PATTERN)) if path.stat().st_size]
    if not sources:
        raise UserError(
            f"{folder}: is a folder without files {PATTERN}; name a trace file, or a folder that vLLM was made to"
            ' record in (additional_config {"parsim": {"record": "DIR"}})'
        )
    rows, starts = [], []
    total = 0
    for source in sources:
        FORMAT.check(source)
        part = _rows(source)
        starts.append(total)
        rows.append(part.with_columns(pl.col("row") + total))
        total += part.height
    whole = pl.concat(rows, how="diagonal_relaxed")

    def where(records: Sequence[int]) -> list[str]:
        places = []
        for record in records:
            place = max(number for number, start in enumerate(starts) if start <= record)
            (line,) = sources[place].where([record - starts[place]])
            places.append(f"{sources[place].path.name} {line}")
        return places

    draft = _draft(whole.sort(pl.col("arrival_s").cast(pl.Float64, strict=False), maintain_order=True))
    frame, notes = checked(draft, str(folder), where, skip_bad=skip_bad)
    metadata = {"name": folder.resolve().name, "format": FORMAT.name, **draft.metadata}
    return Trace(frame, {**metadata, "notes": "; ".join(notes)} if notes else metadata)


def _rows(source: Source) -> pl.DataFrame:
    scores = [column for column in source.columns if column.startswith(SCORE_PREFIX)]
    schema: dict[str, pl.DataType] = {column: pl.String() for column in (*TEXT, *scores)}
    schema |= {"prefix_hashes": OPTIONAL["prefix_hashes"], "hash_block_size": pl.Int64()}
    return source.jsonl(schema)


def _draft(frame: pl.DataFrame) -> Draft:
    metadata, notes = dict(METADATA), []
    sizes = frame["hash_block_size"].drop_nulls().unique().to_list()
    frame = frame.drop("hash_block_size")
    if len(sizes) == 1:
        metadata["hash_block_size"] = str(sizes[0])
    else:
        frame = frame.drop("prefix_hashes")
        notes.append(f"prefix hashes left out: blocks of {len(sizes)} sizes" if sizes else "no prefix hashes")
    for reason, said in (("abort", "were aborted"), ("length", "were cut at a limit")):
        count = frame.filter(pl.col("stop") == reason).height
        if count:
            notes.append(f"{count} of {frame.height} requests {said}: their length is what they had come to")
    empty = [
        c for c in frame.columns if c.startswith((SCORE_PREFIX, "client_id")) and frame[c].is_null().all()
    ]
    frame = frame.drop("stop", *empty)
    for column in [column for column in frame.columns if column.startswith(SCORE_PREFIX)]:
        without = frame[column].null_count()
        if without:
            middle = frame[column].cast(pl.Float64, strict=False).median()
            frame = frame.with_columns(pl.col(column).fill_null(str(middle)))
            notes.append(f"{column}: {without} of {frame.height} requests got none and stand at the median")
    return Draft(frame, metadata=metadata, notes=notes)


FORMAT = Format(
    "recorded",
    "recorded by parsim's scheduler in vLLM",
    ("jsonl",),
    ("request_id", "arrival_s", "prompt_tokens", "output_tokens", "stop", "finish_s"),
    read,
)
