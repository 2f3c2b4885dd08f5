"""A corpus: lengths, and perhaps prompts and scores, without arrivals."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl


@dataclass(frozen=True)
class Corpus:
    """Rows that can be given arrivals (`traces.join`).

    Attributes:
        frame: a trace's columns but `arrival_s`.
        metadata: provenance, as in `Trace.metadata`.
    """

    frame: pl.DataFrame
    metadata: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.frame.height
