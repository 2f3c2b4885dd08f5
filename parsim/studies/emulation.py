"""Emulated beside real scores at equal tau: how far apart are the latencies?

    python -m parsim.studies.emulation FOLDER

FOLDER holds corpora as JSON lines of `prompt`, `prompt_tokens` and `len: {model: tokens}`. Half of each corpus trains
TF-IDF and ridge regression on the logarithm of the length; the other half is scored by it and served.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from parsim.emulation import emulate_scores, sampled_tau_b
from parsim.engine import EngineConfig, load_engine
from parsim.metrics import summarize
from parsim.simulation import simulate
from parsim.traces import Trace, bundled_trace

CORPORA = (
    ("alpaca20k_vicuna7b_lengths.jsonl", "vicuna-7b-t0.7"),
    ("alpaca20k_vicuna7b_lengths.jsonl", "text-davinci-003(alpaca reference)"),
    ("mmlu_pro_lengths.jsonl", "Meta-Llama-3_1-8B-Instruct"),
    ("mmlu_pro_lengths.jsonl", "gemini-1.5-pro-002"),
    ("mmlu_pro_lengths.jsonl", "mathstral-7B"),
    ("mmlu_pro_lengths.jsonl", "DeepSeek-Coder-V2"),
    ("zeroeval_math-l5_lengths.jsonl", "Meta-Llama-3.1-8B-Instruct"),
)
REQUESTS, SEEDS, LOADS = 4000, (0, 1, 2), (1.2, 1.6)
METRICS = ("mean_e2el_ms", "mean_per_token_latency_ms")
Scored = tuple[str, NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


def scored(folder: Path) -> Iterator[Scored]:
    """Name, prompt tokens, response tokens and real scores of every corpus; last the bundled trace's own."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge

    for name, model in CORPORA:
        rows = pl.read_ndjson(folder / name, schema_overrides={"len": pl.Struct({model: pl.Int64})})
        rows = rows.select("prompt", "prompt_tokens", n=pl.col("len").struct.field(model)).filter(
            pl.col("n") > 0
        )
        rows = rows.sample(min(rows.height, 9000), shuffle=True, seed=1)
        seen, served = rows.head(rows.height // 2), rows.tail(rows.height - rows.height // 2)
        words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, max_features=60_000)
        ridge = Ridge(alpha=3.0).fit(words.fit_transform(seen["prompt"]), np.log(seen["n"].to_numpy()))
        scores = ridge.predict(words.transform(served["prompt"]))
        lengths = (served["prompt_tokens"].to_numpy(), served["n"].to_numpy())
        yield f"{Path(name).stem.removesuffix('_lengths')}, {model}", *lengths, scores
    frame = bundled_trace().frame
    lengths = (frame["prompt_tokens"].to_numpy(), frame["output_tokens"].to_numpy())
    yield "bundled, pointwise", *lengths, frame["score.pointwise"].to_numpy()


def served(
    frame: pl.DataFrame, engine: EngineConfig, policy: str, scores: NDArray[np.float64]
) -> list[float]:
    """The metrics under the policy that ranks by `scores`."""
    trace = Trace(frame.with_columns(pl.Series("score.real", scores)))
    found = summarize(simulate(trace, engine, policy).requests)
    return [found[metric] for metric in METRICS]


def rows(corpus: Scored, engine: EngineConfig) -> Iterator[str]:
    """One line of a Markdown table for each load."""
    name, prompts, outputs, real = corpus

    def drawn(rate: float, seed: int) -> tuple[NDArray[np.int64], pl.DataFrame]:
        rng = np.random.default_rng(seed)
        chosen = rng.integers(0, len(outputs), REQUESTS)
        arrivals = np.cumsum(rng.exponential(1 / rate, REQUESTS))
        columns = {"arrival_s": arrivals, "prompt_tokens": prompts[chosen], "output_tokens": outputs[chosen]}
        return chosen, pl.DataFrame({"request_id": [str(n) for n in range(REQUESTS)], **columns})

    burst = simulate(Trace(drawn(1e6, 0)[1]), engine, "fcfs").requests
    capacity = REQUESTS / float(burst["finish_s"].to_numpy().max())
    for load in LOADS:
        values, taus = [], []
        for seed in SEEDS:
            chosen, frame = drawn(load * capacity, seed)
            lengths, scores = outputs[chosen], real[chosen]
            taus.append(sampled_tau_b(scores, lengths))
            copies = emulate_scores(lengths, taus[-1], seed)[0]
            values.append(
                [
                    served(frame, engine, policy, s)
                    for policy, s in (("score.real", scores), ("score.real", copies), ("fcfs", scores))
                ]
            )
        true, copy, fcfs = np.mean(values, axis=0)
        gaps = " | ".join(f"{c / t - 1:+.1%}" for c, t in zip(copy, true, strict=True))
        yield f"| {name} | {np.mean(taus):.2f} | {load} | {fcfs[0] / true[0]:.2f} | {gaps} |"


def main() -> None:
    """Print the table."""
    engine = load_engine("llama-3.1-8b-a100-80g", {"max_model_len": 65536})
    print("| corpus, model | tau-b | load | FCFS / real, mean E2E | emulated, mean E2E | mean per token |")
    print("|---|---|---|---|---|---|")
    for corpus in scored(Path(sys.argv[1])):
        for row in rows(corpus, engine):
            print(row, flush=True)


if __name__ == "__main__":
    main()
