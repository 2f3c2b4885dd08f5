"""`parsim validate end-to-end`: PARS for real, without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parsim.options import Repeats, Seed


def register(app: typer.Typer) -> None:
    """Add the command to `parsim validate`."""
    app.command("end-to-end")(end_to_end)


def end_to_end(
    prompts: Annotated[
        Path | None,
        typer.Argument(help="JSONL or Parquet with `prompt`, or text: at least --recorded of them."),
    ] = None,
    lengths: Annotated[
        Path | None, typer.Option(help="Responses that `validate record` wrote: nothing is recorded then.")
    ] = None,
    model: Annotated[str, typer.Option(help="Folder or hub name; `smollm2` is made from PyPI.")] = "smollm2",
    recorded: Annotated[
        int, typer.Option(min=50, help="Prompts to record; 90% train, the rest is served.")
    ] = 2000,
    max_tokens: Annotated[int, typer.Option(min=8, help="Responses are cut there.")] = 512,
    temperature: Annotated[float, typer.Option(min=0.0, help="Of recording and serving.")] = 0.7,
    epochs: Annotated[int, typer.Option(min=1, help="Of each predictor's training.")] = 3,
    requests: Annotated[
        int | None, typer.Option(min=4, help="Held-out prompts to serve under each policy; all by default.")
    ] = None,
    repeats: Repeats = 3,
    max_num_seqs: Annotated[int, typer.Option(min=1, help="Requests that the engine runs at once.")] = 16,
    clock: Annotated[str, typer.Option(help="cpu: the engine's CPU time; wall.")] = "cpu",
    seed: Seed = 0,
    out: Annotated[
        Path, typer.Option(help="Folder of all stages; an interrupted run in it is continued.")
    ] = Path("reports/end-to-end"),
) -> None:
    """Record a real model's natural lengths, train three predictors, serve the rest under five policies."""
    from parsim.errors import UserError
    from parsim.validate.tiers.end_to_end import EndToEnd, run_end_to_end

    if clock not in ("cpu", "wall"):
        raise UserError(f"--clock {clock!r}: must be cpu or wall")
    run_end_to_end(
        EndToEnd(
            folder=out,
            prompts=prompts,
            lengths=lengths,
            model=model,
            recorded=recorded,
            max_tokens=max_tokens,
            temperature=temperature,
            epochs=epochs,
            requests=requests,
            repeats=repeats,
            max_num_seqs=max_num_seqs,
            clock=clock,
            seed=seed,
        )
    )
