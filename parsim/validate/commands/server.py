"""`parsim validate server`."""

from __future__ import annotations

import typer

from parsim.options_model import command_of
from parsim.validate.tiers.options import ServerRun


def register(app: typer.Typer) -> None:
    """Add the command to `parsim validate`."""
    app.command("server")(command_of(ServerRun, _run))


def _run(options: ServerRun) -> None:
    from parsim.validate.tiers.server import run_server

    if not run_server(options):
        raise typer.Exit(1)
