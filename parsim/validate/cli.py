"""`parsim validate`: what the simulator says, held against the real vLLM.

Each command lives in a module of its own with `register(app)`; those modules import vLLM, torch and Polars only
inside their functions.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperGroup

COMMAND_MODULES = (
    "parsim.validate.commands.parity",
    "parsim.validate.commands.engine",
    "parsim.validate.commands.server",
    "parsim.validate.commands.recording",
    "parsim.validate.commands.calibrate",
    "parsim.validate.commands.record",
    "parsim.validate.commands.end_to_end",
    "parsim.validate.commands.auto",
)

DEFAULT_COMMAND = "auto"
"""Runs where the first argument names no command: `parsim validate [reports/NAME/choice.json]`."""


class ValidateGroup(TyperGroup):
    """Puts the default command in front of arguments that name none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] in ("--help", "-h"))
        if not named and DEFAULT_COMMAND in self.commands:
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=ValidateGroup,
    help="The same scheduler on the real vLLM, compared with the model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def main() -> None:
    """The same scheduler on the real vLLM, compared with the model."""


for _module in COMMAND_MODULES:
    if find_spec(_module) is not None:
        import_module(_module).register(app)
