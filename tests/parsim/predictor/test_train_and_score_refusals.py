"""What `train` and `score` refuse before they work, and what they say of figures that are easily mistaken."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
import typer
from typer.testing import CliRunner

from parsim.cli.predictor_options import register
from parsim.errors import UserError
from parsim.predictor.ranker.recipe import Precision

pytestmark = pytest.mark.predictor
pytest.importorskip("torch")

app = typer.Typer()
register(app)
FAST = ["--epochs", 1, "--set", "max_length=16", "--set", "batch_size=32", "--precision", "fp32", "-q"]


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def corpus(file: Path, prompts: list[str]) -> Path:
    rows = ({"prompt": prompt, "output_tokens": 1 + row * 37 % 101} for row, prompt in enumerate(prompts))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def trace(file: Path) -> Path:
    rows = (
        {
            "request_id": f"r{row}",
            "arrival_s": row,
            "prompt_tokens": 3,
            "output_tokens": 4,
            "prompt": f"cats {row}",
        }
        for row in range(3)
    )
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_a_predictor_is_named_after_the_folder_it_is_in(
    corpus_file: Path, tiny_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    run("train", corpus_file, "--out", ".", "--encoder", tiny_encoder, *FAST)
    assert json.loads(Path("card.json").read_text())["name"] == "mine"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--name", "a/b c"], "--name: 'a/b c' cannot be a predictor's name"),
        (["--name", ""], "--name: '' cannot be a predictor's name"),
        ([], "my predictor, without --name: 'my predictor' cannot be a predictor's name"),
    ],
)
def test_a_name_that_is_none_is_refused_before_training(
    corpus_file: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        run("train", corpus_file, "--out", tmp_path / "my predictor", *options, *FAST)
    assert not (tmp_path / "my predictor").exists()


@pytest.mark.parametrize(
    ("prompts", "options", "words"),
    [
        ([chr(0x1F600 + row) for row in range(40)], [], "none of the 32 training prompts has a word"),
        ([f"words {row}" for row in range(20)], ["--test-share", 0.9], "0 validation prompts are too few"),
    ],
)
def test_words_that_cannot_be_learned_are_refused_before_training(
    tiny_encoder: str, tmp_path: Path, prompts: list[str], options: list[object], words: str
) -> None:
    data = corpus(tmp_path / "data.jsonl", prompts)
    with pytest.raises(UserError, match=f"lexical=true: {words}"):
        run(
            "train", data, "--out", tmp_path / "p", "--encoder", tiny_encoder, "--set", "lexical=true",
            *options, *FAST,
        )  # fmt: skip
    assert not (tmp_path / "p").exists()


def test_prompts_without_words_leave_the_baseline_undefined(tiny_encoder: str, tmp_path: Path) -> None:
    data = corpus(tmp_path / "data.jsonl", [chr(0x1F600 + row) for row in range(40)])
    out = run("train", data, "--out", tmp_path / "p", "--encoder", tiny_encoder, *FAST)
    assert "TF-IDF + ridge: undefined" in out
    assert not (tmp_path / "p" / "training-state.pt").exists()
    report = json.loads(run("evaluate", tmp_path / "p", data, "--allow-seen", "--json"))
    assert report["tfidf_tau_b"]["value"] is None
    assert [row["batch"] for row in report["latency"]][-1] == 64
    for row in report["latency"]:
        assert row["prompt_ms"] == pytest.approx(row["batch_ms"] / row["batch"])
    assert "prompt_ms" in run("evaluate", tmp_path / "p", data, "--allow-seen")


def test_an_encoder_that_sees_fewer_tokens_is_refused_before_training(
    corpus_file: Path, tiny_encoder: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"max_length=1024: .*takes at most 128 tokens; lower it"):
        run(
            "train", corpus_file, "--out", tmp_path / "p", "--encoder", tiny_encoder, *FAST,
            "--set", "max_length=1024",
        )  # fmt: skip
    assert not (tmp_path / "p").exists()


def test_the_share_of_the_trace_is_told_from_the_papers(
    corpus_file: Path, tiny_encoder: str, tmp_path: Path
) -> None:
    run("train", corpus_file, "--out", tmp_path / "p", "--encoder", tiny_encoder, *FAST)
    out = run("score", tmp_path / "p", trace(tmp_path / "t.jsonl"), tmp_path / "scored.parquet", "-q")
    assert re.search(r"scoring took \d+\.\d\d% of the 2 s from the first arrival to the last;", out)
    assert "the paper's 0.08% is another share: scoring and sorting in the time spent serving" in out


def test_another_precision_is_refused_before_scoring(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="precision 'fp8': expected one of auto, fp32, bf16, fp16"):
        run("score", "pars", trace(tmp_path / "t.jsonl"), tmp_path / "o.parquet", "--precision", "fp8", "-q")
    assert not (tmp_path / "o.parquet").exists()


@pytest.mark.parametrize("command", ["train", "score"])
def test_the_help_names_each_precision(command: str) -> None:
    help_ = run(command, "--help")
    assert all(precision in help_ for precision in get_args(Precision))
