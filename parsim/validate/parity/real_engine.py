"""The real vLLM engine on a CPU, in lockstep: arrivals given by step, each step one second of a virtual clock."""

from __future__ import annotations

from typing import Any

from parsim.scheduler.settings import SCHEDULER_CLASS, settings_of
from parsim.validate.live.architectures import model_folder
from parsim.validate.parity.bare import quiet_vllm
from parsim.validate.parity.case import Case
from parsim.validate.parity.steps import StepLog
from parsim.validate.parity.tokens import prompt_token_ids

VOCABULARY = 1024
"""Of the tiny model: prompt tokens are taken modulo this."""


def drive_engine(case: Case) -> StepLog:
    """Run the case on vLLM's CPU engine with `ParsScheduler` and random weights; returns the requests' times.

    `arrival_s` counts steps: a request that arrives at 3.0 is added before the fourth step. Give the simulator a
    step time of `base_s=1` and nothing else, and both clocks agree. A step without tokens takes no time.

    Raises:
        RuntimeError: the engine ended without finishing a request.
    """
    quiet_vllm()
    from vllm import SamplingParams, TokensPrompt

    engine = _engine(case)
    scheduler = engine.engine_core.engine_core.scheduler
    now_s = 0.0
    scheduler.clock = lambda: now_s
    schedule = scheduler.schedule
    tokens = 0

    def watched(*args: Any) -> Any:
        nonlocal tokens
        output = schedule(*args)
        tokens = output.total_num_scheduled_tokens
        return output

    scheduler.schedule = watched
    log = StepLog()
    pending = list(enumerate(case.requests))[::-1]
    while pending or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            now_s = max(now_s, pending[-1][1].arrival_s)
        while pending and pending[-1][1].arrival_s <= now_s:
            index, request = pending.pop()
            ids = prompt_token_ids(index, request.prompt_tokens, (), None)
            engine.add_request(
                request.request_id,
                TokensPrompt(prompt_token_ids=[(7 * token + index) % VOCABULARY for token in ids]),
                SamplingParams(
                    max_tokens=request.output_tokens,
                    ignore_eos=True,
                    temperature=0.0,
                    detokenize=False,
                    extra_args=None if request.score is None else {"pars_score": request.score},
                ),
                arrival_time=request.arrival_s,
            )
        outputs = engine.step()
        if tokens:
            now_s += 1.0
        for output in outputs:
            log.first_token_s.setdefault(output.request_id, now_s)
            if output.finished:
                log.last_token_s[output.request_id] = now_s
    if len(log.last_token_s) != len(case.requests):
        raise RuntimeError(f"{len(case.requests) - len(log.last_token_s)} requests were not finished")
    return log


def _engine(case: Case) -> Any:
    from vllm import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    config, policy = case.engine, case.policy
    return LLMEngine.from_engine_args(
        EngineArgs(
            model=str(model_folder("tiny")),
            load_format="dummy",
            dtype="bfloat16",
            enforce_eager=True,
            skip_tokenizer_init=True,
            seed=0,
            disable_log_stats=True,
            max_model_len=config.max_model_len,
            block_size=config.block_size,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            enable_prefix_caching=config.enable_prefix_caching,
            kv_cache_memory_bytes=64 << 20,
            num_gpu_blocks_override=config.num_gpu_blocks,
            scheduler_cls=SCHEDULER_CLASS,
            additional_config={"parsim": settings_of(policy)},
        )
    )
