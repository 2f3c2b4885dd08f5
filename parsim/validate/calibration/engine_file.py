"""An engine file: what `--engine FILE` reads, written by a calibration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from parsim.engine import EngineConfig
from parsim.files import replacing


def write_engine(config: EngineConfig, path: Path, fit_error: Mapping[str, float] | None = None) -> None:
    """Write `config` as YAML; `fit_error`: relative errors on what the fit did not see, by metric."""
    fields = config.model_dump(mode="json")
    if fit_error is not None:
        fields["step_time"]["fit_error"] = {name: round(float(value), 5) for name, value in fit_error.items()}
    with replacing(path) as temporary:
        temporary.write_text(yaml.safe_dump(fields, sort_keys=False, width=110), encoding="utf-8")
