"""An encoder tried out on one prompt, before hours of training and before anything is written."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from parsim.errors import UserError
from parsim.predictor.ranker.encoder import Encoder, reason
from parsim.predictor.ranker.recipe import Recipe
from parsim.predictor.ranker.tokens import pad, tokenize

_UNBOUNDED = 512
"""Tokens of the trial where the encoder states no limit of its own."""


def try_out(encoder: Encoder, recipe: Recipe) -> None:
    """Encode one prompt as long as the recipe allows, as training and scoring do. Draws no random numbers.

    Raises:
        UserError: the encoder cannot take that many tokens, or gives no finite hidden states of the kind that
            `recipe.pooling` takes.
    """
    positions = _positions(encoder.model)
    tokens = min(recipe.max_length, positions + 1 if positions is not None else _UNBOUNDED)
    who = f"encoder '{encoder.name}' ({type(encoder.model).__name__})"
    known, embedded = encoder.tokenizer.vocab_size, getattr(encoder.model.config, "vocab_size", None)
    if embedded is not None and known > embedded:
        raise UserError(
            f"{who}: its tokenizer has {known} tokens, the encoder embeds {embedded}; save the tokenizer that it was"
            " trained with beside the weights"
        )
    try:
        with torch.inference_mode():
            rows = tokenize(encoder.tokenizer, ["word " * tokens], tokens, recipe.truncation)
            ids, mask = pad(rows, encoder.tokenizer.pad_token_id or 0)
            out = encoder.model(input_ids=ids, attention_mask=mask)
            shape, finite = out.last_hidden_state.shape, bool(out.last_hidden_state.isfinite().all())
        width = encoder.model.config.hidden_size
    except Exception as error:  # whatever an architecture raises that is no text encoder
        if positions is not None and recipe.max_length > positions:
            raise UserError(
                f"recipe: max_length={recipe.max_length}: {who} takes at most {positions} tokens; lower it"
            ) from error
        raise UserError(
            f"{who}: cannot encode a prompt ({reason(error)}); name a text encoder such as BERT or MiniLM"
        ) from error
    if shape != (*ids.shape, width):
        raise UserError(
            f"{who}: gives hidden states {list(shape)} for a prompt of {ids.shape[1]} tokens, expected"
            f" {[*ids.shape, width]}; name a text encoder such as BERT or MiniLM"
        )
    if not finite:
        raise UserError(f"{who}: gives hidden states that are no finite numbers; get its weights anew")
    if recipe.pooling == "pooled":
        _check_pooler(encoder, getattr(out, "pooler_output", None), recipe, who)


def _check_pooler(encoder: Encoder, pooled: torch.Tensor | None, recipe: Recipe, who: str) -> None:
    if pooled is None:
        raise UserError(
            f"recipe: pooling=pooled: {who} has no pooled output; set pooling=cls or pooling=mean"
        )
    if encoder.drawn and recipe.tuning != "full":  # full tuning trains the pooler and saves it
        raise UserError(
            f"recipe: pooling=pooled: the weights of {who} lack its pooler ({encoder.drawn[0]}), and"
            f" tuning={recipe.tuning} does not train one; set pooling=cls or pooling=mean"
        )


def _positions(model: Any) -> int | None:
    """Tokens that the encoder has positions for: of its table some (RoBERTa) keep the first ones for padding."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return int(module.num_embeddings) - (0 if module.padding_idx is None else module.padding_idx + 1)
    declared = getattr(model.config, "max_position_embeddings", None)
    return declared if isinstance(declared, int) and declared > 0 else None
