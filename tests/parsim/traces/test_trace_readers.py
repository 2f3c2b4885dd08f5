"""Each format by rows written here from its documented columns."""

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from parsim.traces import UserError, read_corpus, read_trace, write_trace


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def lines(*records: dict) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


AZURE_2023 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n"
    "2023-11-16 18:15:50.9951690,396,109\n"
    "2023-11-16 18:15:50.9951691,1,1\n"
)


def test_azure_2023_keeps_all_seven_digits(tmp_path):
    trace = read_trace(written(tmp_path, "a.csv", AZURE_2023))
    assert trace.frame["arrival_s"].to_list() == pytest.approx([0, 4.314579, 4.3145791], abs=1e-12)
    assert trace.frame["prompt_tokens"].to_list() == [374, 396, 1]
    assert trace.frame["output_tokens"].to_list() == [44, 109, 1]
    assert trace.frame["request_id"].to_list() == ["0", "1", "2"]
    assert trace.metadata["format"] == "azure"
    assert trace.name == "a"


def test_azure_2024_offsets_and_missing_fractions(tmp_path):
    rows = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,3,4\n"
        "2024-05-10 00:00:00+00:00,5,6\n"
        "2024-05-10 02:00:01+0200,7,8\n"
        "2024-05-09T19:00:02.5-05:00,9,10\n"
        "2024-05-10 00:00:03Z,11,12\n"
    )
    trace = read_trace(written(tmp_path, "a.csv", rows))
    assert trace.frame["arrival_s"].to_list() == pytest.approx([0, 0.00993, 1, 2.5, 3])
    assert trace.frame["prompt_tokens"].to_list() == [5, 3, 7, 9, 11]
    assert trace.metadata["notes"] == "1 of 5 rows arrive before the row above them: sorted by arrival"


@pytest.mark.parametrize(
    "change", [lambda t: "\ufeff" + t, lambda t: t.replace("\n", "\r\n"), lambda t: t + "\n\n"]
)
def test_azure_with_byte_order_mark_or_windows_lines_or_blank_end(tmp_path, change):
    plain = read_trace(written(tmp_path, "a.csv", AZURE_2023))
    changed = read_trace(written(tmp_path, "b.csv", change(AZURE_2023)))
    assert changed.frame.equals(plain.frame)


def test_columns_are_found_by_name_not_place(tmp_path):
    rows = "GeneratedTokens,region,TIMESTAMP,ContextTokens\n44,west,2023-11-16 18:15:46.68,374\n"
    trace = read_trace(written(tmp_path, "a.csv", rows))
    assert trace.frame.row(0) == ("0", 0.0, 374, 44)


def test_a_name_is_not_a_pattern(tmp_path):
    for name, content in (("[a].csv", AZURE_2023), ("a*.jsonl", lines(mooncake(0, 5, 5, [])))):
        assert len(read_trace(written(tmp_path, name, content))) in (1, 3)
    write_trace(read_trace(tmp_path / "[a].csv"), tmp_path / "[b].parquet")
    assert len(read_trace(tmp_path / "[b].parquet")) == 3


def test_gzip_is_unpacked(tmp_path):
    plain = read_trace(written(tmp_path, "a.csv", AZURE_2023))
    packed = read_trace(written(tmp_path, "a.csv.gz", gzip.compress(AZURE_2023.encode())))
    assert packed.frame.equals(plain.frame)
    assert packed.name == "a"


BURSTGPT_OLD = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,ChatGPT,1087,0,1087,API log\n"
    "118,GPT-4,417,276,693,API log\n"
)
BURSTGPT_NEW = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log\n"
    "19440161.5,,2,ChatGPT,36,29,65,API log\n"
)


def test_burstgpt_old_columns_drop_and_count_failures(tmp_path):
    trace = read_trace(written(tmp_path, "b.csv", BURSTGPT_OLD))
    assert trace.frame.select("arrival_s", "prompt_tokens", "output_tokens").rows() == [
        (0, 472, 18),
        (113, 417, 276),
    ]
    assert trace.frame["client_id"].to_list() == ["Conversation log", "API log"]
    assert "session_id" not in trace.frame.columns
    assert "dropped 1 of 3 requests that failed (0 tokens)" in trace.metadata["notes"]


def test_burstgpt_new_columns_keep_sessions(tmp_path):
    trace = read_trace(written(tmp_path, "b.csv", BURSTGPT_NEW))
    assert trace.frame.select("arrival_s", "prompt_tokens", "output_tokens").rows() == [
        (0, 906, 446),
        (51.5, 36, 29),
    ]
    assert trace.frame["session_id"].to_list() == ["1722ac82", None]


def mooncake(timestamp: object, tokens: object, output: object, hashes: object) -> dict:
    return {"timestamp": timestamp, "input_length": tokens, "output_length": output, "hash_ids": hashes}


