"""Architectures of usual models as numbers: enough for vLLM to run them with random weights, nothing downloaded.

`architectures.json` holds what the models' published `config.json` say about their shape. `tiny` is no published
model: two small layers that run in milliseconds on a CPU.
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

from parsim.errors import UserError, nearest


@cache
def architectures() -> dict[str, dict[str, Any]]:
    """Configurations by name."""
    text = files("parsim.validate").joinpath("architectures.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


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
    """Weights of an architecture, embeddings included (biases left out)."""
    c = architectures()[name]
    hidden, layers = c["hidden_size"], c["num_hidden_layers"]
    queries = c["num_attention_heads"] * c["head_dim"]
    keys = c["num_key_value_heads"] * c["head_dim"]
    layer = (
        hidden * (queries + 2 * keys) + queries * hidden + 3 * hidden * c["intermediate_size"] + 2 * hidden
    )
    embeddings = c["vocab_size"] * hidden * (1 if c["tie_word_embeddings"] else 2)
    return int(layers * layer + embeddings + hidden)
