"""The formats as a table of a document."""

from __future__ import annotations

from parsim.traces.readers import FORMATS
from parsim.traces.readers.format import Format


def markdown() -> str:
    """A row a format: its name, what it is, its source, and the command that reads it."""
    rows = ["| format | what | source | command |", "|---|---|---|---|"]
    rows += [
        f"| `{form.name}` | {form.title} | {form.origin} | {_command(form)} |" for form in FORMATS.values()
    ]
    return "\n".join(rows) + "\n"


def _command(form: Format) -> str:
    if form.refused is not None:
        return "none: refused, with the mend"
    if form.lengths_only:
        model = " --model NAME" if form.by_model else ""
        return f"`parsim traces join FILE{model} --arrivals 'poisson(rate=10)' --out trace.parquet`"
    return "`parsim sweep --trace FILE`"