def test_mooncake_milliseconds_and_full_blocks_only(tmp_path):
    rows = lines(
        mooncake(0, 1025, 500, [0, 1, 2]), mooncake(3000, 1024, 7, [0, 1]), mooncake(3001, 511, 1, [9])
    )
    trace = read_trace(written(tmp_path, "m.jsonl", rows))
    assert trace.frame["arrival_s"].to_list() == [0, 3, 3.001]
    assert trace.frame["prefix_hashes"].to_list() == [[0, 1], [0, 1], []]
    assert trace.hash_block_size == 512


def test_mooncake_is_not_fooled_by_a_corpus_s_name_or_ending(tmp_path):
    trace = read_trace(written(tmp_path, "m.csv", lines(mooncake(0, 10, 5, [1]))))
    assert trace.metadata["format"] == "mooncake"


def test_bailian_seconds_blocks_of_16_and_sessions_by_first_chat(tmp_path):
    def chat(own: int, parent: int, at: float, tokens: int, hashes: list[int], kind: str) -> dict:
        return {
            "chat_id": own, "parent_chat_id": parent, "timestamp": at, "input_length": tokens,
            "output_length": 2, "type": kind, "turn": 1, "hash_ids": hashes,
        }  # fmt: skip

    rows = lines(
        chat(55, -1, 1.5, 16, [1], "file"),
        chat(159, 55, 61.114, 33, [1, 2, 3], "text"),
        chat(200, 159, 99, 8, [9], "text"),
        chat(201, 777, 99, 8, [9], "image"),  # its parent is not in the file
        chat(202, 200, 100, 8, [9], "text"),
    )
    trace = read_trace(written(tmp_path, "b.jsonl", rows))
    assert trace.frame["arrival_s"].to_list() == pytest.approx([0, 59.614, 97.5, 97.5, 98.5])
    assert trace.frame["session_id"].to_list() == ["55", "55", "55", "201", "55"]
    assert trace.frame["client_id"].to_list() == ["file", "text", "text", "image", "text"]
    assert trace.frame["prefix_hashes"].to_list() == [[1], [1, 2], [], [], []]
    assert trace.hash_block_size == 16


CONVERSATIONS = [
    {"id": "a", "conversations": [{"from": "human", "value": "x" * 9}, {"from": "gpt", "value": "Hi!!"}]},
    {"id": "b", "conversations": []},
    {
        "id": "c",
        "conversations": [
            {"from": "gpt", "value": "first"},
            {"from": "human", "value": "Grüße"},
            {"from": "gpt", "value": "12345678"},
            {"from": "human", "value": "more"},
        ],
    },
    {"id": "d", "conversations": [{"from": "human", "value": "q"}, {"from": "human", "value": "q2"}]},
]


def test_sharegpt_takes_the_first_exchange_and_estimates_tokens(tmp_path):
    corpus = read_corpus(written(tmp_path, "s.json", json.dumps(CONVERSATIONS)))
    assert corpus.frame.select("request_id", "prompt").rows() == [("a", "x" * 9), ("c", "Grüße")]
    assert corpus.frame.select("prompt_tokens", "output_tokens").rows() == [(3, 1), (2, 2)]  # ceil(bytes / 4)
    assert corpus.metadata["tokenizer"] == "estimated: UTF-8 bytes / 4"
    assert corpus.metadata["notes"] == "dropped 2 of 4 conversations without a first exchange"


def test_sharegpt_takes_counts_that_are_given(tmp_path):
    counted = [{**CONVERSATIONS[0], "prompt_tokens": 70, "output_tokens": 8}]
    corpus = read_corpus(written(tmp_path, "s.json", json.dumps(counted, indent=1)))
    assert corpus.frame.select("prompt_tokens", "output_tokens").rows() == [(70, 8)]
    assert corpus.metadata["tokenizer"] == "counts given in the file"


BENCH = {
    "date": "20260101-120000", "model_id": "m", "tokenizer_id": "tk", "request_throughput": 1.0,
    "max_concurrency": None, "input_lens": [5, 6, 7, 8], "output_lens": [3, 4, 0, 9],
    "start_times": [102.25, 100.5, 101.0, 103.0], "errors": ["", "boom", "", ""],
}  # fmt: skip


@pytest.mark.parametrize("indent", [None, 2])
def test_vllm_bench_drops_failed_requests_and_starts_at_zero(tmp_path, indent):
    trace = read_trace(written(tmp_path, "r.json", json.dumps(BENCH, indent=indent)))
    assert trace.frame.select("arrival_s", "prompt_tokens", "output_tokens").rows() == [
        (0, 5, 3),
        (0.75, 8, 9),
    ]
    assert trace.metadata["notes"] == "dropped 2 of 4 requests that failed (0 tokens, or an error)"
    assert trace.metadata["model"] == "m"


def test_vllm_bench_without_details_names_the_option(tmp_path):
    short = {key: value for key, value in BENCH.items() if not key.endswith(("_lens", "_times"))}
    with pytest.raises(UserError, match=r"no list input_lens, output_lens, start_times.*--save-detailed"):
        read_trace(written(tmp_path, "r.json", json.dumps(short)))


