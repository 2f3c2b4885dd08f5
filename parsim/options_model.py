"""A command whose options are the fields of a dataclass: declared once, for Typer, the library and what is printed."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

Options = TypeVar("Options")


def command_of(kind: type[Options], run: Callable[[Options], object]) -> Callable[..., None]:
    """A Typer command that makes `kind` of its options and hands it to `run`; its help is `kind`'s docstring.

    Fields annotated with `typer.Option` or `typer.Argument` are options, in their order; others keep their default.
    """

    def command(**given: Any) -> None:
        run(kind(**given))

    hints = get_type_hints(kind, include_extras=True)
    parameters = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in _declared(kind)
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__ = kind.__doc__
    return command


def command_line(name: str, options: Any, hidden: tuple[str, ...] = ("out",)) -> str:
    """The command that gives these options: arguments, and what differs from its default; of a path only its name."""
    arguments, words = [], []
    for field in _declared(type(options)):
        value, declared = getattr(options, field.name), _declaration(type(options), field)
        if value == field.default or field.name in hidden:
            continue
        if isinstance(declared, ArgumentInfo):
            arguments.append(_word(value))
            continue
        given = (
            declared.default if declared is not None else None
        )  # Annotated[..., Option("--set")] puts it there
        option = given if isinstance(given, str) else f"--{field.name.replace('_', '-')}"
        for one in value if isinstance(value, list | tuple) else [value]:
            words += [option] if one is True else [option, _word(one)]
    return " ".join(["parsim", name, *arguments, *words])


def _declared(kind: type) -> list[Field[Any]]:
    found = [field for field in fields(kind) if _declaration(kind, field) is not None]
    assert all(field.default is not MISSING for field in found)
    return found


def _declaration(kind: type, field: Field[Any]) -> ArgumentInfo | OptionInfo | None:
    extras = getattr(get_type_hints(kind, include_extras=True)[field.name], "__metadata__", ())
    return next((one for one in extras if isinstance(one, ArgumentInfo | OptionInfo)), None)


def _word(value: object) -> str:
    if isinstance(value, str) and "/" in value and Path(value).exists():
        value = Path(value)
    return shlex.quote(
        value.name if isinstance(value, Path) else f"{value:g}" if isinstance(value, float) else str(value)
    )
