"""JSON lines: every fault is named with the line that a text editor shows."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import UserError
from parsim.json_lines import json_lines

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    rows=st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=5),
    blank=st.integers(0, 3),
    packed=st.booleans(),
    marked=st.booleans(),
)
def test_what_was_written_is_read_at_its_line(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict[str, object]],
    blank: int,
    packed: bool,
    marked: bool,
) -> None:
    text = "\n" * blank + "".join(json.dumps(row) + "\n" for row in rows)
    data = text.encode("utf-8-sig" if marked else "utf-8")
    file = tmp_path_factory.mktemp("lines") / "f.jsonl"
    file.write_bytes(gzip.compress(data) if packed else data)
    assert list(json_lines(file)) == [(blank + number, row) for number, row in enumerate(rows, 1)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"a": 1', "line 3: not valid JSON"),
        (b'{"a": NaN}', "line 3: NaN is no number in JSON"),
        (b'{"a": {"b": 1, "b": 2}}', "line 3: has 'b' twice"),
        (b'{"a": -1e999}', "line 3: -1e999 is too large a number"),
        (b"\xff", "line 3: not UTF-8 text"),
        (b'"a"', "line 3: not a JSON object"),
    ],
)
def test_a_fault_is_named_with_its_line_blank_lines_counted(tmp_path: Path, line: bytes, said: str) -> None:
    file = tmp_path / "f.jsonl"
    file.write_bytes(b'{"a": 1}\n\n' + line + b"\n")
    with pytest.raises(UserError, match=said):
        list(json_lines(file))


def test_a_file_that_is_not_there_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        list(json_lines(tmp_path / "none.jsonl"))
