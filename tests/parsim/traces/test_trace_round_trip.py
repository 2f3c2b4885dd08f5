"""What is written is what is read, in every ending."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parsim.traces import Trace, read_trace, write_trace
from parsim.traces.trace import OPTIONAL, REQUIRED

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
TOKENS = st.integers(1, 10**9)
INT64 = st.integers(-(2**63), 2**63 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    ids = draw(st.lists(TEXT.filter(lambda text: text.strip()), min_size=1, max_size=8, unique=True))
    n = len(ids)

    def column(values: st.SearchStrategy) -> list:
        return draw(st.lists(values, min_size=n, max_size=n))

    block = draw(st.integers(1, 600))
    prompts = column(st.integers(1, 4 * block))
    data: dict[str, list] = {
        "request_id": ids,
        "arrival_s": sorted(column(st.floats(0, 9e8))),
        "prompt_tokens": prompts,
        "output_tokens": column(TOKENS),
    }
    schema: dict[str, pl.DataType] = dict(REQUIRED)
    metadata = {"name": draw(TEXT), "source": draw(TEXT)}
    for name in ("prompt", "session_id", "client_id"):
        if draw(st.booleans()):
            data[name], schema[name] = column(TEXT), OPTIONAL[name]
    if draw(st.booleans()):
        data["prefix_hashes"] = [
            draw(st.lists(INT64, min_size=k, max_size=k)) for k in (p // block for p in prompts)
        ]
        schema["prefix_hashes"], metadata["hash_block_size"] = OPTIONAL["prefix_hashes"], str(block)
    if draw(st.booleans()):
        data["score.a b"], schema["score.a b"] = column(FINITE), pl.Float64()
    order = [name for name in (*REQUIRED, *OPTIONAL, "score.a b") if name in data]
    return Trace(pl.DataFrame(data, schema=schema).select(order), metadata)


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
@given(trace=traces())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip(tmp_path, ending, trace):
    path = tmp_path / f"t{ending}"
    write_trace(trace, path)
    back = read_trace(path)
    assert back.frame.to_dict(as_series=False) == trace.frame.to_dict(as_series=False)
    assert back.frame.schema == trace.frame.schema
    assert back.hash_block_size == trace.hash_block_size
    if ending == ".parquet":
        assert back.metadata | {"format": "table"} == trace.metadata | {"format": "table"}


def test_same_trace_same_bytes(tmp_path):
    frame = pl.DataFrame(
        {"request_id": ["a"], "arrival_s": [0.1], "prompt_tokens": [1], "output_tokens": [2]}
    )
    for ending in (".parquet", ".csv", ".jsonl"):
        for name in ("one", "two"):
            write_trace(Trace(frame, {"name": "x", "source": "y"}), tmp_path / f"{name}{ending}")
        assert (tmp_path / f"one{ending}").read_bytes() == (tmp_path / f"two{ending}").read_bytes()
