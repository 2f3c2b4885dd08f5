"""`parsim traces`: look at traces, convert, draw, join and fetch them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parsim.cli.reading import Column, Format, HashBlockSize, Run, SkipBad, Tick, TimeUnit, reading, say
from parsim.errors import UserError

if TYPE_CHECKING:
    from parsim.traces.trace import Trace

app = typer.Typer(
    help="Recorded and synthesised workloads: look at them, convert, draw, join and fetch them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Seed = Annotated[int, typer.Option(help="Same seed, same trace.")]
Out = Annotated[Path, typer.Option(help="File to write: .parquet (keeps the metadata), .csv or .jsonl.")]
Model = Annotated[
    str | None, typer.Option(help="Whose response lengths, where a corpus has several models'.")
]
Catalogue = Annotated[
    Path | None,
    typer.Option(
        "--catalogue", help="JSON list of name, url, title, licence, sha256, in place of the built-in one."
    ),
]
Process = "'poisson(rate=10)', 'gamma(rate=10, cv=2)', 'burst(n=2000, every_s=60)' or 'diurnal(rate=10)'"


@app.command()
def info(
    path: Annotated[
        Path | None, typer.Argument(help="A trace or corpus; the bundled trace if left out, or bundled.")
    ] = None,
    format: Format = None,
    column: Column = None,
    time_unit: TimeUnit = None,
    hash_block_size: HashBlockSize = None,
    tick: Tick = None,
    run: Run = None,
    model: Model = None,
    skip_bad: SkipBad = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    html: Annotated[bool, typer.Option("--html", help="Write a page with charts as well.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to write the page.", show_default="reports/NAME.html")
    ] = None,
) -> None:
    """Print rate, burstiness, lengths, KV tokens demanded, and what the trace lacks."""
    from parsim.traces.info import describe
    from parsim.traces.info_table import show
    from parsim.traces.readers import read
    from parsim.traces.trace import BUNDLED

    chosen = BUNDLED if path is None or str(path) == "bundled" else path
    how = reading(format, column, time_unit, hash_block_size, tick, run, model, skip_bad)
    if out is not None and not html:
        raise UserError("--out: says where the page of --html goes; add --html or leave it out")
    found = read(chosen, how)
    say(found)
    figures = describe(found)
    if json:
        from json import dumps

        print(dumps(figures))
    else:
        show(figures)
    if html:
        from parsim.files import replacing
        from parsim.report.trace_page import trace_page

        target = out or Path("reports") / f"{found.metadata.get('name') or 'trace'}.html"
        with replacing(target) as temporary:
            temporary.write_text(trace_page(found), encoding="utf-8")
        print(f"Page: {target}", file=sys.stderr if json else sys.stdout)


@app.command()
def convert(
    path: Annotated[Path, typer.Argument(help="A trace in any known format.")],
    out: Annotated[
        Path, typer.Argument(help="File to write: .parquet (keeps the metadata), .csv or .jsonl.")
    ],
    format: Format = None,
    column: Column = None,
    time_unit: TimeUnit = None,
    hash_block_size: HashBlockSize = None,
    tick: Tick = None,
    run: Run = None,
    skip_bad: SkipBad = False,
    first: Annotated[int | None, typer.Option(help="Keep only the first so many requests.")] = None,
    jitter: Annotated[
        bool, typer.Option("--jitter", help="Spread arrivals inside the time stamps' ticks.")
    ] = False,
    seed: Seed = 0,
) -> None:
    """Write a trace in this project's schema."""
    from parsim.traces.draw.jitter import jitter as spread
    from parsim.traces.readers import trace_of

    if jitter and tick is not None:
        raise UserError("--jitter: --tick spreads arrivals already; leave one of them out")
    trace = trace_of(path, reading(format, column, time_unit, hash_block_size, tick, run, None, skip_bad))
    if jitter:
        spread_out = spread(trace, seed)
        if spread_out is trace:
            print("note: its time stamps stand on no tick: nothing to spread", file=sys.stderr)
        trace = spread_out
    if first is not None:
        trace = trace.head(first)
    _write(trace, out)


