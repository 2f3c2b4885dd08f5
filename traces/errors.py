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
        app()
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
