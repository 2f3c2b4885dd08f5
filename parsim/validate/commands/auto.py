"""`parsim validate [choice.json]`: the strongest check that this machine allows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parsim.options import Repeats, ReportFolder, Seed


def register(app: typer.Typer) -> None:
    """Add the command to `parsim validate`."""
    app.command("auto")(auto)


def auto(
    choice: Annotated[
        Path | None,
        typer.Argument(help="choice.json of a sweep; the bundled trace under the five policies if left out."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Folder, hub name or architecture; fits the machine if left out.")
    ] = None,
    requests: Annotated[int, typer.Option(min=20, help="Requests of the trace.")] = 120,
    repeats: Repeats = 3,
    seed: Seed = 0,
    out: ReportFolder = None,
) -> None:
    """Check the settings that a sweep chose on the real vLLM, by the strongest check that this machine allows."""
    from parsim.validate.tiers.auto import run_auto

    run_auto(choice, model=model, requests=requests, repeats=repeats, seed=seed, folder=out)
