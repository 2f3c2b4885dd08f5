"""The command line of parsim: parse, call, print. One file a command; nothing else of the package imports them."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from parsim.cli import engines, metrics, policies, predictor_options, simulate, sweep
from parsim.cli.traces import app as traces_app
from parsim.command import run_cli
from parsim.validate.cli import app as validate_app

app = typer.Typer(
    name="parsim",
    help="Will scheduling by predicted response length help your traffic on your engine?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for part in (sweep, simulate, policies, engines, metrics, predictor_options):
    part.register(app)
app.add_typer(traces_app, name="traces")
app.add_typer(validate_app, name="validate")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"parsim {version('parsim')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Will scheduling by predicted response length help your traffic on your engine?"""


def main() -> None:
    """Entry point of `parsim` and `parsim`."""
    run_cli(app)
