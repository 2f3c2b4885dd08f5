"""What a reader knows about its format, and how a file's format is told from its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from parsim.errors import UserError, closest
from parsim.traces.readers.names import find, nearest
from parsim.traces.readers.source import Source
from parsim.traces.reading import Reading

TEXT = ("csv", "jsonl", "json", "parquet")
JSON = ("jsonl", "json")


@dataclass(frozen=True)
class Rows:
    """Requests that a reader took out of a nested file: a row each, the file's names, `row` numbering them from 0."""

    frame: pl.DataFrame
    notes: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Format:
    """One file format.

    Attributes:
        name: what a user calls it.
        title: a few words for people.
        origin: whose layout it is, and where it is described or published.
        signature: names that give it away, in any spelling; all must be there. `len.`: anything inside `len`.
        kinds: kinds of `Source` that it comes in.
        fields: schema column -> names in the file, the first there is taken; other columns are found by their names.
        time_unit: of numbers in the arrival column, where they do not count from 1970 and their name says none.
        hash_block_size: tokens per prefix hash.
        licence, tokenizer: provenance where the file does not say.
        rows: takes the requests out of a nested file; None where every record is a request.
        lengths_only: it never holds arrivals: a corpus.
        by_model: its rows have several models' lengths, one of which is chosen.
        refused: why it cannot be read, and what can be done.
        hint: how the program behind it is made to write what is missing.
    """

    name: str
    title: str
    origin: str
    signature: tuple[str, ...]
    kinds: tuple[str, ...] = TEXT
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    time_unit: str | None = None
    hash_block_size: int | None = None
    licence: str = "not stated"
    tokenizer: str = "not stated"
    rows: Callable[[Source, Reading], Rows] | None = None
    lengths_only: bool = False
    by_model: bool = False
    refused: str | None = None
    hint: str | None = None

    def missing(self, names: Sequence[str]) -> list[str]:
        return [name for name in self.signature if not _there(name, names)]

    def check(self, source: Source) -> None:
        """Raise a `UserError` unless the file can be read as this format."""
        if source.kind not in self.kinds:
            kinds = " or ".join(kind.upper() for kind in self.kinds)
            raise UserError(f"{source.path}: is {source.kind.upper()}, but format {self.name} is {kinds}")
        if self.refused is not None:
            raise UserError(f"{source.path}: {self.refused}")
        missing = self.missing(source.names)
        if missing:
            found = ", ".join(source.names[:12]) or "none"
            mend = self.hint or f"rename it, or choose another format than {self.name}"
            lacks = ", ".join(
                f"{name} (nearest: {near})" if (near := closest(name, source.names)) else name
                for name in missing
            )
            raise UserError(f"{source.path}: no column {lacks}; found: {found}; {mend}")


def _there(name: str, names: Sequence[str]) -> bool:
    if name.endswith("."):
        return any(one.startswith(name) for one in names)
    return find(name, names) is not None


def detect(source: Source, formats: Sequence[Format], general: Format) -> Format:
    """The format whose signature is all there (the longest one), else the general one."""
    whole = [form for form in formats if source.kind in form.kinds and not form.missing(source.names)]
    return max(whole, key=lambda form: (form.refused is None, len(form.signature)), default=general)


def absent(source: Source, names: Sequence[str], column: str, what: str) -> UserError:
    """No column was found for `column`: what is there, which is nearest in meaning, and how to say it."""
    near = nearest(column, names)
    found = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "") if names else "none"
    guess = f" (nearest: {near})" if near else ""
    return UserError(
        f"{source.path}: no column tells {what}{guess}; found: {found}; "
        f"say which with `--column {column}={near or 'NAME'}`"
    )
