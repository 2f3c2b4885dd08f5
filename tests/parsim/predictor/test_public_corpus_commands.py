"""train, evaluate and compare read a public corpus in the same way."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from parsim.cli.predictor_options import register
from parsim.errors import UserError
from parsim.predictor.corpora.corpus import Labelled

pytestmark = pytest.mark.predictor
app = typer.Typer()
register(app)
FAST = ["--set", "max_length=16", "--set", "batch_size=32", "--set", "precision=fp32", "-q"]


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def public(tmp_path: Path, learnable: Labelled) -> Path:
    """`learnable` as MATH-plus is laid out: responses of so many words."""
    rows = [
        {"instruction": prompt, "output": "word " * round(length)}
        for prompt, length in zip(learnable.prompts, learnable.lengths, strict=True)
    ]
    file = tmp_path / "public.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"instruction": "cut", "output": ""}]))
    return file


def test_train_evaluate_and_compare(public: Path, tiny_encoder: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    layout = ["--corpus", "math-plus"]
    run(
        "train", public, *layout, "--unit", "words", "--out", tmp_path / "p", "--encoder", tiny_encoder, *FAST
    )
    card = json.loads((tmp_path / "p" / "card.json").read_text())
    assert card["data"]["unit"] == "words" and card["data"]["dropped"] == {"no prompt or no response": 1}
    report = json.loads(run("evaluate", tmp_path / "p", public, *layout, "--unseen", "--json"))
    assert report["prompts"] == 24

    compared = [
        "compare",
        public,
        *layout,
        "--out",
        tmp_path / "out",
        "--seeds",
        1,
        "--set",
        f"encoder={tiny_encoder}",
    ]
    compared += ["--set", "epochs=1", *FAST]
    assert "| pairwise |" in run(*compared, "--unit", "words")
    before = pl.read_parquet(tmp_path / "out" / "results.parquet")
    run(*compared, "--unit", "words")  # nothing is trained again
    assert pl.read_parquet(tmp_path / "out" / "results.parquet").equals(before)
    assert len(list((tmp_path / "out" / "runs").glob("*.json"))) == 3
    assert set(before["test_model"]) == {"gpt-4"}
    run(*compared, "--unit", "chars")  # other lengths: trained anew
    assert len(list((tmp_path / "out" / "runs").glob("*.json"))) == 6


@pytest.mark.parametrize("command", ["train", "compare"])
def test_what_is_refused(public: Path, tiny_encoder: str, tmp_path: Path, command: str) -> None:
    start = [command, public, "--out", tmp_path / "out", "--set", f"encoder={tiny_encoder}"]
    with pytest.raises(
        UserError, match=r"^unit 'words': the file states its lengths itself; leave the unit out"
    ):
        run(*start, "--unit", "words")
    with pytest.raises(UserError, match="corpus 'math': unknown; there are alpaca-gpt4"):
        run(*start, "--corpus", "math")
    with pytest.raises(UserError, match="unit 'lines': expected tokens, words or chars"):
        run(*start, "--corpus", "math-plus", "--unit", "lines")
    with pytest.raises(UserError, match="no lengths of model 'm'"):
        run(*start, "--corpus", "math-plus", "--unit", "words", "--model", "m")
    assert not (tmp_path / "out").exists()


def test_a_spec_has_corpora_of_its_own(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("datasets: [{name: a, file: not-even-there.jsonl}]")
    for option in (["--corpus", "math-plus"], ["--unit", "words"]):
        with pytest.raises(UserError, match=f"^{option[0]}: spec.yaml says this itself"):
            run("compare", spec, *option)


def test_a_unit_without_a_corpus(public: Path, tiny_encoder: str, corpus_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run("train", corpus_file, "--out", tmp_path / "p", "--encoder", tiny_encoder, "--tuning", "frozen", *FAST)
    with pytest.raises(UserError, match=r"^unit 'words': the file states its lengths itself"):
        run("evaluate", tmp_path / "p", corpus_file, "--unit", "words")


@pytest.mark.parametrize("command", ["train", "evaluate", "compare"])
def test_help_names_the_corpora_and_the_hub(command: str) -> None:
    told = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300"}).output
    assert "evol-codealpaca-v1" in told and "the word hub" in told
