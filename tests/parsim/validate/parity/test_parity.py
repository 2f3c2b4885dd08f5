"""The model takes the decisions of vLLM's own scheduler, step by step."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

pytest.importorskip("vllm")

from parsim.engine.batch import BatchFormer
from parsim.engine.config import EngineConfig
from parsim.engine.step_time import StepTime
from parsim.errors import UserError
from parsim.scheduler.policy import POLICIES
from parsim.traces import bundled_trace, read_trace
from parsim.validate.cli import app
from parsim.validate.parity.case import Case, CaseRequest
from parsim.validate.parity.check import Checked, check
from parsim.validate.parity.drive import drive
from parsim.validate.parity.from_trace import case_from_trace, tight_blocks
from parsim.validate.parity.search import POLICY_NAMES, Tally, search

pytestmark = pytest.mark.vllm

runner = CliRunner()


def small_engine(**settings: object) -> EngineConfig:
    given = {
        "max_num_seqs": 8,
        "max_num_batched_tokens": 32,
        "block_size": 4,
        "num_gpu_blocks": 21,
        "max_model_len": 80,
        "step_time": StepTime(base_s=1.0),
    }
    return EngineConfig.model_validate({**given, **settings})


def crowd(count: int = 12) -> list[CaseRequest]:
    return [
        CaseRequest(
            request_id=f"r{n:02}",
            arrival_s=n / 2,
            prompt_tokens=5 + n,
            output_tokens=30 - n,
            score=float(n % 3),
        )
        for n in range(count)
    ]


def test_random_cases_are_equal_in_every_step() -> None:
    """Every combination of order, prefix caching, async scheduling and victim, most of them preempting."""
    tally = Tally()
    combinations: Counter[tuple[object, ...]] = Counter()
    own_priority = 0

    def count(checked: Checked) -> None:
        nonlocal own_priority
        tally.add(checked)
        own_priority += checked.case.vllms_own == "priority"
        engine, policy = checked.case.engine, checked.case.policy
        combinations[policy.order, policy.victim, engine.enable_prefix_caching, engine.async_scheduling] += 1

    assert search(2_500, 20, POLICY_NAMES, count) is None
    assert tally.cases >= 2_500 and tally.steps > 400_000
    assert tally.preempting_cases > tally.cases / 2
    assert len(combinations) == 3 * 2 * 2 * 2 and min(combinations.values()) > 5
    assert own_priority > 20


@pytest.mark.parametrize("policy", ["fcfs", "pars"])
@pytest.mark.parametrize("async_scheduling", [False, True])
def test_the_bundled_trace_is_equal_under_short_memory(policy: str, async_scheduling: bool) -> None:
    trace = bundled_trace()
    engine = small_engine(
        max_num_seqs=64,
        max_num_batched_tokens=512,
        block_size=16,
        max_model_len=16_384,
        num_gpu_blocks=tight_blocks(trace, 16, 200),
        async_scheduling=async_scheduling,
        step_time=StepTime(base_s=0.01, prefill_token_s=1e-4, decode_seq_s=1e-4, kv_token_s=1e-7),
    )
    case, _ = case_from_trace(trace, engine, POLICIES[policy], requests=200, load=4.0, seed=0)
    checked = check(case)
    assert checked.difference is None
    assert checked.vllm.preemptions > 10


@pytest.mark.parametrize("name", ["azure-2023-conv.csv", "mooncake-conversation.jsonl"])
def test_recorded_traces_are_equal_under_short_memory(name: str, shared: Path) -> None:
    trace = read_trace(shared / "data" / "traces" / name)
    engine = small_engine(
        max_num_seqs=64,
        max_num_batched_tokens=2048,
        block_size=16,
        max_model_len=131_072,
        num_gpu_blocks=tight_blocks(trace, 16, 150),
        step_time=StepTime(base_s=0.01, prefill_token_s=1e-4, decode_seq_s=1e-4, attention_pair_s=1e-9),
    )
    case, note = case_from_trace(trace, engine, POLICIES["pars"], requests=150, load=1.0, seed=0)
    assert note is not None and "emulated" in note
    checked = check(case)
    assert checked.difference is None
    assert checked.vllm.preemptions > 0
    cached = sum(cached for step in checked.vllm.steps for _, cached in step.admitted)
    assert cached > 0  # shared prefixes, or a preempted request that found its own blocks


def test_shared_prefixes_are_found_by_vllm() -> None:
    """Three hash blocks of 8 tokens in common: the later request finds two blocks of 16 less one token."""
    requests = [
        CaseRequest(request_id="a", arrival_s=0, prompt_tokens=30, output_tokens=2, prefix_hashes=[1, 2, 3]),
        CaseRequest(request_id="b", arrival_s=9, prompt_tokens=24, output_tokens=2, prefix_hashes=[1, 2, 3]),
        CaseRequest(request_id="c", arrival_s=19, prompt_tokens=30, output_tokens=2, prefix_hashes=[1, 9, 3]),
    ]
    engine = small_engine(async_scheduling=False)
    case = Case(engine=engine, policy=POLICIES["fcfs"], requests=requests, hash_block_size=8)
    admitted = [admission for step in drive(case).steps for admission in step.admitted]
    assert admitted == [("a", 0), ("b", 20), ("c", 8)]
    assert check(case).difference is None


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("blocks", [400, 60])
def test_sessions_whose_responses_stop_by_themselves_are_equal(async_scheduling: bool, blocks: int) -> None:
    """Five sessions of four turns, each prompt being all that was said and 23 tokens more; 60 blocks are too few."""
    requests = []
    for session in range(5):
        tokens = 0
        for turn in range(4):
            tokens += 23
            output = 9 + 4 * turn + session
            hashes = [1000 * session + block for block in range((tokens + output) // 4)]
            requests.append(
                CaseRequest(
                    request_id=f"s{session}t{turn}",
                    arrival_s=40.0 * turn + session / 2,
                    prompt_tokens=tokens,
                    output_tokens=output,
                    prefix_hashes=hashes,
                    stops=turn % 2 == 0,
                )
            )
            tokens += output
    requests.sort(key=lambda request: request.arrival_s)
    engine = small_engine(num_gpu_blocks=blocks, max_model_len=400, async_scheduling=async_scheduling)
    checked = check(Case(engine=engine, policy=POLICIES["fcfs"], requests=requests, hash_block_size=4))
    assert checked.difference is None
    cached = sum(tokens for step in checked.vllm.steps for _, tokens in step.admitted)
    prompts = sum(request.prompt_tokens for request in requests)
    assert cached > prompts / 2 or blocks == 60


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_vllms_own_priority_scheduler_breaks_ties_alike(async_scheduling: bool) -> None:
    """Victim `worst` among requests of one score and one arrival, without any code of this project in vLLM."""
    requests = [
        CaseRequest(request_id=name, arrival_s=0, prompt_tokens=7, output_tokens=12, score=3.0)
        for name in ("b", "a", "d", "c")
    ]
    policy = replace(POLICIES["oracle"], starvation_threshold_s=None, victim="worst")
    case = Case(
        engine=small_engine(num_gpu_blocks=10, async_scheduling=async_scheduling),
        policy=policy,
        requests=requests,
    )
    checked = check(case)
    assert case.vllms_own == "priority"
    assert checked.difference is None and checked.vllm.preemptions > 0


def test_a_model_that_admits_one_request_too_many_is_found_and_shrunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    former = BatchFormer.__init__

    def generous(self: BatchFormer, config: EngineConfig, queue: object) -> None:
        former(self, config.model_copy(update={"max_num_seqs": config.max_num_seqs + 1}), queue)  # type: ignore[arg-type]

    monkeypatch.setattr(BatchFormer, "__init__", generous)
    failed = search(200, 1, ("fcfs",), lambda checked: None)
    assert failed is not None and failed.difference is not None
    assert "differs in" in failed.difference.what and "admitted" in failed.difference.what
    assert len(failed.case.requests) == 2  # one seat, one request too many: the smallest case there is


def test_a_difference_is_shown_left_for_replay_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case = Case(engine=small_engine(), policy=POLICIES["pars"], requests=crowd())
    path = tmp_path / "case.json"
    path.write_text(case.model_dump_json())
    monkeypatch.chdir(tmp_path)
    done = runner.invoke(app, ["parity", "--replay", str(path)])
    assert done.exit_code == 0 and "steps equal" in done.output

    monkeypatch.setattr(StepTime, "seconds", lambda self, *totals: 1.0 + 0.001 * totals[1])
    monkeypatch.setattr(
        "parsim.validate.parity.check.drive",
        lambda case: drive(case.model_copy(update={"policy": POLICIES["fcfs"]})),
    )
    done = runner.invoke(app, ["parity", "--replay", str(path)])
    assert done.exit_code == 1
    assert "differs in" in done.output and "vLLM" in done.output and "free_blocks" in done.output
    assert Case.model_validate_json((tmp_path / "parity-failure.json").read_bytes()) == case


def test_the_command_counts_cases_steps_and_preemptions() -> None:
    done = runner.invoke(app, ["parity", "--cases", "5", "--seed", "4", "--policy", "oracle"])
    assert done.exit_code == 0
    words = done.output.split()
    assert words[0] == "5" and "oracle)" in done.output and "preemptions" in done.output


def test_the_command_times_both_sides_on_a_trace() -> None:
    arguments = ["parity", "bundled", "--requests", "40", "--policy", "fcfs", "--victim", "worst"]
    done = runner.invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "num_gpu_blocks" in done.output and "times faster" in done.output


def test_version_info_names_the_tested_versions() -> None:
    done = runner.invoke(app, ["parity", "--vllm-version-info"])
    assert done.exit_code == 0
    assert "tested: 0.32.0" in done.output and "Scheduler.schedule(" in done.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["parity", "--replay", "nowhere.json"], "cannot be read"),
        (["parity", "--replay", "bad.json"], "not a parity case"),
        (["parity", "nowhere.csv"], "nowhere.csv"),
        (["parity", "--policy", "parss", "--cases", "1"], "did you mean 'pars'"),
        (["parity", "bundled", "--victim", "first"], "expected last or worst"),
        (["parity", "bundled", "--policy", "parss"], "did you mean 'pars'"),
        (["parity", "bundled", "--load", "0"], "load 0: must be a finite number above 0"),
        (["parity", "bundled", "--load", "1e-310"], "where the clock cannot tell steps"),
        (["parity", "bundled", "--set", "num_gpu_blocks"], "expected KEY=VALUE"),
        (["parity", "bundled", "--set", "num_gpu_block=5"], "num_gpu_blocks"),
    ],
)
def test_bad_input_is_one_clear_error(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text(json.dumps({"engine": {}}))
    done = runner.invoke(app, arguments)
    assert isinstance(done.exception, UserError)
    assert says in str(done.exception) and "\n" not in str(done.exception)


def test_requests_that_can_never_fit_are_refused_by_both() -> None:
    requests = [
        CaseRequest(request_id="long", arrival_s=0, prompt_tokens=70, output_tokens=11),
        CaseRequest(request_id="big", arrival_s=0, prompt_tokens=40, output_tokens=10),
        CaseRequest(request_id="fits", arrival_s=0, prompt_tokens=30, output_tokens=15),
    ]
    case = Case(engine=small_engine(num_gpu_blocks=12), policy=POLICIES["fcfs"], requests=requests)
    reasons = [case.rejection(request) for request in case.requests]
    assert reasons == ["81 tokens exceed max_model_len 80", "13 blocks exceed the 11 that exist", None]
    checked = check(case)
    assert checked.difference is None and list(checked.vllm.last_token_s) == ["fits"]


def test_an_empty_trace_is_refused() -> None:
    trace = bundled_trace()
    with pytest.raises(UserError, match="holds no requests"):
        case_from_trace(
            replace(trace, frame=trace.frame.head(0)), small_engine(), POLICIES["fcfs"], 10, 1.0, 0
        )


@pytest.mark.parametrize("adapter", [True, False])
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_like_requests_short_of_memory(adapter: bool, data: st.DataObject) -> None:
    """Of like requests `ParsScheduler` preempts by id, so that one goes on and all end; vLLM's own scheduler may have
    them preempt each other in turn without end, and the model tells that step for step."""
    lengths = st.integers(10, 40)
    requests = [
        CaseRequest(
            request_id=f"r{n}",
            arrival_s=0.0,
            prompt_tokens=data.draw(lengths),
            output_tokens=data.draw(lengths),
            score=1.0,
        )
        for n in range(data.draw(st.integers(3, 6)))
    ]
    policy = replace(POLICIES["pars"], victim="worst", starvation_threshold_s=None)
    engine = small_engine(
        long_prefill_token_threshold=3, scheduler_reserve_full_isl=False, enable_prefix_caching=False
    )
    checked = check(Case(engine=engine, policy=policy, requests=requests, adapter=adapter))
    assert checked.difference is None
    if adapter:
        assert not checked.vllm.endless
