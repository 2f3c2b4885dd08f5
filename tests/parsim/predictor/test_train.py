from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parsim.errors import UserError
from parsim.interrupt import deferred_interrupt
from parsim.predictor.corpora.corpus import Labelled
from parsim.predictor.corpora.split import split
from parsim.predictor.ranker.recipe import Recipe

pytestmark = pytest.mark.predictor
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from parsim.predictor.ranker.encoder import load_encoder  # noqa: E402
from parsim.predictor.ranker.model import Ranker  # noqa: E402
from parsim.predictor.ranker.state import History  # noqa: E402
from parsim.predictor.ranker.train import _Loop, train  # noqa: E402
from parsim.stats import tau_b  # noqa: E402

FAST = {"epochs": 3, "batch_size": 32, "learning_rate": 3e-3, "max_length": 16, "precision": "fp32"}


def run(data: Labelled, encoder: str, state: Path | None = None, **changes: object) -> tuple[Ranker, History]:
    recipe = Recipe.model_validate({**FAST, "encoder": encoder, **changes})
    parts = split(data)
    training, validation = data.take(parts.train), data.take(parts.validation)
    return train(training, validation, load_encoder(encoder), recipe, state_file=state)


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Ctrl-C as in a terminal: a shell's background job ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def weights(ranker: Ranker) -> list[np.ndarray]:
    return [value.numpy() for value in ranker.trained_state().values()]


def same(one: Ranker, other: Ranker) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


@pytest.mark.parametrize("objective", ["pairwise", "pointwise", "listwise", "mixed", "ordinal"])
def test_each_objective_learns_to_rank(learnable: Labelled, tiny_encoder: str, objective: str) -> None:
    ranker, history = run(learnable, tiny_encoder, objective=objective, epochs=6)
    test = learnable.take(split(learnable).test)
    assert tau_b(ranker.score(test.prompts), test.lengths) > 0.5
    assert history.epochs[-1]["loss"] < history.epochs[0]["loss"]


@pytest.mark.parametrize(
    "changes",
    [
        {"tuning": "lora", "lora_layers": 1, "learning_rate": 1e-2, "epochs": 6},
        {"tuning": "frozen", "epochs": 40, "learning_rate": 1e-2, "pooling": "mean"},
        {"pairs": "offline", "epochs": 1},
        {"pooling": "pooled", "epochs": 6},
        {"pooling": "mean", "truncation": "head-tail"},
    ],
    ids=["lora", "frozen", "offline pairs", "pooled", "mean, head and tail"],
)
def test_other_tunings_learn_too(learnable: Labelled, tiny_encoder: str, changes: dict[str, object]) -> None:
    ranker, _ = run(learnable, tiny_encoder, **changes)
    test = learnable.take(split(learnable).test)
    assert tau_b(ranker.score(test.prompts), test.lengths) > 0.4


def test_lora_leaves_the_encoder_alone(learnable: Labelled, tiny_encoder: str) -> None:
    before = load_encoder(tiny_encoder).model.state_dict()
    ranker, _ = run(learnable, tiny_encoder, tuning="lora", lora_layers=1)
    after = {
        name.replace("base_model.model.", "").replace(".base_layer", ""): value
        for name, value in ranker.encoder.state_dict().items()
    }
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    adapted = {name for name in ranker.trained_state() if "lora" in name}
    assert adapted and all(".layer.1." in name for name in adapted)


def test_the_seed_fixes_everything(learnable: Labelled, tiny_encoder: str) -> None:
    one, other = run(learnable, tiny_encoder)[0], run(learnable, tiny_encoder)[0]
    assert same(one, other)
    assert not same(one, run(learnable, tiny_encoder, seed=43)[0])