@pytest.mark.vllm
def test_vllm_bench_columns_are_those_that_vllm_writes():
    installed = find_spec("vllm")
    if installed is None or installed.origin is None:
        pytest.skip("vLLM is not installed")
    written_by = (Path(installed.origin).parent / "benchmarks/serve.py").read_text()
    assert all(f'"{name}": ' in written_by for name in ("input_lens", "output_lens", "start_times", "errors"))


def test_vidur_lengths_are_a_corpus_and_with_arrivals_a_trace(tmp_path):
    lengths = written(
        tmp_path, "v.csv", "num_prefill_tokens,num_decode_tokens,pd_ratio\n3772,54,69.8\n2015,156,12.9\n"
    )
    assert read_corpus(lengths).frame.select("prompt_tokens", "output_tokens").rows() == [
        (3772, 54),
        (2015, 156),
    ]
    with pytest.raises(UserError, match=r"lengths without arrival times.*parsim traces join .*v\.csv"):
        read_trace(lengths)
    arriving = written(
        tmp_path, "w.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n2.5,3772,54\n3,1,1\n"
    )
    assert read_trace(arriving).frame["arrival_s"].to_list() == [0, 0.5]


def test_servingsim_recording_starts_at_zero(tmp_path):
    def row(at: float) -> dict:
        return {
            "request_id": f"r{at}",
            "input_toks": 10,
            "output_toks": 2,
            "arrival_time": at,
            "queued_ts": 1.0,
        }

    trace = read_trace(written(tmp_path, "r.jsonl", lines(row(1787267980.5), row(1787267981.0))))
    assert trace.frame["arrival_s"].to_list() == [0, 0.5]
    assert trace.frame["request_id"].to_list() == ["r1787267980.5", "r1787267981.0"]


def test_corpus_of_several_models_needs_a_choice(tmp_path):
    rows = lines(
        {"id": 7, "prompt": "p", "prompt_tokens": 1, "len": {"A": 3, "B": 4}, "score.x": 0.5},
        {"id": 8, "prompt": "q", "prompt_tokens": 2, "len": {"B": 5}, "score.x": -1},
    )
    path = written(tmp_path, "c.jsonl", rows)
    corpus = read_corpus(path, "A")
    assert corpus.frame.rows(named=True) == [
        {"request_id": "7", "prompt_tokens": 1, "output_tokens": 3, "prompt": "p", "score.x": 0.5}
    ]
    assert corpus.metadata["notes"] == "dropped 1 of 2 prompts without a length of A"
    assert read_corpus(path, "B").frame["output_tokens"].to_list() == [4, 5]
    with pytest.raises(UserError, match="choose one: A, B"):
        read_corpus(path)
    with pytest.raises(UserError, match="no lengths of model 'C'; found: A, B"):
        read_corpus(path, "C")


def test_corpus_of_one_length_estimates_missing_prompt_tokens_and_filters_by_model(tmp_path):
    rows = lines(
        {"prompt": "12345", "output_tokens": 3, "model": "A"},
        {"prompt": "1234", "output_tokens": 4, "model": "B"},
    )
    path = written(tmp_path, "c.jsonl", rows)
    assert read_corpus(path).frame.select("prompt_tokens", "output_tokens").rows() == [(2, 3), (1, 4)]
    assert read_corpus(path, "B").frame.select("prompt_tokens", "output_tokens").rows() == [(1, 4)]
    with pytest.raises(UserError, match="no row of model 'C'; found: A, B"):
        read_corpus(path, "C")


def test_plain_accepts_lists_of_hashes_in_csv_and_keeps_its_own_clock(tmp_path):
    rows = (
        "request_id,arrival_s,prompt_tokens,output_tokens,prefix_hashes,hash_block_size,score.pars,promt\n"
        'a,5,8,1,"[1, 2]",4,0.5,x\n'
        "b,6,3,1,[],4,-1,y\n"
    )
    trace = read_trace(written(tmp_path, "p.csv", rows))
    assert trace.frame["arrival_s"].to_list() == [5, 6]
    assert trace.frame["prefix_hashes"].to_list() == [[1, 2], []]
    assert trace.hash_block_size == 4
    assert trace.score_names == ["pars"]
    assert trace.metadata["reading"] == "not used: promt (meant prompt?)"


def test_recorded_shared_files(shared):
    """Row counts and means as counted by others: the data's README (azure, mooncake), LLMServingSim's README."""
    conversation = read_trace(shared / "data/traces/mooncake-conversation.jsonl").frame
    assert conversation.height == 12_031
    assert conversation["prompt_tokens"].mean() == pytest.approx(12_035, abs=0.5)
    assert conversation["output_tokens"].mean() == pytest.approx(343, abs=0.5)
    assert (conversation["prefix_hashes"].list.len() == conversation["prompt_tokens"] // 512).all()
    summaries = read_corpus(shared / "data/traces/vidur-arxiv-summarization-lengths.csv").frame
    assert summaries.height == 28_257
    assert summaries["prompt_tokens"].mean() == pytest.approx(2588, abs=0.5)
    assert summaries["output_tokens"].mean() == pytest.approx(291, abs=0.5)
    assert len(read_trace(shared / "data/recordings/RTX4090_Llama-3.1-8B/requests.jsonl")) == 300
