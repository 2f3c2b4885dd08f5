"""Commands: sweep, report, reproduce."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.cli.preset_options import Dtype, Gpu, KvCacheDtype, Tp
from parsim.cli.reading import Column, Format, HashBlockSize, Run, SkipBad, Tick, TimeUnit, reading
from parsim.command import INTERRUPTED
from parsim.options import Executor, Jobs

if TYPE_CHECKING:
    from parsim.sweep.results import Results

Out = Annotated[Path | None, typer.Option("--out", help="Folder to write to.", show_default="reports/NAME")]
Fresh = Annotated[
    bool, typer.Option("--resume/--fresh", help="Keep finished points, or run everything again.")
]


def register(app: typer.Typer) -> None:
    """Mount the commands on `app`."""
    app.command()(sweep)
    app.command()(report)
    app.command()(reproduce)


def sweep(
    file: Annotated[
        Path | None, typer.Argument(help="Sweep file (YAML); default: the bundled trace.")
    ] = None,
    out: Out = None,
    trace: Annotated[str | None, typer.Option(help="Trace file to replay, or 'bundled'.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="Engine preset MODEL-GPU or file, or with --gpu a model.")
    ] = None,
    gpu: Gpu = None,
    tp: Tp = None,
    dtype: Dtype = None,
    kv_cache_dtype: KvCacheDtype = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Engine field, KEY=VALUE; a,b,c is swept. Repeatable.")
    ] = None,
    policies: Annotated[str | None, typer.Option("--policies", help="Comma-separated policies.")] = None,
    loads: Annotated[str | None, typer.Option("--loads", help="Comma-separated loads, or auto.")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="Comma-separated seeds.")] = None,
    scoring_cost: Annotated[
        str | None, typer.Option(help="What a predictor's scores cost: shipped, free, or a measured file.")
    ] = None,
    slo: Annotated[
        list[str] | None, typer.Option("--slo", help="ttft:MS, tpot:MS or e2el:MS. Repeatable.")
    ] = None,
    objective: Annotated[str | None, typer.Option(help="Metric to optimise.")] = None,
    subject_to: Annotated[
        list[str] | None,
        typer.Option("--subject-to", help="Constraint such as p99_ttft_ms<=2000. Repeatable."),
    ] = None,
    format_: Format = None,
    column: Column = None,
    time_unit: TimeUnit = None,
    hash_block_size: HashBlockSize = None,
    tick: Tick = None,
    run: Run = None,
    skip_bad: SkipBad = False,
    executor: Executor = "local",
    jobs: Jobs = None,
    resume: Fresh = True,
) -> None:
    """Run policies, loads and settings against a trace, and write a report to decide from."""
    from rich.console import Console

    from parsim.report.build import write_report
    from parsim.report.summary import print_summary
    from parsim.sweep.options import apply_options
    from parsim.sweep.run import run_sweep

    spec = apply_options(
        file,
        trace=trace,
        reading=reading(format_, column, time_unit, hash_block_size, tick, run, None, skip_bad),
        engine=engine,
        put={"gpu": gpu, "tp": tp, "dtype": dtype, "kv_cache_dtype": kv_cache_dtype},
        set=set_,
        policies=policies,
        loads=loads,
        seeds=seeds,
        scoring_cost=scoring_cost,
        slo=slo,
        objective=objective,
        subject_to=subject_to,
    )
    folder = out or Path("reports") / spec.name
    console = Console(stderr=True)

    def publish(first: Results) -> None:
        page = write_report(folder, first)
        console.print(f"First answer: {page} (the studies go on and refine it)", highlight=False)

    try:
        results = run_sweep(spec, folder, console, executor, jobs, fresh=not resume, publish=publish)
    except KeyboardInterrupt:
        kept = len(list((folder / "points").glob("[!.]*.json")))
        print(
            f"interrupted: {kept} finished runs are kept in {folder}; the same command resumes",
            file=sys.stderr,
        )
        raise SystemExit(INTERRUPTED) from None
    page = write_report(folder, results)
    print_summary(results, Console(), page)


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished sweep.")],
) -> None:
    """Write report.html again from the results in FOLDER."""
    from parsim.report.build import write_report

    typer.echo(write_report(folder))


def reproduce(
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.")] = Path("reports/reproduce"),
    executor: Executor = "local",
    jobs: Jobs = None,
    resume: Fresh = True,
) -> None:
    """Try the paper's claims on public data and write one table: claim, found, where it holds."""
    from rich.console import Console
    from rich.table import Table

    from parsim.studies.paper.page import COLUMNS, write_claims
    from parsim.studies.paper.regimes import run_regimes
    from parsim.studies.paper.spec import run_paper

    console = Console(stderr=True)
    try:
        done = run_paper(out, console, executor, jobs, fresh=not resume)
        regimes = run_regimes(out / "regimes", console, executor, jobs, fresh=not resume)
    except KeyboardInterrupt:
        print(f"interrupted: finished runs are kept in {out}; the same command resumes", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    page, rows = write_claims(out, done, regimes)
    table = Table(*(column.title for column in COLUMNS.values()), show_lines=True)
    for row in rows:
        table.add_row(row.claim, row.found, row.holds, row.outcome)
    Console().print(table)
    typer.echo(f"Report: {page}")
