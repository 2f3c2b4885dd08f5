"""Rankings with errors of one kind, for the study of which errors cost what."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from parsim.emulation import emulate_scores
from parsim.stats import tau_b
from parsim.sweep.point import Dial

Floats = npt.NDArray[np.float64]


def dial_scores(output_tokens: npt.NDArray[np.int64], dial: Dial, seed: int) -> tuple[Floats, float]:
    """Scores whose errors are of the dial's kind, and the Kendall tau-b that they reach over all requests.

    `short` and `long` spoil the order inside the shorter or the longer half to `dial.tau` and leave the rest right,
    so that the tau over all requests stays above 3/4. `across` keeps the order inside both halves and exchanges the
    scores of a share (1 - tau) / 2 of the requests of one half with those of the other.
    """
    lengths = np.asarray(output_tokens)
    if dial.where == "everywhere":
        return emulate_scores(lengths, dial.tau, seed)
    rank = np.empty(len(lengths))
    order = np.argsort(lengths, kind="stable")
    rank[order] = np.arange(len(lengths))
    half = len(lengths) // 2
    if dial.where == "across":
        rng = np.random.default_rng(seed)
        count = round((1 - dial.tau) / 2 * half)
        low = np.sort(rng.choice(half, size=count, replace=False))
        high = np.sort(rng.choice(np.arange(half, len(lengths)), size=count, replace=False))
        rank[order[low]], rank[order[high]] = high.astype(float), low.astype(float)
    else:
        part = order[:half] if dial.where == "short" else order[half:]
        spoilt, _ = emulate_scores(lengths[part], dial.tau, seed)
        places = np.sort(rank[part])
        rank[part[np.argsort(spoilt, kind="stable")]] = places
    return rank, tau_b(rank, lengths)
