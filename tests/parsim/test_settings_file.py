"""Settings files: what is wrong in them is one line with the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.engine import load_engine
from parsim.errors import UserError
from parsim.settings_file import read_settings, setting

BAD = {
    "binary.yaml": (b"\xff\x00", ": cannot be read as an engine file (not UTF-8 text)"),
    "list.yaml": (b"- 1", ": expected fields of the engine (name: value), found list"),
    "twice.yaml": (b"a: 1\nb: 2\na: 3\n", ": has 'a' twice; keep one of them"),
    "inner.yaml": (b"a: {b: 1, b: 2}\n", ": has 'b' twice; keep one of them"),
    "twice.json": (b'{"a": 1, "a": 2}', ": has 'a' twice; keep one of them"),
    "cut.json": (b'{"a": 1,\n"b', ", line 2: not valid JSON (Unterminated string starting at)"),
    "tab.yaml": (
        b"a:\n\tb: 1\n",
        ", line 2: not valid YAML (found character '\\t' that cannot start any token)",
    ),
    "date.yaml": (b"a: 2026-13-45\n", ": a value cannot be read (month must be in 1..12)"),
    "digits.json": (b'{"a": ' + b"1" * 5000 + b"}", ": a value cannot be read (Exceeds the limit"),
    "tag.yaml": (b"!!python/name:os.system\n", ", line 1: not valid YAML (could not determine a constructor"),
    "deep.json": (b"[" * 100_000, ": is nested without end"),
    "deep.yaml": (b"[" * 3_000, ": is nested without end"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_line_with_its_place(tmp_path: Path, name: str) -> None:
    content, said = BAD[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_settings(path, "engine")
    assert str(caught.value).startswith(f"{path}{said}")
    assert "\n" not in str(caught.value)


def test_a_folder_and_an_absent_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing.yaml"):
        with pytest.raises(UserError, match="cannot be read as a sweep file"):
            read_settings(path, "sweep")


def test_marks_line_ends_and_merges_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfx: &x {k: 1}\r\ny:\r\n  <<: *x\r\n  l: 2\r\n")
    assert read_settings(path, "sweep") == {"x": {"k": 1}, "y": {"k": 1, "l": 2}}
    path = tmp_path / "a.json"
    path.write_bytes(b'\xef\xbb\xbf{"x": 1}')
    assert read_settings(path, "sweep") == {"x": 1}


def test_a_value_of_a_command_line() -> None:
    assert [setting(text) for text in ("256", "0.5", "true", "none", "[1", 3)] == [
        256,
        0.5,
        True,
        "none",
        "[1",
        3,
    ]


def test_a_misspelt_term_of_the_step_time_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "engine.yaml"
    path.write_text("num_gpu_blocks: 50\nstep_time: {bas_s: 0.01}\n")
    with pytest.raises(UserError, match=r"step_time: no engine field 'bas_s'; did you mean 'base_s'"):
        load_engine(str(path))


def test_a_preset_cut_short_is_completed_not_replaced() -> None:
    with pytest.raises(UserError, match=r"did you mean 'llama-3\.1-8b-a100-40g'"):
        load_engine("llama-3.1-8b-a100")
