"""The card and model that a recording speaks of, and what physics says of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from parsim.engine import PresetSource
from parsim.engine.presets.cards import CARDS
from parsim.engine.presets.costs import costs_of
from parsim.engine.presets.models import bundled, model_of
from parsim.engine.presets.precision import precision_of
from parsim.errors import UserError
from parsim.validate.recordings.measured import Measured

COUNTS_GRAPHS = (0, 21)
"""From this version on vLLM leaves room for CUDA graphs, and takes 92% of the memory instead of 90%."""

OLD_UTILIZATION = 0.9


def find_card(measured: Measured, gpu: str | None = None, model: str | None = None) -> PresetSource | None:
    """The model and card that the recording speaks of; None if it names none that is known.

    Raises:
        UserError: `gpu` or `model` is given and no preset has that name.
    """
    for given, known, what in ((gpu, CARDS, "GPU"), (model, bundled(), "model")):
        if given is not None and given not in known:
            raise UserError(f"{what} {given!r}: no such preset (choose from {', '.join(known)})")
    found_model = model or _longest(measured.model, bundled())
    found_gpu = gpu or _longest(measured.gpu, CARDS)
    if not found_model or not found_gpu:
        return None
    put = dict(measured.put)
    if measured.version and measured.version < COUNTS_GRAPHS:
        put.setdefault("gpu_memory_utilization", OLD_UTILIZATION)
    return PresetSource(model=found_model, gpu=found_gpu, **put)


def _longest(text: str, names: Mapping[str, object]) -> str | None:
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    hits = [name for name in names if re.sub(r"[^a-z0-9]", "", name) in plain]
    return max(hits, key=len, default=None)


def physics(card: PresetSource) -> dict[str, float]:
    """Seconds of each term if the card did what its datasheet says: weights or KV bytes / bandwidth, FLOPs / FLOP/s."""
    model = model_of(card.model)
    precision = precision_of(model, card.dtype, card.kv_cache_dtype)
    costs = costs_of(model, precision, CARDS[card.gpu], card.tp)
    return {
        "base_s": costs.weights_s + costs.experts_s,
        "prefill_token_s": costs.token_s,
        "decode_seq_s": costs.token_s + costs.sampled_s,
        "kv_token_s": costs.kv_token_s,
        "attention_pair_s": costs.pair_s,
    }
