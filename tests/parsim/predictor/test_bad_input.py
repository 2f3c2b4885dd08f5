"""Every error that a user can cause ends with exit code 2, one line on stderr and nothing overwritten."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.predictor
pytest.importorskip("torch")

CODE = (
    "import typer; from parsim.cli.predictor_options import register; from parsim.command import run_cli; "
    "app = typer.Typer(pretty_exceptions_enable=False); register(app); run_cli(app)"
)


def fails(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CODE, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    return lines[0]


def test_a_missing_encoder(corpus_file: Path, tmp_path: Path) -> None:
    line = fails("train", corpus_file, "--out", tmp_path / "p", "--encoder", "bert-base-uncased", "-q")
    assert "encoder 'bert-base-uncased' not found" in line and "parsim[minilm]" in line
    assert not (tmp_path / "p").exists()


def test_a_predictor_that_is_not_there(corpus_file: Path, tmp_path: Path) -> None:
    assert "holds no predictor" in fails("evaluate", tmp_path, corpus_file)


def test_a_loss_that_is_no_number(corpus_file: Path, tiny_encoder: str, tmp_path: Path) -> None:
    line = fails(
        "train", corpus_file, "--out", tmp_path / "p", "--encoder", tiny_encoder, "--lr", "1e30",
        "--objective", "pointwise", "-q",
    )  # fmt: skip
    assert "loss is" in line and "precision fp32" in line
    assert not (tmp_path / "p" / "card.json").exists()


def test_an_empty_prompt_in_the_data(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text(json.dumps({"prompt": "", "output_tokens": 3}) + "\n")
    assert "line 1: empty prompt" in fails("train", file, "--out", tmp_path / "p", "-q")
