"""The report of a recording: page, tables and the fitted engine as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from parsim.engine import EngineConfig
from parsim.files import replacing
from parsim.report.page import Column, Section, Table, render_page
from parsim.validate.calibration.engine_file import write_engine
from parsim.validate.calibration.recording import FAILED, Calibrated
from parsim.validate.recordings.measured import Measured
from parsim.validate.report.comparison import Pair, scatter
from parsim.validate.report.page import (
    error_section,
    metric_section,
    notes_section,
    part_section,
    scatter_section,
    verdict,
)

HEADLINE = tuple(f"{s}_{m}_ms" for m in ("ttft", "tpot", "e2el") for s in ("mean", "p90", "p99"))


def write_report(
    folder: Path,
    measured: Measured,
    calibrated: Calibrated,
    made: pl.DataFrame,
    tables: Sequence[pl.DataFrame],
    judged: pl.DataFrame,
    parts: pl.DataFrame,
    terms: pl.DataFrame,
    command: str,
    fits: bool = True,
) -> Path:
    """Write validation.html, errors.parquet, requests.parquet, validation.json and engine.yaml; return the page.

    `judged`: the errors that count, those on what was not fitted. `fits`: the step time was fitted, to this recording
    or another, so that an engine file is due, unless the fit failed.
    """
    every = pl.concat(tables)
    fit = calibrated.fit
    pair = Pair("fcfs", "all requests", [measured.requests], [made])
    top = verdict(judged, pl.DataFrame(), None, command, limit=0.02, headline=HEADLINE)
    failure = failed(judged) if fits else ""
    if failure:
        top = replace(top, kind="poor", headline=failure)
    sections = [
        Section("Was the model right?", [top]),
        error_section(
            every.filter(pl.col("metric").is_in(list(HEADLINE))),
            lead="'not fitted' are the requests that the fit never saw. 'datasheet preset' is the roofline of the "
            "card, with nothing fitted.",
        ),
        _term_section(terms, calibrated),
        part_section(parts),
        scatter_section(scatter([pair]), {"fcfs": "all requests"}),
        notes_section(
            [
                *calibrated.notes,
                f"engine: {_settings(calibrated.config)}",
                f"step time: {calibrated.config.step_time.provenance}",
                *([f"fit: {fit.simulations} simulations in {fit.cpu_s:.1f} CPU-s"] if fit else []),
            ]
        ),
        metric_section(HEADLINE),
    ]
    page = render_page(f"Recording {measured.name}", sections, subtitle=f"{measured.model} on {measured.gpu}")
    with replacing(folder / "validation.html") as path:
        path.write_text(page, encoding="utf-8")
    with replacing(folder / "errors.parquet") as path:
        every.write_parquet(path)
    with replacing(folder / "requests.parquet") as path:
        measured.requests.join(made, on="request_id", suffix="_model").write_parquet(path)
    with replacing(folder / "validation.json") as path:
        facts = {
            "verdict": top.headline,
            "sentences": list(top.sentences),
            "errors": every.to_dicts(),
            "terms": terms.to_dicts(),
        }
        path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    engine = folder / "engine.yaml"
    if failure or not fits:
        engine.unlink(missing_ok=True)
    else:
        write_engine(calibrated.config, engine, dict(judged.select("metric", "error").iter_rows()))
    return folder / "validation.html"


def failed(judged: pl.DataFrame) -> str:
    """In words that a fit failed, if one of the headline metrics is further off than `FAILED`; else empty."""
    rows = judged.filter(pl.col("metric").is_in(list(HEADLINE)))
    worst = rows.sort(pl.col("error").abs(), descending=True).row(0, named=True)
    if abs(worst["error"]) <= FAILED:
        return ""
    return (
        f"The fit failed: {worst['metric']} is {worst['error']:+.0%} off, more than {FAILED:.0%}. No engine file was "
        "written. See whether the recording's settings are complete, above all num_gpu_blocks and max_num_seqs."
    )


def _settings(config: EngineConfig) -> str:
    fields = config.model_dump(exclude={"step_time", "name", "provenance"})
    return ", ".join(f"{name} {value}" for name, value in fields.items())


def _term_section(terms: pl.DataFrame, calibrated: Calibrated) -> Section:
    frame = terms.with_columns(
        pl.col("relative_error") * 100,
        *[
            pl.col(name).map_elements(lambda v: f"{v:.3g}", return_dtype=pl.String)
            for name in ("fitted", "physics", "roofline")
        ],
    )
    return Section(
        "The step time, and what physics says",
        [
            Table(
                frame,
                {
                    "term": Column("term"),
                    "fitted": Column("fitted", "s"),
                    "relative_error": Column(
                        "standard error", "%", 1, "cluster-robust; clusters of 10 neighbours"
                    ),
                    "physics": Column("datasheet", "s", None, "bytes / bandwidth, FLOPs / peak FLOP/s"),
                    "ratio": Column("fitted / datasheet", "x", 2),
                    "roofline": Column("preset", "s", None, "datasheet with assumed efficiencies"),
                },
            )
        ],
        _why(terms)
        if calibrated.physics
        else "The card is not among the presets, so there is no datasheet to compare with.",
    )


def _why(terms: pl.DataFrame) -> str:
    """In words: what the fit says about the card, and so why the preset is off."""
    row = {r["term"]: r for r in terms.iter_rows(named=True)}
    base, prefill, decode, kv = (
        row[name] for name in ("base_s", "prefill_token_s", "decode_seq_s", "kv_token_s")
    )
    return (
        f"Reading the weights once takes {base['physics'] * 1e3:.1f} ms at the datasheet's bandwidth; the fit says "
        f"{base['fitted'] * 1e3:.1f} ms a step. Prefill reaches {1 / prefill['ratio']:.0%} of the datasheet's FLOP/s "
        f"(the preset assumes {prefill['physics'] / prefill['roofline']:.0%}), KV reads {1 / kv['ratio']:.0%} of its "
        f"bandwidth (the preset assumes {kv['physics'] / kv['roofline']:.0%}), and a decoding sequence costs "
        f"{decode['fitted'] * 1e6:.0f} us (the preset: {decode['roofline'] * 1e6:.0f} us; its FLOPs hide behind the "
        "reading of the weights). These gaps are the preset's error. Terms whose standard error is large are not told "
        "apart by this load; only their sum is."
    )
