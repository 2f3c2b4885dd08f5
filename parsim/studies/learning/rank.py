"""How the learner ranks from nothing: prompts as a stream, each response learned 300 requests later.

    python -m parsim.studies.learning.rank LENGTHS.jsonl MODEL [LENGTHS.jsonl MODEL]

With a second corpus the traffic changes to that after the first 6,000 requests.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from parsim.learner.online import MODELS, OnlineLearner
from parsim.scheduler.features import Features
from parsim.stats import tau_b

LAG = 300
SEED = 1


def stream(path: Path, model: str, count: int) -> list[tuple[Features, int]]:
    """Prompts and response lengths of a corpus in random order, at most `count`."""
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    rows = [row for row in rows if model in row["len"]]
    order = np.random.default_rng(SEED).permutation(len(rows))[:count]
    return [
        (Features(text=row["prompt"], prompt_tokens=row["prompt_tokens"]), max(1, int(row["len"][model])))
        for row in (rows[place] for place in order)
    ]


def main() -> None:
    """Print tau-b of the scores given on arrival, by window."""
    arguments = sys.argv[1:]
    corpora = list(zip(arguments[::2], arguments[1::2], strict=True))
    requests: list[tuple[Features, int]] = []
    for path, model in corpora:
        requests += stream(Path(path), model, 10_000 if len(corpora) == 1 else 6000)
    learner, said = OnlineLearner(), np.full(len(requests), np.nan)
    began = time.process_time()
    for number, (features, _) in enumerate(requests):
        learner.submit(str(number), features)
        said[number] = learner.poll().get(str(number), np.nan)
        if number >= LAG:
            learner.finished(str(number - LAG), requests[number - LAG][1], True)
    spent_ms = (time.process_time() - began) / len(requests) * 1e3
    lengths = np.array([length for _, length in requests], float)
    edges = [330, 600, 1300, 2800, 4300, 6000, 6300, 6600, 7000, 8000, 9000, 10_000, 12_000]
    print("| requests | finished before | tau_b |\n|---|---|---|")
    for start, end in pairwise(edges):
        if end <= len(requests):
            tau = tau_b(said[start:end], lengths[start:end])
            print(f"| {start:,}-{end:,} | {start - LAG:,} | {tau:.3f} |")
    print(
        f"\n{spent_ms:.2f} ms of CPU a request; at the end {', '.join(f'{n} {learner.weights[n]:.2f}' for n in MODELS)}"
    )


if __name__ == "__main__":
    main()
