"""How a file is to be read where its content does not say so by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from parsim.errors import UserError, nearest
from parsim.traces.trace import OPTIONAL, REQUIRED, SCORE_PREFIX

TIME_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Unit -> units a second."""

COLUMNS = (*REQUIRED, *OPTIONAL, "hash_block_size")
"""What a file's columns can be taken for, besides `score.NAME`."""


@dataclass(frozen=True)
class Reading:
    """What the user says about a file.

    Attributes:
        format: its format's name; told from the content when None.
        column: the schema's column -> the file's name for it; the others are found by their names.
        time_unit: of numbers in the arrival column: s, ms, us or ns; told from the name and the size when None.
        hash_block_size: tokens per prefix hash; told from the format or the lengths when None.
        tick_s: time stamps were rounded down to multiples of this many seconds: arrivals are spread inside them.
        run: which of several results in one file, from 1.
        model: whose response lengths, where a corpus has several models'.
        skip_bad: drop rows that break the schema and note them, rather than raise.

    Raises:
        UserError: an unknown column or unit, or a size that is not positive.
    """

    format: str | None = None
    column: Mapping[str, str] = field(default_factory=dict)
    time_unit: str | None = None
    hash_block_size: int | None = None
    tick_s: float | None = None
    run: int | None = None
    model: str | None = None
    skip_bad: bool = False

    def __post_init__(self) -> None:
        for name in self.column:
            if name not in COLUMNS and not name.startswith(SCORE_PREFIX):
                raise UserError(
                    f"column {name!r}: a trace has no such column{nearest(name, COLUMNS)} "
                    f"(it has {', '.join(COLUMNS)}, {SCORE_PREFIX}NAME); write {COLUMNS[1]}=NAME_IN_THE_FILE"
                )
        if self.time_unit is not None and self.time_unit not in TIME_UNITS:
            raise UserError(f"time unit {self.time_unit!r}: must be one of {', '.join(TIME_UNITS)}")
        if self.hash_block_size is not None and self.hash_block_size < 1:
            raise UserError(f"hash block size {self.hash_block_size}: must be >= 1 token")
        if self.tick_s is not None and not (isfinite(self.tick_s) and self.tick_s > 0):
            raise UserError(f"tick {self.tick_s:g}: must be a positive number of seconds")
        if self.run is not None and self.run < 1:
            raise UserError(f"run {self.run}: results are counted from 1")

    @property
    def spoken(self) -> dict[str, Any]:
        """What the user said, without what is left open."""
        silent = Reading()
        return {name: value for name, value in vars(self).items() if value != getattr(silent, name)}


def said(metadata: Mapping[str, str]) -> list[str]:
    """Which columns were taken for what, and the notes, a line each: what a user is told of a file."""
    labels = {"reading": "read as", "notes": "note"}
    return [f"{label}: {metadata[key]}" for key, label in labels.items() if key in metadata]
