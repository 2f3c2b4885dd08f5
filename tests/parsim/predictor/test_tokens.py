from __future__ import annotations

import pytest

pytestmark = pytest.mark.predictor
pytest.importorskip("torch")

from parsim.predictor.ranker.encoder import load_encoder  # noqa: E402
from parsim.predictor.ranker.tokens import by_length, pad, tokenize  # noqa: E402


def test_head_keeps_the_start_and_head_tail_both_ends(tiny_encoder: str) -> None:
    tokenizer = load_encoder(tiny_encoder).tokenizer
    text = "list essay name story long short the a of about"
    ids = dict(zip(text.split(), tokenizer(text, add_special_tokens=False)["input_ids"], strict=True))
    assert tokenize(tokenizer, [text], 6)[0][1:-1] == [
        ids[word] for word in ("list", "essay", "name", "story")
    ]
    both = tokenize(tokenizer, [text], 6, "head-tail")[0]
    assert both[1:-1] == [ids[word] for word in ("list", "essay", "of", "about")]
    assert (both[0], both[-1]) == (2, 3)
    assert tokenize(tokenizer, ["list"], 6, "head-tail") == tokenize(tokenizer, ["list"], 6)


def test_odd_room_gives_the_head_one_more(tiny_encoder: str) -> None:
    tokenizer = load_encoder(tiny_encoder).tokenizer
    words = ["list", "essay", "name", "story", "long", "short"]
    both = tokenize(tokenizer, [" ".join(words)], 5, "head-tail")[0]
    assert len(both) == 5
    assert both[1:3] == tokenizer("list essay", add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize(
    "text", ["", " \n", "x" * 100_000, "数" * 500, "\ud800 broken", "\x00\x01", "🚢" * 300]
)
@pytest.mark.parametrize("truncation", ["head", "head-tail"])
def test_any_text_becomes_a_short_row(tiny_encoder: str, text: str, truncation: str) -> None:
    row = tokenize(load_encoder(tiny_encoder).tokenizer, [text], 16, truncation)[0]
    assert 2 <= len(row) <= 16
    assert (row[0], row[-1]) == (2, 3)


def test_padding_and_grouping() -> None:
    ids, mask = pad([[2, 5, 3], [2, 3]], pad_id=0)
    assert ids.tolist() == [[2, 5, 3], [2, 3, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    groups = list(by_length([[1] * 5, [1], [1] * 3, [1] * 2], 2))
    assert [group.tolist() for group in groups] == [[1, 3], [2, 0]]
