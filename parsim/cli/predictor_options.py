"""The commands train, evaluate, score and compare. Thin: parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from parsim.cli.reading import Column, Format, HashBlockSize, Run, SkipBad, Tick, TimeUnit, reading

Data = Annotated[
    Path, typer.Argument(help="JSONL or Parquet with prompt and output_tokens, or len: {model: n}")
]
Model = Annotated[
    str | None, typer.Option(help="whose lengths, where DATA has several models; a,b are averaged; all")
]
Public = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        help="DATA is a public corpus in its own layout: alpaca-gpt4, lmsys-chat-1m, math-plus, evol-codealpaca-v1;"
        " for train and evaluate, DATA may be the word hub: it is then fetched from the Hugging Face hub",
    ),
]
Unit = Annotated[
    str | None,
    typer.Option(
        help="with --corpus: lengths in tokens, words or chars; default tokens, in evaluate the predictor's own"
    ),
]
Threads = Annotated[int | None, typer.Option(help="CPU threads; default: torch's choice", min=1)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no progress bar")]


def register(app: typer.Typer) -> None:
    """Add the predictor's commands to the application."""
    app.command()(train)
    app.command()(evaluate)
    app.command()(score)
    app.command()(compare)


def train(
    data: Data,
    out: Annotated[Path, typer.Option(help="folder for the predictor; an unfinished run in it is continued")],
    objective: Annotated[
        str, typer.Option(help="pairwise, pointwise, listwise, mixed or ordinal")
    ] = "pairwise",
    encoder: Annotated[
        str | None, typer.Option(help="Hugging Face name or folder; the paper's is bert-base-uncased")
    ] = None,
    model: Model = None,
    corpus: Public = None,
    unit: Unit = None,
    name: Annotated[
        str | None, typer.Option(help="score column is score.NAME; default: the folder's")
    ] = None,
    tuning: Annotated[str, typer.Option(help="full, lora or frozen")] = "full",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="any field of the recipe, as key=value; may be repeated")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1)] = None,
    lr: Annotated[float | None, typer.Option(help="peak learning rate")] = None,
    precision: Annotated[str, typer.Option(help="auto, fp32, bf16 or fp16")] = "auto",
    seed: int = 42,
    test_share: Annotated[float, typer.Option(min=0.01, max=0.9)] = 0.1,
    overwrite: Annotated[bool, typer.Option(help="replace a predictor that is already in OUT")] = False,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Train a predictor on recorded response lengths."""
    from parsim.cli.predictor import train_command

    changes: dict[str, Any] = {
        "objective": objective,
        "encoder": encoder,
        "tuning": tuning,
        "epochs": epochs,
        "learning_rate": lr,
        "precision": precision,
        "seed": seed,
    }
    train_command(
        data,
        out,
        changes={key: value for key, value in changes.items() if value is not None},
        settings=set_ or [],
        models=_names(model),
        corpus=corpus,
        unit=unit,
        name=name,
        test_share=test_share,
        overwrite=overwrite,
        threads=threads,
        progress=not quiet,
    )


def evaluate(
    predictor: Annotated[str, typer.Argument(help="folder, or a shipped predictor's name")],
    data: Data,
    model: Model = None,
    ceiling: Annotated[
        str | None,
        typer.Option(
            help="models that are repeated samples of one, for the noise ceiling: a,b; default: --model"
        ),
    ] = None,
    corpus: Public = None,
    unit: Unit = None,
    unseen: Annotated[bool, typer.Option("--unseen", help="only prompts that training did not see")] = False,
    allow_seen: Annotated[bool, typer.Option("--allow-seen", help="all prompts, seen ones too")] = False,
    json_: Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")] = False,
    threads: Threads = None,
) -> None:
    """Measure a predictor: tau_b with interval, baselines, noise ceiling, pair accuracy, calibration,
    latency.
    """
    from parsim.cli.predictor import evaluate_command

    evaluate_command(
        predictor,
        data,
        models=_names(model),
        ceiling=_names(ceiling),
        corpus=corpus,
        unit=unit,
        unseen=unseen,
        allow_seen=allow_seen,
        as_json=json_,
        threads=threads,
    )


def score(
    predictor: Annotated[
        str, typer.Argument(help="folder, or pars, pointwise, listwise, pars-cross, pars-plus")
    ],
    trace: Annotated[Path, typer.Argument(help="trace with a prompt column")],
    out: Annotated[
        Path, typer.Argument(help="where to write; the ending picks the format: .parquet .csv .jsonl")
    ],
    precision: Annotated[str, typer.Option(help="auto, fp32, bf16 or fp16")] = "auto",
    threads: Threads = None,
    quiet: Quiet = False,
    format_: Format = None,
    column: Column = None,
    time_unit: TimeUnit = None,
    hash_block_size: HashBlockSize = None,
    tick: Tick = None,
    run: Run = None,
    skip_bad: SkipBad = False,
) -> None:
    """Add the column score.NAME to a trace."""
    from parsim.cli.predictor import score_command

    how = reading(format_, column, time_unit, hash_block_size, tick, run, None, skip_bad)
    score_command(predictor, trace, out, how, precision=precision, threads=threads, progress=not quiet)


def compare(
    data: Annotated[
        Path,
        typer.Argument(
            help="DATA as for train, a comparison spec (.yaml), or public-lengths: the project's table"
        ),
    ],
    folder: Annotated[
        Path | None, typer.Option("--data", help="where a spec's files are; default: beside it")
    ] = None,
    model: Model = None,
    corpus: Public = None,
    unit: Unit = None,
    out: Annotated[Path | None, typer.Option(help="default reports/NAME")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="trainings of each objective, 3 by default; a spec has its own", min=1)
    ] = None,
    ablate: Annotated[
        bool, typer.Option(help="also delta off, 256 and 512 tokens, frozen, bert-base")
    ] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="any field of the recipe, as key=value")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="train on at most so many prompts", min=2)] = None,
    threads: Threads = None,
    jobs: Annotated[int, typer.Option(help="trainings at a time, each on one core", min=1)] = 1,
    quiet: Quiet = False,
) -> None:
    """Train all objectives at equal budget over seeds and print the table."""
    from parsim.cli.predictor import compare_command

    compare_command(
        data,
        folder=folder,
        models=_names(model),
        corpus=corpus,
        unit=unit,
        out=out,
        seeds=seeds,
        ablate=ablate,
        settings=set_ or [],
        limit=limit,
        threads=threads,
        jobs=jobs,
        progress=not quiet,
    )


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []
