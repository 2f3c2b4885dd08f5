"""JSON lines, read strictly: every fault is named with its line."""

from __future__ import annotations

import codecs
import gzip
import json
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parsim.errors import UserError

_GZIP = b"\x1f\x8b"


class BrokenJson(ValueError):
    """Why a text is no JSON object, and the mend."""


def json_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file, packed by gzip or not, each with the number of its line; blank lines are skipped.

    Raises:
        UserError: the file cannot be read, or a line is not UTF-8, not JSON, no object, has a name twice, or holds
            NaN, an infinity or a number of thousands of digits.
    """
    try:
        with file.open("rb") as plain:
            packed = plain.read(2) == _GZIP
        with gzip.open(file) if packed else file.open("rb") as handle:
            for number, line in enumerate(handle, start=1):
                text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if text.strip():
                    try:
                        record = parse_object(text)
                    except BrokenJson as error:
                        raise UserError(f"{file}: line {number}: {error}") from error
                    yield number, record
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{file}: not a whole gzip file ({error}); fetch or write it again") from error
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror or error}); check the path") from error


def parse_object(line: bytes) -> dict[str, Any]:
    """The object of one line.

    Raises:
        BrokenJson: see `json_lines`.
    """
    try:
        record = json.loads(
            line.decode(), parse_constant=_no_number, parse_float=_finite, object_pairs_hook=distinct
        )
    except BrokenJson:
        raise
    except UnicodeDecodeError:
        raise BrokenJson("not UTF-8 text; save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise BrokenJson(f"not valid JSON ({error.msg} at column {error.colno}); mend or remove it") from None
    except (ValueError, RecursionError):
        raise BrokenJson("nested too deeply or a number of too many digits; mend or remove it") from None
    if not isinstance(record, dict):
        raise BrokenJson("not a JSON object; give every line one, {...}")
    return record


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs; of a name that stands there twice one value would be lost.

    Raises:
        BrokenJson: a name stands there twice.
    """
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BrokenJson(f"has {twice!r} twice; keep one of them")
    return record


def _no_number(name: str) -> None:
    """NaN or Infinity, which Python's reader takes."""
    raise BrokenJson(f"{name} is no number in JSON; mend or remove it")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise BrokenJson(f"{text[:40]} is too large a number; mend or remove it")
    return value
