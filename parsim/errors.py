"""The one error that a user's input can cause, and how a command line reports it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import typer


class UserError(ValueError):
    """Bad input: one line that says what is wrong, where (file, row, field), and the mend."""


def run_cli(app: typer.Typer) -> NoReturn:
    """Run a Typer application; a `UserError`, or a refusal of the operating system, becomes one line on stderr and
    exit code 2.

    An interrupt (Ctrl-C) exits with 130: what was written by then is kept.
    """
    try:
        _exit_of(app)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted: what was finished is kept", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        print(f"error: {error.filename or 'output'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)


def _exit_of(app: typer.Typer) -> None:
    """Run it; the exit that Typer makes of Ctrl-C is an interrupt again. A command that said so itself just ends."""
    try:
        app()
    except SystemExit as leaving:
        cause = leaving.__context__.__cause__ if leaving.__context__ else None
        if isinstance(cause, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
