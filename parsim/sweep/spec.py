"""The sweep file: what is run, in Pydantic. An unknown field is an error that gives the nearest name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from parsim.defaults import DEFAULT_ENGINE
from parsim.engine import EngineConfig, PresetSource
from parsim.errors import UserError, nearest
from parsim.settings_file import read_settings
from parsim.traces.reading import Reading

Study = Literal["map", "tau", "guard", "victim", "timeline", "search"]
DEFAULT_POLICIES = ("fcfs", "prompt-sjf", "pointwise", "listwise", "pars", "oracle")
ASSUMED_TAUS = {"pointwise": 0.561, "listwise": 0.559, "pars": 0.571, "pars-plus": 0.575, "pars-cross": 0.556}
"""Kendall tau-b at which a predictor is emulated on a trace without its scores: that of the shipped predictors on
the bundled trace's prompts, which they never saw."""

MOST_LOAD = 1e9
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TraceSource(_Strict):
    """Where the requests come from: exactly one of `path` (or `file`), `bundled`, `synthesize`, `join`.

    `column`, `time_unit`, `hash_block_size`, `tick_s`, `run` and `skip_bad` say how a file is to be read
    (`parsim.traces.reading.Reading`). `synthesize` and `join` hold the arguments of `traces.synthesize` and
    `traces.join`, without the seed: they are drawn anew for each seed, as is a `path` whose trace carries the recipe
    it was drawn by. Any other is replayed as it is.
    """

    path: str | None = Field(None, validation_alias=AliasChoices("path", "file"))
    format: str | None = Field(None, description="forces a reader; detected from content otherwise")
    column: dict[str, str] = Field({}, description="a trace's column -> the file's name for it")
    time_unit: str | None = Field(None, description="of numeric time stamps: s, ms, us, ns")
    hash_block_size: int | None = Field(None, description="tokens per prefix hash")
    tick_s: float | None = Field(None, description="time stamps were rounded to this many seconds")
    run: int | None = Field(None, description="which of several results in one file, from 1")
    skip_bad: bool = Field(False, description="drop and count rows that break the schema")
    bundled: bool = False
    synthesize: dict[str, Any] | None = None
    join: dict[str, Any] | None = None
    requests: int | None = Field(None, ge=2, description="at most this many requests, from the start")

    @model_validator(mode="after")
    def _one(self) -> TraceSource:
        given = [self.path is not None, self.bundled, self.synthesize is not None, self.join is not None]
        if sum(given) != 1:
            raise ValueError("give exactly one of path, bundled, synthesize, join")
        if self.reading != Reading() and self.path is None:
            raise ValueError("format, column and the like say how a file is read: give its path")
        return self

    @property
    def reading(self) -> Reading:
        """How the file is to be read."""
        return Reading(
            self.format,
            self.column,
            self.time_unit,
            self.hash_block_size,
            self.tick_s,
            self.run,
            skip_bad=self.skip_bad,
        )


