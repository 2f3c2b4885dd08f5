from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import UserError
from parsim.predictor.corpora.corpus import Labelled
from parsim.predictor.corpora.split import normalise, prompt_keys, refuse_overlap, split


def labelled(prompts: list[str]) -> Labelled:
    return Labelled(
        prompts, np.arange(1.0, len(prompts) + 1), np.zeros(len(prompts), bool), ["x"] * len(prompts)
    )


def test_normalise_unifies_case_space_and_compatible_characters() -> None:
    assert normalise("  Hello\n\tWORLD ") == normalise("hello world")
    assert normalise("ﬁne １２") == normalise("fine 12")  # noqa: RUF001
    assert normalise("hello") != normalise("hello!")


@given(st.lists(st.text(max_size=8), min_size=20, max_size=60), st.integers(0, 5))
def test_no_prompt_crosses_the_split(prompts: list[str], seed: int) -> None:
    data = labelled([*prompts, *(prompt.upper() + " " for prompt in prompts), *map(str, range(50))])
    parts = split(data, seed=seed)
    keys = prompt_keys(data.prompts)
    sides = [set(keys[rows].tolist()) for rows in (parts.train, parts.validation, parts.test)]
    assert not (sides[0] & sides[1] or sides[0] & sides[2] or sides[1] & sides[2])
    everything = np.concatenate([parts.train, parts.validation, parts.test])
    assert sorted(everything.tolist()) == list(range(len(data)))


def test_shares_and_seed() -> None:
    data = labelled([f"prompt {number}" for number in range(1000)])
    parts = split(data)
    assert (len(parts.test), len(parts.validation), len(parts.train)) == (100, 90, 810)
    again, other = split(data), split(data, seed=43)
    assert parts.test.tolist() == again.test.tolist() != other.test.tolist()


def test_the_order_of_the_file_does_not_matter() -> None:
    prompts = [f"prompt {number}" for number in range(200)]
    forward, backward = labelled(prompts), labelled(prompts[::-1])
    one = {prompts[row] for row in split(forward).test}
    other = {prompts[::-1][row] for row in split(backward).test}
    assert one == other


def test_overlap_is_refused() -> None:
    keys = prompt_keys(["What is love?"])
    with pytest.raises(UserError, match=r"1 of 2 prompts were seen in training.*unseen"):
        refuse_overlap(["what  is LOVE?", "another"], keys, "data.jsonl")
    refuse_overlap(["another"], keys, "data.jsonl")


def test_too_few_prompts() -> None:
    with pytest.raises(UserError, match="too few"):
        split(labelled(["a", "A", "a "]))
