"""Options that say how a trace file is to be read, the same in every command that reads one; and what is said of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.errors import UserError

if TYPE_CHECKING:
    from parsim.traces.corpus import Corpus
    from parsim.traces.reading import Reading
    from parsim.traces.trace import Trace

PANEL = "How to read the trace"

Format = Annotated[
    str | None,
    typer.Option(
        "--format", help="Read as this format; told from the content if left out.", rich_help_panel=PANEL
    ),
]
Column = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="COLUMN=NAME",
        help="The file's NAME is a trace's COLUMN: arrival_s=created, output_tokens=reply. Repeatable.",
        rich_help_panel=PANEL,
    ),
]
TimeUnit = Annotated[
    str | None,
    typer.Option(
        "--time-unit",
        metavar="s|ms|us|ns",
        help="Unit of numeric time stamps; told from their name and size if left out.",
        rich_help_panel=PANEL,
    ),
]
HashBlockSize = Annotated[
    int | None,
    typer.Option(
        "--hash-block-size",
        metavar="TOKENS",
        help="Tokens per prefix hash; told from the lengths if left out.",
        rich_help_panel=PANEL,
    ),
]
Tick = Annotated[
    float | None,
    typer.Option(
        "--tick",
        metavar="S",
        help="Time stamps were rounded to this many seconds: spread arrivals inside.",
        rich_help_panel=PANEL,
    ),
]
Run = Annotated[
    int | None,
    typer.Option(
        "--run",
        metavar="N",
        help="Which of several results in one file, from 1.",
        rich_help_panel=PANEL,
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option("--skip-bad", help="Drop and count rows that break the schema.", rich_help_panel=PANEL),
]


def reading(
    format: str | None = None,
    column: Sequence[str] | None = None,
    time_unit: str | None = None,
    hash_block_size: int | None = None,
    tick: float | None = None,
    run: int | None = None,
    model: str | None = None,
    skip_bad: bool = False,
) -> Reading:
    """What the options say.

    Raises:
        UserError: a `--column` is not of the form COLUMN=NAME, or see `Reading`.
    """
    from parsim.traces.reading import Reading

    columns = {}
    for text in column or ():
        name, found, given = text.partition("=")
        if not found or not name.strip() or not given.strip():
            raise UserError(f"--column {text!r}: write COLUMN=NAME, such as arrival_s=created")
        columns[name.strip()] = given.strip()
    return Reading(format, columns, time_unit, hash_block_size, tick, run, model, skip_bad)


def say(trace: Trace | Corpus) -> None:
    """Print on stderr what columns were taken for what, and the notes, a line each."""
    from parsim.traces.reading import said

    for line in said(trace.metadata):
        print(line, file=sys.stderr)
