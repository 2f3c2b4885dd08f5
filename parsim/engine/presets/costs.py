"""What a step has to read and compute on one card, and how long that takes if the card did what its datasheet says."""

from __future__ import annotations

from dataclasses import dataclass

from parsim.engine.presets.cards import Card
from parsim.engine.presets.memory import cached_bytes, expert_bytes, weight_bytes
from parsim.engine.presets.model import Model
from parsim.engine.presets.precision import Precision


@dataclass(frozen=True)
class Costs:
    """Seconds on one card at the datasheet's rates.

    Attributes:
        weights_s: reading, once, the weights that every step needs (not the embedding table, of which it reads rows).
        experts_s: reading all routed experts.
        expert_share: share of the experts that one token uses; 0 in a dense model.
        token_s: arithmetic of a token in all projections.
        passed_s: reading and writing of a token's activations between the projections.
        sampled_s: arithmetic of the output matrix, for a token that is sampled.
        drawn_s: reading and writing of its logits.
        kv_token_s: reading (or, with latent attention and few cards, computing with) one cached token.
        window_s: reading the sliding layers' windows of one decoding sequence whose context is at least that long.
        pair_s: attention of one (query, key) pair in the layers that see everything.
        window_token_s: attention of a prompt token in the sliding layers.
        exchange_token_s: bytes of a token in the all-reduces between the cards.
        exchanges: all-reduces of a step; 0 on one card.
    """

    weights_s: float
    experts_s: float
    expert_share: float
    token_s: float
    passed_s: float
    sampled_s: float
    drawn_s: float
    kv_token_s: float
    window_s: float
    pair_s: float
    window_token_s: float
    exchange_token_s: float
    exchanges: int

    def touched(self, tokens: float) -> float:
        """Share of the experts that `tokens` tokens use, each choosing at random."""
        return 1.0 - (1.0 - self.expert_share) ** tokens


def costs_of(model: Model, precision: Precision, card: Card, tp: int) -> Costs:
    """Costs of one step on each of `tp` cards.

    FLOPs: 2 per weight and token, 2 * (key + value dimension) per head, query and key (Kaplan et al. 2020). Latents
    are read by absorbed attention, about `heads * 4 * (rank + rope)` FLOPs a cached token. All-reduces: two a layer,
    ring, `2 (tp - 1) / tp` times a token's hidden state in 2 bytes through the link. Between the projections: the
    hidden state is read or written twelve times a layer, the feed-forward activations three times, 2 bytes each;
    logits eight bytes.
    """
    weights = model.weights
    experts = expert_bytes(model, precision, tp)
    read = weight_bytes(model, precision, tp) - experts
    if weights.head:
        read -= 2.0 * weights.embedding / tp
    flops = card.fp8_flops if precision.fp8 and card.fp8_flops else card.flops
    share = model.experts_per_token / model.experts if model.experts else 0.0
    used = (
        (weights.attention + weights.dense + weights.experts * share) / tp + weights.latent + weights.router
    )
    cached = cached_bytes(model, precision, tp)
    kv_token = model.full_layers * cached / card.bandwidth
    if model.latent:
        absorbed = 2.0 * model.heads / tp * 2 * model.cached_per_layer
        kv_token = max(kv_token, model.layers * absorbed / card.flops)
    pair = 2.0 * model.heads / tp * (model.key_dim + model.value_dim) / card.flops
    exchange = 2.0 * (tp - 1) / tp * model.hidden * 2.0 / card.link_bandwidth
    return Costs(
        weights_s=read / card.bandwidth,
        experts_s=experts / card.bandwidth,
        expert_share=share,
        token_s=2.0 * used / flops,
        passed_s=model.layers * 2.0 * (12 * model.hidden + 3 * _width(model) / tp) / card.bandwidth,
        drawn_s=8.0 * model.vocabulary / card.bandwidth,
        sampled_s=2.0 * model.head_weights / tp / card.flops,
        kv_token_s=kv_token,
        window_s=model.sliding_layers * model.sliding_window * cached / card.bandwidth,
        pair_s=model.full_layers * pair,
        window_token_s=model.sliding_layers * model.sliding_window * pair,
        exchange_token_s=2 * model.layers * exchange,
        exchanges=2 * model.layers if tp > 1 else 0,
    )


def _width(model: Model) -> int:
    """Feed-forward activations of a token in one layer."""
    return max(model.feed_forward, model.experts_per_token * model.expert_width)
