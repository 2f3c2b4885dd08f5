"""Architectures of usual models as numbers: enough for vLLM to run them with random weights, nothing downloaded.

The presets' models, and in `architectures.json` two more that are for a CPU: `tiny` is no published model but two small
layers that run in milliseconds.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from parsim.engine.presets.model import read_config
from parsim.engine.presets.models import bundled
from parsim.errors import UserError, nearest


@cache
def architectures() -> dict[str, dict[str, Any]]:
    """Configurations by name."""
    text = files("parsim.validate").joinpath("architectures.json").read_text(encoding="utf-8")
    return {**json.loads(text), **{name: model["config"] for name, model in bundled().items()}}


def write_model_folder(name: str, folder: Path) -> Path:
    """Write `folder/config.json` for the architecture `name`; returns the folder.

    Raises:
        UserError: no such architecture (the nearest name is given).
    """
    known = architectures()
    if name not in known:
        raise UserError(
            f"model {name!r}: no folder, no hub name with a slash and no architecture{nearest(name, known)}"
            f" ({', '.join(known)})"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(known[name], indent=1) + "\n", encoding="utf-8")
    return folder


@cache
def model_folder(name: str) -> Path:
    """A folder for the architecture `name` that lasts as long as this process.

    Raises:
        UserError: no such architecture.
    """
    folder = Path(tempfile.mkdtemp(prefix="parsim-model-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write_model_folder(name, folder)


def parameters(name: str) -> int:
    """Weights of an architecture, embeddings included."""
    return int(read_config(architectures()[name], name, name).weights.total)
