"""Readers, one file a format. `read_trace` tells the format from the content."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from parsim.errors import UserError
from parsim.traces.checks import Draft, checked
from parsim.traces.corpus import Corpus
from parsim.traces.draw.jitter import tick_s
from parsim.traces.readers import (
    azure,
    bailian,
    burstgpt,
    mooncake,
    plain,
    prompts,
    recorded,
    servingsim,
    sharegpt,
    vidur,
    vllm_bench,
)
from parsim.traces.readers.format import Format, detect, nearest
from parsim.traces.readers.source import Source
from parsim.traces.trace import Trace

FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        plain.FORMAT,
        azure.FORMAT,
        burstgpt.FORMAT,
        mooncake.FORMAT,
        bailian.FORMAT,
        sharegpt.FORMAT,
        vllm_bench.FORMAT,
        vidur.FORMAT,
        vidur.LENGTHS_FORMAT,
        servingsim.FORMAT,
        recorded.FORMAT,
        prompts.FORMAT,
        prompts.MODELS_FORMAT,
    )
}


def choose(source: Source, name: str | None) -> Format:
    """The format called `name`, or the one that the content shows; its columns are there.

    Raises:
        UserError: unknown name, unknown content, or a missing column (with the nearest name found).
    """
    if name is not None and name not in FORMATS:
        raise UserError(f"unknown format {name!r}{nearest(list(FORMATS), name)}; known: {', '.join(FORMATS)}")
    form = FORMATS[name] if name is not None else detect(source, list(FORMATS.values()))
    form.check(source)
    return form


def read_trace(path: str | Path, format: str | None = None, *, skip_bad: bool = False) -> Trace:
    """Read a recorded or synthesised trace.

    Args:
        path: a file in any of `FORMATS`, gzip-compressed text is unpacked; or a folder that vLLM recorded in.
        format: its format's name; told from the content when None.
        skip_bad: drop rows that break the schema and note them in the metadata, rather than raise.

    Returns:
        The trace, sorted by arrival. What was dropped or decided is in its metadata under `notes`.

    Raises:
        UserError: the file cannot be read, or has bad rows, or has no arrival times (a corpus).
    """
    if Path(path).is_dir() and format in (None, recorded.FORMAT.name):
        return recorded.read_folder(Path(path), skip_bad=skip_bad)
    source = Source(path)
    form = choose(source, format)
    if not form.has_arrivals:
        absent = f"no column arrival_s{nearest(source.columns)}: " if form.by_model else ""
        raise UserError(
            f"{source.path}: {absent}{form.title}, lengths without arrival times; give it some: "
            f"`parsim traces join {source.path} --arrivals 'poisson(rate=10)' --out trace.parquet`"
        )
    trace = Trace(*_read(source, form, form.read(source), skip_bad))
    tick = None if form is plain.FORMAT else tick_s(trace)
    if tick is None:
        return trace
    rounded = (
        f"time stamps stand on ticks of {tick:.3g} s: spread them (--jitter) before speaking of burstiness"
    )
    return Trace(trace.frame, trace.noting(rounded))


def has_arrivals(path: str | Path, format: str | None = None) -> bool:
    """Whether the file holds a trace; False for a corpus."""
    return choose(Source(path), format).has_arrivals


def read_corpus(
    path: str | Path, model: str | None = None, format: str | None = None, *, skip_bad: bool = False
) -> Corpus:
    """Read prompts and lengths to be joined with arrivals from elsewhere; a trace's own arrivals are left
    out.

    Args:
        path: a file in any of `FORMATS`.
        model: whose response lengths, where the corpus has several models'.
        format: its format's name; told from the content when None.
        skip_bad: drop rows that break the schema and note them, rather than raise.

    Raises:
        UserError: the file cannot be read, has bad rows, or lacks that model.
    """
    source = Source(path)
    form = choose(source, format)
    if model is not None and not form.by_model:
        raise UserError(f"{source.path}: {form.title} has one length a request; leave --model out")
    draft = form.read(source, model) if form.by_model else form.read(source)
    frame, metadata = _read(source, form, draft, skip_bad)
    return Corpus(frame.drop("arrival_s", strict=False), metadata)


def _read(source: Source, form: Format, draft: Draft, skip_bad: bool) -> tuple[pl.DataFrame, dict[str, str]]:
    """Checked rows, and the metadata with the reader's notes."""
    frame, notes = checked(draft, str(source.path), source.where, skip_bad=skip_bad)
    metadata = {"name": source.path.name.split(".")[0], "format": form.name, **draft.metadata}
    kept = "; ".join(part for part in (metadata.get("notes", ""), *notes) if part)
    return frame, {**metadata, "notes": kept} if kept else metadata
