"""Readers, one file a format. `read_trace` tells the format from the content."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from parsim.errors import UserError, closest
from parsim.traces.checks import checked
from parsim.traces.corpus import Corpus
from parsim.traces.draw.jitter import jitter
from parsim.traces.readers import table
from parsim.traces.readers.benchmarks import aiperf, genai_perf, guidellm, inference_perf, llmperf, vllm_bench
from parsim.traces.readers.corpora import lmsys, prompts, sharegpt, wildchat
from parsim.traces.readers.doubts import doubts
from parsim.traces.readers.format import Format, absent, detect
from parsim.traces.readers.logs import litellm, openai, otel, recorded
from parsim.traces.readers.published import azure, bailian, burstgpt, mooncake
from parsim.traces.readers.simulators import blis, servingsim, splitwise, vidur, weka
from parsim.traces.readers.source import Source
from parsim.traces.reading import Reading
from parsim.traces.trace import Trace

TABLE = Format(
    name="table",
    title="any table: this project's schema, access logs, columns named by what they hold",
    origin="a table",
    signature=(),
)
FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        TABLE,
        azure.FORMAT,
        burstgpt.FORMAT,
        mooncake.FORMAT,
        mooncake.ALIASES,
        mooncake.TEXT,
        mooncake.TURNS,
        bailian.FORMAT,
        openai.FORMAT,
        litellm.FORMAT,
        otel.FORMAT,
        recorded.FORMAT,
        vllm_bench.FORMAT,
        vllm_bench.SUMMARY,
        guidellm.FORMAT,
        aiperf.FORMAT,
        genai_perf.FORMAT,
        inference_perf.FORMAT,
        llmperf.FORMAT,
        servingsim.FORMAT,
        vidur.FORMAT,
        blis.FORMAT,
        splitwise.FORMAT,
        weka.FORMAT,
        wildchat.FORMAT,
        lmsys.FORMAT,
        sharegpt.FORMAT,
        prompts.FORMAT,
    )
}


def choose(source: Source, name: str | None) -> Format:
    """The format called `name`, or the one that the content shows; its columns are there.

    Raises:
        UserError: unknown name, or a missing column (with the nearest name found).
    """
    if name is not None and name not in FORMATS:
        near = closest(name, FORMATS)
        hint = f" (nearest: {near})" if near else ""
        raise UserError(f"unknown format {name!r}{hint}; known: {', '.join(FORMATS)}")
    named = [form for form in FORMATS.values() if form is not TABLE]
    form = FORMATS[name] if name is not None else detect(source, named, TABLE)
    form.check(source)
    return form


def read_trace(
    path: str | Path,
    format: str | None = None,
    *,
    column: Mapping[str, str] | None = None,
    time_unit: str | None = None,
    hash_block_size: int | None = None,
    tick_s: float | None = None,
    run: int | None = None,
    skip_bad: bool = False,
) -> Trace:
    """Read a recorded or synthesised trace.

    Args:
        path: a file in any of `FORMATS`, or a table with columns for the arrivals and the tokens of prompt and
            response under whatever names; CSV, JSON lines, JSON or Parquet, packed by gz, zst, xz, bz2 or zip or
            not; or a folder that vLLM recorded in.
        format, column, time_unit, hash_block_size, tick_s, run, skip_bad: see `Reading`.

    Returns:
        The trace, sorted by arrival. What was taken for what is in its metadata under `reading`, what was dropped,
        decided or is doubtful under `notes`.

    Raises:
        UserError: the file cannot be read, or has bad rows, or has no arrival times (a corpus).
    """
    reading = Reading(format, dict(column or {}), time_unit, hash_block_size, tick_s, run, None, skip_bad)
    return trace_of(path, reading)


def trace_of(path: str | Path, reading: Reading) -> Trace:
    """`read_trace` as a `Reading` says."""
    found = read(path, reading)
    if isinstance(found, Trace):
        return found
    source = Source(path)
    form = FORMATS[found.metadata["format"]]
    if form is not TABLE:
        raise _without_arrivals(source, form)
    raise UserError(
        f"{absent(source, source.names, 'arrival_s', 'when requests arrive')}, or {_join(source)}"
    )


def read_corpus(
    path: str | Path,
    model: str | None = None,
    format: str | None = None,
    *,
    column: Mapping[str, str] | None = None,
    hash_block_size: int | None = None,
    run: int | None = None,
    skip_bad: bool = False,
) -> Corpus:
    """Read prompts and lengths to be joined with arrivals from elsewhere; a trace's own arrivals are left
    out.

    Args:
        path: a file in any of `FORMATS`.
        model: whose response lengths, where the corpus has several models'.
        format, column, hash_block_size, run, skip_bad: see `Reading`.

    Raises:
        UserError: the file cannot be read, has bad rows, or lacks that model.
    """
    reading = Reading(format, dict(column or {}), None, hash_block_size, None, run, model, skip_bad)
    return corpus_of(path, reading)


def corpus_of(path: str | Path, reading: Reading) -> Corpus:
    """`read_corpus` as a `Reading` says."""
    found = read(path, reading)
    return Corpus(found.frame.drop("arrival_s", "turn", "delay_s", strict=False), found.metadata)


def read(path: str | Path, reading: Reading) -> Trace | Corpus:
    """A trace, or a corpus where nothing in the file tells when requests arrive.

    Raises:
        UserError: the file cannot be read, or has bad rows.
    """
    if Path(path).is_dir() and reading.format in (None, recorded.FORMAT.name):
        folder = recorded.Folder(Path(path))
        source, form, where = folder.first, recorded.FORMAT, folder.where
        draft = table.draft(source, form, reading, folder.rows)
        draft.metadata["name"] = Path(path).resolve().name
    else:
        source = Source(path)
        form, where = choose(source, reading.format), source.where
        try:
            draft = table.draft(source, form, reading)
        except pl.exceptions.PolarsError as error:
            raise UserError(
                f"{path}: cannot be read as {form.title} ({error}); mend the names of its fields"
            ) from error
    frame, notes = checked(draft, str(path), where, skip_bad=reading.skip_bad)
    metadata = {"name": source.path.name.split(".")[0], "format": form.name, **draft.metadata}
    kept = "; ".join(part for part in (metadata.get("notes", ""), *notes) if part)
    metadata = {**metadata, "notes": kept} if kept else metadata
    if "arrival_s" not in frame.columns:
        return Corpus(frame, metadata)
    trace = Trace(frame, metadata)
    if reading.tick_s is not None:
        return jitter(trace, tick=reading.tick_s)
    if draft.own:
        return trace  # written by this project: its notes go with it
    for doubt in doubts(
        trace,
        whole_seconds=draft.whole_seconds,
        unit_sure=draft.time_unit_sure or reading.time_unit is not None,
    ):
        trace = Trace(trace.frame, trace.noting(doubt))
    return trace


def _without_arrivals(source: Source, form: Format) -> UserError:
    return UserError(f"{source.path}: {form.title}: lengths without arrival times; {_join(source)}")


def _join(source: Source) -> str:
    return (
        f"give it some: `parsim traces join {source.path} --arrivals 'poisson(rate=10)' --out trace.parquet`"
    )
