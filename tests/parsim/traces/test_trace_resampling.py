"""Traces drawn again in blocks: the same traffic, other requests."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.stats import block_length
from parsim.traces import Trace
from parsim.traces.draw.resampling import resample


def recorded(count: int, seed: int) -> Trace:
    rng = np.random.default_rng(seed)
    frame = pl.DataFrame(
        {
            "request_id": [f"q{i}" for i in range(count)],
            "arrival_s": np.cumsum(rng.exponential(0.1, count)),
            "prompt_tokens": np.arange(1, count + 1),
            "output_tokens": rng.integers(1, 500, count),
            "prefix_hashes": [[int(h) for h in rng.integers(0, 5, 3)] for _ in range(count)],
            "session_id": [f"s{i // 7}" for i in range(count)],
        }
    )
    return Trace(frame, {"name": "t", "hash_block_size": "16"})


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 300), st.integers(2, 700), st.integers(0, 50))
def test_rows_stay_together_with_their_gaps(count: int, wanted: int, seed: int) -> None:
    trace = recorded(count, seed)
    drawn = resample(trace, seed + 1, wanted)
    assert len(drawn) == wanted
    assert drawn.frame["request_id"].n_unique() == wanted
    arrival = drawn.frame["arrival_s"].to_numpy()
    assert arrival[0] == 0
    assert (np.diff(arrival) >= 0).all()
    row = drawn.frame["prompt_tokens"].to_numpy() - 1
    inside = np.flatnonzero(np.arange(1, wanted) % block_length(count))
    assert ((row[inside + 1] - row[inside]) % count == 1 % count).all()
    own = np.diff(trace.frame["arrival_s"].to_numpy())
    kept = inside[row[inside + 1] > row[inside]]
    assert np.diff(arrival)[kept] == pytest.approx(own[row[kept]], abs=1e-9)
    assert drawn.frame["output_tokens"].to_list() == trace.frame["output_tokens"][row].to_list()


def test_a_block_drawn_twice_shares_prefixes_within_a_copy_only() -> None:
    trace = recorded(40, 3)
    drawn = resample(trace, 0, 400).frame.with_columns(row=pl.col("prompt_tokens") - 1)
    drawn = drawn.with_columns(copy=pl.int_range(pl.len()).over("row"))
    known = dict(enumerate(trace.frame["prefix_hashes"].to_list()))
    alike: dict[int, dict[int, int]] = {}
    for row, copy, hashes in drawn.select("row", "copy", "prefix_hashes").iter_rows():
        of_copy = alike.setdefault(copy, {})
        assert all(of_copy.setdefault(a, b) == b for a, b in zip(known[row], hashes, strict=True))
    seen = [set(of_copy.values()) for of_copy in alike.values()]
    assert sum(map(len, seen)) == len(set().union(*seen))


def test_the_rate_and_the_lengths_are_those_of_the_trace_in_the_mean() -> None:
    trace = recorded(2000, 5)
    drawn = [resample(trace, seed).frame for seed in range(30)]
    spans = [frame["arrival_s"][-1] for frame in drawn]
    assert np.mean(spans) == pytest.approx(trace.span_s, rel=0.02)
    assert np.mean([frame["output_tokens"].mean() for frame in drawn]) == pytest.approx(
        trace.frame["output_tokens"].mean(), rel=0.02
    )


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=2, max_size=40), st.integers(0, 9))
def test_prompts_that_fill_no_block_stay_without_hashes(hashes: list[list[int]], seed: int) -> None:
    trace = recorded(len(hashes), 1)
    lists = pl.Series("prefix_hashes", hashes, dtype=pl.List(pl.Int64))
    trace = Trace(trace.frame.with_columns(lists), trace.metadata)
    for part in (None, seed):
        drawn = resample(trace, seed, 100, part).frame
        lengths = [len(hashes[tokens - 1]) for tokens in drawn["prompt_tokens"]]
        assert drawn["prefix_hashes"].list.len().to_list() == lengths
