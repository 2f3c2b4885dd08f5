from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from parsim.cli.predictor_options import register
from parsim.errors import UserError
from parsim.predictor.ranker.encoder import MissingEncoder
from parsim.predictor.ranker.recipe import Recipe
from parsim.studies.comparison.spec import read_comparison, shipped_spec

pytestmark = pytest.mark.predictor
app = typer.Typer()
register(app)
runner = CliRunner()
FAST = ["--set", "max_length=16", "--set", "batch_size=32", "--lr", "3e-3", "--precision", "fp32", "-q"]


def run(*arguments: object) -> str:
    result = runner.invoke(app, [str(one) for one in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_commands_load_no_torch() -> None:
    code = "import sys, parsim.cli, parsim.predictor; print('torch' in sys.modules, 'polars' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]


def test_train_evaluate_and_score(corpus_file: Path, tiny_encoder: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = run("train", corpus_file, "--out", tmp_path / "p", "--encoder", tiny_encoder, "--epochs", 4, *FAST)
    assert "tau_b on 24 held-out prompts: 0." in out
    assert "TF-IDF + ridge" in out
    with pytest.raises(UserError, match="216 of 240 prompts were seen in training"):
        run("evaluate", tmp_path / "p", corpus_file)
    report = json.loads(run("evaluate", tmp_path / "p", corpus_file, "--unseen", "--json"))
    assert report["prompts"] == 24
    assert report["seen_prompts_left_out"] == 216
    assert report["tfidf_learned_from"] == "the 216 prompts of this file that the predictor learned from"
    card = json.loads((tmp_path / "p" / "card.json").read_text())
    assert report["tau_b"]["value"] == pytest.approx(card["results"]["test_tau_b"]["value"], abs=0.01)
    assert "tau_b" in run("evaluate", tmp_path / "p", corpus_file, "--allow-seen")
    trace = tmp_path / "t.jsonl"
    trace.write_text(
        "".join(
            json.dumps(
                {
                    "request_id": f"r{n}",
                    "arrival_s": n,
                    "prompt_tokens": 3,
                    "output_tokens": 4,
                    "prompt": text,
                }
            )
            + "\n"
            for n, text in enumerate(["name cats", "story rain"])
        )
    )
    assert "2 prompts scored" in run("score", tmp_path / "p", trace, tmp_path / "scored.parquet", "-q")
    scores = pl.read_parquet(tmp_path / "scored.parquet")["score.p"].to_list()
    assert scores[1] > scores[0]


def test_constant_lengths_leave_tau_undefined(corpus_file: Path, tiny_encoder: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run("train", corpus_file, "--out", tmp_path / "p", "--encoder", tiny_encoder, "--tuning", "frozen", *FAST)
    flat = tmp_path / "flat.jsonl"
    flat.write_text("".join(json.dumps({"prompt": f"new {n}", "output_tokens": 5}) + "\n" for n in range(9)))
    assert "tau is undefined" in run("evaluate", tmp_path / "p", flat)
    assert json.loads(run("evaluate", tmp_path / "p", flat, "--json"))["tau_b"]["value"] is None
    with pytest.raises(UserError, match="nothing to rank"):
        run("train", flat, "--out", tmp_path / "q", "--encoder", tiny_encoder, "--test-share", 0.3, *FAST)
    assert not (tmp_path / "q" / "card.json").exists()


def test_an_unknown_recipe_field_names_the_nearest(corpus_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no field 'epoch'; did you mean 'epochs'"):
        run("train", corpus_file, "--out", tmp_path / "p", "--set", "epoch=3")
    with pytest.raises(UserError, match="expected key=value"):
        run("train", corpus_file, "--out", tmp_path / "p", "--set", "epochs")
    with pytest.raises(UserError, match=r"recipe: objective: .*\(got 'best'\)"):
        run("train", corpus_file, "--out", tmp_path / "p", "--objective", "best")


def test_the_noise_ceiling_is_of_one_model_or_of_those_that_are_named(
    corpus_file: Path, tiny_encoder: str, tmp_path: Path
) -> None:
    """Two samples of `a` order all prompts alike; `b` is another model, in the opposite order."""
    pytest.importorskip("torch")
    run("train", corpus_file, "--out", tmp_path / "p", "--encoder", tiny_encoder, "--epochs", 1, *FAST)
    several = tmp_path / "several.jsonl"
    rows = [
        {"prompt": f"name {n}", "len": {"a": [n + 1, 2 * n + 2], "a2": [3 * n + 3], "b": [100 - n]}}
        for n in range(40)
    ]
    several.write_text("\n".join(map(json.dumps, rows)))

    def ceiling(*options: str) -> float | None:
        report = json.loads(run("evaluate", tmp_path / "p", several, "--json", *options))
        return report["ceiling"] and report["ceiling"]["sample"]["value"]

    assert ceiling("--model", "a") == pytest.approx(1.0)
    assert ceiling("--model", "b") is None
    assert ceiling("--model", "a,b") is None
    assert ceiling("--model", "all") is None
    assert ceiling("--model", "b", "--ceiling", "a,a2") == pytest.approx(1.0)
    for name in ("a3", "all"):
        with pytest.raises(UserError, match=f"no lengths of model '{name}'"):
            ceiling("--model", "a", "--ceiling", name)
    text = run("evaluate", tmp_path / "p", several, "--model", "b")
    assert "--ceiling names models that are such samples" in " ".join(text.split())


def test_a_place_that_cannot_be_written_is_found_before_training(
    corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("parsim.predictor.store.fit.train", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(UserError, match="cannot write there"):
        run("train", corpus_file, "--out", corpus_file / "p")


def test_compare_resumes_and_writes_the_table(
    corpus_file: Path, tiny_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"""
name: small
seeds: [1, 2]
recipe: {{encoder: {tiny_encoder}, epochs: 2, batch_size: 32, learning_rate: 3.0e-3, max_length: 16, precision: fp32}}
variants:
  - {{name: pairwise, recipe: {{objective: pairwise}}}}
  - {{name: pointwise, recipe: {{objective: pointwise}}}}
  - {{name: listwise, recipe: {{objective: listwise}}}}
  - {{name: elsewhere, recipe: {{encoder: no-such/encoder}}}}
datasets:
  - {{name: made up, file: corpus.jsonl, limit: 120, test_share: 0.3}}
"""
    )
    out = run("compare", spec, "--out", tmp_path / "out", "-q")
    table = pl.read_parquet(tmp_path / "out" / "results.parquet")
    methods = set(table["method"])
    assert {"pairwise", "pointwise", "listwise", "prompt length", "TF-IDF + ridge"} < methods
    assert any("noise ceiling: unknown" in method for method in methods)
    assert "elsewhere" not in methods
    assert set(table["training_prompts"]) == {120} and set(table["test_prompts"]) == {72}
    trained = table.filter(pl.col("seeds") > 0)
    assert trained["seeds"].to_list() == [2, 2, 2]
    assert (trained["low"] <= trained["tau_b"]).all() and (trained["tau_b"] <= trained["high"]).all()
    assert "| pairwise |" in out and "### made up" in out
    assert len(list((tmp_path / "out" / "runs").glob("*.json"))) == 6

    kept = sorted((tmp_path / "out" / "runs").iterdir())
    kept[0].write_text("{}" if kept[0].suffix == ".json" else "damaged")
    kept[3].write_text('{"cut":' if kept[3].suffix == ".json" else "damaged")
    run("compare", spec, "--out", tmp_path / "out", "-q")  # what is damaged is trained again
    assert (
        pl.read_parquet(tmp_path / "out" / "results.parquet")
        .drop("cpu_s", "wall_s")
        .equals(table.drop("cpu_s", "wall_s"))
    )
    table = pl.read_parquet(tmp_path / "out" / "results.parquet")

    def no_training(_: object, __: object, recipe: Recipe, **___: object) -> None:
        assert recipe.encoder == "no-such/encoder", "trained again"
        raise MissingEncoder("not here")

    monkeypatch.setattr("parsim.predictor.store.fit.fit", no_training)
    run("compare", spec, "--out", tmp_path / "out", "-q")
    again = pl.read_parquet(tmp_path / "out" / "results.parquet")
    assert again.equals(table)


def test_a_wrong_spec_names_the_field(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("datasets: [{name: a, file: b, sedes: 3}]")
    with pytest.raises(UserError, match=r"datasets\.0\.sedes"):
        run("compare", spec, "--out", tmp_path / "out")


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("variants: [{name: mine, recipe: {epoch: 3}}]", "mine: recipe field epoch.*did you mean 'epochs'"),
        ("tune: {learning_rate: [0.1, -1]}", "tune: recipe field learning_rate.*greater than 0"),
        ("variants: [{name: mine, tune: {margin: [x]}}]", "mine: recipe field margin"),
        ("tune: {seed: [1, 2]}", "tune: the seed is no choice"),
        ("tune: {learning_rate: []}", r"tune\.learning_rate: .*at least 1"),
        ("tune: {learning_rate: [0.1, 0.1]}", r"tune\.learning_rate: 0\.1 is there twice"),
        ("seeds: []", "seeds: .*at least 1"),
        ("seeds: [1, 1]", "seeds: 1 is there twice"),
        ("variants: []", "variants: .*at least 1"),
        ("variants: [{name: x}, {name: x}]", "two variants are called 'x'"),
        ("variants: [{name: prompt length}]", "two variants are called 'prompt length'"),
        ("variants: [{name: x, seeds: []}]", r"variants\.0\.seeds"),
        ("name: ../elsewhere", "name: "),
    ],
)
def test_a_wrong_recipe_is_found_before_the_first_training(tmp_path: Path, field: str, words: str) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("datasets: [{name: a, file: not-even-there.jsonl}]\n" + field)
    with pytest.raises(UserError, match=words):
        run("compare", spec, "--out", tmp_path / "out")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("name: a, file: corpus.jsonl", "two data sets are called 'a'"),
        ("name: b, file: missing.jsonl", "missing.jsonl: no such file"),
        ("name: b, file: corpus.jsonl, train_on: [nope]", "no lengths of model 'nope'"),
        ("name: b, file: corpus.jsonl, test_on: [nope]", "no lengths of model 'nope'"),
        ("name: b, file: corpus.jsonl, ceiling: [nope]", "no lengths of model 'nope'"),
        ("name: b, file: corpus.jsonl, variants: [pairwis]", "no variant 'pairwis'; did you mean 'pairwise'"),
        ("name: b, file: corpus.jsonl, test_share: 0", "test_share: .*greater than 0"),
        ("name: b, file: corpus.jsonl, limit: 0", "limit: .*greater than or equal to 2"),
        ("name: b, file: corpus.jsonl, tune_limit: -1", "tune_limit: .*greater than or equal to 2"),
    ],
)
def test_a_data_set_that_cannot_be_had_is_found_before_the_first_training(
    corpus_file: Path, tmp_path: Path, fields: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("parsim.predictor.store.fit.fit", lambda *_, **__: pytest.fail("trained"))
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"datasets: [{{name: a, file: corpus.jsonl}}, {{{fields}}}]\n")
    with pytest.raises(UserError, match=words):
        run("compare", spec, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", [("--seeds", 2), ("--set", "epochs=1"), ("--limit", 9), ("--model", "m")])
def test_an_option_that_a_spec_settles_is_refused(tmp_path: Path, option: tuple[str, object]) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("datasets: [{name: a, file: not-even-there.jsonl}]")
    with pytest.raises(UserError, match=f"^{option[0]}: spec.yaml says this itself"):
        run("compare", spec, *option)


def test_the_shipped_spec_is_right() -> None:
    spec = shipped_spec("public-lengths")
    assert spec is not None
    known = {variant.name for variant in read_comparison(spec).variants}
    assert {"pairwise", "pointwise", "listwise"} < known


def test_compare_settles_the_recipe_on_validation_prompts(
    corpus_file: Path, tiny_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two rates the one that ranks the validation prompts best is taken, whatever the held-out prompts say."""
    import parsim.predictor.store.fit as fitting

    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"""
seeds: [1, 2]
recipe: {{encoder: {tiny_encoder}, epochs: 1, batch_size: 32, max_length: 16, precision: fp32}}
tune: {{learning_rate: [1.0e-3, 3.0e-3]}}
variants: [{{name: pairwise}}, {{name: fixed, tune: {{}}}}]
datasets: [{{name: made up, file: corpus.jsonl, test_share: 0.3, tune_limit: 60}}]
"""
    )
    seen: list[tuple[float | None, int, int]] = []
    real = fitting.fit

    def watched(data: Any, parts: Any, recipe: Recipe, **options: Any) -> Any:
        seen.append((recipe.learning_rate, recipe.seed, len(parts.train)))
        fitted = real(data, parts, recipe, **options)
        worse = recipe.learning_rate == 1.0e-3
        fitted.history.epochs[0]["validation_tau_b"] = 0.1 if worse else 0.2
        scores = fitted.scores if worse else -fitted.scores
        return replace(fitted, scores=scores)

    monkeypatch.setattr(fitting, "fit", watched)
    run("compare", spec, "--out", tmp_path / "out", "-q")
    table = {row["method"]: row for row in pl.read_parquet(tmp_path / "out" / "results.parquet").to_dicts()}
    assert table["pairwise"]["settled"] == "learning_rate 0.003"
    assert table["fixed"]["settled"] == ""
    whole = next(size for _, seed, size in seen if seed)
    assert seen[:4] == [(1e-3, 0, 60), (3e-3, 0, 60), (3e-3, 1, whole), (3e-3, 2, whole)]
    assert whole > 60
