"""PARS for real: the split, what is asked of the engine, and what the model is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from parsim.engine import load_engine
from parsim.engine.scoring_cost import ScoringCost
from parsim.errors import UserError
from parsim.predictor.corpora.split import normalise
from parsim.scheduler.policy import POLICIES
from parsim.validate.calibration.probe import Probe, Timed
from parsim.validate.live.serving import Served
from parsim.validate.tiers.end_to_end_stages import Prompts, Scored, pair_of, split_lengths


class Words:
    """A tokenizer of one token a word, with a chat template."""

    chat_template = "yes"

    def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> str:
        return f"user: {messages[0]['content']} assistant:"

    def encode(self, text: str, **options: Any) -> list[int]:
        self.words = getattr(self, "words", ["<pad>"])
        for word in text.split():
            if word not in self.words:
                self.words.append(word)
        return [self.words.index(word) for word in text.split()]

    def decode(self, ids: list[int], **options: Any) -> str:
        return " ".join(self.words[i] for i in ids)


@pytest.fixture
def lengths(tmp_path: Path) -> Path:
    rows = [
        {
            "id": f"p{i}",
            "sample": sample,
            "prompt": f"Prompt  number {i % 290}" if i < 290 else f"prompt NUMBER {i % 290}",
            "prompt_tokens": 5,
            "output_tokens": 3 + i % 40,
            "finish_reason": "stop",
            "censored": False,
            "model": "m",
            "temperature": 0.7,
            "max_tokens": 64,
        }
        for i in range(300)
        for sample in (0, 1)
    ]
    path = tmp_path / "lengths.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_split_keeps_prompts_apart_and_shows_training_what_the_scorer_sees(
    lengths: Path, tmp_path: Path
) -> None:
    train, test = (pl.read_ndjson(path) for path in split_lengths(lengths, Words(), tmp_path))
    assert set(train["prompt"].str.head(5)) == {"user:"}
    trained = {normalise(text.removeprefix("user: ").removesuffix(" assistant:")) for text in train["prompt"]}
    served = {normalise(text) for text in test["prompt"]}
    assert not trained & served
    assert len(trained | served) == 290
    assert test.height == len(served)
    assert 0.05 * 290 < test.height < 0.16 * 290
    # both samples of every training prompt are there
    assert train.height == 2 * (
        300 - sum(normalise(row) in served for row in pl.read_ndjson(lengths)["prompt"]) // 2
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prompt": None}, "'prompt' holds Null, expected String"),
        ({"output_tokens": "x"}, "'output_tokens' holds String, expected Int64"),
        ({"output_tokens": [1]}, r"'output_tokens' holds List\(Int64\)"),
    ],
)
def test_what_is_no_recording_of_responses_is_named(tmp_path: Path, change: dict, said: str) -> None:
    row = {"id": "a", "prompt": "p", "model": "m", "output_tokens": 3, "censored": False}
    file = tmp_path / "lengths.jsonl"
    file.write_text(json.dumps(row | change) + "\n")
    with pytest.raises(UserError, match=said):
        split_lengths(file, Words(), tmp_path)
    with pytest.raises(UserError, match="no such file"):
        split_lengths(tmp_path / "none.jsonl", Words(), tmp_path)


def test_too_few_responses_to_split(tmp_path: Path, lengths: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(lengths.read_text().splitlines()[:20]) + "\n")
    with pytest.raises(UserError, match="too few"):
        split_lengths(few, Words(), tmp_path)


@pytest.fixture
def prompts(lengths: Path, tmp_path: Path) -> Prompts:
    tokenizer = Words()
    _, test = split_lengths(lengths, tokenizer, tmp_path)
    return Prompts.read(test, tokenizer, 12, seed=1)


def test_only_the_oracle_knows_and_forces_the_recorded_length(prompts: Prompts) -> None:
    assert prompts.arrival_s[0] == 0.0
    assert prompts.at_load(4.0).arrival_s[-1] == pytest.approx(prompts.arrival_s[-1] / 4)
    natural, oracle = prompts.jobs(POLICIES["pars"]), prompts.jobs(POLICIES["oracle"])
    assert {job.output_tokens for job in natural} == {64}
    assert {job.score for job in natural} == {None}
    assert [job.output_tokens for job in oracle] == prompts.recorded
    assert [job.score for job in oracle] == [float(length) for length in prompts.recorded]
    assert all(job.prompt_token_ids == ids for job, ids in zip(natural, prompts.token_ids, strict=True))


def test_the_model_is_given_lengths_speed_and_scoring_cost_of_each_run(prompts: Prompts) -> None:
    generated = [length + 5 for length in prompts.recorded]
    served = prompts.trace(generated, {}).frame.with_columns(
        first_scheduled_s=pl.col("arrival_s"),
        first_token_s=pl.col("arrival_s") + 1,
        finish_s=pl.col("arrival_s") + 2,
    )
    run = Served(served, pl.DataFrame(), "cpu", (0.0, 0.0), 1.0, 1.0, {})
    config = load_engine("llama-3.1-8b-a100-80g", {"max_num_seqs": 2})
    probe = Probe(None, config, "cpu", 100, [], 0)

    def model(speed: float, base_s: float) -> pl.DataFrame:
        cost = ScoringCost(base_s=base_s, prompt_s=0, token_s=0, shares_core=True)
        scored = Scored({"pars": [float(i) for i in range(12)]}, {"pars": 0.0}, cost)
        return pair_of(POLICIES["pars"], [Timed(run, speed, speed)], prompts, scored, probe).model[0]

    plain, slower, dearer = model(1.0, 0.0), model(1.5, 0.0), model(1.0, 0.5)
    assert plain["output_tokens"].to_list() == generated
    assert plain["score"].to_list() == [float(i) for i in range(12)]
    first_s = plain["first_token_s"][0] - plain["arrival_s"][0]
    assert slower["first_token_s"][0] - slower["arrival_s"][0] == pytest.approx(1.5 * first_s)
    assert dearer["first_token_s"][0] - dearer["arrival_s"][0] == pytest.approx(0.5 + first_s)
