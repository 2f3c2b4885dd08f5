"""The learner: what it ranks like after how many requests, what it must not learn, and what it keeps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from parsim.errors import UserError
from parsim.learner import online
from parsim.learner.online import LEAST, OnlineLearner
from parsim.learner.ridge import Ridge, expected_above
from parsim.learner.store import read_state, write_state
from parsim.scheduler.features import Features


class Stream:
    """Requests whose lengths hang on their words: each of 40 topics has tokens and a mean length of its own."""

    def __init__(self, seed: int, app: str = "", first_token: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.app, self.first = app, first_token
        self.means = self.rng.permutation(np.geomspace(10, 800, 40))

    def draw(self) -> tuple[Features, int]:
        topic = int(self.rng.integers(40))
        tokens = self.first + topic * 5 + self.rng.integers(5, size=6)
        noise = self.first + 1000 + self.rng.integers(3000, size=12)
        ids = np.concatenate([noise[:6], tokens, noise[6:]]).tolist()
        length = max(1, int(self.means[topic] * self.rng.lognormal(sigma=0.3)))
        return Features(prompt_token_ids=ids, prompt_tokens=18, app=self.app), length


def serve(
    learner: OnlineLearner,
    requests: list[tuple[Features, int]],
    lag: int = 50,
    start: int = 0,
    limit: int | None = None,
) -> float:
    """tau-b of the scores given on arrival with the true lengths; outcomes come `lag` requests later."""
    scores: list[float] = []
    for number, (features, _) in enumerate(requests):
        learner.submit(f"r{start + number}", features)
        scores.append(learner.poll().get(f"r{start + number}", 0.0))
        if number >= lag:
            length = requests[number - lag][1]
            cut = limit is not None and length > limit
            learner.finished(f"r{start + number - lag}", limit if cut else length, not cut)  # type: ignore[arg-type]
    return float(kendalltau(scores, [length for _, length in requests]).statistic)


def test_it_learns_from_nothing_and_gives_no_score_before_it_has() -> None:
    stream, learner = Stream(1), OnlineLearner()
    first = [stream.draw() for _ in range(LEAST)]
    for number, (features, length) in enumerate(first):
        learner.submit(str(number), features)
        assert learner.poll() == {}
        learner.finished(str(number), length, True)
    serve(learner, [stream.draw() for _ in range(600)], start=100)
    assert serve(learner, [stream.draw() for _ in range(400)], start=1000) > 0.6


def test_it_adapts_to_other_traffic_and_does_not_forget_the_first() -> None:
    one, other, learner = Stream(1, "a"), Stream(2, "b", first_token=9000), OnlineLearner()
    serve(learner, [one.draw() for _ in range(1200)])
    serve(learner, [other.draw() for _ in range(400)], start=2000)
    assert serve(learner, [other.draw() for _ in range(300)], start=4000) > 0.55
    assert serve(learner, [one.draw() for _ in range(300)], lag=10**6, start=6000) > 0.6


def test_the_same_words_with_other_lengths_are_learned_anew_within_a_few_hundred() -> None:
    stream, learner = Stream(1), OnlineLearner()
    serve(learner, [stream.draw() for _ in range(1500)])
    stream.means = 8000 / stream.means  # what was short is long
    serve(learner, [stream.draw() for _ in range(350)], start=2000)
    assert serve(learner, [stream.draw() for _ in range(300)], start=4000) > 0.3


def test_cut_lengths_are_lower_bounds() -> None:
    """Every response of over 60 tokens is cut there; what is said of the long topics must lie above the limit."""
    stream, learner = Stream(3), OnlineLearner()
    requests = [stream.draw() for _ in range(1500)]
    serve(learner, requests, limit=60)
    assert learner.cut == sum(length > 60 for _, length in requests[:-50])
    scores = {True: [], False: []}
    for number in range(300):
        features, length = stream.draw()
        learner.submit(f"f{number}", features)
        scores[length > 60].append(learner.poll()[f"f{number}"])
    assert np.mean(scores[True]) > 60 > 1.5 * np.mean(scores[False])


def test_expected_above_a_bound_by_hand() -> None:
    # a standard normal above 0 has mean sqrt(2 / pi)
    assert expected_above(0.0, 0.0, 1.0) == pytest.approx(0.7978845608)
    assert expected_above(-9.0, 2.0, 1.0) == pytest.approx(-8.0)  # at most one spread above the bound
    assert expected_above(50.0, 0.0, 1.0) == 50.0
    assert expected_above(3.0, 5.0, 0.0) == 5.0


def test_aborted_requests_teach_nothing_and_unknown_ones_are_ignored() -> None:
    stream, learner = Stream(1), OnlineLearner()
    features, _ = stream.draw()
    learner.submit("a", features)
    before = {name: array.copy() for name, array in learner.state().items()}
    learner.finished("a", 7, None)
    learner.finished("never submitted", 7, True)
    learner.finished("a", 7, True)
    after = learner.state()
    assert learner.learned == 0 and not learner._open
    assert all((before[name] == after[name]).all() for name in before)


def test_ridge_reaches_the_ridge_solution_and_forgetting_a_row_is_exact() -> None:
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(60):
        places = np.sort(rng.choice(500, size=8, replace=False)).astype(np.int32)
        values = rng.random(8).astype(np.float32)
        rows.append(online.Row(places, values / np.linalg.norm(values)))
    targets = rng.normal(size=60)
    dense = np.zeros((60, 500))
    for number, row in enumerate(rows):
        dense[number, row.places] = row.values
    model = Ridge(rows=50, entries=10**6, replays=300)
    for number, row in enumerate(rows):
        model.learn(row, float(targets[number]), False, 0)
    assert len(model) == 50
    kept = slice(10, 60)  # the oldest ten are forgotten
    gram = dense[kept] @ dense[kept].T + np.eye(50)
    expected = dense[kept].T @ np.linalg.solve(gram, targets[kept] - model.mean)
    assert np.allclose(model.weights[:500], expected, atol=2e-3)


def test_nothing_grows_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "MAX_IN_FLIGHT_ENTRIES", 2000)
    stream, learner = Stream(1), OnlineLearner()
    for number in range(300):
        learner.submit(f"r{number}", stream.draw()[0])
    assert learner._open_entries <= 2000 and len(learner._open) < 100
    learner.finished("r0", 9, True)  # forgotten: ignored
    assert learner.learned == 0
    model = Ridge(rows=10**6, entries=90)
    for number in range(40):
        row = online.Row(np.arange(number, number + 20, dtype=np.int32), np.full(20, 20**-0.5, np.float32))
        model.learn(row, 1.0, False, number % 3)
    assert len(model) == 4 and model._entries == 80


def test_a_saved_state_scores_as_before_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    stream, learner = Stream(1), OnlineLearner()
    serve(learner, [stream.draw() for _ in range(500)])
    path = tmp_path / "learner.npz"
    write_state(path, learner.state())
    again = OnlineLearner()
    again.load(read_state(path))
    for number in range(20):
        features = stream.draw()[0]
        learner.submit(f"x{number}", features)
        again.submit(f"x{number}", features)
    assert learner.poll() == pytest.approx(again.poll(), rel=1e-6)
    assert serve(again, [stream.draw() for _ in range(200)], start=9000) > 0.5

    write_state(path, learner.state())
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"not an archive", whole[:5000] + whole[9000:]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"learner\.npz: .*move it away"):
            read_state(path)
    state = learner.state()
    for place in np.random.default_rng(3).integers(200, len(whole) - 200, size=12).tolist():  # a flipped byte
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            found = read_state(path)
        except UserError:
            continue
        assert all((state[name] == found[name]).all() for name in state)  # nothing but padding was hit


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("words.weights", lambda a: a[:-1]),
        ("shape.values", lambda a: a * np.float32("nan")),
        ("recent.places", lambda a: a + np.int32(1 << 18)),
        ("words.groups", lambda a: a - 64),
        ("means", lambda a: a.astype(np.float32)),
        ("counts", lambda a: -a - 1),
        ("recent.sizes", lambda a: a + 1),
    ],
)
def test_a_state_that_is_none_is_refused(name: str, wrong: object) -> None:
    stream, learner = Stream(1), OnlineLearner()
    serve(learner, [stream.draw() for _ in range(100)])
    state = {**learner.state()}
    state[name] = wrong(state[name])  # type: ignore[operator]
    with pytest.raises(ValueError):
        OnlineLearner().load(state)
    del state[name]
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        OnlineLearner().load(state)


def test_alpaca_from_nothing(shared: Path) -> None:
    """Vicuna-7B's lengths on Alpaca, each learned 300 requests later: what is claimed of the learner."""
    model = "vicuna-7b-t0.7"
    path = shared / "data/lengths/alpaca20k_vicuna7b_lengths.jsonl"
    rows = [
        row for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()) if model in row["len"]
    ]
    chosen = [rows[place] for place in np.random.default_rng(1).permutation(len(rows))[:2800]]
    lengths = [max(1, row["len"][model]) for row in chosen]
    learner, scores = OnlineLearner(), []
    for number, row in enumerate(chosen):
        learner.submit(str(number), Features(text=row["prompt"], prompt_tokens=row["prompt_tokens"]))
        scores.append(learner.poll().get(str(number), 0.0))
        if number >= 300:
            learner.finished(str(number - 300), lengths[number - 300], True)
    assert kendalltau(scores[1300:], lengths[1300:]).statistic > 0.43  # after 1,000 have finished
