from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsim.predictor.corpus import Labelled
from parsim.predictor.recipe import Recipe
from parsim.predictor.split import split
from traces.errors import UserError

pytestmark = pytest.mark.predictor
pytest.importorskip("torch")

from parsim.predictor.fit import STATE, Fitted, fit  # noqa: E402
from parsim.predictor.predictor import load_predictor  # noqa: E402


def fitted(data: Labelled, encoder: str, folder: Path, *, overwrite: bool = False, **changes: Any) -> Fitted:
    fields = {"encoder": encoder, "epochs": 2, "batch_size": 32, "learning_rate": 3e-3, "precision": "fp32"}
    return fit(
        data,
        split(data),
        Recipe.model_validate(fields | changes),
        name="mine",
        source={"source": "made up"},
        held_out={"seed": 42},
        folder=folder,
        overwrite=overwrite,
    )


@pytest.mark.parametrize("changes", [{}, {"tuning": "lora"}, {"tuning": "frozen", "lexical": True}])
def test_what_is_loaded_scores_like_what_was_measured(
    learnable: Labelled, tiny_encoder: str, tmp_path: Path, changes: dict[str, Any]
) -> None:
    done = fitted(learnable, tiny_encoder, tmp_path / "p", **changes)
    loaded = load_predictor(str(tmp_path / "p"), precision="fp32")
    test = learnable.take(split(learnable).test)
    np.testing.assert_allclose(loaded.score(test.prompts), done.scores, atol=2e-5)
    assert loaded.card.results["test_tau_b"]["value"] == round(done.test.value, 4)
    assert not (tmp_path / "p" / STATE).exists()


def test_the_same_seed_writes_the_same_bytes(learnable: Labelled, tiny_encoder: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        fitted(learnable, tiny_encoder, tmp_path / name)
    for file in ("model.safetensors", "card.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_the_card_knows_what_training_saw(learnable: Labelled, tiny_encoder: str, tmp_path: Path) -> None:
    from parsim.predictor.split import seen

    fitted(learnable, tiny_encoder, tmp_path / "p")
    loaded, parts = load_predictor(str(tmp_path / "p")), split(learnable)
    known = seen(learnable.prompts, loaded.training_keys)
    assert known[parts.train].all() and known[parts.validation].all() and not known[parts.test].any()


def test_a_predictor_is_not_overwritten_unasked(
    learnable: Labelled, tiny_encoder: str, tmp_path: Path
) -> None:
    fitted(learnable, tiny_encoder, tmp_path / "p")
    before = (tmp_path / "p" / "card.json").read_bytes()
    with pytest.raises(UserError, match="already holds a predictor"):
        fitted(learnable, tiny_encoder, tmp_path / "p", objective="listwise")
    with pytest.raises(UserError, match="loss is"):
        fitted(
            learnable, tiny_encoder, tmp_path / "p", overwrite=True, learning_rate=1e30, objective="pointwise"
        )
    assert (tmp_path / "p" / "card.json").read_bytes() == before
    fitted(learnable, tiny_encoder, tmp_path / "p", overwrite=True, objective="listwise", seed=1)
    assert load_predictor(str(tmp_path / "p")).card.recipe.objective == "listwise"


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def garble(file: Path) -> None:
    file.write_bytes(b"\x00garbage" * 50)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: cut(folder / "model.safetensors"), "corrupted or missing weights"),
        (lambda folder: garble(folder / "model.safetensors"), "corrupted or missing weights"),
        (lambda folder: (folder / "model.safetensors").unlink(), "corrupted or missing weights"),
        (lambda folder: cut(folder / "card.json"), "broken card"),
        (lambda folder: (folder / "card.json").write_text("{}"), "broken card"),
        (lambda folder: (folder / "card.json").unlink(), "holds no predictor"),
    ],
    ids=["cut", "garbage", "no weights", "cut card", "empty card", "no card"],
)
def test_a_corrupted_predictor_is_one_clear_line(
    learnable: Labelled, tiny_encoder: str, tmp_path: Path, damage: Any, message: str
) -> None:
    fitted(learnable, tiny_encoder, tmp_path / "p", epochs=1, tuning="frozen")
    damage(tmp_path / "p")
    with pytest.raises(UserError, match=message) as caught:
        load_predictor(str(tmp_path / "p"))
    assert "\n" not in str(caught.value)


def test_weights_of_another_shape(learnable: Labelled, tiny_encoder: str, tmp_path: Path) -> None:
    fitted(learnable, tiny_encoder, tmp_path / "p", epochs=1, tuning="frozen")
    card = json.loads((tmp_path / "p" / "card.json").read_text())
    card["recipe"]["tuning"] = "lora"
    (tmp_path / "p" / "card.json").write_text(json.dumps(card))
    with pytest.raises(UserError, match="do not fit encoder"):
        load_predictor(str(tmp_path / "p"))


def test_another_encoder_than_it_was_trained_on(
    learnable: Labelled, tiny_encoder: str, tmp_path: Path
) -> None:
    fitted(learnable, tiny_encoder, tmp_path / "p", epochs=1, tuning="frozen")
    card = json.loads((tmp_path / "p" / "card.json").read_text())
    card["encoder"]["sha256"] = "0" * 64
    (tmp_path / "p" / "card.json").write_text(json.dumps(card))
    with pytest.raises(UserError, match="trained on an encoder with sha256 0000"):
        load_predictor(str(tmp_path / "p"))
