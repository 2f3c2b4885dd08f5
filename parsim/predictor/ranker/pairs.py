"""The paper's training pairs: partners drawn once, offline, seeded, and only within the rows that are handed
in.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

DELTA = 0.2
"""Smallest relative length gap of a training pair (the paper: 0.2; 0.25 for DeepSeek-R1)."""


def relative_gap(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """|a - b| / max(a, b), the gap that the delta filter looks at; a and b are lengths > 0 of any one shape."""
    return np.abs(a - b) / np.maximum(a, b)


def draw_pairs(
    lengths: npt.NDArray[np.float64],
    censored: npt.NDArray[np.bool_],
    *,
    partners: int = 10,
    delta: float = DELTA,
    tries: int = 10,
    seed: int = 42,
) -> npt.NDArray[np.int64]:
    """Pairs (longer, shorter) of row numbers, shape (pairs, 2): for each row up to `partners` partners.

    Partners are drawn uniformly, with at most `tries` x `partners` draws a row. A pair is kept if its
    relative gap is at least `delta` and above zero, and if its order is known: where the shorter length is
    censored, the true one may be the longer. The order of pairs is by anchor row; shuffle before use.
    """
    rng = np.random.default_rng(seed)
    count = len(lengths)
    kept: list[npt.NDArray[np.int64]] = []
    for anchors in np.array_split(np.arange(count), max(1, count // 4096)):
        others = rng.integers(count, size=(len(anchors), partners * tries))
        mine, theirs = lengths[anchors][:, None], lengths[others]
        gap = relative_gap(np.broadcast_to(mine, theirs.shape), theirs)
        longer = np.where(mine > theirs, anchors[:, None], others)
        shorter = np.where(mine > theirs, others, anchors[:, None])
        usable = (gap >= delta) & (gap > 0) & ~censored[shorter]
        chosen = usable & (np.cumsum(usable, axis=1) <= partners)
        kept.append(np.stack([longer[chosen], shorter[chosen]], axis=1))
    return np.concatenate(kept) if kept else np.empty((0, 2), dtype=np.int64)
