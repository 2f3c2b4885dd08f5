"""What a reader knows about its format, and how a file's format is told from its columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from parsim.errors import UserError, closest
from parsim.traces.checks import Draft
from parsim.traces.readers.source import Source

LIKENESS = 0.6
"""Mean similarity of names (difflib) above which a file is a format with a column misspelt or missing."""

SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
"""What some programs write in place of commas."""


@dataclass(frozen=True)
class Format:
    """One file format.

    Attributes:
        name: what `--format` takes.
        title: a few words for people.
        kinds: kinds of `Source` that it comes in.
        required: columns or keys that it cannot do without.
        read: makes the draft of a trace; it may rely on the required columns.
        has_arrivals: False for lengths or prompts alone: a corpus, which cannot be replayed by itself.
        by_model: `read` takes a second argument, the model whose lengths are meant.
        telltale: a column that gives the format away even where required ones are missing.
        hint: how the program behind the format is made to write what is missing.
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    required: tuple[str, ...]
    read: Callable[..., Draft]
    has_arrivals: bool = True
    by_model: bool = False
    telltale: str | None = None
    hint: str | None = None

    def missing(self, columns: Sequence[str]) -> list[str]:
        return [column for column in self.required if column not in columns]

    def likeness(self, columns: Sequence[str]) -> float:
        """Mean over the required columns of the similarity to the nearest column found, 0 to 1."""
        if self.telltale in columns:
            return 1.0
        best = [
            max((SequenceMatcher(None, want.lower(), have.lower()).ratio() for have in columns), default=0.0)
            for want in self.required
        ]
        return sum(best) / len(best)

    def check(self, source: Source) -> None:
        """Raise a `UserError` unless the file can be read as this format."""
        if source.kind not in self.kinds:
            kinds = " or ".join(kind.upper() for kind in self.kinds)
            raise UserError(f"{source.path}: is {source.kind.upper()}, but format {self.name} is {kinds}")
        missing = self.missing(source.columns)
        if missing:
            lacks = ", ".join(name + nearest(source.columns, name) for name in missing)
            found = ", ".join(source.columns[:12]) or "none"
            raise UserError(
                f"{source.path}: no column {lacks}; found: {found}; "
                f"{self.hint or f'rename it, or choose another --format than {self.name}'}"
            )


def nearest(columns: Sequence[str], name: str = "arrival_s") -> str:
    """ " (nearest: COLUMN)", or nothing where no column's name is like it."""
    near = closest(name, columns)
    return f" (nearest: {near})" if near else ""


def detect(source: Source, formats: Sequence[Format]) -> Format:
    """The format whose required columns are all there (the most demanding one), else the likest.

    Raises:
        UserError: nothing is like it.
    """
    fitting = [form for form in formats if source.kind in form.kinds]
    whole = [form for form in fitting if not form.missing(source.columns)]
    if whole:
        return max(whole, key=lambda form: len(form.required))
    likest = max(fitting, key=lambda form: form.likeness(source.columns), default=None)
    if likest is None or likest.likeness(source.columns) < LIKENESS:
        for other, called in SEPARATORS.items():
            if source.kind == "csv" and len(source.columns) == 1 and other in source.columns[0]:
                raise UserError(f"{source.path}: line 1: fields are separated by {called}, expected commas")
        raise UserError(
            f"{source.path}: format not recognised (columns: {', '.join(source.columns[:12]) or 'none'}); "
            f"name it with --format ({', '.join(form.name for form in formats)})"
        )
    return likest
