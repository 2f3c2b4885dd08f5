"""What must hold in every run, on random engines and requests."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from simpy import Event

from parsim.engine.batch import Batch, BatchFormer
from parsim.engine.clock import Clock, Moment
from parsim.engine.config import EngineConfig
from parsim.engine.engine import Engine
from parsim.engine.request import EngineRequest, State
from parsim.engine.run import source
from parsim.engine.scorer import VirtualScorer
from parsim.engine.scoring_cost import ScoringCost
from parsim.engine.step_log import StepLog
from parsim.engine.step_time import StepTime
from parsim.scheduler.policy import Policy, parse_policy

Process = Generator[Event, object, None]

STEP_TIME = StepTime(
    base_s=0.008, prefill_token_s=6e-5, decode_seq_s=2e-5, kv_token_s=6e-8, attention_pair_s=1e-9
)
MAX_MODEL_LEN = 120
EXAMPLES = settings.default.max_examples
"""Of the profile: fewer in the quick tests."""


@dataclass
class Case:
    config: EngineConfig
    policy: Policy
    rows: list[tuple[float, int, int, float, list[int]]]
    aborts: dict[str, float]
    scoring: ScoringCost | None

    def requests(self) -> list[EngineRequest]:
        requests = [
            EngineRequest(i, f"r{i:02d}", arrival, prompt, output, score, prefix)
            for i, (arrival, prompt, output, score, prefix) in enumerate(self.rows)
        ]
        if self.scoring is not None:
            for request in requests:
                request.predicted, request.score = request.score, None
        return requests

    def engine(self, env: Clock, observer: StepLog | None = None) -> Engine:
        scorer: VirtualScorer[EngineRequest] | None = VirtualScorer(self.scoring) if self.scoring else None
        return Engine(env, self.config, self.policy, scorer=scorer, observer=observer)

    def serve(self, observer: StepLog | None = None) -> tuple[Engine, list[EngineRequest]]:
        requests = self.requests()
        env = Clock()
        engine = self.engine(env, observer)
        env.process(source(env, engine, requests, self.aborts))
        env.run_out()
        return engine, requests


@st.composite
def cases(draw: st.DrawFn, aborts: bool = True, prefixes: bool = True) -> Case:
    block_size = draw(st.sampled_from([1, 4, 16]))
    chunked = draw(st.booleans())
    least = -(-MAX_MODEL_LEN // block_size) + 1
    config = EngineConfig(
        num_gpu_blocks=draw(st.integers(least, 3 * least)),
        block_size=block_size,
        max_num_seqs=draw(st.sampled_from([1, 2, 5, 16])),
        max_num_batched_tokens=draw(st.sampled_from([16, 40, 200])) if chunked else MAX_MODEL_LEN,
        max_model_len=MAX_MODEL_LEN,
        enable_chunked_prefill=chunked,
        enable_prefix_caching=draw(st.booleans()),
        async_scheduling=draw(st.booleans()),
        long_prefill_token_threshold=draw(st.sampled_from([0, 5, 20])),
        watermark=draw(st.sampled_from([0.0, 0.1])),
        scheduler_reserve_full_isl=draw(st.booleans()),
        step_time=STEP_TIME,
    )
    policy = replace(
        parse_policy(draw(st.sampled_from(["fcfs", "oracle", "hrrn"]))),
        victim=draw(st.sampled_from(["last", "worst"])),
        starvation_threshold_s=draw(st.sampled_from([None, 0.0, 0.05, 0.5])),
    )
    rows = []
    arrival = 0.0
    for _ in range(draw(st.integers(1, 25))):
        arrival += draw(st.sampled_from([0.0, 0.0, 0.001, 0.02, 0.3]))
        prompt = draw(st.integers(1, MAX_MODEL_LEN - 1))
        output = draw(st.integers(1, min(40, MAX_MODEL_LEN - prompt)))
        shared = draw(st.integers(0, prompt // block_size)) if prefixes else 0
        family = 1000 * draw(st.integers(0, 2))
        rows.append(
            (arrival, prompt, output, float(draw(st.integers(0, 9))), [family + k for k in range(shared)])
        )
    ends = {}
    if aborts:
        for index in draw(st.lists(st.integers(0, len(rows) - 1), max_size=3, unique=True)):
            ends[f"r{index:02d}"] = rows[index][0] + draw(st.sampled_from([0.0, 0.01, 0.1, 0.4]))
    scoring = None
    if policy.order == "score" and draw(st.booleans()):
        scoring = ScoringCost(
            base_s=draw(st.sampled_from([0.0, 0.01, 0.3])),
            prompt_s=draw(st.sampled_from([0.0, 0.05, 1.0])),
            token_s=0.0,
            max_batch=draw(st.sampled_from([1, 64])),
            shares_core=draw(st.booleans()),
        )
    return Case(config, policy, rows, ends, scoring)


class Watch(StepLog):
    """Counts blocks and tokens after every batch."""

    def __init__(self) -> None:
        super().__init__(detail=True)
        self.cached = 0

    def observe(self, batch: Batch, former: BatchFormer) -> None:
        super().observe(batch, former)
        config = former.config
        assert 0 <= former.cache.free <= config.usable_blocks
        assert len(former.running) <= config.max_num_seqs
        assert batch.prefill_tokens + batch.decode_seqs <= config.max_num_batched_tokens
        assert batch.end_s >= batch.start_s >= batch.formed_s
        assert (batch.end_s > batch.start_s) == bool(batch)
        self.cached += sum(cached for _, cached in batch.admitted)
        if not former.running:
            assert former.cache.free == config.usable_blocks
        former.cache.check(list(former.running))


@settings(max_examples=3 * EXAMPLES, deadline=None)
@given(cases())
def test_blocks_clock_and_outcome(case: Case) -> None:
    watch = Watch()
    engine, requests = case.serve(watch)
    engine.former.cache.check([])
    starts = [row["start_s"] for row in watch.rows]
    assert starts == sorted(starts)
    for request in requests:
        if request.rejected:
            assert request.finish_s < 0
            continue
        assert request.arrival_s <= request.first_scheduled_s <= request.first_token_s <= request.finish_s
    assert not engine.former.running
    assert not engine.queue


@settings(max_examples=3 * EXAMPLES, deadline=None)
@given(cases(aborts=False))
def test_tokens_are_conserved(case: Case) -> None:
    """Every position is computed once, found in the cache, or lost to a preemption and counted as recomputed."""
    watch = Watch()
    _, requests = case.serve(watch)
    computed = sum(row["prefill_tokens"] + row["decode_seqs"] for row in watch.rows)
    positions = sum(r.prompt_tokens + r.output_tokens - 1 for r in requests if not r.rejected)
    recomputed = sum(r.recomputed_tokens for r in requests)
    assert computed <= positions + recomputed
    assert computed + watch.cached >= positions
    if not watch.cached:
        assert computed == positions + recomputed


def outcome(requests: list[EngineRequest]) -> list[tuple[object, ...]]:
    return [
        (
            r.first_scheduled_s,
            r.first_token_s,
            r.finish_s,
            r.preemptions,
            r.cached_tokens,
            r.promoted,
            r.scored_s,
            r.rejected,
        )
        for r in requests
    ]


@settings(max_examples=3 * EXAMPLES, deadline=None)
@given(cases())
def test_advancing_many_steps_at_once_changes_nothing(case: Case) -> None:
    """Runs of uneventful steps give the same times, to the last bit, as steps one by one."""

    one_by_one, stepped = case.serve(StepLog())
    at_once, coasted = case.serve()
    assert outcome(stepped) == outcome(coasted)
    assert one_by_one.step == at_once.step


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(cases(aborts=False))
def test_no_request_that_has_waited_too_long_is_overtaken(case: Case) -> None:
    """The starvation bound: once a waiting request is past the threshold, only earlier ones are admitted first."""
    threshold = case.policy.starvation_threshold_s
    if case.policy.order == "fcfs" or threshold is None:
        return
    log = StepLog()
    _, requests = case.serve(log)
    by_id = {request.request_id: request for request in requests}
    arrival_order = [request.request_id for request in requests]
    for row in log.rows:
        for name in row["admitted"]:
            admitted = by_id[name]
            for other in requests:
                overdue = (
                    not other.rejected
                    and row["formed_s"] - other.arrival_s > threshold
                    and other.first_scheduled_s > row["formed_s"]
                )
                if overdue:
                    assert (
                        arrival_order.index(name) < arrival_order.index(other.request_id)
                        and admitted.promoted
                    )


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(prefixes=False, aborts=False))
def test_prefix_caching_without_shared_prefixes_changes_only_recomputation(case: Case) -> None:
    """With nothing to share and no preemption, the two caches give the same run."""
    with_cache, cached = replace(
        case, config=case.config.model_copy(update={"enable_prefix_caching": True})
    ).serve()
    without, plain = replace(
        case, config=case.config.model_copy(update={"enable_prefix_caching": False})
    ).serve()
    if not with_cache.former.preemptions and not without.former.preemptions:
        assert [r.finish_s for r in cached] == [r.finish_s for r in plain]


def token_gaps(case: Case, log: StepLog, requests: list[EngineRequest]) -> list[float]:
    """The gaps between the tokens of each response, followed token by token through the steps."""
    by_id = {request.request_id: request for request in requests}
    computed, generated, last_s = dict.fromkeys(by_id, 0), dict.fromkeys(by_id, 0), dict.fromkeys(by_id, -1.0)
    gaps = []
    for row in log.rows:
        for name in row["preempted"]:
            computed[name] = 0
        computed |= dict(zip(row["admitted"], row["cached_tokens"], strict=True))
        end_s = row["start_s"] + row["duration_s"]
        for entry in row["scheduled"]:
            name = entry["request_id"]
            computed[name] += entry["tokens"]
            if computed[name] == by_id[name].prompt_tokens + generated[name]:
                if generated[name]:
                    gaps.append(end_s - last_s[name])
                generated[name] += 1
                last_s[name] = end_s
    return sorted(gaps)


@settings(max_examples=3 * EXAMPLES, deadline=None)
@given(cases(aborts=False))
def test_every_gap_between_tokens_is_counted(case: Case) -> None:
    """Also where requests are preempted, passed over, or run for many steps at once."""
    log = StepLog(detail=True)
    _, requests = case.serve(log)
    expected = token_gaps(case, log, requests)
    for engine, _ in (case.serve(), case.serve(log)):
        gaps = engine.gaps.frame()
        found = gaps["gap_s"].repeat_by(gaps["tokens"]).explode(empty_as_null=False).to_list()
        assert len(found) == len(expected) == sum(r.output_tokens - 1 for r in requests if not r.rejected)
        assert all(abs(a - b) < 1e-9 for a, b in zip(found, expected, strict=True))


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(cases(), cases(), st.randoms(use_true_random=False))
def test_engines_in_one_environment_fed_by_any_process_are_engines_alone(
    first: Case, second: Case, random: Random
) -> None:
    """Each request is submitted by a process of its own, and the processes are begun in any order, some of them long
    before; two engines share a clock. Each outcome is that of a run alone, step by step, to the last bit."""
    env = Clock()
    served = []
    submissions = []
    for case in (first, second):
        engine, requests = case.engine(env), case.requests()
        served.append((case, engine, requests))
        moments: dict[float, list[EngineRequest]] = {}
        for request in requests:
            moments.setdefault(request.arrival_s, []).append(request)
        submissions += [(engine, time_s, together, case.aborts) for time_s, together in moments.items()]

    def submit(
        engine: Engine, time_s: float, together: list[EngineRequest], aborts: dict[str, float]
    ) -> Process:
        stop_s = random.choice([0.0, time_s / 3, time_s])
        yield Moment(env, stop_s)
        yield Moment(env, time_s)
        yield env.process(source(env, engine, together, aborts))

    random.shuffle(submissions)
    for submission in submissions:
        env.process(submit(*submission))
    env.run_out()
    for case, engine, requests in served:
        alone, expected = case.serve(StepLog())
        assert outcome(requests) == outcome(expected)
        assert engine.step == alone.step


@given(st.floats(0.001, 50), st.lists(st.floats(0, 100), min_size=1, max_size=20))
def test_who_asks_is_told_at_once_and_may_ask_again(think_s: float, starts: list[float]) -> None:
    """A closed loop: each client submits its next request a while after the last one has ended."""
    env = Clock()
    ended: list[tuple[float, EngineRequest]] = []
    engine = Engine(env, CLOSED, parse_policy("fcfs"), done=lambda request: ended.append((env.now, request)))

    def client(number: int, start_s: float) -> Process:
        yield Moment(env, start_s)
        for turn in range(3):
            request = EngineRequest(number, f"{number}.{turn}", env.now, 5, 4)
            engine.submit(request)
            while request.state is not State.DONE:
                yield env.timeout(0.001)
            yield env.timeout(think_s)

    for number, start_s in enumerate(starts):
        env.process(client(number, start_s))
    env.run_out()
    assert len(ended) == 3 * len(starts)
    assert all(time_s == request.finish_s for time_s, request in ended)
    assert engine.former.cache.free == CLOSED.usable_blocks


CLOSED = EngineConfig(num_gpu_blocks=9, block_size=16, max_num_seqs=4, step_time=STEP_TIME, max_model_len=120)


@given(
    st.integers(1, 300),
    st.integers(0, 10**6),
    st.integers(1, 40),
    st.lists(st.floats(0, 1e-2), min_size=5, max_size=5),
)
def test_steps_that_only_decode_take_what_the_formula_says(
    sequences: int, kv_tokens: int, steps: int, terms: list[float]
) -> None:
    step_time = StepTime(
        base_s=terms[0] + 1e-3,
        prefill_token_s=terms[1],
        decode_seq_s=terms[2],
        kv_token_s=terms[3],
        attention_pair_s=terms[4],
    )
    expected = [step_time.seconds(0, sequences, kv_tokens + n * sequences, 0) for n in range(steps)]
    seconds = step_time.decode_only(sequences)
    assert [seconds(kv_tokens + n * sequences) for n in range(steps)] == expected
