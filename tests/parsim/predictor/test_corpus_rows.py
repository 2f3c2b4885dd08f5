"""Every column of a corpus row is checked for what it must hold; what is right is read whatever stands beside it."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from parsim.errors import UserError
from parsim.predictor.corpora.corpus import read_corpus

GOOD = {"prompt": "a", "output_tokens": 3}


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    file = folder / "c.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def lengths(file: Path) -> list[tuple[str, str, list[float]]]:
    return read_corpus(file).frame.select("prompt", "model", "lengths").rows()


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"prompt": [{"role": "user", "content": "hi"}]},
            'prompt is [{"role": "user", "content": "hi"}], expected text',
        ),
        ({"prompt": {"text": "hi"}}, 'prompt is {"text": "hi"}, expected text'),
        ({"prompt": 7}, "prompt is 7, expected text"),
        ({"prompt": None}, "prompt is null, expected text"),
        ({"prompt": "\n "}, "empty prompt"),
        ({"prompt": "x\ud83d"}, 'prompt is "x\\ud83d", expected text'),
        ({"model": "\ud83d"}, 'model is "\\ud83d", expected text'),
        ({"len": {"m\ud83d": 3}}, 'len is {"m\\ud83d": 3}, expected an object'),
        ({"model": ["m"]}, 'model is ["m"], expected text or a number'),
        ({"dataset": ["d"]}, 'dataset is ["d"], expected text or a number'),
        ({"category": {"d": 1}}, 'category is {"d": 1}, expected text or a number'),
        ({"id": [1]}, "id is [1], expected text or a number"),
        ({"censored": "yes"}, 'censored is "yes", expected true or false'),
        ({"truncated": [True]}, "truncated is [true], expected true or false"),
        ({"censored": 2}, "censored is 2, expected true or false"),
        (
            {"output_tokens": [[3]]},
            "output_tokens is [[3]], expected a number of tokens from 1 to 1,000,000,000",
        ),
        ({"output_tokens": [3, None]}, "output_tokens is [3, null], expected"),
        ({"output_tokens": [3, -1]}, "output_tokens is [3, -1], expected"),
        ({"output_tokens": "3"}, 'output_tokens is "3", expected'),
        ({"output_tokens": True}, "output_tokens is true, expected"),
        ({"output_tokens": {"m": 3}}, 'output_tokens is {"m": 3}, expected'),
        ({"len": {"m": "3"}}, "len of model 'm' is \"3\", expected a number of tokens"),
        ({"len": {"k": 3, "m": [[3]]}}, "len of model 'm' is [[3]], expected"),
        ({"len": {"m": [3, None]}}, "len of model 'm' is [3, null], expected"),
        ({"len": {"m": -3}}, "len of model 'm' is -3, expected"),
    ],
)
def test_a_bad_value_is_named_with_its_line(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    good = {"prompt": "a", "len": {"m": 3}} if "len" in row else GOOD
    file = write(tmp_path, good, good | row)
    with pytest.raises(UserError) as caught:
        read_corpus(file)
    assert str(caught.value).startswith(f"{file}: line 2: {words}")
    assert str(caught.value).endswith("; mend or remove it")
    file = write(tmp_path, good | row, good | row)
    with pytest.raises(UserError) as caught:
        read_corpus(file)
    assert str(caught.value).startswith(f"{file}: line 1: {words}")
    assert str(caught.value).endswith("; mend or remove it (2 such rows in all)")


def test_lines_are_those_of_the_file_and_rows_those_of_the_table(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text('\n{"prompt": "a", "output_tokens": 3}\n\n{"prompt": 4, "output_tokens": 3}\n')
    with pytest.raises(UserError, match="line 4: prompt is 4"):
        read_corpus(file)
    table = tmp_path / "c.parquet"
    pl.DataFrame({"prompt": ["a", "b"], "output_tokens": [3.0, float("nan")]}).write_parquet(table)
    with pytest.raises(UserError, match="row 2: output_tokens is NaN"):
        read_corpus(table)
    pl.DataFrame({"prompt": [["a"]], "output_tokens": [3]}).write_parquet(table)
    with pytest.raises(UserError, match=r'row 1: prompt is \["a"\], expected text'):
        read_corpus(table)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"prompt": "b", "output_tokens": 1e999}', "line 2: 1e999 is too large a number"),
        (b'{"prompt": "b", "output_tokens": Infinity}', "line 2: Infinity is no number in JSON"),
        (b'{"prompt": "b", "prompt": "c", "output_tokens": 3}', "line 2: has 'prompt' twice"),
        (b'{"prompt": "\xff", "output_tokens": 3}', "line 2: not UTF-8 text"),
        (b"[3]", "line 2: not a JSON object"),
        (b'{"prompt": "b", "output_tokens": ' + b"9" * 5000 + b"}", "line 2: .*too many digits"),
        (b'{"prompt": ' + b"[" * 100_000, "line 2: nested too deeply"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: bytes, words: str) -> None:
    file = tmp_path / "c.jsonl"
    file.write_bytes(json.dumps(GOOD).encode() + b"\n" + line + b"\n")
    with pytest.raises(UserError, match=words):
        read_corpus(file)


def test_cut_files_are_called_so(tmp_path: Path) -> None:
    table = tmp_path / "c.parquet"
    pl.DataFrame({"prompt": ["a"] * 99, "output_tokens": [3] * 99}).write_parquet(table)
    table.write_bytes(table.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"not whole Parquet .*fetch or write it again"):
        read_corpus(table)
    packed = tmp_path / "c.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(GOOD).encode() * 99)[:-20])
    with pytest.raises(UserError, match="not a whole gzip file"):
        read_corpus(packed)


def test_columns_that_are_not_read_may_hold_anything(tmp_path: Path) -> None:
    odd = {
        "row": 1,
        "length": "long",
        "lengths": [],
        "category": ["unused"],
        "prompt_id": ["unused"],
        "meta": [1],
    }
    other = odd | {"meta": {"k": 2}, "row": "x"}
    file = write(tmp_path, GOOD | odd | {"id": 5, "dataset": "d"}, GOOD | other | {"id": "x"})
    frame = read_corpus(file).frame
    assert frame.rows() == [("5", "d", "a", "recorded", [3.0, 3.0], False)]


def test_numbers_beside_lists(tmp_path: Path) -> None:
    file = write(tmp_path, {"prompt": "a", "output_tokens": [1, 2]}, {"prompt": "b", "output_tokens": 3})
    assert lengths(file) == [("a", "recorded", [1.0, 2.0]), ("b", "recorded", [3.0])]
    file = write(
        tmp_path, {"prompt": "a", "len": {"m": [1, 2], "k": 3}}, {"prompt": "b", "len": {"m": 4, "k": None}}
    )
    assert lengths(file) == [("a", "m", [1.0, 2.0]), ("a", "k", [3.0]), ("b", "m", [4.0])]


def test_a_prompt_without_any_length_is_counted(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, GOOD, {"prompt": "b", "output_tokens": []}))
    assert corpus.label().prompts == ["a"]
    assert corpus.dropped == {"no response length": 1}
    rows = ({}, {"m": None}, {"m": []}, None, {"m": 0}, {"m": 2})
    corpus = read_corpus(write(tmp_path, *({"prompt": f"{n}", "len": one} for n, one in enumerate(rows))))
    assert corpus.label().prompts == ["5"]
    assert corpus.dropped == {"response length 0": 1, "no response length": 4}
    with pytest.raises(UserError, match="no row has a response length of at least 1"):
        read_corpus(write(tmp_path, {"prompt": "a", "len": {}}))


def test_models_keep_the_order_of_the_fullest_row(tmp_path: Path) -> None:
    """Whatever the order in each row: a mean over models is then the same to the last bit in every process."""
    rows = [{"z": 1}, {"b": 2, "z": 3, "a": 4}, {"a": 5, "b": 6}]
    file = write(tmp_path, *({"prompt": f"{n}", "len": one} for n, one in enumerate(rows)))
    assert [model for _, model, _ in lengths(file)] == ["z", "b", "z", "a", "b", "a"]


def test_byte_order_mark_gzip_and_a_name_with_brackets(tmp_path: Path) -> None:
    text = json.dumps(GOOD) + "\n" + json.dumps(GOOD | {"prompt": "é"}) + "\r\n"
    marked, packed, bracketed = tmp_path / "m.jsonl", tmp_path / "p.jsonl.gz", tmp_path / "[x]*.jsonl"
    marked.write_text(text, encoding="utf-8-sig", newline="")
    packed.write_bytes(gzip.compress(text.encode()))
    bracketed.write_text(text, encoding="utf-8", newline="")
    for file in (marked, packed, bracketed):
        assert lengths(file) == [("a", "recorded", [3.0]), ("é", "recorded", [3.0])]


def test_types_of_a_table(tmp_path: Path) -> None:
    table = tmp_path / "c.parquet"
    frame = pl.DataFrame(
        {
            "id": [1.5, 2.0],
            "prompt": ["a", "b"],
            "output_tokens": [Decimal("3"), Decimal("4.5")],
            "censored": [0.0, 1.0],
            "category": ["x", None],
        },
        schema_overrides={"prompt": pl.Categorical, "output_tokens": pl.Decimal(10, 2)},
    )
    frame.write_parquet(table)
    found = read_corpus(table).frame
    assert found.rows() == [
        ("1.5", "x", "a", "recorded", [3.0], False),
        ("2.0", "c", "b", "recorded", [4.5], True),
    ]
    assert dict(found.schema) == {
        "id": pl.String,
        "dataset": pl.String,
        "prompt": pl.String,
        "model": pl.String,
        "lengths": pl.List(pl.Float64),
        "censored": pl.Boolean,
    }


def test_no_rows(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text("\n\n")
    with pytest.raises(UserError, match="no rows"):
        read_corpus(file)
    pl.DataFrame({"prompt": [], "output_tokens": []}).write_parquet(tmp_path / "c.parquet")
    with pytest.raises(UserError, match="no rows"):
        read_corpus(tmp_path / "c.parquet")


@pytest.mark.parametrize("column", ["model", "id", "dataset"])
@pytest.mark.parametrize("value", [b"\xff", timedelta(days=1)])
def test_a_name_that_is_no_text_is_refused(tmp_path: Path, column: str, value: object) -> None:
    table = tmp_path / "c.parquet"
    pl.DataFrame({"prompt": ["a", "b"], "output_tokens": [3, 4], column: [value] * 2}).write_parquet(table)
    with pytest.raises(UserError, match=rf"row 1: {column} is .*, expected text or a number"):
        read_corpus(table)
