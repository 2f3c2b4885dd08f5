from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from parsim.errors import UserError
from parsim.predictor.corpora.corpus import read_corpus


def write(file: Path, rows: list[dict]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def test_one_length_a_prompt(tmp_path: Path) -> None:
    file = write(
        tmp_path / "c.jsonl", [{"prompt": "b", "output_tokens": 7}, {"prompt": "a", "output_tokens": 3}]
    )
    data = read_corpus(file).label()
    assert data.prompts == ["b", "a"]
    np.testing.assert_allclose(data.lengths, [7, 3])
    assert data.datasets == ["c", "c"]


def test_samples_are_averaged_on_the_log_scale(tmp_path: Path) -> None:
    file = write(tmp_path / "c.jsonl", [{"prompt": "a", "output_tokens": [10, 1000]}])
    np.testing.assert_allclose(read_corpus(file).label().lengths, [100.0])


def test_rows_of_one_prompt_and_model_are_samples(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "model": "m", "output_tokens": n, "truncated": n > 20} for n in (10, 40)]
    corpus = read_corpus(write(tmp_path / "c.jsonl", rows))
    assert corpus.frame["lengths"].to_list() == [[10.0, 40.0]]
    data = corpus.label()
    np.testing.assert_allclose(data.lengths, [20.0])
    assert data.censored.tolist() == [True]


def test_a_terse_model_does_not_make_its_prompts_short(tmp_path: Path) -> None:
    """Model t writes a tenth of what m does. Prompt c, answered by t alone, must rank above a and b."""
    rows = [
        {"prompt": "a", "len": {"m": 100, "t": 10}},
        {"prompt": "b", "len": {"m": 200, "t": 20}},
        {"prompt": "c", "len": {"t": 40}},
    ]
    corpus = read_corpus(write(tmp_path / "c.jsonl", rows))
    assert sorted(corpus.models) == ["m", "t"]
    lengths = corpus.label(["m", "t"]).lengths
    assert lengths[2] > lengths[1] > lengths[0]
    np.testing.assert_allclose(corpus.label(["t"]).lengths, [10, 20, 40])


def test_several_models_need_a_name(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path / "c.jsonl", [{"prompt": "a", "len": {"m": 1, "t": 2}}]))
    with pytest.raises(UserError, match="name one"):
        corpus.label()
    with pytest.raises(UserError, match="no lengths of model 'x'; it has"):
        corpus.label(["x"])


def test_zero_is_a_failed_generation(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "output_tokens": 0}, {"prompt": "b", "output_tokens": 5}]
    corpus = read_corpus(write(tmp_path / "c.jsonl", rows))
    assert corpus.label().prompts == ["b"]
    assert corpus.dropped == {"response length 0": 1}


def test_parquet(tmp_path: Path) -> None:
    pl.DataFrame({"prompt": ["a"], "output_tokens": [[3, 3]]}).write_parquet(tmp_path / "c.parquet")
    np.testing.assert_allclose(read_corpus(tmp_path / "c.parquet").label().lengths, [3])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty file"),
        ('{"prompt": "a", "output_tokens": 3}\n{"prompt": "b", "outp', "line 2: not valid JSON"),
        ('{"prompt": "a"}\n', "expected a column 'output_tokens'"),
        ('{"text": "a", "output_tokens": 3}\n', "no column 'prompt'; it has text"),
        (
            '{"prompt": "a", "output_tokens": 3}\n{"prompt": " ", "output_tokens": 3}\n',
            "line 2: empty prompt",
        ),
        (
            '{"prompt": "a", "output_tokens": 3}\n{"prompt": "b", "output_tokens": -1}\n',
            "line 2: output_tokens is -1, expected a number of tokens from 1",
        ),
        ('{"prompt": "a", "output_tokens": "long"}\n', 'line 1: output_tokens is "long", expected a number'),
        (
            '{"prompt": "a", "output_tokens": 3}\n{"prompt": "b", "output_tokens": NaN}\n',
            "line 2: NaN is no number in JSON",
        ),
        (
            '{"prompt": "a", "output_tokens": 1000000000000}\n',
            "line 1: output_tokens is 1000000000000, expected",
        ),
        ('{"prompt": "a", "len": [1]}\n', r"line 1: len is \[1\], expected an object of model -> a number"),
        ('{"prompt": "a", "output_tokens": null}\n', "line 1: output_tokens is null, expected a number"),
        ('{"prompt": "a", "output_tokens": 0}\n', "no row has a response length"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        read_corpus(file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_corpus(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="is a folder"):
        read_corpus(tmp_path)
