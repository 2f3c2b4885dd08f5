"""Presets and engine files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from parsim.engine import load_engine, preset_names
from parsim.errors import UserError


def test_every_preset_loads_and_none_is_too_small() -> None:
    names = preset_names()
    assert "llama-3.1-8b-h100" in names
    assert "llama-3.1-70b-l4" not in names
    assert all(load_engine(name).usable_blocks * 16 >= 2032 for name in names)


def test_an_engine_file_and_changes_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "engine.yaml"
    path.write_text(yaml.safe_dump({"num_gpu_blocks": 50, "step_time": {"base_s": 0.01}}), encoding="utf-8")
    config = load_engine(
        str(path), {"max_num_seqs": "4", "step_time.decode_seq_s": "1e-4", "watermark": "0.5"}
    )
    assert (config.num_gpu_blocks, config.max_num_seqs, config.step_time.decode_seq_s) == (50, 4, 1e-4)
    assert "max_num_seqs=4" in config.provenance


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("num_gpu_blocks: 50\nstep_time: {base_s: 0.01}\nmax_num_seq: 3", "did you mean 'max_num_seqs'"),
        ("num_gpu_blocks: 1\nstep_time: {base_s: 0.01}", "num_gpu_blocks"),
        ("num_gpu_blocks: 50", "step_time"),
        ("num_gpu_blocks: 50\nstep_time: {base_s: 0}", "time must pass"),
        ("num_gpu_blocks: 50\nstep_time: {base_s: .nan}", "step_time.base_s"),
        ("num_gpu_blocks: 50\nmax_num_batched_tokens: 8\nstep_time: {base_s: 1}", "at least max_num_seqs"),
        (
            "num_gpu_blocks: 9\nmax_model_len: 99\nlong_prefill_token_threshold: 100\nstep_time: {base_s: 1}",
            "at most",
        ),
        ("- a list", "found list"),
        ("a: [", "not valid YAML"),
        ("", "found NoneType"),
    ],
)
def test_a_bad_engine_file_is_one_clear_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "engine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=problem) as caught:
        load_engine(str(path))
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"did you mean 'llama-3\.1-8b-h100'"):
        load_engine("llama3.1-8b-h100")
    with pytest.raises(UserError, match="do not fit"):
        load_engine("llama-3.1-70b-l4")
