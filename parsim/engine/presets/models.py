"""Models by name: bundled, in a folder, or in the Hugging Face cache of this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from parsim.engine.presets.model import Model, read_config
from parsim.errors import UserError, nearest
from parsim.settings_file import read_settings


@cache
def bundled() -> dict[str, dict[str, Any]]:
    """By name: `hub`, its name on the Hugging Face hub, and `config`, the numbers of the `config.json` published
    there. Each is checked against the published number of parameters in the tests."""
    text = files("parsim.engine.presets").joinpath("models.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


@cache
def _bundled_model(name: str) -> Model:
    entry = bundled()[name]
    return read_config(entry["config"], name, entry["hub"])


def find_model(name: str) -> Model | None:
    """The model of a bundled name, a bundled model's hub name, a folder with `config.json`, or a hub name whose
    `config.json` is in the local cache; None if it is none of these.

    Raises:
        UserError: the config is damaged or of an unknown kind.
    """
    if name in bundled():
        return _bundled_model(name)
    hubs: Mapping[str, str] = {entry["hub"].lower(): short for short, entry in bundled().items()}
    if name.lower() in hubs:
        return _bundled_model(hubs[name.lower()])
    folder = Path(name)
    path = folder / "config.json" if folder.is_dir() else _cached_config(name)
    if path is None or not path.is_file():
        return None
    short = folder.resolve().name if folder.is_dir() else name.rpartition("/")[2]
    return read_config(read_settings(path, "model"), short.lower(), name)


def model_of(name: str) -> Model:
    """The same, which must be there.

    Raises:
        UserError: it is not (the nearest name is given), or its config is damaged.
    """
    found = find_model(name)
    if found is not None:
        return found
    raise UserError(
        f"model {name!r}: no bundled model, folder with config.json, or hub model in the local cache"
        f"{nearest(name, bundled())} (bundled: {', '.join(bundled())})"
    )


def _cached_config(name: str) -> Path | None:
    """`config.json` of a hub model in the cache (`HF_HUB_CACHE`, `HF_HOME`), of the branch `main` if there is one."""
    if name.count("/") != 1:
        return None
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    folder = hub / f"models--{name.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
        return folder / "snapshots" / revision / "config.json"
    except OSError:
        return next(iter(sorted(folder.glob("snapshots/*/config.json"))), None)
