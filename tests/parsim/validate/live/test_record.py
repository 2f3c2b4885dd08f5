"""Recording a model's natural lengths: prompts, resuming, censoring."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from parsim.errors import UserError
from parsim.validate.live.record import Prompt, Recording, read_prompts, record, resume


def _lines(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_prompts_from_every_kind_of_file(tmp_path: Path) -> None:
    rows = [{"id": "a", "prompt": "one"}, {"id": "b", "prompt": "zwei\nlines"}]
    assert read_prompts(_lines(tmp_path / "p.jsonl", rows)) == [
        Prompt("a", "one"),
        Prompt("b", "zwei\nlines"),
    ]
    (tmp_path / "p.txt").write_text("one\ntwo\n")
    assert read_prompts(tmp_path / "p.txt") == [Prompt("0", "one"), Prompt("1", "two")]
    assert read_prompts(tmp_path / "p.txt", limit=1) == [Prompt("0", "one")]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "a", "text": "x"}], "no column 'prompt'"),
        ([{"id": "a", "prompt": "x"}, {"id": "b", "prompt": "  "}], "row 2.*empty"),
        ([{"id": "a", "prompt": "x"}, {"id": "a", "prompt": "y"}], "id 'a'"),
    ],
)
def test_bad_prompts_are_named(tmp_path: Path, rows: list[dict], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_prompts(_lines(tmp_path / "p.jsonl", rows))


def test_resume_drops_a_line_that_was_cut_off_and_keeps_the_rest(tmp_path: Path) -> None:
    recording = Recording("some/model", temperature=0.7, max_tokens=64)
    out = _lines(tmp_path / "out.jsonl", [{"id": "a", "sample": s, **recording.stamp()} for s in (0, 1)])
    whole = out.read_bytes()
    out.write_bytes(whole + b'{"id": "b", "sam')
    assert resume(out, recording.stamp()) == {("a", 0), ("a", 1)}
    assert out.read_bytes() == whole
    assert resume(tmp_path / "new.jsonl", recording.stamp()) == set()


def test_resume_refuses_another_recording(tmp_path: Path) -> None:
    recording = Recording("some/model", temperature=0.7)
    out = _lines(tmp_path / "out.jsonl", [{"id": "a", "sample": 0, **recording.stamp()}])
    with pytest.raises(UserError, match=r"temperature=0\.7, now 0\.2"):
        resume(out, Recording("some/model", temperature=0.2).stamp())


@pytest.mark.vllm
def test_records_on_the_engine_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    from parsim.validate.live import record as module
    from parsim.validate.live.architectures import write_model_folder
    from parsim.validate.live.live_engine import require_vllm

    model = write_model_folder("tiny", tmp_path / "tiny")
    started = module.start_engine

    def dummy(model: str, settings: dict, seed: int) -> object:
        return started(model, settings, seed=seed, dummy=True)

    monkeypatch.setattr(module, "start_engine", dummy)
    monkeypatch.setattr(module, "chat_tokens", lambda tokenizer, text: [5 + len(text)] * len(text))
    require_vllm()
    monkeypatch.setattr("vllm.v1.engine.llm_engine.LLMEngine.get_tokenizer", lambda self: None)
    recording = Recording(str(model), samples=2, max_tokens=12, concurrency=3)
    prompts = [Prompt(str(i), "x" * (3 + i)) for i in range(4)]
    out = tmp_path / "out.jsonl"
    assert record(prompts[:2], out, recording) == 4
    assert record(prompts, out, recording) == 4
    assert record(prompts, out, recording) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted((row["id"], row["sample"]) for row in rows) == [
        (str(i), s) for i in range(4) for s in (0, 1)
    ]
    for row in rows:
        assert row["prompt_tokens"] == len(row["prompt"])
        assert row["censored"] == (row["finish_reason"] == "length") == (row["output_tokens"] == 12)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.txt", b"\xff\xfe", "is not UTF-8 text"),
        ("p.parquet", b"PAR1 cut", "p.parquet: "),
        ("p.jsonl", b"hello", "line 1: not valid JSON"),
        ("p.jsonl", b'{"prompt": [1]}', r"prompt holds List\(Int64\), expected text"),
        ("p.jsonl", b'{"prompt": "a", "id": [1]}', "id holds List"),
        ("p.jsonl", b'{"prompt": "a", "id": "x"}\n{"prompt": "b", "id": null}', "row 2: has no id"),
    ],
)
def test_damaged_prompts_are_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=said):
        read_prompts(tmp_path / name)


@pytest.mark.parametrize("row", [{}, {"id": "a"}, {"id": "a", "sample": [1]}, {"id": 3, "sample": 0}])
def test_resume_refuses_what_is_no_recording(tmp_path: Path, row: dict) -> None:
    with pytest.raises(UserError, match="line 1: has no id and sample"):
        resume(_lines(tmp_path / "o.jsonl", [{"model": "m", **row}]), {"model": "m"})
