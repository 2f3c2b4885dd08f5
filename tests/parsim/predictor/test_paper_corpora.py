from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from parsim.errors import UserError
from parsim.predictor.corpora.paper_corpora import read_paper_corpus


def write(folder: Path, rows: list[dict[str, Any]]) -> Path:
    file = folder / "corpus.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def test_alpaca_gpt4_joins_instruction_and_input(tmp_path: Path) -> None:
    rows = [
        {"instruction": "Add.", "input": "1 2", "output": "It is three.", "text": "..."},
        {"instruction": "Sing.", "input": "", "output": "La la", "text": "..."},
        {"instruction": "Nothing.", "input": "", "output": " ", "text": "..."},
    ]
    corpus = read_paper_corpus("alpaca-gpt4", write(tmp_path, rows), unit="words")
    assert corpus.label().prompts == ["Add.\n1 2", "Sing."]
    assert corpus.label().lengths.round().tolist() == [3, 2]
    assert corpus.models == ["gpt-4"]
    assert corpus.dropped == {"no prompt or no response": 1}


def test_lmsys_takes_the_first_turn_of_the_named_model(tmp_path: Path) -> None:
    def chat(model: str, *turns: str) -> dict[str, Any]:
        roles = ("user", "assistant")
        talk = [{"content": text, "role": roles[number % 2]} for number, text in enumerate(turns)]
        return {
            "conversation_id": model,
            "model": model,
            "conversation": talk,
            "turn": len(turns) // 2,
            "redacted": False,
        }

    rows = [
        chat("vicuna-13b", "Hi", "Hello there!", "Bye", "So long"),
        chat("gpt-4", "Hi", "Hey"),
        chat("vicuna-13b", "Alone"),
        chat("vicuna-13b"),
    ]
    corpus = read_paper_corpus("lmsys-chat-1m", write(tmp_path, rows), unit="chars")
    data = corpus.label(["vicuna-13b"])
    assert data.prompts == ["Hi"]
    assert data.lengths.round().tolist() == [12]
    assert corpus.dropped == {"no prompt or no response": 2}


@pytest.mark.parametrize("name", ["math-plus", "evol-codealpaca-v1"])
def test_instruction_and_output(tmp_path: Path, name: str) -> None:
    rows = [
        {"instruction": "Prove it.", "output": "one two three"},
        {"instruction": "Prove it.", "output": "one"},
    ]
    corpus = read_paper_corpus(name, write(tmp_path, rows), unit="words")
    assert corpus.frame["lengths"].to_list() == [[3.0, 1.0]]
    assert corpus.frame["dataset"].to_list() == [name]


def test_tokens_are_counted_by_the_tokenizer(tmp_path: Path) -> None:
    def tokenizer(texts: list[str], **_: Any) -> dict[str, list[list[int]]]:
        return {"input_ids": [[0] * (2 * len(text.split())) for text in texts]}

    file = write(tmp_path, [{"instruction": "a", "output": "one two"}])
    assert read_paper_corpus(
        "math-plus", file, unit="tokens", tokenizer=tokenizer
    ).label().lengths.round() == [4]
    with pytest.raises(UserError, match=r"needs a tokenizer.*count words or chars"):
        read_paper_corpus("math-plus", file, unit="tokens")


def test_another_layout(tmp_path: Path) -> None:
    file = write(tmp_path, [{"prompt": "a", "output_tokens": 2}])
    with pytest.raises(UserError, match="no column conversation, model: not the layout of lmsys-chat-1m"):
        read_paper_corpus("lmsys-chat-1m", file)


@pytest.mark.predictor
def test_no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")

    def unreachable(*_: Any, **__: Any) -> None:
        raise ConnectionError("offline")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(UserError, match=r"cannot be had from the Hugging Face hub.*as DATA instead of hub"):
        read_paper_corpus("alpaca-gpt4")


@pytest.mark.parametrize(
    ("name", "row", "words"),
    [
        (
            "lmsys-chat-1m",
            {"conversation": "hi", "model": "m"},
            'conversation is "hi", expected a list of messages',
        ),
        (
            "lmsys-chat-1m",
            {"conversation": [["hi", "ho"]], "model": "m"},
            'conversation is [["hi", "ho"]], expected',
        ),
        (
            "lmsys-chat-1m",
            {"conversation": [{"content": 3}], "model": "m"},
            'conversation is [{"content": 3}], exp',
        ),
        ("lmsys-chat-1m", {"conversation": [], "model": ["m"]}, 'model is ["m"], expected text or a number'),
        ("math-plus", {"instruction": "a", "output": 3}, "output is 3, expected text"),
        ("math-plus", {"instruction": ["a"], "output": "b"}, 'instruction is ["a"], expected text'),
        ("alpaca-gpt4", {"instruction": "a", "input": 1, "output": "b"}, "input is 1, expected text"),
    ],
)
def test_a_bad_value_is_named_with_its_line(
    tmp_path: Path, name: str, row: dict[str, Any], words: str
) -> None:
    good = {"instruction": "a", "input": "", "output": "b", "conversation": [], "model": "m"}
    file = write(tmp_path, [good, row])
    with pytest.raises(UserError) as caught:
        read_paper_corpus(name, file)
    assert str(caught.value).startswith(f"{file}: line 2: {words}")
    pl.DataFrame([row]).write_parquet(tmp_path / "c.parquet")
    with pytest.raises(UserError, match=r"c.parquet: row 1: "):
        read_paper_corpus(name, tmp_path / "c.parquet")


def test_gaps_and_a_table(tmp_path: Path) -> None:
    rows = [
        {"conversation": None, "model": "m"},
        {
            "conversation": [{"role": "user", "content": "a"}, {"role": "assistant", "content": None}],
            "model": None,
        },
        {
            "conversation": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b c"}],
            "model": None,
        },
    ]
    files = write(tmp_path, rows), tmp_path / "c.parquet"
    pl.DataFrame(rows).with_columns(row=pl.lit(1)).write_parquet(files[1])
    for file in files:
        corpus = read_paper_corpus("lmsys-chat-1m", file)
        assert corpus.frame.rows() == [("3", "lmsys-chat-1m", "a", "recorded", [2.0], False)]
        assert corpus.dropped == {"no prompt or no response": 2}
        with pytest.raises(UserError, match="no row has both a prompt and a response"):
            read_paper_corpus("lmsys-chat-1m", file, limit=2)


def test_input_of_nulls_alone(tmp_path: Path) -> None:
    file = write(tmp_path, [{"instruction": "a", "input": None, "output": "b c"}])
    assert read_paper_corpus("alpaca-gpt4", file).label().prompts == ["a"]
