"""A command line: how it ends, and what it says on stderr then."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import typer

from parsim.errors import UserError

INTERRUPTED = 130
"""Exit code of Ctrl-C, as shells have it."""


def run_cli(app: typer.Typer, name: str = "parsim") -> NoReturn:
    """Run a Typer application called `name` and exit.

    A `UserError`, a refusal of the operating system, or an option or argument that is none becomes one line on stderr
    and exit code 2. An interrupt (Ctrl-C) exits with 130: what was written by then is kept.
    """
    try:
        code = typer.main.get_command(app).main(prog_name=name, standalone_mode=False)
    except UserError as error:
        _fail(str(error))
    except UsageError as error:
        _usage(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        _fail(f"{error.filename or 'output'}: {error.strerror or error}")
    if code == INTERRUPTED:
        print("interrupted: what was finished is kept", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


UsageError: Any = typer.BadParameter.__mro__[1]
"""Click's: of the package, or of the copy that newer versions of Typer bring."""


def _usage(error: Any) -> NoReturn:
    words = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        print(words)
        sys.exit(2)
    path = error.ctx.command_path if error.ctx is not None else ""
    _fail(" ".join(words.split()).rstrip(".") + (f"; see `{path} --help`" if path else ""))


def _fail(words: str) -> NoReturn:
    print(f"error: {words}", file=sys.stderr)
    sys.exit(2)
