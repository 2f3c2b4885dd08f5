"""A settings file: fields by name in YAML or JSON, as engine and sweep files are; and values from a command line."""

from __future__ import annotations

import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from parsim.errors import UserError
from parsim.json_lines import BrokenJson, distinct


def read_settings(path: Path, what: str) -> dict[str, Any]:
    """The fields of `what` ("engine", "sweep") in a file. The ending .json makes it JSON.

    Raises:
        UserError: the file cannot be read, is not YAML or JSON (the line is named), has a field twice, is empty or
            a list.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        if isinstance(error, IsADirectoryError):
            reason = "it is a folder; what requests were recorded in it is a trace, not a file of settings"
        raise UserError(
            f"{path}: cannot be read as a{'n' * (what[0] in 'aeiou')} {what} file ({reason})"
        ) from error
    try:
        is_json = path.suffix == ".json"
        fields = json.loads(text, object_pairs_hook=distinct) if is_json else yaml.load(text, _Loader)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = " ".join(str(getattr(error, "problem", error)).split())
        raise UserError(f"{path}{line}: not valid YAML ({problem})") from error
    except BrokenJson as error:
        raise UserError(f"{path}: {error}") from None
    except ValueError as error:  # a date that is none, a number of thousands of digits
        raise UserError(f"{path}: a value cannot be read ({str(error).split(';')[0]}); mend it") from None
    except RecursionError:
        raise UserError(f"{path}: is nested without end; expected fields (name: value)") from None
    if not isinstance(fields, dict):
        raise UserError(f"{path}: expected fields of the {what} (name: value), found {type(fields).__name__}")
    return {str(name): value for name, value in fields.items()}


def setting(value: object) -> Any:
    """Text from a command line as YAML would read it: 256, 0.1, true, none; what is not YAML stays text."""
    if not isinstance(value, str):
        return value
    try:
        return yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError):
        return value


class _Loader(yaml.SafeLoader):
    """YAML in which a field stands once; the plain loader keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names = [name.value for name, _ in node.value if isinstance(name, yaml.ScalarNode)]
        for place, name in enumerate(names):
            if name in names[:place] and name != "<<":
                raise BrokenJson(f"has {name!r} twice; keep one of them")
        return super().construct_mapping(node, deep)