@app.command()
def synthesize(
    out: Out,
    arrivals: Annotated[str, typer.Option(help=f"When requests come: {Process}.")] = "poisson(rate=10)",
    requests: Annotated[int, typer.Option(help="How many.")] = 1000,
    prompt_mean: Annotated[float, typer.Option(help="Mean prompt tokens (lognormal).")] = 500.0,
    prompt_cv: Annotated[float, typer.Option(help="Standard deviation over mean of prompt tokens.")] = 1.0,
    output_mean: Annotated[float, typer.Option(help="Mean response tokens (lognormal).")] = 200.0,
    output_cv: Annotated[float, typer.Option(help="Standard deviation over mean of response tokens.")] = 1.0,
    max_tokens: Annotated[int | None, typer.Option(help="Cut longer draws to this.")] = None,
    lengths_from: Annotated[
        Path | None, typer.Option(help="Resample the lengths of this trace or corpus instead.")
    ] = None,
    model: Model = None,
    correlation: Annotated[
        float | None,
        typer.Option(
            help="Spearman's, of prompt and response tokens; left out: 0, or the resampled pairs' own."
        ),
    ] = None,
    seed: Seed = 0,
) -> None:
    """Draw a trace: arrivals from a process, lengths lognormal or resampled."""
    from parsim.traces.draw.synthesis import synthesize as draw

    lengths: dict[str, Any] = {
        "prompt_mean": prompt_mean,
        "prompt_cv": prompt_cv,
        "output_mean": output_mean,
        "output_cv": output_cv,
        "correlation": correlation or 0.0,
        "max_tokens": max_tokens,
    }
    if lengths_from is not None:
        lengths = {"from": lengths_from, "model": model, "correlation": correlation}
    _write(draw(arrivals, lengths, requests, seed), out)


@app.command()
def join(
    corpus: Annotated[
        Path, typer.Argument(help="Prompts and lengths: a corpus, or a trace whose arrivals are dropped.")
    ],
    arrivals: Annotated[str, typer.Option(help=f"A trace file, or {Process}.")],
    out: Out,
    model: Model = None,
    requests: Annotated[int | None, typer.Option(help="How many; all that fit if left out.")] = None,
    seed: Seed = 0,
    format: Format = None,
    column: Column = None,
    hash_block_size: HashBlockSize = None,
    run: Run = None,
    skip_bad: SkipBad = False,
) -> None:
    """Let a corpus's rows arrive at a recorded trace's times, or by a process."""
    from parsim.traces.draw.joining import join as join_rows
    from parsim.traces.readers import corpus_of

    rows = corpus_of(corpus, reading(format, column, None, hash_block_size, None, run, model, skip_bad))
    _write(join_rows(rows, arrivals, seed, requests), out)


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(help="Names that `list` prints.")],
    out: Annotated[Path, typer.Option(help="Folder to put them in.")] = Path("data"),
    own: Catalogue = None,
) -> None:
    """Download public traces: checked, and resumed where a download broke off."""
    from parsim.progress import progress_bar
    from parsim.traces.fetch import catalogue, find
    from parsim.traces.fetch import fetch as download

    known = catalogue(own) if own else catalogue()
    wanted = [find(name, known) for name in names]
    means = {
        "verified": "checksum verified",
        "recorded": "checksum unknown here: recorded beside it at this first sight",
        "as recorded": "checksum as recorded at first sight",
    }
    for public in wanted:
        with progress_bar(units="bytes") as bar:
            bar.begin(public.name, None)
            path, checksum = download(public, out, bar.reach)
        print(f"{path}: {path.stat().st_size:,} bytes, {means[checksum]}; licence {public.licence}")


@app.command("list")
def list_traces(
    own: Catalogue = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the formats as the table of docs/traces.md.")
    ] = False,
) -> None:
    """List public traces that `fetch` knows, and the formats that can be read."""
    if markdown:
        from parsim.traces.readers.listing import markdown as table

        print(table(), end="")
        return
    from rich.console import Console
    from rich.table import Table

    from parsim.traces.fetch import catalogue
    from parsim.traces.readers import FORMATS

    public = Table("name", "what", "licence", "checksum", title="parsim traces fetch NAME")
    for entry in (catalogue(own) if own else catalogue()).values():
        public.add_row(entry.name, entry.title, entry.licence, "known" if entry.sha256 else "at first fetch")
    formats = Table("format", "what", "holds", title="--format")
    for form in FORMATS.values():
        formats.add_row(
            form.name, form.title, "corpus: join it with arrivals" if form.lengths_only else "trace"
        )
    console = Console()
    console.print(public)
    console.print(formats)


def _write(trace: Trace, out: Path) -> None:
    from parsim.traces.write import write_trace

    write_trace(trace, out)
    say(trace)
    print(f"{out}: {len(trace):,} requests over {trace.span_s:,.1f} s")
