from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsim.errors import UserError
from parsim.predictor.corpora.corpus import Labelled
from parsim.predictor.corpora.split import split
from parsim.predictor.ranker.recipe import Recipe

pytestmark = pytest.mark.predictor
torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402

from parsim.predictor.ranker.lexical import Lexical  # noqa: E402
from parsim.predictor.scoring.predictor import load_predictor  # noqa: E402
from parsim.predictor.store.checkpoint import load, read_history, save  # noqa: E402
from parsim.predictor.store.fit import STATE, Fitted, fit  # noqa: E402


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
    weights = (tmp_path / "p" / "model.safetensors").read_bytes()
    assert loaded.card.weights_sha256 == done.card.weights_sha256 == hashlib.sha256(weights).hexdigest()


def test_the_same_seed_writes_the_same_bytes(learnable: Labelled, tiny_encoder: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        fitted(learnable, tiny_encoder, tmp_path / name)
    for file in ("model.safetensors", "card.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_the_card_knows_what_training_saw(learnable: Labelled, tiny_encoder: str, tmp_path: Path) -> None:
    from parsim.predictor.corpora.split import seen

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


@pytest.fixture(scope="module")
def trained(learnable: Labelled, tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A predictor with every kind of tensor."""
    folder = tmp_path_factory.mktemp("trained") / "p"
    fitted(learnable, tiny_encoder, folder, epochs=1, tuning="frozen", lexical=True)
    return folder


def copied(trained: Path, folder: Path, **card: Any) -> Path:
    shutil.copytree(trained, folder)
    fields = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps(fields | card))
    return folder


def changed(trained: Path, folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """A copy with other tensors and a card that says nothing of their checksum."""
    copied(trained, folder, weights_sha256="")
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_one_flipped_bit_is_found(trained: Path, tmp_path: Path) -> None:
    file = copied(trained, tmp_path / "p") / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    with pytest.raises(UserError, match=r"corrupted or missing weights \(sha256 is .*, the card says .*\)"):
        load_predictor(str(tmp_path / "p"))


def test_a_card_without_a_checksum_loads(trained: Path, tmp_path: Path) -> None:
    prompts = ["name cats", "story rain"]
    old = load_predictor(str(changed(trained, tmp_path / "p", lambda _: None)), precision="fp32")
    np.testing.assert_array_equal(
        old.score(prompts), load_predictor(str(trained), precision="fp32").score(prompts)
    )


KEYS = "training_prompt_keys"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda some: some.pop(KEYS), f"no list of the prompts that training saw .'{KEYS}'"),
        (lambda some: some.update({KEYS: some[KEYS][:0]}), "no list of the prompts that training saw"),
        (lambda some: some.update({KEYS: some[KEYS].float()}), "no list of the prompts that training saw"),
        (lambda some: some["spread"].zero_(), "'spread' holds numbers that are not above 0"),
        (lambda some: some["spread"].fill_(torch.nan), "'spread' holds something other than finite numbers"),
        (lambda some: some["head.weight"].fill_(torch.inf), r"'head\.weight' holds something other"),
        (lambda some: some.update({"mean": some["mean"].long()}), "'mean' holds something other"),
        (lambda some: some.pop("mean"), "weights do not fit encoder"),
        (lambda some: some.pop("lexical.scale"), "expected weights and scale, got weights"),
        (lambda some: (some.pop("lexical.scale"), some.pop("lexical.weights")), "got neither"),
        (lambda some: some.update({"lexical.more": torch.zeros(1)}), "expected weights and scale, got more"),
        (
            lambda some: some.update({"lexical.scale": some["lexical.scale"][:3].clone()}),
            r"scale is float64\[3\], expected float64\[6\]",
        ),
        (
            lambda some: some.update({"lexical.weights": some["lexical.weights"].bfloat16()}),
            "unusable bag-of-words part",
        ),
        (lambda some: some["lexical.scale"].fill_(torch.nan), "scale holds something other than finite"),
        (lambda some: some["lexical.weights"].fill_(torch.nan), "weights holds something other than finite"),
        (lambda some: some["lexical.scale"][2:].fill_(0), "both must be above 0"),
        (lambda some: some["lexical.scale"][5:].fill_(2), "the share 2, expected 0 to 1"),
    ],
)
def test_tensors_that_would_score_wrong_are_refused(
    trained: Path, tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], object], words: str
) -> None:
    folder = changed(trained, tmp_path / "p", change)
    with pytest.raises(UserError, match=rf"model\.safetensors: .*{words}") as caught:
        load_predictor(str(folder))
    assert "\n" not in str(caught.value)


def test_words_that_the_recipe_does_not_have(trained: Path, tmp_path: Path) -> None:
    recipe = json.loads((trained / "card.json").read_text())["recipe"]
    folder = copied(trained, tmp_path / "p", recipe=recipe | {"lexical": False})
    with pytest.raises(UserError, match=r"unusable bag-of-words part, .* \(the card's recipe has none\)"):
        load_predictor(str(folder))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda ranker: ranker.spread.zero_(), "'spread' holds numbers that are not above 0"),
        (
            lambda ranker: ranker.head.weight.data.fill_(1e9),
            r"'head\.weight' holds something other than finite",
        ),
    ],
    ids=["spread", "too large for 16 bits"],
)
def test_what_would_score_wrong_is_not_saved(
    trained: Path, tmp_path: Path, change: Callable[[Any], object], words: str
) -> None:
    ranker, lexical, card, keys = load(trained)
    change(ranker)
    with pytest.raises(UserError, match=f"{words}.*so it is not saved"):
        save(tmp_path / "p", ranker, card, training_keys=keys, lexical=lexical)
    assert not (tmp_path / "p").exists()


def test_words_without_a_spread_are_not_saved(trained: Path, tmp_path: Path) -> None:
    ranker, lexical, card, keys = load(trained)
    assert lexical is not None
    broken = Lexical(lexical.weights, np.array([0.0, np.nan, 1.0, 0.0, 1.0, 0.0]))
    with pytest.raises(UserError, match=r"scale holds something other than finite numbers.*not saved"):
        save(tmp_path / "p", ranker, card, training_keys=keys, lexical=broken)
    with pytest.raises(UserError, match="cannot be a predictor's name"):
        save(tmp_path / "p", ranker, card.model_copy(update={"name": "a/b"}), training_keys=keys)
    assert not (tmp_path / "p").exists()


def test_a_broken_history_is_one_clear_line(trained: Path, tmp_path: Path) -> None:
    folder = copied(trained, tmp_path / "p")
    assert read_history(folder).best_epoch == 1
    for damage in ("{", "[]"):
        (folder / "training.json").write_text(damage)
        with pytest.raises(UserError, match=r"training\.json: no history of a training"):
            read_history(folder)
