"""Vega, Vega-Lite and vega-embed as one script: vl-convert's bundle, the version that Altair writes."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

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
