"""`parsim validate engine`."""

from __future__ import annotations

import typer

from parsim.options_model import command_of
from parsim.validate.tiers.options import EngineRun


def register(app: typer.Typer) -> None:
    """Add the command to `parsim validate`."""
    app.command("engine")(command_of(EngineRun, _run))


def _run(options: EngineRun) -> None:
    from parsim.validate.tiers.engine import run_engine

    run_engine(options)
