"""The same requests in any order, encoding, packing and unit are the same trace; a damaged byte is no traceback."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parsim.traces import UserError, read_trace

START_US = 1_700_000_000_000_000
UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zip": lambda data: _zipped(data),
}
NAMES = {
    "arrival": ("arrival", "timestamp", "created_at", "Start Time", "REQUEST_TIMESTAMP"),
    "prompt": ("prompt_tokens", "InputTokens", "num prefill tokens", "context_tokens", "prompt_len"),
    "output": ("output_tokens", "completionTokens", "generated tokens", "num_decode_tokens", "output_len"),
}


def _zipped(data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("trace.txt", data)
    return packed.getvalue()


def stamp(us: int, way: str, hours: int) -> object:
    """A time in one of the ways in which logs write it."""
    if way == "iso":
        zone = timezone(timedelta(hours=hours))
        return (datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).astimezone(zone).isoformat()
    if way == "ns":
        return (START_US + us) * 1000
    if way == "us":
        return START_US + us
    return (START_US + us) / UNITS[way]


def encoded(columns: dict[str, list], way: str) -> bytes:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if way in ("json", "jsonl"):
        lines = [json.dumps(row) for row in rows]
        return ("[" + ",".join(lines) + "]" if way == "json" else "\n".join(lines)).encode()
    frame = pl.DataFrame(columns)
    if way == "parquet":
        held = io.BytesIO()
        frame.write_parquet(held)
        return held.getvalue()
    return frame.write_csv(separator={"comma": ",", "tabs": "\t", "semicolons": ";"}[way]).encode()


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_spelling_is_the_same_trace(tmp_path, data):
    offsets = data.draw(st.lists(st.integers(0, 10**9), min_size=2, max_size=8, unique=True))
    tokens = st.integers(1, 5000)
    rows = [(us, data.draw(tokens), data.draw(tokens)) for us in offsets]
    unit = data.draw(st.sampled_from(["s", "ms", "us", "ns", "iso"]))
    names = {kind: data.draw(st.sampled_from(known)) for kind, known in NAMES.items()}
    columns = {
        names["arrival"]: [stamp(us, unit, data.draw(st.integers(-11, 12))) for us, _, _ in rows],
        names["prompt"]: [prompt for _, prompt, _ in rows],
        names["output"]: [output for _, _, output in rows],
        "cost of it": [0.5] * len(rows),
    }
    columns = {name: columns[name] for name in data.draw(st.permutations(list(columns)))}
    content = encoded(
        columns, data.draw(st.sampled_from(["comma", "tabs", "semicolons", "json", "jsonl", "parquet"]))
    )
    path = tmp_path / "t"
    path.write_bytes(PACKINGS[data.draw(st.sampled_from(list(PACKINGS)))](content))
    found = read_trace(path).frame.select("arrival_s", "prompt_tokens", "output_tokens").rows()
    first = min(offsets)
    for got, (us, prompt, output) in zip(found, sorted(rows), strict=True):
        assert got == (pytest.approx((us - first) / 1e6, abs=2e-6), prompt, output)


WHOLE = {
    "csv": b"timestamp,prompt_tokens,output_tokens,session_id\n0,5,6,a\n1.5,7,8,b\n2,9,10,a\n",
    "jsonl": b'{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n' * 3,
    "json": b'[{"created": 1700000000, "usage": {"prompt_tokens": 5, "completion_tokens": 6}}]',
    "bench": b'{"input_lens": [5, 6], "output_lens": [3, 4], "start_times": [0, 1.5], "errors": ["", ""]}',
    "chat": b'{"conversation": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],'
    b' "conversation_hash": "h", "timestamp": "2024-01-01T00:00:00Z"}\n',
    "weka": b'{"id": "c", "block_size": 64, "hash_id_scope": "local", "requests": [{"t": 0, "in": 64, "out": 2}]}\n',
}


@pytest.mark.parametrize("packing", ["none", "gz"])
@pytest.mark.parametrize("kind", WHOLE)
@given(data=st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_byte_is_one_line_or_a_counted_row(tmp_path, kind, packing, data):
    whole = PACKINGS[packing](WHOLE[kind])
    at = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255))
    path = tmp_path / "t"
    path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
    try:
        read_trace(path)
    except UserError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("kind", WHOLE)
def test_text_cut_inside_a_character_is_named(tmp_path, kind):
    path = tmp_path / "t"
    path.write_bytes(WHOLE[kind].rstrip()[:-1] + "\u00e9".encode()[:1])
    with pytest.raises(UserError, match="not UTF-8"):
        read_trace(path)
