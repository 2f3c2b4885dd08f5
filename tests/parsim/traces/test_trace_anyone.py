"""Files of people who have never heard of this project: rows written here in the layouts that they publish."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from parsim.traces import UserError, read_corpus, read_trace


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def arrivals(path: Path, **how: Any) -> list[float]:
    return read_trace(path, **how).frame["arrival_s"].to_list()


CSV = {
    "Azure in other spelling": (
        "timestamp,context_tokens,generated_tokens\n2024-03-01 10:00:00.5,9,3\n2024-03-01 10:00:02,8,4\n",
        [(0, 9, 3), (1.5, 8, 4)],
    ),
    "Azure multimodal": (
        "Timestamp,NumImages,ContextTokens,GeneratedTokens\n2024-10-01 00:00:00.25,2,11,5\n2024-10-01 00:00:01,0,7,6\n",
        [(0, 11, 5), (0.75, 7, 6)],
    ),
    "Azure in milliseconds since 1970": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n1700158546680,5,4\n1700158550995,6,3\n",
        [(0, 5, 4), (4.315, 6, 3)],
    ),
    "BurstGPT in other spelling": (
        "timestamp,model,REQUEST_TOKENS,response tokens,Log_Type\n7,m,100,20,API log\n47,m,9,8,API log\n",
        [(0, 100, 20), (40, 9, 8)],
    ),
    "milliseconds by name": (
        "timestamp_ms,prompt_tokens,output_tokens\n100,5,6\n350,7,8\n",
        [(0, 5, 6), (0.25, 7, 8)],
    ),
    "semicolons and decimal commas": (
        "arrival_s;input tokens;output tokens\n0,5;5;6\n1,75;7;8\n",
        [(0.5, 5, 6), (1.75, 7, 8)],
    ),
    "tabs": ("Arrival Time\tprompt_len\toutput_len\n3\t5\t6\n4.5\t7\t8\n", [(0, 5, 6), (1.5, 7, 8)]),
    "microseconds of BLIS": (
        "request_id,session_id,round_index,input_tokens,output_tokens,arrival_time_us,status\n"
        "0,,0,5,6,1000000,ok\n1,,0,9,9,1100000,error\n2,,0,7,8,1250000,ok\n",
        [(0, 5, 6), (0.25, 7, 8)],
    ),
    "sizes of splitwise-sim": (
        "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
        "0,2,0,0.5,1,374,44\n1,2,0,1.75,1,396,109\n",
        [(0, 374, 44), (1.25, 396, 109)],
    ),
    "zones": (
        "when_received_at,created_at,tokens_in,tokens_out\n"
        "x,2026-02-01T12:00:00+01:00,5,6\nx,2026-02-01T11:00:01Z,7,8\nx,2026-02-01T06:00:02.5-05:00,9,10\n",
        [(0, 5, 6), (1, 7, 8), (2.5, 9, 10)],
    ),
}


@pytest.mark.parametrize("case", CSV)
def test_tables(tmp_path, case):
    content, rows = CSV[case]
    frame = read_trace(written(tmp_path, "t.csv", content)).frame
    found = frame.select("arrival_s", "prompt_tokens", "output_tokens").rows()
    assert found == [pytest.approx(row) for row in rows]


JSONL = {
    "LLMServingSim workload": (
        [
            {"input_toks": 10, "output_toks": 3, "arrival_time_ns": 100_000_000},
            {"input_toks": 12, "output_toks": 4, "arrival_time_ns": 142_833_000},
        ],
        [(0, 10, 3), (0.042833, 12, 4)],
    ),
    "Dynamo": (
        [
            {"created_time": 0.0, "input_tokens": 600, "output_tokens": 5, "hash_ids": [1, 2]},
            {"created_time": 250.0, "input_tokens": 700, "output_tokens": 6, "hash_ids": [1, 3]},
        ],
        [(0, 600, 5), (0.25, 700, 6)],
    ),
    "Mooncake without hashes": (
        [
            {"timestamp": 0, "input_length": 256, "output_length": 128},
            {"timestamp": 500, "input_length": 300, "output_length": 64},
        ],
        [(0, 256, 128), (0.5, 300, 64)],
    ),
    "usage inside a response": (
        [
            {
                "created": 1700000003,
                "usage": {"completion_tokens": 7, "prompt_tokens": 3, "total_tokens": 10},
            },
            {
                "created": 1700000001,
                "usage": {"completion_tokens": 9, "prompt_tokens": 4, "total_tokens": 13},
            },
        ],
        [(0, 4, 9), (2, 3, 7)],
    ),
    "usage at the top, ISO times": (
        [
            {"timestamp": "2026-01-01T00:00:00.250Z", "prompt_tokens": 100, "completion_tokens": 10},
            {"timestamp": "2026-01-01T00:00:01.500Z", "prompt_tokens": 120, "completion_tokens": 40},
        ],
        [(0, 100, 10), (1.25, 120, 40)],
    ),
    "Anthropic usage leaves cached tokens out": (
        [
            {"ts": 1e9, "usage": {"input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 3}},
            {"ts": 1e9 + 0.5, "usage": {"input_tokens": 6, "output_tokens": 4}},
        ],
        [(0, 105, 3), (0.5, 6, 4)],
    ),
    "prompts in place of their lengths": (
        [
            {"timestamp": 0, "text_input": "x" * 30, "output_length": 52},
            {"timestamp": 700, "text_input": "y" * 5, "output_length": 20},
        ],
        [(0, 8, 52), (0.7, 2, 20)],
    ),
    "LiteLLM": (
        [
            {
                "startTime": 1700000000.5,
                "endTime": 1700000002,
                "prompt_tokens": 5,
                "completion_tokens": 6,
                "status": "success",
            },
            {
                "startTime": 1700000001.5,
                "endTime": 1700000002,
                "prompt_tokens": 5,
                "completion_tokens": 0,
                "status": "failure",
            },
            {
                "startTime": 1700000002.0,
                "endTime": 1700000004,
                "prompt_tokens": 8,
                "completion_tokens": 9,
                "status": "success",
            },
        ],
        [(0, 5, 6), (1.5, 8, 9)],
    ),
    "AIPerf": (
        [
            {
                "metadata": {
                    "x_request_id": f"id{at}",
                    "request_start_ns": 1_700_000_000_000_000_000 + at * 500_000_000,
                },
                "metrics": {
                    "input_sequence_length": {"value": 100 + at, "unit": "tokens"},
                    "output_sequence_length": {"value": 20 + at, "unit": "tokens"},
                },
                "error": None,
            }
            for at in range(3)
        ],
        [(0, 100, 20), (0.5, 101, 21), (1, 102, 22)],
    ),
}


@pytest.mark.parametrize("shape", ["lines", "list", "wrapped"])
@pytest.mark.parametrize("case", JSONL)
def test_json(tmp_path, case, shape):
    records, rows = JSONL[case]
    text = {
        "list": json.dumps(records, indent=1),
        "lines": lines(*records),
        "wrapped": json.dumps({"object": "list", "data": records}),
    }[shape]
    frame = read_trace(written(tmp_path, "t.json", text)).frame
    found = frame.select("arrival_s", "prompt_tokens", "output_tokens").rows()
    assert found == [pytest.approx(row) for row in rows]


def test_columns_are_the_union_over_all_rows(tmp_path):
    rows = lines(
        {"arrival_s": 0, "prompt_tokens": 10, "output_tokens": 5},
        {"arrival_s": 1, "prompt_tokens": 11, "output_tokens": 6, "score.pars": 2.5, "client_id": "b"},
        {
            "arrival_s": 2.5,
            "prompt_tokens": 12,
            "output_tokens": 7,
            "score.pars": -1,
            "client_id": "b",
            "model": "m",
        },
    )
    trace = read_trace(written(tmp_path, "t.jsonl", rows))
    assert trace.frame["score.pars"].to_list() == [None, 2.5, -1]
    assert trace.frame["client_id"].to_list() == [None, "b", "b"]
    assert "1 of 3 requests have no score.pars" in trace.metadata["notes"]


def test_what_was_assumed_and_what_is_not_used_is_said(tmp_path):
    rows = "created,who,in_tokens,reply_tokens,cost\n1700000000,a,5,6,1\n1700000060,b,7,8,1\n"
    trace = read_trace(written(tmp_path, "t.csv", rows))
    assert trace.metadata["reading"] == (
        "arrival_s = created (seconds since 1970), prompt_tokens = in_tokens, output_tokens = reply_tokens, "
        "not used: who, cost"
    )


def test_columns_that_the_user_names(tmp_path):
    rows = "clocked,asked,said,who\n2026-01-01 00:00:00,5,6,a\n2026-01-01 00:00:01.5,7,8,b\n"
    path = written(tmp_path, "t.csv", rows)
    with pytest.raises(UserError, match="no column tells tokens of the prompt"):
        read_trace(path)
    how = {"arrival_s": "clocked", "prompt_tokens": "Asked", "output_tokens": "said", "client_id": "who"}
    assert read_trace(path, column=how).frame.drop("request_id").rows() == [(0, 5, 6, "a"), (1.5, 7, 8, "b")]
    with pytest.raises(UserError, match="no column 'clock', asked for as arrival_s; did you mean 'clocked'"):
        read_trace(path, column={"arrival_s": "clock"})
    with pytest.raises(
        UserError, match="column 'arrival': a trace has no such column; did you mean 'arrival_s'"
    ):
        read_trace(path, column={"arrival": "clocked"})


@pytest.mark.parametrize(
    ("column", "names"),
    [
        ("output_tokens", "prompt_tokens,gen_total2,prompt_bytes2"),
        ("prompt_tokens", "output_tokens,question_size2,answer_size2"),
    ],
)
def test_the_nearest_column_is_one_of_like_meaning(tmp_path, column, names):
    path = written(tmp_path, "t.csv", f"arrival_s,{names}\n0,1,2,3\n")
    near = names.split(",")[1]
    with pytest.raises(UserError, match=rf"nearest: {near}.*--column {column}={near}"):
        read_trace(path)


def moon(at: float, tokens: object, hashes: object = None) -> dict[str, Any]:
    row = {"timestamp": at, "input_length": tokens, "output_length": 5}
    return row if hashes is None else {**row, "hash_ids": hashes}


@pytest.mark.parametrize(
    ("hashes", "tokens", "size", "kept"),
    [
        (
            [[1, 2, 3], [1, 2, 4]],
            [40, 48],
            16,
            [[1, 2], [1, 2, 4]],
        ),  # 40 tokens: two full blocks of 16 and a rest
        ([[0, 1, 2], [0, 1]], [655, 655], 256, [[0, 1], [0, 1]]),
        ([[2**63 + 5, 7], [2**63 + 5, 9]], [600, 600], 512, [[5 - 2**63], [5 - 2**63]]),
        ([["46", "47"], ["46", "48"]], [655, 655], 512, [[46], [46]]),
        ([["a9f", "0c"], ["a9f", "b"]], [1024, 1024], 512, [[2, 1], [2, 3]]),
    ],
)
def test_hashes_of_any_kind_and_size(tmp_path, hashes, tokens, size, kept):
    rows = [moon(200 * at, count, ids) for at, (count, ids) in enumerate(zip(tokens, hashes, strict=True))]
    trace = read_trace(written(tmp_path, "m.jsonl", lines(*rows)))
    assert trace.hash_block_size == size
    assert trace.frame["prefix_hashes"].to_list() == kept


def test_hashes_that_some_rows_lack_and_a_size_that_is_said(tmp_path):
    path = written(tmp_path, "m.jsonl", lines(moon(0, 100, [1, 2]), moon(1000, 50), moon(2500, 20, [])))
    trace = read_trace(path, hash_block_size=50)
    assert trace.frame["prefix_hashes"].to_list() == [[1, 2], [], []]
    assert "1 of 3 requests have no hash_ids: they share nothing" in trace.metadata["notes"]


def test_an_unlikely_rate_is_noted_with_the_option_that_mends_it(tmp_path):
    rows = [moon(0.2 * at, 600) for at in range(50)]
    path = written(tmp_path, "m.jsonl", lines(*rows))
    assert "5,000 requests/s is unlikely" in read_trace(path).metadata["notes"]
    assert "`--time-unit s`" in read_trace(path).metadata["notes"]
    told = read_trace(path, time_unit="s")
    assert told.span_s == pytest.approx(9.8)
    assert "notes" not in told.metadata
    slow = [moon(2_000_000 * at, 600) for at in range(3)]
    assert (
        "requests/s is unlikely" in read_trace(written(tmp_path, "s.jsonl", lines(*slow))).metadata["notes"]
    )


def test_whole_seconds_and_ticks_are_spread_when_asked(tmp_path):
    rows = "created,prompt_tokens,output_tokens\n" + "".join(
        f"{1700000000 + at // 4},5,6\n" for at in range(40)
    )
    path = written(tmp_path, "t.csv", rows)
    assert "`--tick 1`" in read_trace(path).metadata["notes"]
    spread = read_trace(path, tick_s=1.0)
    gaps = spread.frame["arrival_s"].diff().drop_nulls()
    assert (gaps > 0).all()
    assert spread.frame["arrival_s"].max() < 10
    assert "notes" in spread.metadata and "`--tick" not in spread.metadata["notes"]


def test_a_delay_after_the_turn_before_is_kept(tmp_path):
    rows = lines(
        {"session_id": "a", "timestamp": 0, "input_length": 655, "output_length": 52},
        {"session_id": "b", "timestamp": 100, "input_length": 9, "output_length": 2},
        {"session_id": "a", "delay": 500, "input_length": 900, "output_length": 52},
        {"session_id": "a", "delay": 250, "input_length": 950, "output_length": 2},
    )
    trace = read_trace(written(tmp_path, "m.jsonl", rows))
    kept = trace.frame.select("session_id", "arrival_s", "delay_s").rows()
    assert kept == [("a", 0, None), ("b", 0.1, None), ("a", 0.5, 0.5), ("a", 0.75, 0.25)]
    assert "2 of 4 requests have a delay after the turn before them and no arrival" in trace.metadata["notes"]


def test_recorded_gaps_become_delays(tmp_path):
    rows = "session_id,start_time,end_time,prompt_tokens,output_tokens\na,0,4,5,6\nb,1,9,5,6\na,6.5,8,7,8\na,7,9,7,8\n"
    trace = read_trace(written(tmp_path, "t.csv", rows))
    assert trace.frame["delay_s"].to_list() == [
        None,
        None,
        2.5,
        None,
    ]  # the last came before the turn before it ended


def bench(**changes: Any) -> dict[str, Any]:
    return {
        "date": "20260101",
        "model_id": "m",
        "request_rate": 2.0,
        "request_throughput": 1.0,
        "max_concurrency": None,
        "completed": 2,
        "input_lens": [5, 6],
        "output_lens": [3, 4],
        "start_times": [10.0, 10.5],
        "errors": ["", ""],
        **changes,
    }


def test_one_of_several_appended_results(tmp_path):
    path = written(tmp_path, "r.jsonl", lines(bench(), bench(input_lens=[50, 60])))
    with pytest.raises(UserError, match=r"holds 2 results .*choose one with `--run 1` to `--run 2`"):
        read_trace(path)
    assert read_trace(path, run=2).frame["prompt_tokens"].to_list() == [50, 60]
    with pytest.raises(UserError, match="holds 2 results, asked for number 3"):
        read_trace(path, run=3)


def test_a_client_that_held_the_queue_back_is_remembered(tmp_path):
    trace = read_trace(written(tmp_path, "r.json", json.dumps(bench(max_concurrency=8))))
    assert trace.metadata["max_concurrency"] == "8"
    assert "the client held the queue back" in trace.metadata["notes"]
    burst = read_trace(written(tmp_path, "r.json", json.dumps(bench(request_rate="inf"))))
    assert burst.metadata["request_rate"] == "inf"


def test_results_without_times_are_a_corpus(tmp_path):
    sglang = {key: value for key, value in bench(backend="sglang").items() if key != "start_times"}
    llmperf = [
        {"error_code": None, "number_output_tokens": 7, "number_input_tokens": 5, "ttft_s": 0.1},
        {"error_code": 429, "number_output_tokens": 0, "number_input_tokens": 5, "ttft_s": 0},
    ]
    for content, rows in ((sglang, [(5, 3), (6, 4)]), (llmperf, [(5, 7)])):
        path = written(tmp_path, "r.json", json.dumps(content))
        assert read_corpus(path).frame.select("prompt_tokens", "output_tokens").rows() == rows
        with pytest.raises(UserError, match="parsim traces join"):
            read_trace(path)


def test_guidellm(tmp_path):
    def request(at: float, prompt: int, output: int) -> dict[str, Any]:
        return {
            "request_id": f"r{at}",
            "request_start_time": 1.7e9 + at,
            "request_end_time": 1.7e9 + at + 1,
            "prompt_tokens": prompt,
            "output_tokens": output,
        }

    one = {
        "requests": {
            "successful": [request(0.5, 200, 50), request(0, 100, 10)],
            "incomplete": [{}],
            "errored": [],
        }
    }
    newer = {
        "requests": {
            "successful": [
                {
                    "request_id": "x",
                    "info": {"timings": {"request_start": 7.0}},
                    "input_metrics": {"text_tokens": 9},
                    "output_metrics": {"text_tokens": 8},
                }
            ]
        }
    }
    path = written(tmp_path, "g.json", json.dumps({"benchmarks": [one]}, indent=1))
    trace = read_trace(path)
    assert trace.frame.select("arrival_s", "prompt_tokens", "output_tokens").rows() == [
        (0, 100, 10),
        (0.5, 200, 50),
    ]
    assert "dropped 1 of 3 requests that did not succeed" in trace.metadata["notes"]
    both = written(tmp_path, "g.json", json.dumps({"benchmarks": [one, newer]}))
    with pytest.raises(UserError, match="holds 2 benchmarks"):
        read_trace(both)
    assert read_trace(both, run=2).frame.select("prompt_tokens", "output_tokens").rows() == [(9, 8)]


def test_genai_perf_estimates_tokens_of_the_texts(tmp_path):
    payload = json.dumps({"messages": [{"role": "user", "content": "x" * 12}]})
    chunk = "data: " + json.dumps({"choices": [{"delta": {"content": "abcdefgh"}}]})
    request = {
        "request_inputs": {"payload": payload},
        "response_outputs": [{"response": chunk}],
        "response_timestamps": [2],
    }
    requests = [{**request, "timestamp": 1_745_526_100_000_000_000 + 250_000_000 * at} for at in range(2)]
    content = {
        "service_kind": "openai",
        "experiments": [{"experiment": {"mode": "concurrency", "value": 4}, "requests": requests}],
    }
    trace = read_trace(written(tmp_path, "p.json", json.dumps(content)))
    assert trace.frame.select("arrival_s", "prompt_tokens", "output_tokens").rows() == [
        (0, 3, 2),
        (0.25, 3, 2),
    ]
    assert trace.metadata["max_concurrency"] == "4"


def test_inference_perf(tmp_path):
    rows = [
        {
            "start_time": 5.0,
            "end_time": 9.0,
            "request": "{}",
            "info": {"input_tokens": 11, "output_tokens": 3},
            "error": None,
        },
        {
            "start_time": 5.5,
            "end_time": 6.0,
            "request": "{}",
            "info": {"input_tokens": 12, "output_tokens": 0},
            "error": {"error_type": "x"},
        },
        {
            "start_time": 6.0,
            "end_time": 8.0,
            "request": "{}",
            "info": {"input_tokens": 13, "response_metrics": {"output_tokens": 4}, "output_tokens": 4},
        },
    ]
    trace = read_trace(written(tmp_path, "i.json", json.dumps(rows)))
    assert trace.frame.select("arrival_s", "prompt_tokens", "output_tokens").rows() == [
        (0, 11, 3),
        (1, 13, 4),
    ]
    assert "dropped 1 of 3 requests that failed" in trace.metadata["notes"]


def test_opentelemetry_spans(tmp_path):
    def span(at: int, **tokens: int) -> dict[str, Any]:
        pairs = [
            {"key": f"gen_ai.usage.{name}", "value": {"intValue": str(value)}}
            for name, value in tokens.items()
        ]
        return {
            "spanId": f"{at}",
            "name": "chat",
            "startTimeUnixNano": str(1_700_000_000_000_000_000 + at),
            "endTimeUnixNano": str(1_700_000_001_000_000_000 + at),
            "attributes": pairs,
        }

    spans = [
        span(250_000_000, output_tokens=3, input_tokens=5),
        span(0, prompt_tokens=7, completion_tokens=8),
        span(1),
    ]
    content = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    trace = read_trace(written(tmp_path, "o.json", json.dumps(content)))
    assert trace.frame.select("arrival_s", "prompt_tokens", "output_tokens").rows() == [
        (0, 7, 8),
        (0.25, 5, 3),
    ]
    assert "1 spans without token counts left out" in trace.metadata["notes"]


def test_weka_conversations(tmp_path):
    def calls(*ids: list[int]) -> list[dict[str, Any]]:
        return [
            {"t": 3.5 * at, "type": "n", "in": 64 * len(one), "out": 20, "hash_ids": one, "api_time": 1.0}
            for at, one in enumerate(ids)
        ]

    one = {"id": "c1", "block_size": 64, "hash_id_scope": "local", "requests": calls([1, 2], [1, 2, 3])}
    trace = read_trace(written(tmp_path, "w.jsonl", lines(one)))
    assert trace.frame["arrival_s"].to_list() == [0, 3.5]
    assert trace.hash_block_size == 64
    assert trace.frame["prefix_hashes"].to_list() == [[1, 2], [1, 2, 3]]
    assert trace.frame.select("session_id", "turn", "delay_s").rows() == [("c1", 0, None), ("c1", 1, 2.5)]
    nested = {
        **one,
        "id": "c2",
        "requests": [*calls([1]), {"t": 1.0, "type": "subagent", "requests": calls([9])}],
    }
    two = read_trace(written(tmp_path, "w.jsonl", lines(one, nested)))
    assert "2 conversations that do not say when they began" in two.metadata["notes"]
    first, second = (two.frame.filter(session_id=name)["prefix_hashes"][0][0] for name in ("c1", "c2"))
    assert first != second  # the same number in two conversations is not the same text


def test_conversations(tmp_path):
    turns = [
        {"role": "user", "content": "x" * 20},
        {"role": "assistant", "content": "y" * 12},
        {"role": "user", "content": "z"},
    ]
    wild = [
        {
            "conversation_hash": f"h{at}",
            "model": "m",
            "timestamp": f"2023-04-09T00:0{at}:10+00:00",
            "conversation": turns,
        }
        for at in range(2)
    ]
    trace = read_trace(written(tmp_path, "w.jsonl", lines(*wild)))
    assert trace.frame.rows() == [("h0", 0, 5, 3, "x" * 20), ("h1", 60, 5, 3, "x" * 20)]
    chats = [{"conversation_id": "a", "model": "m", "conversation": turns, "turn": 1}]
    assert read_corpus(written(tmp_path, "l.jsonl", lines(*chats))).frame.rows() == [("a", 5, 3, "x" * 20)]
    talk = [{"from": "human", "value": "x" * 8}, {"from": "gpt", "value": "y"}]
    shared = [{"id": "a"}, {"id": "b", "conversations": talk}]
    for text in (lines(*shared), json.dumps(shared)):
        assert read_corpus(written(tmp_path, "s.json", text)).frame.rows() == [("b", 2, 1, "x" * 8)]


def test_an_access_log_of_another_team(tmp_path):
    """Five columns, ISO times, own names, packed: two words of the user are enough."""
    rows = "at,who,route,n_prompt,n_reply\n" + "".join(
        f"2026-03-01T09:00:{at:02d}.25+01:00,team-{at % 3},/v1/chat,{50 + at},{10 + at}\n" for at in range(30)
    )
    path = written(tmp_path, "access.log.gz", gzip.compress(rows.encode()))
    trace = read_trace(
        path, column={"prompt_tokens": "n_prompt", "output_tokens": "n_reply", "arrival_s": "at"}
    )
    assert trace.frame["arrival_s"].to_list() == [pytest.approx(float(at)) for at in range(30)]
    assert trace.frame["output_tokens"].to_list() == [10 + at for at in range(30)]
