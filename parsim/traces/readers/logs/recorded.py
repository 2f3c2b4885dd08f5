"""What parsim's scheduler recorded inside vLLM: JSON lines, a request each, in one file or in a folder of them.

The project's own schema with why each request ended (`stop`: `stop`, `length` or `abort`), its limit and its
times, which are no part of a trace. Arrivals are seconds of the serving machine's clock; files of several runs in
one folder follow one another by them; an id that comes again at another time, as engines that number their requests
give it after each start, ends in `~2`. A request that got no score stands at the median, where the scheduler ranks
it. A last line that is cut short, where the machine went down or the engine is still writing, is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from os import SEEK_END
from pathlib import Path

import polars as pl

from parsim.errors import UserError
from parsim.traces.readers.format import Format, Rows
from parsim.traces.readers.source import Source
from parsim.traces.reading import Reading
from parsim.traces.trace import SCORE_PREFIX

TEXT = ("request_id", "arrival_s", "prompt_tokens", "output_tokens", "stop", "client_id")
METADATA = {
    "source": "recorded by parsim's scheduler inside vLLM",
    "tokenizer": "the served model's",
}
PATTERN = "trace-*.jsonl"


def rows(source: Source, reading: Reading) -> Rows:
    """The rows of one file."""
    return _rows(_table(source))


class Folder:
    """All files of a folder as one recording.

    Attributes:
        first: the first of them.
        rows: their rows by arrival, numbered through.

    Raises:
        UserError: there are none, or one is no recording.
    """

    def __init__(self, path: Path) -> None:
        found = [(one, _without_cut_line(one)) for one in sorted(path.glob(PATTERN)) if one.is_file()]
        self.sources = [
            Source(one, kept) for one, kept in found if (one.stat().st_size if kept is None else kept)
        ]
        if not self.sources:
            raise UserError(
                f"{path}: is a folder without files {PATTERN}; name a trace file, or a folder that vLLM was made to"
                ' record in (additional_config {"parsim": {"record": "DIR"}})'
            )
        parts: list[pl.DataFrame] = []
        self.starts: list[int] = []
        total = 0
        for source in self.sources:
            FORMAT.check(source)
            part = _table(source)
            self.starts.append(total)
            parts.append(part.with_columns(pl.col("row") + total))
            total += part.height
        whole = pl.concat(parts, how="diagonal_relaxed")
        self.first = self.sources[0]
        rows = _rows(whole.sort(pl.col("arrival_s").cast(pl.Float64, strict=False), maintain_order=True))
        cut = [f"{one.name}: the last line is cut short and left out" for one, kept in found if kept]
        self.rows = replace(rows, notes=[*rows.notes, *cut])

    def where(self, records: Sequence[int]) -> list[str]:
        """Places of records: file and line."""
        places = []
        for record in records:
            place = max(number for number, start in enumerate(self.starts) if start <= record)
            (line,) = self.sources[place].where([record - self.starts[place]])
            places.append(f"{self.sources[place].path.name} {line}")
        return places


def _without_cut_line(path: Path) -> bytes | None:
    """What stands before a last line that is not whole; None where it is. The recorder's end with a newline."""
    try:
        with path.open("rb") as file:
            file.seek(-1, SEEK_END)
            if file.read(1) == b"\n":
                return None
        text = path.read_bytes()
    except OSError:  # empty, or not to be read, which the reader says
        return None
    whole, newline, last = text.rstrip(b"\0").rpartition(b"\n")
    try:
        cut = not isinstance(json.loads(last), dict)
    except ValueError:
        cut = True
    return whole + newline if cut else None


def _distinct(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The frame with an id of its own for each arrival, and how many had none."""
    arrival, name = pl.col("arrival_s").cast(pl.Float64, strict=False), pl.col("request_id").cast(pl.String)
    number = arrival.rank("dense").over("request_id")
    again = number.is_not_null() & (number > 1) & name.is_not_null()
    count = int(frame.select(again.sum()).item())
    named = pl.when(again).then(pl.format("{}~{}", name, number)).otherwise(name)
    return (frame.with_columns(named.alias("request_id")) if count else frame), count


def _table(source: Source) -> pl.DataFrame:
    """The columns that matter, those that no line has as nulls."""
    scores = [name for name in source.names if name.startswith(SCORE_PREFIX)]
    wanted = [*TEXT, *scores, "prefix_hashes", "hash_block_size"]
    frame = source.table([name for name in wanted if name in source.names])
    kinds = {"prefix_hashes": pl.List(pl.String())}
    absent = [
        pl.lit(None, kinds.get(name, pl.String())).alias(name) for name in wanted if name not in frame.columns
    ]
    return frame.with_columns(absent)


def _rows(frame: pl.DataFrame) -> Rows:
    metadata, notes = dict(METADATA), []
    frame, again = _distinct(frame)
    if again:
        notes.append(
            f"{again} of {frame.height} requests had the id of an earlier one: theirs ends in ~2 and so on"
        )
    sizes = frame["hash_block_size"].drop_nulls().unique().to_list()
    frame = frame.drop("hash_block_size")
    hashes = frame["prefix_hashes"]
    listed = isinstance(hashes.dtype, pl.List)
    if hashes.is_null().all() or (listed and not hashes.list.len().sum()):  # no prompt fills a block
        frame = frame.drop("prefix_hashes")
    elif len(sizes) == 1:
        metadata["hash_block_size"] = str(sizes[0])
    else:
        frame = frame.drop("prefix_hashes")
        notes.append(f"prefix hashes left out: blocks of {len(sizes)} sizes")
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
    return Rows(frame, notes, metadata)


FORMAT = Format(
    name="recorded",
    title="recorded by parsim's scheduler in vLLM: a file, or a folder of them",
    origin=METADATA["source"],
    signature=("request_id", "arrival_s", "prompt_tokens", "output_tokens", "stop", "finish_s"),
    kinds=("jsonl",),
    rows=rows,
)
