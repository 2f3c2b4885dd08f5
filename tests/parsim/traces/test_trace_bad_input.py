"""What a user can get wrong: one line that names the file, the place, the field and the mend."""

from __future__ import annotations

import gzip
import json
import random
from datetime import date
from itertools import accumulate

import polars as pl
import pytest

from parsim.traces import Trace, UserError, read_corpus, read_trace, write_trace

PLAIN = "request_id,arrival_s,prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
MEND = "mend or delete these rows, or drop them with `parsim traces convert --skip-bad`"


def moon(timestamp: object = 0, tokens: object = 5, output: object = 5, hashes: object = ()) -> str:
    row = {"timestamp": timestamp, "input_length": tokens, "output_length": output, "hash_ids": hashes}
    return json.dumps(row) + "\n"


ROWS = {
    "negative time": (PLAIN + "a,0,5,5\nb,-1,5,5\n", "1 bad row: line 3: arrival_s is -1, must be >= 0"),
    "NaN and infinity": (
        PLAIN + "a,NaN,5,5\nb,inf,5,5\nc,1,nan,5\n",
        "3 bad rows: line 2: arrival_s is NaN; line 3: arrival_s is infinite; line 4: prompt_tokens is NaN",
    ),
    "negative output": (
        AZURE + "2023-11-16 18:15:46.68,374,-1\n",
        "1 bad row: line 2: GeneratedTokens is -1, must be >= 1",
    ),
    "not a time": (AZURE + "yesterday,374,1\n", "1 bad row: line 2: TIMESTAMP is 'yesterday', not a time"),
    "fraction": (PLAIN + "a,0,3.5,4\n", "1 bad row: line 2: prompt_tokens is 3.5, not a whole number"),
    "word": (PLAIN + "a,0,many,4\n", "1 bad row: line 2: prompt_tokens is 'many', not a number"),
    "short row": (PLAIN + "a,0,5\n", "1 bad row: line 2: output_tokens is missing"),
    "beyond int64": (
        PLAIN + "a,0,99999999999999999999,4\n",
        "1 bad row: line 2: prompt_tokens is 99999999999999999999, above 1,000,000,000 tokens: check its unit",
    ),
    "duplicate id": (
        PLAIN + "a,0,5,5\nb,1,5,5\na,2,5,5\n",
        "1 bad row: line 4: request_id is 'a', which an earlier row has",
    ),
    "empty id": (PLAIN + ",0,5,5\n", "1 bad row: line 2: request_id is missing"),
    "score": (
        PLAIN.strip() + ",score.pars\na,0,5,5,1.5\nb,1,5,5,\nc,1,5,5,nan\n",
        "1 bad row: line 4: score.pars is NaN",
    ),
    "after a prompt of three lines": (
        PLAIN.strip() + ',prompt\na,0,5,5,"x\ny\nz"\nb,-1,5,5,q\n',
        "1 bad row: line 5: arrival_s is -1, must be >= 0",
    ),
    "after blank lines": (
        "\n" + moon() + "\n" + moon(output=-2) + moon(tokens=None),
        "2 bad rows: line 4: output_length is -2, must be >= 1; line 5: input_length is missing",
    ),
    "too few hashes": (
        moon(tokens=1025, hashes=[1])
        + moon(tokens=1025, hashes=[1, 2, 3, 4])
        + moon(tokens=1025, hashes=None),
        "2 bad rows: line 1: hash_ids has 1 hashes where the prompt has 2 full blocks of 512 tokens; "
        "line 2: hash_ids has 4 hashes where the prompt has 2 full blocks of 512 tokens",
    ),
    "units": (
        PLAIN + "a,0,5,5\nb,1e18,5,5\n",
        "1 bad row: line 3: arrival_s is 1e18, above 1e+10 s: check its unit",
    ),
    "many": (
        PLAIN + "".join(f"{i},0,-1,5\n" for i in range(1200)),
        "1,200 bad rows: "
        + "; ".join(f"line {line}: prompt_tokens is -1, must be >= 1" for line in range(2, 7))
        + "; and 1,195 more",
    ),
}


@pytest.mark.parametrize("case", ROWS)
def test_bad_rows_are_named(tmp_path, case):
    content, said = ROWS[case]
    path = tmp_path / "t"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        read_trace(path)
    assert str(caught.value) == f"{path}: {said}; {MEND}"


