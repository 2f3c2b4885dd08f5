"""How much of an engine's time a request takes: what a clairvoyant scheduler would order by."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from parsim.engine.config import EngineConfig


def clairvoyant_score(column: str, engine: EngineConfig) -> pl.Expr:
    """The expression of a trace's `prompt_tokens` and `output_tokens` that a clairvoyant policy ranks by.

    `work_s`: seconds that a request of p prompt and n response tokens adds to the steps of a full batch,

        prefill_token_s p + attention_pair_s p (p + 1) / 2 + base_s p / max_num_batched_tokens          its prompt
        + (n - 1) (decode_seq_s + base_s / max_num_seqs) + kv_token_s ((n - 1) p + (n - 1)(n - 2) / 2)  its response

    A step's base is shared by those in it: by the budget's tokens in a prefill, by the seats in a decode. Shortest work
    first is best for the mean latency of one machine (Smith 1956); n times as much, `weighted_work_s`, for the mean of
    latency per response token, in which a request weighs 1 / n (the same rule: work over weight, ascending). Both are
    heuristics here, where requests share steps and memory; `output_tokens` neglects the prompt.
    """
    import polars as pl

    p, n = (pl.col(name).cast(pl.Float64) for name in ("prompt_tokens", "output_tokens"))
    if column == "output_tokens":
        return n
    step = engine.step_time.additive(engine.max_num_seqs)
    prompt = (step.prefill_token_s + step.base_s / engine.max_num_batched_tokens) * p
    pairs = step.attention_pair_s * p * (p + 1) / 2
    response = (step.decode_seq_s + step.base_s / engine.max_num_seqs) * (n - 1)
    reads = step.kv_token_s * ((n - 1) * p + (n - 1) * (n - 2) / 2)
    work = prompt + pairs + response + reads
    return work if column == "work_s" else work * n
