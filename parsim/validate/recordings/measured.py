"""Requests that a real engine served, as measured there: one frame whatever wrote the file.

Formats, told apart by content:

- a folder with `requests.jsonl` (one object a request: `input_toks, output_toks, arrival_time, queued_ts,
  scheduled_ts, first_token_ts, last_token_ts`) and `meta.json` (the engine's resolved settings; the name of the
  workload, whose token ids are read where that file lies in the folder or beside it);
- the result of vLLM's `bench serve --save-result --save-detailed` (`start_times, input_lens, output_lens,
  ttfts, itls`);
- Parquet, CSV or JSONL with the columns of `COLUMNS`, as `validate engine` and `validate server` write them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from parsim.errors import UserError
from parsim.json_lines import json_lines
from parsim.settings_file import read_settings
from parsim.validate.recordings.prompts import recorded_prompts
from parsim.validate.recordings.settings import part_of, read_recorded

COLUMNS = ("request_id", "arrival_s", "first_token_s", "finish_s", "prompt_tokens", "output_tokens")
"""Columns that every measurement has; times in seconds since the first arrival."""

OPTIONAL = ("first_scheduled_s", "preemptions")
"""Columns that only the engine's own clock can give; null where they are not known."""

MOST = 1e12
"""No time in seconds and no count goes beyond: a larger number is damage, and the clock would lose the steps."""

SHARED = "shared_blocks"
"""Column of a recording whose prompts are known, see `parsim.validate.recordings.prompts.shared_blocks`."""


@dataclass(frozen=True)
class Measured:
    """Requests in order of arrival, and what is known of the engine that served them.

    Attributes:
        requests: `COLUMNS`, `OPTIONAL` and, if the prompts are known, `SHARED`, sorted by arrival.
        engine: settings under `EngineConfig`'s names, as far as the recording says them.
        name: what to call it.
        put: how the model was put on its cards, under `PresetSource`'s names.
        replicas: engines behind vLLM's balancer (data parallelism).
        version: of vLLM, such as (0, 19); empty if the recording does not say it.
        model, gpu: as the recording (or its folder's name) says them; empty if it does not.
        notes: what was dropped, aligned or inferred, in words.
    """

    requests: pl.DataFrame
    name: str
    engine: dict[str, Any] = field(default_factory=dict)
    put: dict[str, Any] = field(default_factory=dict)
    replicas: int = 1
    version: tuple[int, ...] = ()
    model: str = ""
    gpu: str = ""
    notes: tuple[str, ...] = ()

    @property
    def router(self) -> str:
        """The balancer of this version before the replicas."""
        return "vllm-dp-0.19" if self.version and self.version < (0, 32) else "vllm-dp"


def read_measured(path: Path) -> Measured:
    """The measurements at `path`.

    Raises:
        UserError: nothing there, no known format, a field that is missing, or times that run backwards.
    """
    if path.is_dir():
        if (path / "requests.jsonl").is_file():
            return _from_folder(path)
        if (path / "requests.parquet").is_file():
            return _from_table(path / "requests.parquet")
        raise UserError(f"{path}: holds neither requests.jsonl nor requests.parquet; name a recording")
    if not path.is_file():
        raise UserError(f"{path}: no such file or folder; name a recording")
    if path.suffix == ".json":
        return _from_bench(path)
    return _from_table(path)


