"""`parsim validate end-to-end`: PARS for real, without a GPU."""

from __future__ import annotations

import typer

from parsim.options_model import command_of
from parsim.validate.tiers.options import EndToEnd


def register(app: typer.Typer) -> None:
    """Add the command to `parsim validate`."""
    app.command("end-to-end")(command_of(EndToEnd, _run))


def _run(options: EndToEnd) -> None:
    from parsim.validate.tiers.end_to_end import run_end_to_end

    run_end_to_end(options)
