"""The command line of parsim: parse, call, print."""

from __future__ import annotations

import typer

from parsim import simulate_cli
from parsim.predictor import cli as predictor_cli
from parsim.report import cli as report_cli
from traces.errors import run_cli

app = typer.Typer(
    name="parsim",
    help="Will scheduling by predicted response length help your traffic on your engine?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for part in (simulate_cli, report_cli, predictor_cli):
    part.register(app)


def main() -> None:
    """Entry point of `python -m parsim`."""
    run_cli(app)
