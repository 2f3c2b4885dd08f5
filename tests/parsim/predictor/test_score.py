from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from parsim.errors import UserError
from parsim.predictor.corpora.corpus import Labelled
from parsim.predictor.corpora.split import split
from parsim.predictor.ranker.recipe import Recipe
from parsim.scheduler.features import Features
from parsim.traces import Trace

pytestmark = pytest.mark.predictor
pytest.importorskip("torch")

from parsim.predictor.ranker.model import Ranker  # noqa: E402
from parsim.predictor.scoring.predictor import Predictor, load_predictor  # noqa: E402
from parsim.predictor.scoring.score import score_latency, score_trace  # noqa: E402
from parsim.predictor.store.fit import fit  # noqa: E402


@pytest.fixture(scope="module")
def folder(learnable: Labelled, tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("predictor") / "mine"
    recipe = Recipe(
        encoder=tiny_encoder, epochs=6, batch_size=32, learning_rate=3e-3, max_length=16, precision="fp32"
    )
    fit(
        learnable,
        split(learnable),
        recipe,
        name="mine",
        source={"source": "made up"},
        held_out={},
        folder=folder,
    )
    return folder


@pytest.fixture(scope="module")
def predictor(folder: Path) -> Predictor:
    return load_predictor(str(folder), precision="fp32")


def trace(prompts: list[str | None]) -> Trace:
    count = len(prompts)
    frame = pl.DataFrame(
        {
            "request_id": [f"r{row}" for row in range(count)],
            "arrival_s": [float(row) for row in range(count)],
            "prompt_tokens": [5] * count,
            "output_tokens": [7] * count,
            "prompt": prompts,
        },
        schema_overrides={"prompt": pl.String},
    )
    return Trace(frame, {"name": "made up"})


def test_the_column_has_the_predictors_name_and_order(predictor: Predictor) -> None:
    scored = score_trace(trace(["name cats", "story cats", "list cats", "name cats"]), predictor)
    column = scored.trace.frame["score.mine"]
    assert column.dtype == pl.Float64
    assert column[1] > column[2] > column[0] == column[3]
    assert (scored.prompts, scored.distinct) == (4, 3)
    assert scored.trace.metadata["score.mine"].startswith("pairwise on ")
    assert scored.trace.score_names == ["mine"] or "score.mine" in scored.trace.score_names


def test_odd_prompts_get_finite_scores(predictor: Predictor) -> None:
    scored = score_trace(
        trace(["", "  ", "x" * 100_000, "数学を教えて", "مرحبا", "🚢🚢", "a\x00b"]), predictor
    )
    assert np.isfinite(scored.trace.frame["score.mine"].to_numpy()).all()
    assert scored.empty == 2


def test_a_request_without_a_prompt_is_named(predictor: Predictor) -> None:
    """A trace that lacks one score could not be read again."""
    with pytest.raises(UserError, match=r"request 'r1' has no prompt \(2 in all\)"):
        score_trace(trace(["name cats", None, "list", None]), predictor)


def test_a_trace_without_text(predictor: Predictor) -> None:
    bare = trace(["a"])
    with pytest.raises(UserError, match=r"no text to score.*--emulate pars"):
        score_trace(Trace(bare.frame.drop("prompt"), bare.metadata), predictor)


def test_latency_is_measured_by_batch_size(predictor: Predictor, learnable: Labelled) -> None:
    table = score_latency(predictor, learnable.prompts, sizes=(1, 64))
    assert table.columns == ["batch", "batch_ms", "prompt_ms", "prompt_cpu_ms"]
    assert table["batch"].to_list() == [1, 64]
    np.testing.assert_allclose(table["batch_ms"], table["prompt_ms"] * table["batch"])
    each = table["prompt_ms"].to_list()
    assert each[1] < each[0]


def test_a_batch_is_full_where_there_are_fewer_prompts(
    predictor: Predictor, learnable: Labelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    score = Ranker.score

    def counting(self: Ranker, prompts: Sequence[str], workers: int = 1) -> np.ndarray:
        encoded.append(len(prompts))
        return score(self, prompts, workers)

    monkeypatch.setattr(Ranker, "score", counting)
    score_latency(predictor, learnable.prompts[:24], sizes=(1, 32, 64))
    assert encoded == [1] * 6 + [32] * 6 + [64] * 6


def test_scores_that_are_no_numbers_are_refused(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ranker, "score", lambda self, prompts, workers: np.array([1.0, np.nan]))
    with pytest.raises(
        UserError, match=r"mine: gives no finite score to 1 of 2 prompts, such as 'b'; .*fp32"
    ):
        score_trace(trace(["a", "b", "a"]), predictor)


@pytest.mark.parametrize("precision", ["auto", "fp32", "bf16", "fp16"])
def test_each_declared_precision_scores(predictor: Predictor, folder: Path, precision: str) -> None:
    loaded = load_predictor(str(folder), precision=precision)
    np.testing.assert_allclose(loaded.score(["name cats"]), predictor.score(["name cats"]), atol=0.1)


def test_another_precision_is_refused() -> None:
    with pytest.raises(UserError, match="precision 'fp8': expected one of auto, fp32, bf16, fp16"):
        load_predictor("pars", precision="fp8")


def test_a_served_model_without_a_tokenizer_is_refused_at_the_start(
    predictor: Predictor, tiny_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers makes up a tokenizer that knows no word, and every prompt would be the empty text."""
    import shutil

    from parsim.predictor.scoring import predictor as module
    from parsim.predictor.scoring.scorer import create

    monkeypatch.setattr(module, "load_predictor", lambda name: predictor)
    shutil.copy(Path(tiny_encoder) / "config.json", tmp_path)
    with pytest.raises(UserError, match=r"no tokenizer to decode prompts with \(.*holds no word"):
        create(str(tmp_path))


def test_the_engines_scorer_decodes_token_ids_with_the_served_models_tokenizer(
    predictor: Predictor,
    tiny_encoder: str,
    learnable: Labelled,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import time

    from parsim.predictor.ranker.encoder import load_encoder
    from parsim.predictor.scoring import predictor as module
    from parsim.predictor.scoring.scorer import create

    asked: list[str] = []
    monkeypatch.setattr(module, "load_predictor", lambda name: (asked.append(name), predictor)[1])
    monkeypatch.setenv("PARSIM_PREDICTOR", "mine")
    scorer = create(tiny_encoder)
    tokenizer = load_encoder(tiny_encoder).tokenizer
    for row, prompt in enumerate(("name cats", "story cats")):
        scorer.submit(f"r{row}", Features(prompt_token_ids=tokenizer(prompt)["input_ids"]))
    found: dict[str, float] = {}
    end = time.monotonic() + 10
    while len(found) < 2 and time.monotonic() < end:
        found.update(scorer.poll())
    scorer.close()
    assert asked == ["mine"]
    np.testing.assert_allclose(
        [found["r0"], found["r1"]], predictor.score(["name cats", "story cats"]), atol=1e-5
    )
    with pytest.raises(UserError, match="no tokenizer to decode prompts with"):
        create(str(tmp_path))


def test_workers_change_nothing(predictor: Predictor, learnable: Labelled) -> None:
    alone, together = predictor.score(learnable.prompts), predictor.score(learnable.prompts, workers=3)
    np.testing.assert_array_equal(alone, together)
