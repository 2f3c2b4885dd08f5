"""What ordering costs a step inside vLLM: ParsScheduler's queue against vLLM's own, with 10,000 requests waiting.

    python tests/benchmarks/bench_queue.py

A step admits 8 requests, takes in 8, returns 2 that were preempted and loses 1 to an abort. Needs vLLM.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from parsim.validate.parity.bare import quiet_vllm


def requests(count: int, seed: int) -> list[Any]:
    from vllm import SamplingParams
    from vllm.v1.request import Request

    rng = random.Random(seed)
    made = []
    for number in range(count):
        score = rng.lognormvariate(5.0, 1.0)
        made.append(
            Request(
                request_id=f"r{number}",
                prompt_token_ids=[1, 2, 3],
                sampling_params=SamplingParams(max_tokens=8, extra_args={"pars_score": score}),
                pooling_params=None,
                arrival_time=number * 1e-3,
                priority=int(score),
            )
        )
    return made


def step_us(queue: Any, begin_step: Callable[[float], None], waiting: int, steps: int) -> float:
    """Microseconds of CPU time a step costs, with `waiting` requests in the queue throughout."""
    rng = random.Random(1)
    stream = iter(requests(waiting + 9 * steps, 0))
    inside = [next(stream) for _ in range(waiting)]
    for request in inside:
        queue.add_request(request)
    aborted = rng.sample(inside, steps)
    arriving = [[next(stream) for _ in range(9)] for _ in range(steps)]
    gone: set[Any] = set()
    started = time.process_time()
    for number in range(steps):
        begin_step(waiting * 1e-3 + number * 0.02)
        queue.peek_request()
        admitted = [queue.pop_request() for _ in range(8)]
        gone.update(admitted)
        for request in arriving[number][:8]:
            queue.add_request(request)
        for request in admitted[:2]:
            gone.discard(request)
            queue.prepend_request(request)
        if aborted[number] not in gone:
            gone.add(aborted[number])
            queue.remove_requests([aborted[number]])
            queue.add_request(arriving[number][8])
    return (time.process_time() - started) / steps * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    quiet_vllm()
    from vllm.v1.core.sched.request_queue import FCFSRequestQueue, PriorityRequestQueue

    from parsim.scheduler.policy import POLICIES
    from parsim.scheduler.scoring import finite
    from parsim.scheduler.vllm_queue import ParsQueue

    def score_of(request: Any) -> float | None:
        return finite(request.sampling_params.extra_args["pars_score"])

    def nothing(now_s: float) -> None:
        pass

    queues: list[tuple[str, Any]] = [
        ("vLLM fcfs", FCFSRequestQueue()),
        ("vLLM priority", PriorityRequestQueue()),
    ]
    for name in ("fcfs", "pars", "hrrn"):
        policy = replace(POLICIES[name], starvation_threshold_s=None if name == "fcfs" else 120.0)
        queues.append((f"parsim {name}", ParsQueue(policy, score_of)))
    print(f"{options.waiting:,} waiting, {options.steps} steps")
    for name, queue in queues:
        begin = queue.ranked.begin_step if isinstance(queue, ParsQueue) else nothing
        print(f"  {name:14} {step_us(queue, begin, options.waiting, options.steps):10,.1f} us a step")


if __name__ == "__main__":
    main()
