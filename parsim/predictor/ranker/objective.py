"""The training objectives, each a number from the scores and the recorded lengths of one batch.

All take `scores` (n,), `log_lengths` (n,) and `censored` (n,) of one batch, in which every prompt was encoded
once.
"""

from __future__ import annotations

import math
from typing import Any

import torch

CUTS = 15
"""Lengths that the ordinal loss asks about: they cut the training prompts into sixteen equal parts."""


def margin_loss(longer: torch.Tensor, shorter: torch.Tensor, margin: float = 1.0) -> torch.Tensor:
    """Margin ranking: mean of max(0, margin - (longer - shorter)) over pairs; scores of shape (pairs,) each."""
    return torch.clamp(margin - (longer - shorter), min=0.0).mean()


def batch_pairs(
    log_lengths: torch.Tensor, censored: torch.Tensor, delta: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """All usable pairs of a batch as (longer, shorter) row numbers, each of shape (pairs,).

    Usable as in `parsim.predictor.ranker.pairs.draw_pairs`: relative gap at least `delta` and above zero, order
    known. |a - b| / max(a, b) >= delta is log a - log b >= -log(1 - delta) for a > b.
    """
    gap = log_lengths[:, None] - log_lengths[None, :]
    least = -math.log1p(-delta) if delta > 0 else 0.0
    usable = (gap > 0) & (gap >= least - 1e-6) & ~censored[None, :]
    longer, shorter = usable.nonzero(as_tuple=True)
    return longer, shorter


def pairwise_loss(
    scores: torch.Tensor,
    log_lengths: torch.Tensor,
    censored: torch.Tensor,
    *,
    delta: float,
    margin: float = 1.0,
) -> torch.Tensor:
    """Margin ranking loss over all usable pairs of the batch; 0 (with a gradient of 0) where there is none."""
    longer, shorter = batch_pairs(log_lengths, censored, delta)
    if len(longer) == 0:
        return scores.sum() * 0.0
    return margin_loss(scores[longer], scores[shorter], margin)


def pointwise_loss(scores: torch.Tensor, targets: torch.Tensor, censored: torch.Tensor) -> torch.Tensor:
    """Mean absolute error of scores against targets (n,); a censored target costs only what falls short of
    it.
    """
    error = targets - scores
    return torch.where(censored, torch.clamp(error, min=0.0), error.abs()).mean()


def listwise_loss(scores: torch.Tensor, log_lengths: torch.Tensor) -> torch.Tensor:
    """ListMLE (Xia et al., ICML 2008): minus the Plackett-Luce log likelihood of the true order, a place.

    The order is by length, the longest first; ties keep the batch's order, which is random. A response that was cut
    stands where its cut length puts it: the likelihood of an order has no place for one that is only known to be
    longer.
    """
    order = torch.argsort(log_lengths, descending=True, stable=True)
    ranked = scores[order]
    rest = torch.logcumsumexp(ranked.flip(0), dim=0).flip(0)
    return (rest - ranked).mean()


def ordinal_loss(
    scores: torch.Tensor, log_lengths: torch.Tensor, censored: torch.Tensor, cuts: torch.Tensor
) -> torch.Tensor:
    """Cumulative logits (McCullagh 1980): mean cross-entropy of "longer than cut k?" over prompts and cuts.

    The score is the place of the length's distribution: P(longer than cut k) = sigmoid(score - t_k), where t_k is the
    logit of the share of training prompts below cut k, so that a score of 0 is the distribution over all prompts.
    `cuts` (k,) are quantiles of log lengths, ascending. A censored response says nothing of cuts above its length.
    """
    shares = torch.arange(1, len(cuts) + 1, device=cuts.device) / (len(cuts) + 1)
    longer = log_lengths[:, None] > cuts
    known = longer | ~censored[:, None]
    each = torch.nn.functional.binary_cross_entropy_with_logits(
        scores[:, None] - torch.logit(shares), longer.float(), reduction="none"
    )
    return (each * known).sum() / known.sum().clamp(min=1)


def batch_loss(
    objective: str,
    scores: torch.Tensor,
    log_lengths: torch.Tensor,
    censored: torch.Tensor,
    *,
    targets: torch.Tensor,
    cuts: torch.Tensor,
    delta: float,
    margin: float,
) -> Any:
    """The named objective's loss of one batch.

    `targets` (n,) is what the pointwise part regresses on; for `cuts` see `ordinal_loss`.
    """
    if objective == "pairwise":
        return pairwise_loss(scores, log_lengths, censored, delta=delta, margin=margin)
    if objective == "pointwise":
        return pointwise_loss(scores, targets, censored)
    if objective == "listwise":
        return listwise_loss(scores, log_lengths)
    if objective == "ordinal":
        return ordinal_loss(scores, log_lengths, censored, cuts)
    if objective == "mixed":
        ranking = pairwise_loss(scores, log_lengths, censored, delta=delta, margin=margin)
        return 0.5 * (ranking + pointwise_loss(scores, targets, censored))
    raise ValueError(f"unknown objective {objective}")
