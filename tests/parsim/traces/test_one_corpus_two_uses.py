"""A prompt corpus means the same to `traces join` and to `train`: prompts, and a length for every sample."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from parsim.predictor.corpora.corpus import read_corpus as for_training
from parsim.traces.readers import read_corpus as for_joining

LAYOUTS: dict[str, tuple[list[dict[str, Any]], str | None]] = {
    "a number": ([{"prompt": "a b", "output_tokens": 4}, {"prompt": "c", "output_tokens": 9}], None),
    "lists": ([{"prompt": "a b", "output_tokens": [3, 5]}, {"prompt": "c", "output_tokens": [7]}], None),
    "lists and numbers": (
        [{"prompt": "a b", "output_tokens": [3, 5, 3]}, {"prompt": "c", "output_tokens": 7}],
        None,
    ),
    "a row a sample": ([{"prompt": "a b", "output_tokens": 3}, {"prompt": "a b", "output_tokens": 5}], None),
    "ids": (
        [
            {"id": "x", "prompt": "a b", "output_tokens": [3, 5]},
            {"id": "y", "prompt": "c", "output_tokens": [1]},
        ],
        None,
    ),
    "several models": (
        [{"prompt": "a b", "len": {"m": 3, "n": 8}}, {"prompt": "c", "len": {"m": 6, "n": 9}}],
        "m",
    ),
    "samples of several models": (
        [{"prompt": "a b", "len": {"m": [3, 5]}}, {"prompt": "c", "len": {"m": [6]}}],
        "m",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_find_the_same_lengths(layout: str, tmp_path: Path) -> None:
    rows, model = LAYOUTS[layout]
    file = tmp_path / "c.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trained = for_training(file).frame.explode("lengths")
    if model is not None:
        trained = trained.filter(trained["model"] == model)
    joined = for_joining(file, model).frame
    wanted = Counter(zip(trained["prompt"], trained["lengths"], strict=True))
    assert Counter(zip(joined["prompt"], joined["output_tokens"].cast(pl.Float64), strict=True)) == wanted
    if "request_id" in joined.columns:
        assert joined["request_id"].n_unique() == joined.height


def test_a_second_sample_is_told_from_the_first(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text('{"id": "x", "prompt": "a", "output_tokens": [3, 5]}\n')
    joined = for_joining(file)
    assert joined.frame["request_id"].to_list() == ["x", "x~2"]
    assert "repeated samples: 2 rows" in joined.metadata["notes"]
