from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from parsim.errors import UserError
from parsim.studies.comparison.spec import Comparison

pytestmark = pytest.mark.predictor
pytest.importorskip("torch")
pytest.importorskip("transformers")

import parsim.predictor.store.fit as fitting  # noqa: E402
from parsim.studies.comparison.compare import run_comparison  # noqa: E402
from parsim.studies.comparison.runs import _weights  # noqa: E402
from parsim.studies.comparison.task import prepare  # noqa: E402


def comparison(encoder: str, **fields: Any) -> Comparison:
    recipe = {"encoder": encoder, "epochs": 1, "batch_size": 32, "max_length": 16, "precision": "fp32"}
    spec = {
        "seeds": [1],
        "recipe": recipe | {"learning_rate": 3e-3},
        "variants": [{"name": "pairwise"}],
        "datasets": [{"name": "made up", "file": "corpus.jsonl", "test_share": 0.3}],
    }
    return Comparison.model_validate(spec | fields)


def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the variants that are trained from now on."""
    names: list[str] = []
    real = fitting.fit

    def watched(*arguments: Any, **options: Any) -> Any:
        names.append(options["name"])
        return real(*arguments, **options)

    monkeypatch.setattr(fitting, "fit", watched)
    return names


@pytest.mark.parametrize("change", ["lengths", "order", "prompts"])
def test_kept_runs_are_not_taken_for_other_data(
    corpus_file: Path, tiny_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    spec, out = comparison(tiny_encoder), tmp_path / "out"
    run_comparison(spec, out, tmp_path, lambda _: None)
    names = trained(monkeypatch)
    run_comparison(spec, out, tmp_path, lambda _: None)
    assert names == []
    rows = pl.read_ndjson(corpus_file)
    other = {
        "lengths": rows.with_columns(output_tokens=2000 - pl.col("output_tokens")),
        "order": rows.sample(fraction=1.0, shuffle=True, seed=1),
        "prompts": rows.with_columns(prompt=pl.col("prompt") + " please"),
    }[change]
    other.write_ndjson(corpus_file)
    changed = run_comparison(spec, out, tmp_path, lambda _: None)
    fresh = run_comparison(spec, tmp_path / "fresh", tmp_path, lambda _: None)
    assert names == ["pairwise", "pairwise"]
    assert changed.drop("cpu_s", "wall_s").equals(fresh.drop("cpu_s", "wall_s"))


def test_kept_runs_are_not_taken_for_another_encoder(
    corpus_file: Path,
    changing_encoder: tuple[str, Callable[[], None]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder, change = changing_encoder
    run_comparison(comparison(encoder), tmp_path / "out", tmp_path, lambda _: None)
    change()
    _weights.cache_clear()  # as in another process
    names = trained(monkeypatch)
    run_comparison(comparison(encoder), tmp_path / "out", tmp_path, lambda _: None)
    assert names == ["pairwise"]


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": []},
        {"epochs": None},
        {"best_epoch": 99},
        {"epochs": [{}]},
        {"cpu_s": "x"},
        {"cpu_s": float("nan")},
        {"scores": float("nan")},
        {"scores": None},
    ],
    ids=str,
)
def test_a_damaged_run_is_made_again(
    corpus_file: Path,
    tiny_encoder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
) -> None:
    spec = comparison(tiny_encoder, tune={"margin": [1.0]})
    before = run_comparison(spec, tmp_path / "out", tmp_path, lambda _: None)
    names = trained(monkeypatch)
    for facts in (tmp_path / "out" / "runs").glob("*.json"):
        if "scores" in change:
            scores = pl.read_parquet(facts.with_suffix(".parquet"))
            damaged = pl.Series("score", [change["scores"]] * len(scores), dtype=pl.Float64)
            scores.with_columns(damaged).write_parquet(facts.with_suffix(".parquet"))
        else:
            facts.write_text(json.dumps(json.loads(facts.read_text()) | change))
    after = run_comparison(spec, tmp_path / "out", tmp_path, lambda _: None)
    assert names == ["pairwise", "pairwise"]
    assert after.drop("cpu_s", "wall_s").equals(before.drop("cpu_s", "wall_s"))


def test_a_dot_in_the_name_keeps_runs_apart(corpus_file: Path, tiny_encoder: str, tmp_path: Path) -> None:
    corpus_file.rename(tmp_path / "llama-3.1.jsonl")
    one = {"name": "made up", "file": "llama-3.1.jsonl", "test_share": 0.3}
    run_comparison(
        comparison(tiny_encoder, datasets=[one], seeds=[1, 2]), tmp_path / "out", tmp_path, lambda _: None
    )
    assert len(list((tmp_path / "out" / "runs").glob("llama-3.1-*.json"))) == 2


def test_trainings_side_by_side_give_the_same(corpus_file: Path, tiny_encoder: str, tmp_path: Path) -> None:
    spec = comparison(tiny_encoder, seeds=[1, 2], tune={"margin": [0.5, 1.0]})
    one = run_comparison(spec, tmp_path / "one", tmp_path, lambda _: None)
    two = run_comparison(spec, tmp_path / "two", tmp_path, lambda _: None, jobs=2)
    assert one.drop("cpu_s", "wall_s").equals(two.drop("cpu_s", "wall_s"))
    runs = sorted(file.name for file in (tmp_path / "one" / "runs").glob("*.parquet"))
    assert runs == sorted(file.name for file in (tmp_path / "two" / "runs").glob("*.parquet"))
    for name in runs:
        assert (tmp_path / "one" / "runs" / name).read_bytes() == (
            tmp_path / "two" / "runs" / name
        ).read_bytes()


def two_files(tmp_path: Path) -> dict[str, Any]:
    """`corpus.jsonl` by two models, and `other.jsonl` with other prompts by a third."""
    rows = [
        {"prompt": f"{word} about cats {n}", "len": {"a": length + n % 7, "b": 2 * length + n % 5}}
        for n in range(80)
        for word, length in [("name" if n % 2 else "essay", 10 if n % 2 else 300)]
    ]
    other = [{"prompt": f"story {n}", "len": {"c": 100 + n, "b": 7}} for n in range(30)]
    for name, some in (("corpus", rows), ("other", other)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, some)))
    return {"name": "two", "file": "corpus.jsonl", "train_on": ["a"], "test_share": 0.3}


def test_a_test_file_is_held_out_whole_and_judged_by_its_models(tiny_encoder: str, tmp_path: Path) -> None:
    one = two_files(tmp_path) | {"test_file": "other.jsonl", "test_on": ["a", "c"]}
    table = run_comparison(
        comparison(tiny_encoder, datasets=[one]), tmp_path / "out", tmp_path, lambda _: None
    )
    judged = dict(table.select("test_model", "test_prompts").unique().iter_rows())
    assert judged == {"a": 24, "c": 30}
    assert set(table["training_prompts"]) == {50}  # 80 less 24 held out less 6 to validate by
    length = table.filter(pl.col("test_model") == "c", pl.col("method") == "prompt length")["tau_b"].item()
    assert length is None  # every one of them has two words


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"test_file": "other.jsonl"}, "test_on names none of its models"),
        ({"test_file": "corpus.jsonl", "test_on": ["b"]}, "80 of its prompts are in .* too"),
        ({"test_file": "nope.jsonl", "test_on": ["b"]}, "no such file"),
    ],
)
def test_a_wrong_test_file_is_refused(
    tiny_encoder: str, tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    one = two_files(tmp_path) | fields
    with pytest.raises(UserError, match=words):
        run_comparison(comparison(tiny_encoder, datasets=[one]), tmp_path / "out", tmp_path, lambda _: None)
    assert not (tmp_path / "out").exists()


def test_labels_averaged_over_all_models_leave_what_judges_alone(tiny_encoder: str, tmp_path: Path) -> None:
    one = two_files(tmp_path)
    task = prepare(comparison(tiny_encoder, datasets=[one]).datasets[0], tmp_path, None, tiny_encoder)
    wide = task.relabelled(["all"])
    row = task.parts.train[0]
    a, b = (task.corpus.label([model]) for model in ("a", "b"))
    centred = [np.log(found.lengths[row]) - np.log(found.lengths).mean() for found in (a, b)]
    common = np.mean([np.log(a.lengths).mean(), np.log(b.lengths).mean()])
    assert np.log(wide.lengths[row]) == pytest.approx(np.mean(centred) + common)
    assert (wide.lengths[task.parts.test] == a.lengths[task.parts.test]).all()


def test_gains_are_paired_over_both_losses(corpus_file: Path, tiny_encoder: str, tmp_path: Path) -> None:
    variants = [{"name": name, "recipe": {"objective": name}} for name in ("pairwise", "pointwise")]
    table = run_comparison(
        comparison(tiny_encoder, variants=variants), tmp_path / "out", tmp_path, lambda _: None
    )
    rows = {row["method"]: row for row in table.iter_rows(named=True)}
    assert rows["pairwise"]["over_pairwise"] is None
    gap = rows["pairwise"]["tau_b"] - rows["pointwise"]["tau_b"]
    assert rows["pairwise"]["over_pointwise"] == pytest.approx(gap)
    assert rows["pointwise"]["over_pairwise"] == pytest.approx(-gap)


def test_nothing_is_compared_without_an_encoder(corpus_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no variant is left to train: .*no-such/encoder.*parsim\[minilm\]"):
        run_comparison(comparison("no-such/encoder"), tmp_path / "out", tmp_path, lambda _: None)
    assert not (tmp_path / "out").exists()


def test_drawn_pairs_are_for_the_pairwise_loss_alone(tiny_encoder: str) -> None:
    fields = {"variants": [{"name": "mine", "recipe": {"objective": "listwise", "pairs": "offline"}}]}
    with pytest.raises(ValueError, match="mine: recipe field pairs=offline draws pairs before training"):
        comparison(tiny_encoder, **fields)
