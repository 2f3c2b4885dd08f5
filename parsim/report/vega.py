"""Vega, Vega-Lite and vega-embed as one script: vl-convert's bundle, the version that Altair writes; and what a chart's
specification must be before it stands in a page."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from parsim.errors import UserError
from parsim.files import replacing


@cache
def scripts() -> str:
    """The script, safe inside a script element. Bundling takes two seconds, so that it is kept in the user's cache."""
    from altair.utils._importers import vl_version_for_vl_convert

    vega_lite = vl_version_for_vl_convert()
    name = f"vega-{vega_lite}-{version('vl-convert-python')}.js"
    try:
        return (cache_folder() / name).read_text(encoding="utf-8")
    except (OSError, ValueError, RuntimeError):
        pass
    import vl_convert

    bundle: str = vl_convert.javascript_bundle(vl_version=vega_lite)  # type: ignore[call-arg]
    text = bundle.replace("</script", "<\\/script")
    with suppress(OSError, UserError, RuntimeError), replacing(cache_folder() / name) as path:
        path.write_text(text, encoding="utf-8")
    return text


def cache_folder() -> Path:
    """Where parsim keeps what can be made again.

    Raises:
        RuntimeError: the user has no home.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "parsim"


def strict(value: Any) -> Any:
    """As JSON knows it: numbers that are not finite become null, which Vega leaves out."""
    if isinstance(value, dict):
        return {key: strict(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [strict(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def switchable(spec: dict[str, Any]) -> dict[str, Any]:
    """The chart with a parameter `hidden`: marks of the labels that it lists are not drawn."""
    shown = {"filter": "indexof(hidden, datum.label) < 0"}

    def with_filter(part: dict[str, Any]) -> dict[str, Any]:
        if "layer" in part:
            return {**part, "layer": [with_filter(layer) for layer in part["layer"]]}
        by_label = any(
            isinstance(e, dict) and e.get("field") == "label" for e in part.get("encoding", {}).values()
        )
        return {**part, "transform": [shown, *part.get("transform", [])]} if by_label else part

    return {**with_filter(spec), "params": [*spec.get("params", []), {"name": "hidden", "value": []}]}
