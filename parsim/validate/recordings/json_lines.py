"""JSON lines, with the number of a line that is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parsim.errors import UserError


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file, one a line; empty lines are skipped.

    Raises:
        UserError: a line is not UTF-8, not JSON, or no object.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    row = json.loads(line.decode("utf-8-sig"))
                except (ValueError, RecursionError) as error:
                    reason = (
                        error.msg if isinstance(error, json.JSONDecodeError) else str(error).split(";")[0]
                    )
                    raise UserError(
                        f"{path}: line {number}: not JSON ({reason}); mend or remove it"
                    ) from error
                if not isinstance(row, dict):
                    raise UserError(f"{path}: line {number}: expected an object, found {type(row).__name__}")
                yield row
