"""An engine from a preset or a file, with settings changed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ValidationError

from parsim.engine.config import EngineConfig
from parsim.engine.presets.cards import CARDS
from parsim.engine.presets.models import bundled, find_model
from parsim.engine.presets.roofline import preset
from parsim.engine.presets.source import PresetSource
from parsim.engine.step_time import StepTime
from parsim.errors import UserError, first_problem, nearest
from parsim.settings_file import read_settings, setting


def preset_names() -> list[str]:
    """Names of the presets on one card: MODEL-GPU for every pair that fits."""
    return [
        f"{model}-{gpu}"
        for model in bundled()
        for gpu in CARDS
        if preset(PresetSource(model=model, gpu=gpu)) is not None
    ]


def load_engine(
    engine: str | PresetSource,
    overrides: Mapping[str, object] | None = None,
    *,
    gpu: str | None = None,
    **put: object,
) -> EngineConfig:
    """The engine of a preset, or of a YAML or JSON file with the fields of `EngineConfig`.

    Args:
        engine: a `PresetSource`; a preset's name MODEL-GPU; a model, with `gpu`; or the name of a file.
        overrides: fields to change, by name; `step_time.base_s` reaches into the step time. Values may be text.
        gpu, put: the other fields of `PresetSource`, where `engine` is a model.

    Raises:
        UserError: no such preset, file or field (the nearest name is given), or a value out of range.
    """
    source = engine if isinstance(engine, PresetSource) else _source(engine, gpu, put)
    if isinstance(source, PresetSource):
        fields = _fitting(source).model_dump()
        where = f"engine {source.name}"
    else:
        fields = read_settings(source, "engine")
        where = str(source)
    step_time = fields.get("step_time")
    for key, value in (overrides or {}).items():
        part = key.removeprefix("step_time.")
        if part != key and isinstance(step_time, dict):
            _known(part, StepTime, where)
            step_time[part] = setting(value)
        else:
            _known(key, EngineConfig, where)
            fields[key] = setting(value)
    changed = [f"{key}={value}" for key, value in (overrides or {}).items()]
    if changed:
        fields["provenance"] = f"{fields.get('provenance', where)}; changed: {', '.join(changed)}"
    for key in fields:
        _known(key, EngineConfig, where)
    if isinstance(step_time, dict):
        for key in step_time:
            _known(str(key), StepTime, f"{where}: step_time")
    try:
        return EngineConfig.model_validate(fields)
    except ValidationError as error:
        raise UserError(f"{where}: {first_problem(error)}") from error


def _source(name: str, gpu: str | None, put: Mapping[str, object]) -> PresetSource | Path:
    """What `name` stands for: a preset or a file."""
    given = {key: value for key, value in put.items() if value is not None}
    if gpu is not None:
        return _parsed({"model": name, "gpu": gpu, **given})
    if given:
        raise UserError(f"engine {name!r}: {next(iter(given))} is given without a gpu; name the card")
    path = Path(name)
    if path.suffix in {".yaml", ".yml", ".json"} or path.is_file():
        return path
    for card in CARDS:
        model = name.removesuffix(f"-{card}")
        if model != name and model in bundled():
            return PresetSource(model=model, gpu=card)
    if find_model(name) is not None:
        raise UserError(f"engine {name!r}: is a model; name the card too (gpu: one of {', '.join(CARDS)})")
    names = [f"{model}-{card}" for model in bundled() for card in CARDS]
    raise UserError(
        f"engine {name!r}: no such preset or file{nearest(name, names)} "
        f"(presets are MODEL-GPU: models {', '.join(bundled())}; GPUs {', '.join(CARDS)})"
    )


def _parsed(fields: Mapping[str, object]) -> PresetSource:
    try:
        return PresetSource.model_validate(fields)
    except ValidationError as error:
        raise UserError(f"engine {fields['model']!r}: {first_problem(error)}") from error


def _fitting(source: PresetSource) -> EngineConfig:
    config = preset(source)
    if config is None:
        cards = source.gpu if source.tp == 1 else f"{source.tp} {source.gpu}"
        raise UserError(
            f"engine {source.name!r}: the weights of {source.model} do not fit on {cards} beside what a step needs; "
            "take a larger card, more of them (tp), or fewer bits (dtype)"
        )
    return config


def _known(field: str, model: type[BaseModel], source: str) -> None:
    fields = list(model.model_fields)
    if field not in fields:
        raise UserError(
            f"{source}: no engine field {field!r}{nearest(field, fields)} (fields: {', '.join(fields)})"
        )
