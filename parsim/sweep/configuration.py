"""What a sweep decides about: a policy and the engine's settings. Which is derived, so that any field can be swept."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
from pydantic import BaseModel

from parsim.engine import EngineConfig

POLICY_COLUMNS = ("policy", "label", "starvation_threshold_s", "victim")
"""The columns of results that tell a policy."""
ENGINE_COLUMNS = tuple(
    name for name in EngineConfig.model_fields if name not in ("name", "provenance", "serve")
)
"""The columns of results that tell an engine: every field but what it is called and where its numbers come from."""


def engine_columns(engine: EngineConfig) -> dict[str, Any]:
    """Field -> value of a row of results; what is no plain value (the step time) as JSON text."""
    fields = engine.model_dump(mode="json", include=set(ENGINE_COLUMNS))
    return {
        name: json.dumps(fields[name], sort_keys=True) if isinstance(fields[name], dict) else fields[name]
        for name in ENGINE_COLUMNS
    }


def engine_of(row: dict[str, Any], own: EngineConfig) -> EngineConfig:
    """The engine of a row of results; `own` gives its name and provenance."""
    fields = {
        name: json.loads(row[name]) if isinstance(getattr(own, name), BaseModel) else row[name]
        for name in ENGINE_COLUMNS
        if name in row
    }
    return EngineConfig.model_validate({**own.model_dump(), **fields})


def configuration_columns(frame: pl.DataFrame) -> list[str]:
    """The columns that make a configuration; replicates of one differ in the seed alone."""
    return [name for name in (*POLICY_COLUMNS, *ENGINE_COLUMNS) if name in frame.columns]


def varied(frame: pl.DataFrame) -> list[str]:
    """The engine fields that take more than one value in these rows."""
    return [name for name in ENGINE_COLUMNS if name in frame.columns and frame[name].n_unique() > 1]
