"""A lower bound on the mean latency that any schedule could reach on this engine, clairvoyant ones included.

Let a step with set S of sequences take base + (own terms of each sequence in S). Two relaxations, both valid; the
larger is returned.

**One machine** (tight when requests queue). At most `max_num_seqs` sequences, `max_num_batched_tokens` tokens and the
usable KV blocks share a step, so base can be divided among the sequences of S such that each carries at least
base * (a / max_num_seqs + b * its tokens / budget + c * its blocks / usable blocks) for any a + b + c = 1 with
a, b, c >= 0. Add the sequence's own terms: its *share* of the step, which depends on the request and its position
alone. Lay the shares of a step one after the other inside that step: every engine schedule becomes a schedule of one
machine that works on one share at a time, never before the request's arrival plus the least time its earlier steps
take alone. Recomputation and idle time only add. For request j with shares s_k, total w_j, mean busy time M_j, and R_k
the least time that the steps after step k take alone: its end is C_j >= M_j + D_j with D_j = sum_k s_k R_k / w_j,
because after each share at least R_k passes. The sum of weighted mean busy times on one preemptive machine with
release dates is minimised by always working on the available job of the largest weight / w_j (Goemans, "A
supermodular relaxation for scheduling with release dates", 1996), which one pass over events computes. The steps
of a request are grouped into pieces, each released when its first step could start at the earliest.

**A price on machine time** (tight when requests share full batches: a full batch is what throughput needs, and it
makes every token of every sequence in it slower). Take any horizon H, price m >= 0 and slope l in [0, sqrt(base m)].
Requests that end by H (set F) pay at least weight_i * d_s for each of their steps s of length d_s, and all steps that
end by H take at most H - first arrival. With W and C the sums of weights and own terms of F in a step,
d (m + W) >= base m + base W + m C + C W. Here C W >= sum c_i w_i, and also C W >= (sum sqrt(c_i w_i))^2
>= 2 l sum sqrt(c_i w_i) - l^2 (Cauchy-Schwarz); base m - l^2 is divided among the sequences as above. So each step
of a request costs at least base w_i + m c_i + 2 l sqrt(c_i w_i) + (base m - l^2) * its part of a step (or, for l = 0,
with c_i w_i in place of the root); call the sum over its steps A_i. Requests that end after H pay at least
w_i (H - arrival). Hence cost >= sum_i min(A_i, max(alone_i, w_i (H - arrival_i))) - m (H - first arrival), for every
H, m and l.

Weights 1 / output tokens give the mean per-token latency, weights 1 the mean E2E latency.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parsim.engine import EngineConfig

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
PIECES = 8
_SPLITS = ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.5, 0.0, 0.5), (0.5, 0.5, 0.0))
"""Divisions (a, b, c) of base among sequences, tokens and blocks; every one is valid, the largest bound is kept."""


@dataclass(frozen=True)
class Work:
    """The pieces of every request: arrays of shape (requests, pieces), in seconds.

    Attributes:
        share: machine time that the piece takes at least.
        start: least time from arrival to the piece's first step.
        delay: per request, D_j: share-weighted least time from a share to the request's end.
        steps: how many steps the piece takes at least.
        own: own terms of the piece's steps.
        root: at least the sum over the piece's steps of the square root of the own terms.
    """

    share: Floats
    start: Floats
    delay: Floats
    steps: Floats
    own: Floats
    root: Floats


def lower_bound_ms(
    arrival_s: Floats,
    prompt_tokens: Ints,
    output_tokens: Ints,
    weights: Floats,
    engine: EngineConfig,
    shared_prefixes: bool,
) -> float:
    """Mean over requests of weight x E2E latency in ms that no schedule on this engine can go below.

    `shared_prefixes`: requests may find each other's blocks in the prefix cache; then prompts count as free and
    blocks as shared, which keeps the bound valid.
    """
    if len(arrival_s) == 0:
        return float("nan")
    # Where reading and arithmetic overlap, a step is at least as long as on the tangent, in which they add up.
    engine = engine.model_copy(update={"step_time": engine.step_time.additive(engine.max_num_seqs)})
    splits = [s for s in _SPLITS if s[2] == 0] if shared_prefixes else _SPLITS
    bounds = []
    for split in splits:
        work = _work(prompt_tokens, output_tokens, engine, split, shared_prefixes)
        busy = _least_busy(arrival_s, work, weights)
        bounds.append(busy + float(np.sum(weights * (work.delay - arrival_s))))
        bounds.append(_priced(arrival_s, work, weights, engine))
    return max(bounds) / len(arrival_s) * 1e3


def _work(
    prompt: Ints, output: Ints, engine: EngineConfig, split: tuple[float, float, float], shared_prefixes: bool
) -> Work:
    """Shares, earliest starts and delays of every piece; closed sums over the steps of a piece."""
    st = engine.step_time
    per_seq, per_token, per_block = (
        split[0] / engine.max_num_seqs,
        split[1] / engine.max_num_batched_tokens,
        split[2] / engine.usable_blocks,
    )
    p, o = prompt.astype(float), output.astype(float)
    computed = np.ones_like(p) if shared_prefixes else p
    own = (
        np.zeros_like(p)
        if shared_prefixes
        else st.prefill_token_s * p + st.attention_pair_s * p * (p + 1) / 2
    )
    steps = np.ceil(computed / engine.max_num_batched_tokens)
    held = np.zeros_like(p) if shared_prefixes else np.ceil(p / engine.block_size)
    prefill_share = own + st.base_s * (per_seq * steps + per_token * computed + per_block * held)
    prefill_alone = own + st.base_s * steps

    # Decode step k = 1 .. o - 1 reads p + k - 1 tokens and holds ceil((p + k) / block) >= (p + k) / block blocks.
    edges = np.linspace(0.0, 1.0, PIECES) * (o - 1)[:, None]
    first, last = np.floor(edges[:, :-1]), np.floor(edges[:, 1:])  # steps first+1 .. last
    count = last - first
    reads = count * (p[:, None] - 1) + (last * (last + 1) - first * (first + 1)) / 2
    fixed = st.decode_seq_s * count + st.kv_token_s * reads
    blocks = (reads + count) / engine.block_size
    decode_share = fixed + st.base_s * ((per_seq + per_token) * count + per_block * blocks)
    decode_alone = fixed + st.base_s * count

    share = np.column_stack([prefill_share, decode_share])
    alone = np.column_stack([prefill_alone, decode_alone])
    total = alone.sum(axis=1)
    done = np.cumsum(alone, axis=1)
    after = total[:, None] - done
    # Inside a decode piece of m steps, shares and solo times grow together with the context. At step i of m,
    # (m - i) steps remain inside; taking the piece's first (cheapest) step for each keeps R_k a lower bound, and
    # pairing growing shares with shrinking remainders would lose at most the covariance: use the smallest share.
    least_step = st.base_s + st.decode_seq_s + st.kv_token_s * (p[:, None] + first)
    least_share = (
        st.decode_seq_s
        + st.kv_token_s * (p[:, None] + first)
        + st.base_s * (per_seq + per_token + per_block * (p[:, None] + first + 1) / engine.block_size)
    )
    inside = np.column_stack([np.zeros_like(p), least_share * least_step * count * (count - 1) / 2])
    weight = share.sum(axis=1)
    delay = ((share * after).sum(axis=1) + inside.sum(axis=1)) / weight
    least_own = st.decode_seq_s + st.kv_token_s * (p[:, None] + first)
    return Work(
        share,
        done - alone,
        np.maximum(delay, 0.0),
        steps=np.column_stack([steps, count]),
        own=np.column_stack([own, fixed]),
        root=np.column_stack([np.sqrt(own), count * np.sqrt(least_own)]),
    )


def _priced(arrival_s: Floats, work: Work, weights: Floats, engine: EngineConfig) -> float:
    """The best bound of the price relaxation over a grid of horizons, prices and slopes, as a sum over requests."""
    base = engine.step_time.base_s
    steps, own, root = (x.sum(axis=1) for x in (work.steps, work.own, work.root))
    part = (work.share.sum(axis=1) - own) / base if base > 0 else np.zeros_like(own)
    alone = weights * (base * steps + own)
    first, last = float(arrival_s[0]), float(arrival_s[-1])
    best = float(np.sum(alone))
    typical = float(np.sum(weights * steps) / np.sum(steps)) * engine.max_num_seqs
    for horizon in first + (last - first) * np.array([0.25, 0.5, 0.75, 1.0, 1.25]):
        late = np.maximum(alone, weights * (horizon - arrival_s))
        for price in typical * np.geomspace(0.02, 5.0, 14):
            paid = weights * base * steps + price * own
            early = paid + weights * own + base * price * part
            best = max(best, float(np.sum(np.minimum(early, late))) - price * (horizon - first))
            for slope in np.sqrt(base * price) * np.array([0.25, 0.5, 0.75, 1.0]):
                early = paid + 2 * slope * np.sqrt(weights) * root + (base * price - slope**2) * part
                best = max(best, float(np.sum(np.minimum(early, late))) - price * (horizon - first))
    return best


def _least_busy(arrival_s: Floats, work: Work, weights: Floats) -> float:
    """The least sum of weight x mean busy time: preemptive, largest weight / work first among what is released."""
    ratio = weights / work.share.sum(axis=1)
    release = (arrival_s[:, None] + work.start).ravel()
    left = work.share.ravel()
    keys = np.repeat(-ratio, work.share.shape[1])
    order = np.argsort(release, kind="stable")
    events = [(float(release[i]), float(keys[i]), float(left[i])) for i in order if left[i] > 0]
    heap: list[tuple[float, float]] = []
    total, now, i = 0.0, 0.0, 0
    while i < len(events) or heap:
        if not heap:
            now = max(now, events[i][0])
        while i < len(events) and events[i][0] <= now:
            heapq.heappush(heap, events[i][1:])
            i += 1
        key, todo = heapq.heappop(heap)
        until = now + todo
        if i < len(events) and events[i][0] < until:
            until = events[i][0]
            heapq.heappush(heap, (key, todo - (until - now)))
        total += -key * (until - now) * (until + now) / 2
        now = until
    return total