def _finished(path: Path, frame: pl.DataFrame, **facts: Any) -> Measured:
    """Check, sort and complete the columns."""
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise UserError(f"{path}: no column {missing[0]!r}; a recording has {', '.join(COLUMNS)}")
    if not frame.height:
        raise UserError(f"{path}: holds no finished request")
    times = ["arrival_s", "first_token_s", "finish_s"]
    counts = ["prompt_tokens", "output_tokens"]
    numbers = [*times, *counts, *(name for name in OPTIONAL if name in frame.columns)]
    for name, kind in frame.select("request_id", *numbers).schema.items():
        if kind.is_nested():
            raise UserError(f"{path}: column {name!r} holds {kind}, expected one value a row")
    frame = frame.with_columns(
        pl.col("request_id").cast(pl.String),
        pl.any_horizontal(pl.col(counts).cast(pl.Float64, strict=False) % 1 != 0).alias("_part"),
        pl.col([*times, *(name for name in numbers if name in OPTIONAL)]).cast(pl.Float64, strict=False),
        pl.col(counts).cast(pl.Int64, strict=False),
        *[pl.lit(None, pl.Float64).alias(n) for n in OPTIONAL if n not in frame.columns],
    )
    bad = frame.with_row_index("row", offset=1).filter(
        ~pl.all_horizontal((pl.col(times).abs() <= MOST).fill_null(False) & pl.col(times).is_not_nan())
        | pl.any_horizontal(pl.col(counts).is_null())
        | pl.col("_part")
        | (pl.col("first_token_s") < pl.col("arrival_s"))
        | (pl.col("finish_s") < pl.col("first_token_s"))
        | (pl.col("prompt_tokens") < 1)
        | (pl.col("output_tokens") < 1)
    )
    if bad.height:
        row = bad.row(0, named=True)
        raise UserError(
            f"{path}: row {row['row']} (request {row['request_id']}): times must be finite and run arrival <= "
            "first token <= finish, and lengths be whole numbers of at least 1; mend or remove the row"
        )
    if frame["finish_s"].max() == frame["arrival_s"].min():
        raise UserError(f"{path}: all times are equal: nothing took any time; record the requests anew")
    first = frame["arrival_s"].min()
    clocks = [*times, "first_scheduled_s"]
    frame = (
        frame.select(*COLUMNS, *OPTIONAL, *(n for n in (SHARED,) if n in frame.columns))
        .sort("arrival_s", maintain_order=True)
        .with_columns(pl.col(clocks) - first)
    )
    return Measured(frame, **facts)


_STAMPS = ("input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts")
_OPTIONAL_STAMPS = ("arrival_time", "scheduled_ts")


def _read_requests(path: Path) -> pl.DataFrame:
    """A recording's `requests.jsonl`: its numbers, and the ids where it has them."""
    rows: list[dict[str, Any]] = []
    for number, row in json_lines(path):
        for name in (*_STAMPS, *(name for name in _OPTIONAL_STAMPS if row.get(name) is not None)):
            if name not in row:
                raise UserError(f"{path}: line {number}: no field {name!r}")
            if not _is_number(row[name]):
                given = repr(row[name])[:80]
                raise UserError(
                    f"{path}: line {number}: {name} must be a finite number (got {given}); mend or remove the row"
                )
        row["request_id"] = str(row.get("request_id", len(rows)))
        rows.append({name: row.get(name) for name in ("request_id", *_STAMPS, *_OPTIONAL_STAMPS)})
    if not rows:
        raise UserError(f"{path}: holds no finished request")
    without = [number for number, row in enumerate(rows, 1) if row["arrival_time"] is None]
    if 0 < len(without) < len(rows):
        raise UserError(
            f"{path}: row {without[0]}: no field 'arrival_time', which others have; mend or remove the row"
        )
    numbers = dict.fromkeys((*_STAMPS, *_OPTIONAL_STAMPS), pl.Float64)
    return pl.DataFrame(rows, schema={"request_id": pl.String, **numbers})


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and -MOST <= value <= MOST