class SweepSpec(_Strict):
    """A grid of runs and what is asked of it. Lists are swept; every combination is a point."""

    name: str = Field("bundled", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    trace: TraceSource = TraceSource(bundled=True)
    engine: str | PresetSource = Field(
        DEFAULT_ENGINE,
        description="preset, a file with the engine's fields, or {model, gpu, tp, dtype, kv_cache_dtype}",
    )
    set: dict[str, Any] = Field({}, description="engine fields by vLLM's names; a list is swept")
    policies: tuple[str, ...] = DEFAULT_POLICIES
    starvation_threshold_s: tuple[Seconds | None, ...] | None = Field(
        None,
        min_length=1,
        description="guard thresholds of the ranked policies (null: no guard); default: each policy's own",
    )
    victim: tuple[Literal["last", "worst"], ...] | None = Field(None, min_length=1)
    loads: Literal["auto"] | tuple[float, ...] = Field(
        "auto", description="arrival rate as a multiple of the trace's; auto: from idle to past the capacity"
    )
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = (0, 1, 2)
    most_seeds: int = Field(
        24, ge=1, description="seeds that the verdict may use at its load, added until it is decided"
    )
    emulate: dict[str, float] = Field(
        {}, description="policy -> Kendall tau-b, where a score is to be emulated"
    )
    scoring_cost: str = Field(
        "shipped", description="what a predictor's scores cost: shipped, free, or a measured file"
    )
    slo: dict[Literal["ttft", "tpot", "e2el"], Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        {}, description="milliseconds"
    )
    focus_load: float | None = Field(
        None, gt=0, lt=MOST_LOAD, description="the load that the verdict is about"
    )
    objective: str = "mean_per_token_latency_ms"
    subject_to: tuple[str, ...] = Field((), description="constraints such as p99_ttft_ms<=2000")
    tail_bound: float | None = Field(
        1.2,
        ge=1,
        allow_inf_nan=False,
        description="p99 TTFT of what is recommended over that of vLLM's defaults, at most; null: any",
    )
    studies: tuple[Study, ...] = ("map", "tau", "guard", "victim", "timeline", "search")
    trials: int = Field(16, ge=0, description="settings that the optimiser tries beyond the grid")

    @property
    def limits(self) -> dict[str, float]:
        """The latency targets in ms by name."""
        return {str(name): limit for name, limit in self.slo.items()}

    @field_validator("trace", mode="before")
    @classmethod
    def _short_trace(cls, value: object) -> object:
        if isinstance(value, str):
            return {"bundled": True} if value == "bundled" else {"path": value}
        return value

    @field_validator(
        "policies", "loads", "seeds", "victim", "starvation_threshold_s", "subject_to", mode="before"
    )
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        if value is None or value == "auto":
            return value
        return tuple(value) if isinstance(value, list | tuple) else (value,)

    @field_validator("loads", mode="after")
    @classmethod
    def _positive(cls, value: object) -> object:
        if isinstance(value, tuple) and (not value or any(not 0 < load < MOST_LOAD for load in value)):
            raise ValueError("loads must be positive numbers")
        return value

    @field_validator("set", mode="after")
    @classmethod
    def _values(cls, value: dict[str, Any]) -> dict[str, Any]:
        empty = [name for name, values in value.items() if values == []]
        if empty:
            raise ValueError(f"{empty[0]} is an empty list: give at least one value")
        unknown = [name for name in value if name not in EngineConfig.model_fields]
        if unknown:
            hint = nearest(unknown[0], EngineConfig.model_fields)
            raise ValueError(f"{unknown[0]}: no such engine field{hint}")
        return value

    @model_validator(mode="after")
    def _goodput_has_targets(self) -> SweepSpec:
        asked = [self.objective, *self.subject_to]
        if not self.slo and any(text.strip().startswith("request_goodput") for text in asked):
            raise ValueError("request_goodput needs a target: add slo, such as ttft: 2000 (milliseconds)")
        return self

    @field_validator("policies", "seeds", mode="after")
    @classmethod
    def _not_empty(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if not value:
            raise ValueError("give at least one")
        if len(set(value)) != len(value):
            raise ValueError("the same value twice")
        return value


def parse_spec(fields: object, where: str) -> SweepSpec:
    """A sweep from the fields of a file.

    Raises:
        UserError: not a mapping, an unknown field (with the nearest name), or a value out of range; names `where`.
    """
    if fields is None:
        fields = {}
    if not isinstance(fields, dict):
        raise UserError(f"{where}: expected fields (name: value), found {type(fields).__name__}")
    try:
        return SweepSpec.model_validate(fields)
    except ValidationError as error:
        raise UserError(f"{where}: {explain(error, fields)}") from error


def explain(error: ValidationError, fields: dict[str, Any]) -> str:
    """The first problem of a validation error in one line, with the nearest name for an unknown field."""
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = TraceSource.model_fields if first["loc"][0] == "trace" else SweepSpec.model_fields
        return f"field {path!r}: no such field{nearest(str(first['loc'][-1]), known)}"
    message = first["msg"].removeprefix("Value error, ")
    return f"field {path!r}: {message[0].lower()}{message[1:]} (given: {str(first['input'])[:80]!r})"


def read_spec(path: str | Path) -> SweepSpec:
    """Read a sweep file (YAML or JSON). A file without `name` is named after itself.

    Raises:
        UserError: the file cannot be read or is not a sweep file.
    """
    file = Path(path)
    fields = read_settings(file, "sweep")
    return parse_spec({"name": name_after(file), **fields}, str(file))


def name_after(file: Path) -> str:
    """A sweep's name after a file: what its name may not hold becomes `-`."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).lstrip("._-") or "sweep"


def dump_spec(spec: SweepSpec) -> str:
    """The sweep file with every field resolved, as YAML."""
    return yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=100)
