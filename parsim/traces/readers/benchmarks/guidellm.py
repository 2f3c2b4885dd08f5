"""GuideLLM's `benchmarks.json`: benchmarks, each with its requests (`successful`, `incomplete`, `errored`).

`request_start_time` (seconds since 1970), `prompt_tokens`, `output_tokens`. Layout of
guidellm/schemas/request_stats.py (github.com/vllm-project/guidellm). A file of several benchmarks (a sweep of
rates) needs `run`; only requests that succeeded are taken, the others are counted.
"""

from __future__ import annotations

from typing import Any

from parsim.errors import UserError
from parsim.traces.readers.format import JSON, Format, Rows
from parsim.traces.readers.rows import rows_of
from parsim.traces.readers.source import Source
from parsim.traces.reading import Reading

KEPT = ("request_id", "request_start_time", "request_end_time", "prompt_tokens", "output_tokens")


def rows(source: Source, reading: Reading) -> Rows:
    benchmarks = [
        one for item in source.objects for one in item.get("benchmarks") or [] if isinstance(one, dict)
    ]
    if not benchmarks:
        raise UserError(f"{source.path}: holds no benchmark; run guidellm again and keep its requests")
    if reading.run is None and len(benchmarks) > 1:
        listed = "; ".join(f"{at}: {_about(one)}" for at, one in enumerate(benchmarks[:6], start=1))
        raise UserError(
            f"{source.path}: holds {len(benchmarks)} benchmarks ({listed}); choose one with `--run 1` to "
            f"`--run {len(benchmarks)}`"
        )
    if (reading.run or 1) > len(benchmarks):
        raise UserError(f"{source.path}: holds {len(benchmarks)} benchmarks, asked for number {reading.run}")
    one = benchmarks[(reading.run or 1) - 1]
    requests = one.get("requests") or one.get("request_stats") or {}
    groups = requests if isinstance(requests, dict) else {"successful": requests}
    good = [_flat(item) for item in groups.get("successful") or [] if isinstance(item, dict)]
    lost = sum(len(groups.get(name) or []) for name in ("incomplete", "errored"))
    if not good:
        raise UserError(
            f"{source.path}: keeps no request of the benchmark; run guidellm with its requests kept"
        )
    notes = [f"dropped {lost:,} of {len(good) + lost:,} requests that did not succeed"] if lost else []
    return rows_of(good, notes)


def _flat(item: dict[str, Any]) -> dict[str, Any]:
    """The figures of one request; of files that leave the computed ones out, those that they are computed from."""
    info: dict[str, Any] = item.get("info") or item.get("scheduler_info") or {}
    timings = info.get("timings") or info.get("request_timings") or {}
    found = {name: item.get(name) for name in KEPT}
    found["request_start_time"] = _first(
        found["request_start_time"], item.get("start_time"), timings.get("request_start")
    )
    found["request_end_time"] = _first(
        found["request_end_time"], item.get("end_time"), timings.get("request_end")
    )
    for name, group in (("prompt_tokens", "input_metrics"), ("output_tokens", "output_metrics")):
        metrics = item.get(group) or {}
        parts = [
            metrics.get(part) for part in ("text_tokens", "image_tokens", "audio_tokens", "video_tokens")
        ]
        counted = sum(part for part in parts if isinstance(part, int)) or None
        found[name] = _first(
            found[name], item.get(f"{name.split('_')[0]}_tokens_count"), metrics.get("total_tokens"), counted
        )
    return found


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _about(one: dict[str, Any]) -> str:
    requests = one.get("requests") or one.get("request_stats") or {}
    count = len(requests.get("successful") or []) if isinstance(requests, dict) else len(requests)
    config = one.get("config") or one.get("args") or {}
    strategy = config.get("strategy") or {}
    kind = strategy.get("type_") if isinstance(strategy, dict) else None
    rate = strategy.get("rate") if isinstance(strategy, dict) else None
    return f"{kind or 'benchmark'}{f' at {rate:g}/s' if isinstance(rate, int | float) else ''}, {count:,} requests"


FORMAT = Format(
    name="guidellm",
    title="GuideLLM benchmarks.json",
    origin="a GuideLLM result (github.com/vllm-project/guidellm)",
    signature=("benchmarks",),
    kinds=JSON,
    fields={
        "arrival_s": ("request_start_time",),
        "prompt_tokens": ("prompt_tokens",),
        "output_tokens": ("output_tokens",),
        "end": ("request_end_time",),
    },
    time_unit="s",
    licence="yours",
    rows=rows,
)