def _is_gaps(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _from_folder(path: Path) -> Measured:
    frame = _read_requests(path / "requests.jsonl")
    notes = []
    if frame["arrival_time"].null_count() < frame.height:
        delay = frame["queued_ts"] - frame["arrival_time"]
        arrival = pl.col("arrival_time") + delay.min()
        notes.append(
            "arrival_time and queued_ts are on different clocks; they were aligned on the request that was "
            f"queued soonest (others wait for the running step first: up to {delay.max() - delay.min():.2f} s)"  # type: ignore[operator]
        )
    else:
        arrival = pl.col("queued_ts")
    frame = frame.select(
        pl.col("request_id"),
        arrival.alias("arrival_s"),
        pl.col("scheduled_ts").alias("first_scheduled_s"),
        pl.col("first_token_ts").alias("first_token_s"),
        pl.col("last_token_ts").alias("finish_s"),
        pl.col("input_toks").alias("prompt_tokens"),
        pl.col("output_toks").alias("output_tokens"),
    )
    meta = path / "meta.json"
    facts = read_settings(meta, "recording") if meta.is_file() else {}
    if not facts:
        notes.append("no meta.json: the engine's settings are vLLM's defaults")
    shared, note = recorded_prompts(path, facts, frame["prompt_tokens"].to_list())
    notes.append(note)
    if shared is not None:
        frame = frame.with_columns(pl.Series(SHARED, shared, pl.List(pl.Int64)))
    settings = read_recorded(facts, meta)
    notes.extend(settings.notes)
    return _finished(
        path,
        frame,
        name=path.name,
        engine=settings.engine,
        put=settings.put,
        replicas=settings.replicas,
        version=settings.version,
        model=str(facts.get("model") or ""),
        gpu=str(part_of(facts, "hardware", meta).get("device_name") or path.name.split("_")[0]),
        notes=tuple(notes),
    )


def _from_bench(path: Path) -> Measured:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: not JSON (line {error.lineno}: {error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({str(error).split(';')[0]})") from error
    needed = ("input_lens", "output_lens", "ttfts", "itls", "start_times")
    missing = [name for name in needed if not isinstance(result, dict) or name not in result]
    if missing:
        raise UserError(
            f"{path}: no list {missing[0]!r}; make the file with `vllm bench serve --save-result --save-detailed`"
        )
    lists = {name: result[name] for name in needed}
    if not all(isinstance(values, list) for values in lists.values()):
        raise UserError(f"{path}: {', '.join(needed)} must be lists; the file is damaged")
    for name, values in lists.items():
        fits = _is_gaps if name == "itls" else _is_number
        bad = next((row for row, value in enumerate(values, 1) if not (value is None or fits(value))), None)
        if bad is not None:
            what = "list of numbers" if name == "itls" else "number"
            raise UserError(f"{path}: {name}, entry {bad}: expected a {what}; the file is damaged")
    if len({len(values) for values in lists.values()}) != 1:
        raise UserError(f"{path}: the lists {', '.join(needed)} differ in length; the file is damaged")
    frame = pl.DataFrame(
        {
            "arrival_s": lists["start_times"],
            "prompt_tokens": lists["input_lens"],
            "output_tokens": lists["output_lens"],
            "ttft": lists["ttfts"],
            "gaps": lists["itls"],
        },
        schema_overrides={"gaps": pl.List(pl.Float64), "arrival_s": pl.Float64, "ttft": pl.Float64},
        strict=False,
    ).with_row_index("request_id")
    served = frame.filter(pl.col("output_tokens") > 0, pl.col("ttft") > 0)
    failed = frame.height - served.height
    served = served.with_columns(
        first_token_s=pl.col("arrival_s") + pl.col("ttft"),
        finish_s=pl.col("arrival_s") + pl.col("ttft") + pl.col("gaps").list.sum(),
    )
    notes = [f"{failed} of {frame.height} requests failed and were left out"] if failed else []
    return _finished(path, served, name=path.stem, model=str(result.get("model_id", "")), notes=tuple(notes))


def _from_table(path: Path) -> Measured:
    readers: dict[str, Callable[[Path], pl.DataFrame]] = {
        ".parquet": pl.read_parquet,
        ".csv": pl.read_csv,
        ".jsonl": _read_jsonl,
    }
    if path.suffix not in readers:
        raise UserError(
            f"{path}: unknown kind of file; a recording is .parquet, .csv, .jsonl or a bench .json"
        )
    try:
        frame = readers[path.suffix](path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UserError(
            f"{path}: cannot be read as {path.suffix[1:]} ({str(error).splitlines()[0]})"
        ) from error
    notes: tuple[str, ...] = ()
    if "finish_s" in frame.columns:
        served = frame.filter(pl.col("finish_s").is_not_null())
        if served.height < frame.height:
            notes = (f"{frame.height - served.height} of {frame.height} requests did not finish; left out",)
        frame = served
    engine = path.parent / "engine.json"
    facts = read_settings(engine, "engine") if engine.is_file() else {}
    return _finished(path, frame, name=path.stem, engine=facts, notes=notes)


def _read_jsonl(path: Path) -> pl.DataFrame:
    try:
        return pl.DataFrame([row for _, row in json_lines(path)], infer_schema_length=None)
    except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{path}: a field does not hold the same kind of value in every line ({reason})"
        ) from error
