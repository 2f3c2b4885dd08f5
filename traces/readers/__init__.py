"""Readers, one file a format. `read_trace` tells the format from the content."""

from __future__ import annotations

from pathlib import Path

from traces.checks import checked
from traces.errors import UserError
from traces.readers import azure, mooncake, plain
from traces.readers.format import Format, detect
from traces.readers.source import Source
from traces.trace import Trace

FORMATS: dict[str, Format] = {module.FORMAT.name: module.FORMAT for module in (plain, azure, mooncake)}


def choose(source: Source, name: str | None) -> Format:
    """The format called `name`, or the one that the content shows; its columns are there.

    Raises:
        UserError: unknown name, unknown content, or a missing column (with the nearest name found).
    """
    if name is not None and name not in FORMATS:
        raise UserError(f"unknown format {name!r}; known: {', '.join(FORMATS)}")
    form = FORMATS[name] if name is not None else detect(source, list(FORMATS.values()))
    form.check(source)
    return form


def read_trace(path: str | Path, format: str | None = None, *, skip_bad: bool = False) -> Trace:
    """Read a recorded or synthesised trace.

    Args:
        path: a file in any of `FORMATS`; gzip-compressed text is unpacked.
        format: its format's name; told from the content when None.
        skip_bad: drop rows that break the schema and note them in the metadata, rather than raise.

    Returns:
        The trace, sorted by arrival. What was dropped or decided is in its metadata under `notes`.

    Raises:
        UserError: the file cannot be read, or has bad rows, or has no arrival times (a corpus).
    """
    source = Source(path)
    form = choose(source, format)
    if not form.has_arrivals:
        raise UserError(
            f"{source.path}: {form.title} has lengths but no arrival times; give it some: "
            f"`python -m traces join {source.path} --arrivals 'poisson(rate=10)' --out trace.parquet`"
        )
    draft = form.read(source)
    frame, notes = checked(draft, str(source.path), source.where, skip_bad=skip_bad)
    metadata = {"name": source.path.name.split(".")[0], "format": form.name, **draft.metadata}
    kept = "; ".join(part for part in (metadata.get("notes", ""), *notes) if part)
    return Trace(frame, {**metadata, "notes": kept} if kept else metadata)
