"""A trace: what happened, one row a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from parsim.errors import UserError

REQUIRED: dict[str, pl.DataType] = {
    "request_id": pl.String(),
    "arrival_s": pl.Float64(),
    "prompt_tokens": pl.Int64(),
    "output_tokens": pl.Int64(),
}
"""Columns that every trace has. `arrival_s`: seconds since the start of the trace, >= 0. Tokens: >= 1."""

OPTIONAL: dict[str, pl.DataType] = {
    "prompt": pl.String(),
    "prefix_hashes": pl.List(pl.Int64()),
    "session_id": pl.String(),
    "turn": pl.Int64(),
    "delay_s": pl.Float64(),
    "client_id": pl.String(),
}
"""Columns that a trace may have. `prefix_hashes`: one hash per full block of the prompt; the block's size in
tokens is `hash_block_size` in the metadata. `turn`: place of the request in its session, from 0. `delay_s`: seconds
from the end of the turn before it to this request, null for a first turn: what a closed-loop replay waits."""

SCORE_PREFIX = "score."
"""A column `score.NAME` holds a predictor's score: higher = longer expected response."""

BUNDLED = Path(__file__).parent / "bundled" / "trace.parquet"


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival, with where they come from.

    Attributes:
        frame: the columns of `REQUIRED`, some of `OPTIONAL`, and `score.NAME` columns (f64); sorted by
            `arrival_s` (stable), `request_id` unique.
        metadata: provenance as text: `name`, `source`, `licence`, `format`, `tokenizer`, `hash_block_size`
            (tokens), `notes` (what the reader changed or dropped), `recipe` (how a synthesised or joined
            trace was drawn), and whatever else the file carried.
    """

    frame: pl.DataFrame
    metadata: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.frame.height

    @property
    def name(self) -> str:
        return self.metadata.get("name", "trace")

    @property
    def has_prompts(self) -> bool:
        """Whether there is prompt text that a predictor can score."""
        return "prompt" in self.frame.columns

    @property
    def has_prefix_hashes(self) -> bool:
        return "prefix_hashes" in self.frame.columns

    @property
    def hash_block_size(self) -> int | None:
        """Tokens a hash of `prefix_hashes` stands for; None without hashes."""
        size = self.metadata.get("hash_block_size")
        return int(size) if size is not None and self.has_prefix_hashes else None

    @property
    def score_names(self) -> list[str]:
        """NAMEs of the `score.NAME` columns, in column order."""
        return [
            column.removeprefix(SCORE_PREFIX)
            for column in self.frame.columns
            if column.startswith(SCORE_PREFIX)
        ]

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last arrival; 0 for fewer than two requests."""
        arrivals = self.frame["arrival_s"]
        return float(arrivals[-1] - arrivals[0]) if len(arrivals) > 1 else 0.0

    def head(self, n: int) -> Trace:
        """The first `n` requests, noted as such; drawn rows so cut have no recipe any more.

        Raises:
            UserError: `n` is below 1.
        """
        if n < 1:
            raise UserError(f"asked for the first {n} requests, must be >= 1")
        if n >= len(self):
            return self
        metadata = self.noting(f"first {n:,} of {len(self):,} requests")
        metadata.pop("recipe", None)
        return Trace(self.frame.head(n), metadata)

    def noting(self, note: str, **metadata: str) -> dict[str, str]:
        """This trace's metadata with one more note, and `metadata` on top."""
        notes = "; ".join(part for part in (self.metadata.get("notes", ""), note) if part)
        return {**self.metadata, **metadata, "notes": notes}


def bundled_trace() -> Trace:
    """The recorded trace that comes with the package (`parsim/traces/bundled/README.md` tells its origin)."""
    from parsim.traces.readers import read_trace

    return read_trace(BUNDLED)