@pytest.mark.parametrize("stop_after", [3, 6, 8])
def test_a_resumed_run_ends_like_an_uninterrupted_one(
    learnable: Labelled, tiny_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    """194 training prompts, 6 batches an epoch: Ctrl-C in a step within an epoch, in an epoch's last, in the second."""
    whole, history = run(learnable, tiny_encoder)
    state, step = tmp_path / "state.pt", _Loop._one_step

    def stopping(self: _Loop, *arguments: object) -> None:
        step(self, *arguments)
        if self.step == stop_after:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(_Loop, "_one_step", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(learnable, tiny_encoder, state)
    monkeypatch.setattr(_Loop, "_one_step", step)
    resumed, after = run(learnable, tiny_encoder, state)
    assert same(whole, resumed)
    assert after.epochs == history.epochs


@pytest.mark.parametrize("stopped_in", [1, 2])
def test_ctrl_c_while_an_epoch_is_judged_loses_nothing(
    learnable: Labelled,
    tiny_encoder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stopped_in: int,
) -> None:
    whole, history = run(learnable, tiny_encoder)
    judge, epochs = _Loop._end_epoch, []

    def stopping(self: _Loop, epoch: int) -> None:
        epochs.append(epoch)
        if len(epochs) == stopped_in:
            signal.raise_signal(signal.SIGINT)
        judge(self, epoch)

    monkeypatch.setattr(_Loop, "_end_epoch", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(learnable, tiny_encoder, tmp_path / "state.pt")
    resumed, after = run(learnable, tiny_encoder, tmp_path / "state.pt")
    assert same(whole, resumed)
    assert (after.epochs, after.best_epoch) == (history.epochs, history.best_epoch)


def test_a_background_job_goes_on_ignoring_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with deferred_interrupt() as interrupted:
        signal.raise_signal(signal.SIGINT)
        assert not interrupted()


def test_other_prompts_of_the_same_lengths_do_not_continue_the_run(
    learnable: Labelled, tiny_encoder: str, tmp_path: Path
) -> None:
    run(learnable, tiny_encoder, tmp_path / "state.pt", epochs=1)
    other = replace(learnable, prompts=[f"{prompt} please" for prompt in learnable.prompts])
    with pytest.raises(UserError, match="another recipe or other data"):
        run(other, tiny_encoder, tmp_path / "state.pt", epochs=1)


def test_a_damaged_state_is_not_continued(learnable: Labelled, tiny_encoder: str, tmp_path: Path) -> None:
    state = tmp_path / "state.pt"
    run(learnable, tiny_encoder, state, epochs=1)
    data = bytearray(state.read_bytes())
    data[len(data) // 2] ^= 1
    state.write_bytes(data)
    with pytest.raises(UserError, match="unreadable training state"):
        run(learnable, tiny_encoder, state, epochs=1)


def test_another_encoder_of_that_name_does_not_continue_the_run(
    learnable: Labelled, changing_encoder: tuple[str, Callable[[], None]], tmp_path: Path
) -> None:
    encoder, change = changing_encoder
    run(learnable, encoder, tmp_path / "state.pt", epochs=1)
    change()
    with pytest.raises(UserError, match="another recipe or other data"):
        run(learnable, encoder, tmp_path / "state.pt", epochs=1)


def test_a_loss_that_is_no_number_leaves_nothing(
    learnable: Labelled, tiny_encoder: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="nothing was written"):
        run(learnable, tiny_encoder, tmp_path / "p" / "state.pt", epochs=6, learning_rate=1e30)
    assert list(tmp_path.iterdir()) == []


def test_a_delta_that_leaves_no_pair_is_refused(learnable: Labelled, tiny_encoder: str) -> None:
    with pytest.raises(UserError, match="there is no pair to learn from"):
        run(learnable, tiny_encoder, delta=0.9999)


def test_a_second_ctrl_c_does_not_wait() -> None:
    with pytest.raises(KeyboardInterrupt), deferred_interrupt() as interrupted:
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_recipe_does_not_continue_the_run(
    learnable: Labelled, tiny_encoder: str, tmp_path: Path
) -> None:
    run(learnable, tiny_encoder, tmp_path / "state.pt", epochs=1)
    with pytest.raises(UserError, match="another recipe or other data"):
        run(learnable, tiny_encoder, tmp_path / "state.pt", epochs=1, objective="listwise")
    (tmp_path / "state.pt").write_bytes(b"broken")
    with pytest.raises(UserError, match="unreadable training state"):
        run(learnable, tiny_encoder, tmp_path / "state.pt", epochs=1)


def test_the_best_epoch_is_kept_and_patience_ends_the_run(
    learnable: Labelled, tiny_encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taus = iter([0.1, 0.5, 0.4, 0.3, 0.9])
    monkeypatch.setattr("parsim.predictor.ranker.train.tau_b", lambda *_: next(taus))
    _, history = run(learnable, tiny_encoder, epochs=5, patience=2)
    assert history.best_epoch == 2
    assert [epoch["validation_tau_b"] for epoch in history.epochs] == [0.1, 0.5, 0.4, 0.3]


def test_a_loss_that_is_no_number_ends_the_run(learnable: Labelled, tiny_encoder: str) -> None:
    with pytest.raises(UserError, match=r"loss is (nan|inf) at step \d+ .*lower it"):
        run(learnable, tiny_encoder, learning_rate=1e30, objective="pointwise", weight_decay=0.0)


def test_constant_lengths_are_refused(learnable: Labelled, tiny_encoder: str) -> None:
    flat = Labelled(learnable.prompts, np.full(len(learnable), 9.0), learnable.censored, learnable.datasets)
    with pytest.raises(UserError, match="all 194 training lengths are 9: there is nothing to rank"):
        run(flat, tiny_encoder)


def test_scores_do_not_depend_on_the_other_prompts(learnable: Labelled, tiny_encoder: str) -> None:
    ranker, _ = run(learnable, tiny_encoder, epochs=1)
    prompts = learnable.prompts[:50]
    alone = np.concatenate([ranker.score([prompt]) for prompt in prompts])
    np.testing.assert_allclose(ranker.score(prompts), alone, atol=1e-5)
    np.testing.assert_allclose(ranker.score(prompts[::-1])[::-1], alone, atol=1e-5)
