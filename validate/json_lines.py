"""JSON lines, with the number of a line that is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from traces.errors import UserError


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file, one a line; empty lines are skipped.

    Raises:
        UserError: a line is not JSON, or no object.
    """
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise UserError(
                        f"{path}: line {number}: not JSON ({error.msg}); mend or remove it"
                    ) from error
                if not isinstance(row, dict):
                    raise UserError(f"{path}: line {number}: expected an object, found {type(row).__name__}")
                yield row
