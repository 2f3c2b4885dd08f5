"""`parsim validate recording`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parsim.options import Fields, ReportFolder, Seed

if TYPE_CHECKING:
    import polars as pl

    from parsim.validate.calibration.recording import Calibrated


def register(app: typer.Typer) -> None:
    """Add the command to `parsim validate`."""
    app.command("recording")(recording)


def recording(
    path: Annotated[
        Path, typer.Argument(help="Folder or file of a recorded run; docs/validation.md has the formats.")
    ],
    fit_share: Annotated[
        float, typer.Option(help="Share of the requests to fit; the rest is predicted unseen.")
    ] = 0.5,
    fit_first: Annotated[
        float | None,
        typer.Option(
            help="Fit this share of the requests, those that came first, instead.", show_default=False
        ),
    ] = None,
    calibrate_on: Annotated[
        Path | None,
        typer.Option(help="Take the step times of another recording of the same machine; fit nothing here."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="Fit nothing: predict with this engine file or preset.")
    ] = None,
    set_: Fields = None,
    gpu: Annotated[
        str | None, typer.Option(help="GPU preset, where the recording does not name the card.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model preset, likewise.")] = None,
    seed: Seed = 1,
    out: ReportFolder = None,
) -> None:
    """Calibrate on a part of a recording of a real engine, predict the rest, and say how far off the model is."""
    from rich.console import Console

    from parsim.engine import load_engine
    from parsim.files import check_target
    from parsim.options import pairs
    from parsim.validate.calibration.card import find_card
    from parsim.validate.calibration.recording import (
        Calibrated,
        calibrate,
        carry,
        predict,
        terms,
        unfitted,
    )
    from parsim.validate.recordings.measured import read_measured
    from parsim.validate.report.comparison import Pair, errors, parts
    from parsim.validate.report.recording_page import failed, write_report

    console = Console()
    overrides = _parsed(pairs("--set", set_ or []))
    measured = read_measured(path)
    card = find_card(measured, gpu, model)
    folder = out or Path("reports") / f"recording-{measured.name}"
    check_target(folder / "validation.html")
    with console.status("fitting") as status:

        def progress(stage: str, objective: float) -> None:
            status.update(f"fitting: {stage}, objective {objective:.4f}")

        if engine is not None:
            calibrated = Calibrated(load_engine(engine, overrides), None, None, {}, measured.notes)
        elif calibrate_on is not None:
            other = read_measured(calibrate_on)
            there = find_card(
                other, gpu or (card.gpu if card else None), model or (card.model if card else None)
            )
            calibrated = carry(
                calibrate(other, share=1.0, seed=seed, card=there, progress=progress),
                measured,
                card=card,
                overrides=overrides,
            )
        else:
            calibrated = calibrate(
                measured,
                share=fit_share if fit_first is None else fit_first,
                earliest=fit_first is not None,
                seed=seed,
                card=card,
                overrides=overrides,
                progress=progress,
            )
    own_fit = calibrated.fit if calibrate_on is None else None
    made = predict(measured, calibrated.config, own_fit.ready_s if own_fit else 0.0)
    tables = [errors([Pair("fcfs", "all requests", [measured.requests], [made])], seed)]
    if own_fit and not own_fit.fitted.all():
        rest = [unfitted(frame, own_fit.fitted) for frame in (measured.requests, made)]
        tables.append(errors([Pair("pars", "not fitted", [rest[0]], [rest[1]])], seed))
    judged = tables[-1]
    if calibrated.roofline is not None:
        sheet = predict(measured, calibrated.roofline)
        tables.append(errors([Pair("pointwise", "datasheet preset", [measured.requests], [sheet])], seed))
    pair = Pair("fcfs", "all requests", [measured.requests], [made])
    shares = terms(calibrated)
    command = _command(path, fit_share, fit_first, calibrate_on, engine, set_ or [], seed)
    page = write_report(
        folder,
        measured,
        calibrated,
        made,
        tables,
        judged,
        parts([pair]),
        shares,
        command,
        fits=engine is None,
    )
    _print(console, tables, calibrated, shares)
    console.print(f"report: {page}", highlight=False)
    failure = failed(judged) if engine is None else ""
    if failure:
        console.print(failure, style="red", highlight=False)
        raise typer.Exit(1)


def _parsed(overrides: dict[str, str]) -> dict[str, Any]:
    from parsim.settings_file import setting

    return {name: setting(value) for name, value in overrides.items()}


def _command(
    path: Path,
    share: float,
    earliest: float | None,
    other: Path | None,
    engine: str | None,
    changed: list[str],
    seed: int,
) -> str:
    words = ["parsim", "validate", "recording", path.name]
    if engine is not None:
        words += ["--engine", engine]
    elif other is not None:
        words += ["--calibrate-on", other.name]
    elif earliest is not None:
        words += ["--fit-first", f"{earliest:g}"]
    else:
        words += ["--fit-share", f"{share:g}"]
    for text in changed:
        words += ["--set", text]
    return shlex.join([*words, "--seed", str(seed)])


def _print(console: Any, tables: list[pl.DataFrame], calibrated: Calibrated, terms: pl.DataFrame) -> None:
    from rich.table import Table

    table = Table("metric", title="error of the model (measured value)")
    for frame in tables:
        table.add_column(frame["label"][0], justify="right")
    for row in zip(*(frame.iter_rows(named=True) for frame in tables), strict=True):
        if row[0]["metric"].split("_", 1)[1] in ("ttft_ms", "tpot_ms", "e2el_ms"):
            table.add_row(
                row[0]["metric"], *(f"{r['error']:+.2%} ({r['real']:,.0f} {r['unit']})" for r in row)
            )
    console.print(table)
    numbers = Table("term", "fitted", "± (1 s.e.)", "physics", "fitted / physics", title="step time, seconds")
    for row in terms.iter_rows(named=True):
        known = row["physics"] is not None
        numbers.add_row(
            row["term"],
            f"{row['fitted']:.3g}",
            "-" if row["relative_error"] is None else f"{row['relative_error']:.0%}",
            f"{row['physics']:.3g}" if known else "-",
            f"{row['ratio']:.2f}" if known else "-",
        )
    console.print(numbers)
    if calibrated.fit is not None:
        console.print(f"fitted in {calibrated.fit.cpu_s:.1f} CPU-s, {calibrated.fit.simulations} simulations")
    for note in calibrated.notes:
        console.print(f"note: {note}", style="dim", highlight=False)