FILES = {
    "empty": (b"", "is empty; expected one row a request"),
    "blank": (b" \n\n", "is empty; expected one row a request"),
    "header only": (AZURE.encode(), "holds no requests; expected at least one row"),
    "missing column": (
        b"TIMESTAMP,ContextTokens,reply_tok_sum\n1,2,3\n",
        "no column tells tokens of the answer (nearest: reply_tok_sum); found: TIMESTAMP, ContextTokens, "
        "reply_tok_sum; say which with `--column output_tokens=reply_tok_sum`",
    ),
    "unknown columns": (
        b"a,b\n1,2\n",
        "no column tells tokens of the prompt; found: a, b; say which with `--column prompt_tokens=NAME`",
    ),
    "truncated JSONL": (
        moon().encode() + b'{"timestamp": 0, "input_le',
        "line 2: is not complete JSON; mend or delete the line",
    ),
    "truncated first line": (b'{"timestamp": 0, "input_le', "line 1 is not complete JSON"),
    "NaN in JSONL": (
        (moon() + moon(timestamp=float("nan"))).encode(),
        "line 2: timestamp is nan, not a number; mend or delete the line",
    ),
    "list on a line": ((moon() + "[1]\n").encode(), "line 2: is not a JSON object; mend or delete the line"),
    "too many fields": (
        (PLAIN + "a,0,5,5\nb,1,5,5,5\n").encode(),
        "line 3 has 5 fields where the header has 4; mend or delete the line",
    ),
    "open quote": (
        (PLAIN + 'a,0,5,5\n"b,1,5,5\n').encode(),
        "line 3: unexpected end of data; close the quote",
    ),
    "Latin-1": (
        AZURE.encode() + "2023-11-16 18:15:46.68,1,é\n".encode("latin-1"),
        "line 2 is not UTF-8 text",
    ),
    "Latin-1, far in": (
        (PLAIN + "".join(f"{i},0,5,5\n" for i in range(20_000))).encode() + "é,0,5,5\n".encode("latin-1"),
        "line 20002 is not UTF-8 text",
    ),
    "zeros": (b"a,b\x00\n", "is a binary file"),
    "cut Parquet": (b"PAR1 and no more", "is not whole Parquet"),
    "cut gzip": (gzip.compress(AZURE.encode() * 99)[:40], "cannot be read"),
    "two results": (
        "\n".join([json.dumps({"input_lens": [1], "output_lens": [1]})] * 2).encode(),
        "holds 2 results (1: no date, request rate not stated, 1 requests; 2: no date, request rate not stated, "
        "1 requests); choose one with `--run 1` to `--run 2`",
    ),
    "column twice": (
        (PLAIN.strip() + ",output_tokens\na,0,5,5,6\n").encode(),
        "line 1 has the column output_tokens twice; rename or delete one",
    ),
    "only failures": (
        b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,0,472,x\n",
        "holds no requests; expected at least one row; dropped 1 of 1 requests that failed (0 tokens)",
    ),
    "nested JSONL": (b'{"a":' * 100_000, "line 1 is JSON nested without end, not a request"),
    "nested JSON": (b"[" * 100_000, "is JSON nested without end, not a request"),
    "digits in JSONL": (
        b'{"request_id": "a", "arrival_s": 0, "prompt_tokens": ' + b"1" * 5000 + b', "output_tokens": 3}\n',
        "line 1 holds a number of thousands of digits",
    ),
    "digits in JSON": (b'{\n"input_lens": [' + b"1" * 5000 + b"]}", "holds a number of thousands of digits"),
    "number for a list": (
        json.dumps({"input_lens": 5, "output_lens": [1], "start_times": [0]}).encode(),
        "input_lens is no list; the result is damaged, run it again",
    ),
    "hashes without size": (
        PLAIN.strip().encode() + b",prefix_hashes\na,0,5,5,[]\n",
        "has prefix_hashes but hash_block_size is missing; add it: the tokens per hash",
    ),
    "arrival misspelt": (
        b'{"request_id": "a", "clock_in": 1, "prompt_tokens": 3, "output_tokens": 4}\n',
        "no column tells when requests arrive (nearest: clock_in); found: request_id, clock_in, prompt_tokens, "
        "output_tokens; say which with `--column arrival_s=clock_in`, or give it some: `parsim traces join",
    ),
    "uneven lists": (
        json.dumps({"input_lens": [1], "output_lens": [1, 2], "start_times": [0, 1]}).encode(),
        "lists of different lengths (start_times 2, input_lens 1, output_lens 2)",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_bad_files_are_named(tmp_path, case):
    content, said = FILES[case]
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: {said}")
    assert "\n" not in str(caught.value)


def test_folder_and_absent_file(tmp_path):
    with pytest.raises(UserError, match="is a folder without files trace-"):
        read_trace(tmp_path)
    with pytest.raises(UserError, match="no such file; check the path"):
        read_trace(tmp_path / "nothing.csv")


def test_forced_format_that_does_not_fit(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(PLAIN + "a,0,5,5\n")
    with pytest.raises(UserError, match="no column TIMESTAMP, ContextTokens"):
        read_trace(path, "azure")
    with pytest.raises(UserError, match="is CSV, but format mooncake is JSONL"):
        read_trace(path, "mooncake")
    with pytest.raises(UserError, match="unknown format 'azzure' \\(nearest: azure\\)"):
        read_trace(path, "azzure")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    for name, content in (("t.jsonl", moon(tokens=5) + moon(10)), ("t.csv", PLAIN + "a,0,5,5\nb,1,5,5\n")):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8-sig")
        assert len(read_trace(path)) == 2


def test_skip_bad_drops_counts_and_keeps_the_rest(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(PLAIN + "a,0,5,5\nb,-1,5,5\nc,2,5,0\nd,3.5,5,5\n")
    trace = read_trace(path, skip_bad=True)
    assert trace.frame["request_id"].to_list() == ["a", "d"]
    assert trace.metadata["notes"] == (
        "dropped 1 of 4 requests that failed (0 tokens); dropped 1 bad row: line 3: arrival_s is -1, must be >= 0"
    )
    path.write_text(PLAIN + "b,-1,5,5\n")
    with pytest.raises(UserError, match="holds no good row"):
        read_trace(path, skip_bad=True)


def test_unsorted_rows_are_sorted_stably_and_noted(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(PLAIN + "a,5,1,1\nz,1,1,1\nb,1,1,1\nc,2.5,1,1\n")
    trace = read_trace(path)
    assert trace.frame["request_id"].to_list() == ["z", "b", "c", "a"]
    assert trace.metadata["notes"] == "1 of 4 rows arrive before the row above them: sorted by arrival"


def test_write_refuses_other_endings_and_leaves_nothing(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(PLAIN + "a,5,1,1\n")
    trace: Trace = read_trace(path)
    with pytest.raises(UserError, match=r"cannot write \.txt; use \.parquet, \.csv, \.jsonl"):
        write_trace(trace, tmp_path / "t.txt")
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]


def test_parquet_of_other_types(tmp_path):
    path = tmp_path / "t.parquet"
    rows = {
        "request_id": [7, 8],
        "arrival_s": [0, 1],
        "prompt_tokens": [1.0, 2.0],
        "output_tokens": ["3", "4"],
    }
    pl.DataFrame(rows).write_parquet(path)
    assert read_trace(path).frame.rows() == [("7", 0.0, 1, 3), ("8", 1.0, 2, 4)]
    hashes = pl.Series([[], [2**64 - 1]], dtype=pl.List(pl.UInt64))
    pl.DataFrame(rows | {"prefix_hashes": hashes, "hash_block_size": 2}).write_parquet(path)
    assert read_trace(path).frame["prefix_hashes"].to_list() == [[], [-1]]
    pl.DataFrame(rows | {"prefix_hashes": [1, 2], "hash_block_size": 2}).write_parquet(path)
    with pytest.raises(UserError, match="prefix_hashes is a column of Int64; expected lists of ids"):
        read_trace(path)
    pl.DataFrame(rows | {"arrival_s": [date(2024, 5, 10), date(2024, 5, 11)]}).write_parquet(path)
    assert read_trace(path).frame["arrival_s"].to_list() == [0, 86_400]
    pl.DataFrame(rows | {"prompt": [["a"], ["b"]]}).write_parquet(path)
    with pytest.raises(UserError, match="a column is of an unexpected type"):
        read_trace(path)


def test_model_of_a_file_with_one_length(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(PLAIN + "a,5,1,1\n")
    with pytest.raises(UserError, match="has one length a request and names no model; leave the model out"):
        read_corpus(path, "A")


def test_parquet_of_odd_types_is_read_or_refused_in_one_line(tmp_path):
    path = tmp_path / "t.parquet"
    rng = random.Random(11)
    gaps = [rng.randrange(10**9) for _ in range(6)]
    tokens = [rng.randint(1, 4000) for _ in gaps]
    late = list(accumulate(gaps))
    rows = pl.DataFrame({"arrival_s": late, "prompt_tokens": tokens, "output_tokens": [3] * 6})
    odd = rows.with_columns(
        pl.col("arrival_s").cast(pl.Duration("ns")),
        pl.col("prompt_tokens").cast(pl.String).cast(pl.Categorical),
        pl.col("output_tokens").cast(pl.Decimal(12, 2)),
    )
    odd.write_parquet(path)
    read = read_trace(path).frame
    start = 0 if read["arrival_s"][0] else late[0]
    assert read["arrival_s"].to_list() == pytest.approx([(one - start) / 1e9 for one in late])
    assert read["prompt_tokens"].to_list() == tokens and read["output_tokens"].to_list() == [3] * 6
    rows.with_columns(pl.col("arrival_s").cast(pl.Time)).write_parquet(path)
    with pytest.raises(UserError, match="arrival_s holds times of day without their date"):
        read_trace(path)
    rows.with_columns(pl.concat_list("prompt_tokens")).write_parquet(path)
    with pytest.raises(
        UserError, match=r"prompt_tokens is a column of List\(Int64\), expected a number a row"
    ):
        read_trace(path)
