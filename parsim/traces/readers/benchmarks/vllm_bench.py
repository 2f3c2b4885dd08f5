"""Results of `vllm bench serve --save-result --save-detailed` and of SGLang's `bench_serving`: one JSON object a
run, with a list per measurement; a file of several appended runs needs `run`.

`input_lens`, `output_lens` (tokens as counted by the benchmark's client), `start_times` (seconds on the client's
clock when a request was sent; vLLM only). Without `start_times` the arrivals are unknown: lengths, a corpus.
Failed requests (an entry in `errors`, or no output) are dropped and counted. No prompt text.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from parsim.errors import UserError
from parsim.traces.readers.format import JSON, Format, Rows
from parsim.traces.readers.source import Source
from parsim.traces.reading import Reading

LISTS = ("start_times", "input_lens", "output_lens", "errors")
HINT = "`vllm bench serve` writes them with --save-result --save-detailed"


def rows(source: Source, reading: Reading) -> Rows:
    result = _one(source, reading)
    lists = {name: result[name] for name in LISTS if result.get(name) is not None}
    missing = [name for name in ("input_lens", "output_lens") if name not in lists]
    if missing:
        raise UserError(f"{source.path}: no list {', '.join(missing)}; {HINT}")
    if lists.get("errors") == []:
        del lists["errors"]
    for name, values in lists.items():
        if not isinstance(values, list):
            raise UserError(f"{source.path}: {name} is no list; the result is damaged, run it again")
    sizes = {name: len(values) for name, values in lists.items()}
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise UserError(
            f"{source.path}: lists of different lengths ({found}); the result is damaged, run it again"
        )
    try:
        frame = pl.DataFrame(lists, schema_overrides={"errors": pl.String} if "errors" in lists else None)
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        first = str(error).splitlines()[0]
        raise UserError(f"{source.path}: {', '.join(sizes)} must be lists of numbers ({first})") from None
    notes = []
    metadata = {
        "source": f"{'SGLang bench_serving' if _is_sglang(result) else 'vllm bench serve'} "
        f"of {result.get('date', 'unknown date')}",
        "licence": "yours",
        "model": str(result.get("model_id", "not stated")),
        "tokenizer": str(result.get("tokenizer_id", "not stated")),
    }
    if result.get("request_rate") is not None:
        metadata["request_rate"] = str(result["request_rate"])
    if result.get("max_concurrency"):
        metadata["max_concurrency"] = str(result["max_concurrency"])
        notes.append(
            f"sent under max_concurrency {result['max_concurrency']}: the client held the queue back, so arrivals "
            "waited for earlier requests"
        )
    elif str(result.get("request_rate")) == "inf":
        notes.append("sent at request rate inf: as fast as the client could, which is no rate to plan for")
    return Rows(frame.with_row_index("row"), notes, metadata)


def _one(source: Source, reading: Reading) -> dict[str, Any]:
    """The run asked for, or the only one.

    Raises:
        UserError: several runs and none chosen, or fewer than that.
    """
    results = source.objects
    if reading.run is not None:
        if reading.run > len(results):
            raise UserError(f"{source.path}: holds {len(results)} results, asked for number {reading.run}")
        return results[reading.run - 1]
    if len(results) > 1:
        listed = "; ".join(
            f"{at}: {item.get('date', 'no date')}, request rate {item.get('request_rate', 'not stated')}, "
            f"{len(item.get('input_lens') or [])} requests"
            for at, item in enumerate(results[:6], start=1)
        )
        raise UserError(
            f"{source.path}: holds {len(results)} results ({listed}); choose one with `--run 1` to "
            f"`--run {len(results)}`"
        )
    return results[0]


def _is_sglang(result: dict[str, Any]) -> bool:
    return "start_times" not in result and (
        "sglang" in str(result.get("backend", "")) or "dataset_name" in result
    )


FORMAT = Format(
    name="vllm-bench",
    title="vllm bench serve --save-result --save-detailed, SGLang bench_serving",
    origin="a benchmark's result",
    signature=("input_lens", "output_lens"),
    kinds=JSON,
    fields={
        "arrival_s": ("start_times",),
        "prompt_tokens": ("input_lens",),
        "output_tokens": ("output_lens",),
        "failure": ("errors",),
    },
    time_unit="s",
    rows=rows,
    hint=HINT,
)
SUMMARY = Format(
    name="bench-summary",
    title="a benchmark's result without its requests (refused)",
    origin="a benchmark's result",
    signature=("request_throughput",),
    kinds=JSON,
    refused=f"a benchmark's result without its requests: no list input_lens, output_lens, start_times; {HINT}",
)
