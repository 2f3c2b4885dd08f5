"""The one error that a user's input can cause, and what its line may say.

Standard library only: the scheduler inside vLLM uses it too.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class UserError(ValueError):
    """Bad input: one line that says what is wrong, where (file, row, field), and the mend.

    What it quotes of a file may hold ends of lines: they become spaces.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))


def closest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The known name that `name` is most likely meant to be, whatever its case: one that goes on where this one ends
    ("llama-3.1-8b-a100" of "llama-3.1-8b-a100-80g"), else the most similar; None if
    none is as similar as `cutoff` (difflib's ratio)."""
    plain = {one.lower(): one for one in known}
    wanted = name.strip().lower()
    if wanted in plain:
        return plain[wanted]
    longer = [one for one in plain if wanted and one.startswith(f"{wanted}-")]
    near = longer or difflib.get_close_matches(wanted, plain, n=1, cutoff=cutoff)
    return plain[near[0]] if near else None


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing where no known name is like this one."""
    near = closest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def first_problem(error: ValidationError) -> str:
    """The first thing that Pydantic found wrong, as `field: what (got value)`."""
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    what = problem["msg"].removeprefix("Value error, ")
    given = "" if problem["type"] in {"missing", "value_error"} else f" (got {repr(problem['input'])[:80]})"
    return f"{where + ': ' if where else ''}{what}{given}"
