"""An engine by the name of a preset or from a file, with settings changed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ValidationError

from parsim.engine.config import EngineConfig
from parsim.engine.presets.hardware import GPUS, MODELS
from parsim.engine.presets.roofline import preset
from parsim.engine.step_time import StepTime
from parsim.errors import UserError, first_problem, nearest
from parsim.settings_file import read_settings, setting

DEFAULT_ENGINE = "llama-3.1-8b-a100-80g"


def preset_names() -> list[str]:
    """Names of the presets: MODEL-GPU for every pair that fits."""
    return [f"{model}-{gpu}" for model in MODELS for gpu in GPUS if preset(model, gpu) is not None]


def load_engine(name_or_path: str, overrides: Mapping[str, object] | None = None) -> EngineConfig:
    """The engine of a preset's name or of a YAML or JSON file with the fields of `EngineConfig`.

    `overrides`: fields to change, by name; `step_time.base_s` reaches into the step time. Values may be text.

    Raises:
        UserError: no such preset, file or field (the nearest name is given), or a value out of range.
    """
    path = Path(name_or_path)
    if path.suffix in {".yaml", ".yml", ".json"} or path.is_file():
        fields = read_settings(path, "engine")
        source = str(path)
    else:
        fields = _preset(name_or_path).model_dump()
        source = f"engine {name_or_path}"
    step_time = fields.get("step_time")
    for key, value in (overrides or {}).items():
        part = key.removeprefix("step_time.")
        if part != key and isinstance(step_time, dict):
            _known(part, StepTime, source)
            step_time[part] = setting(value)
        else:
            _known(key, EngineConfig, source)
            fields[key] = setting(value)
    changed = [f"{key}={value}" for key, value in (overrides or {}).items()]
    if changed:
        fields["provenance"] = f"{fields.get('provenance', source)}; changed: {', '.join(changed)}"
    for key in fields:
        _known(key, EngineConfig, source)
    if isinstance(step_time, dict):
        for key in step_time:
            _known(str(key), StepTime, f"{source}: step_time")
    try:
        return EngineConfig.model_validate(fields)
    except ValidationError as error:
        raise UserError(f"{source}: {first_problem(error)}") from error


def _preset(name: str) -> EngineConfig:
    for gpu in GPUS:
        model = name.removesuffix(f"-{gpu}")
        if model != name and model in MODELS:
            config = preset(model, gpu)
            if config is None:
                raise UserError(
                    f"engine {name!r}: the weights of {model} do not fit on {gpu}; take a larger card"
                )
            return config
    names = preset_names()
    raise UserError(
        f"engine {name!r}: no such preset or file{nearest(name, names)} "
        f"(presets are MODEL-GPU: models {', '.join(MODELS)}; GPUs {', '.join(GPUS)})"
    )


def _known(field: str, model: type[BaseModel], source: str) -> None:
    fields = list(model.model_fields)
    if field not in fields:
        raise UserError(
            f"{source}: no engine field {field!r}{nearest(field, fields)} (fields: {', '.join(fields)})"
        )
