"""Results of `vllm bench serve --save-result --save-detailed`: one JSON object with a list per measurement.

`input_lens`, `output_lens` (tokens as counted by the benchmark's client), `start_times` (seconds on the
client's clock when a request was sent). Failed requests (an entry in `errors`, or no output) are dropped and
counted. No prompt text.
"""

from __future__ import annotations

import polars as pl

from parsim.errors import UserError
from parsim.traces.checks import Draft
from parsim.traces.readers.format import Format
from parsim.traces.readers.source import Source

FIELDS = {"arrival_s": "start_times", "prompt_tokens": "input_lens", "output_tokens": "output_lens"}


def read(source: Source) -> Draft:
    result = source.json
    lists = {column: result[name] for column, name in FIELDS.items()}
    lists["error"] = result.get("errors") or [""] * len(lists["arrival_s"])
    for column, values in lists.items():
        if not isinstance(values, list):
            name = FIELDS.get(column, "errors")
            raise UserError(f"{source.path}: {name} is no list; the result is damaged, run it again")
    sizes = {FIELDS.get(column, "errors"): len(values) for column, values in lists.items()}
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        raise UserError(
            f"{source.path}: lists of different lengths ({found}); the result is damaged, run it again"
        )
    try:
        frame = pl.DataFrame(lists, schema_overrides={"error": pl.String}).with_row_index("row")
    except (TypeError, pl.exceptions.PolarsError) as error:
        first = str(error).splitlines()[0]
        raise UserError(f"{source.path}: {', '.join(sizes)} must be lists of numbers ({first})") from None
    failed = (pl.col("error").fill_null("") != "") | (pl.col("output_tokens") == 0)
    answered = frame.filter(~failed).drop("error")
    notes = []
    if answered.height < frame.height:
        notes.append(f"dropped {frame.height - answered.height:,} of {frame.height:,} requests that failed")
    if result.get("max_concurrency"):
        notes.append(
            f"sent under max_concurrency {result['max_concurrency']}: arrivals waited for earlier requests"
        )
    metadata = {
        "source": f"vllm bench serve of {result.get('date', 'unknown date')}",
        "licence": "yours",
        "model": str(result.get("model_id", "not stated")),
        "tokenizer": str(result.get("tokenizer_id", "not stated")),
    }
    return Draft(answered, fields=FIELDS, metadata=metadata, notes=notes)


FORMAT = Format(
    "vllm-bench",
    "vLLM bench serve --save-detailed JSON",
    ("json",),
    ("input_lens", "output_lens", "start_times"),
    read,
    telltale="request_throughput",
    hint="`vllm bench serve` writes them with --save-result --save-detailed",
)
