"""The ranker: an encoder, a pooling and one linear layer that gives one score a prompt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from parsim.errors import UserError
from parsim.predictor.ranker.encoder import Encoder
from parsim.predictor.ranker.recipe import Precision, Recipe
from parsim.predictor.ranker.tokens import by_length, pad, tokenize
from parsim.predictor.ranker.trial import try_out

MICRO_BATCH = 32
"""Prompts of like length that are encoded together; a batch of 128 pads each quarter to its own longest
prompt.
"""


class Ranker(nn.Module):
    """score = w . (pooled - mean) / spread + b over the encoder's pooled hidden state.

    `mean` and `spread` (hidden,) standardise the features of a frozen encoder; otherwise they are 0 and 1. A
    dimension that never varies (MiniLM has two) gets spread 1.
    """

    def __init__(self, encoder: Encoder, recipe: Recipe) -> None:
        """On an encoder as loaded; LoRA and full tuning change it.

        Raises:
            UserError: the encoder does not do what the recipe wants of it.
        """
        super().__init__()
        try_out(encoder, recipe)
        torch.manual_seed(recipe.seed)
        self.recipe = recipe
        self.tokenizer = encoder.tokenizer
        self.encoder = _tunable(encoder, recipe)
        hidden = encoder.model.config.hidden_size
        self.head = nn.Linear(hidden, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        self.register_buffer("mean", torch.zeros(hidden))
        self.register_buffer("spread", torch.ones(hidden))
        self.precision = resolve_precision(recipe.precision, torch.device("cpu"))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.head.weight.device

    def use(self, device: torch.device) -> Ranker:
        """Move to a device and settle the precision there."""
        self.to(device)
        self.precision = resolve_precision(self.recipe.precision, device)
        return self

    def tokenize(self, prompts: Sequence[str]) -> list[list[int]]:
        """Token ids a prompt, as the recipe cuts them."""
        return tokenize(self.tokenizer, prompts, self.recipe.max_length, self.recipe.truncation)

    def features(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        """Pooled hidden states (rows, hidden) in 32-bit floats of tokenised prompts, in their order."""
        groups = list(by_length(rows, MICRO_BATCH))
        parts = [self._pool([rows[row] for row in group]) for group in groups]
        order = np.argsort(np.concatenate(groups))
        return torch.cat(parts)[torch.from_numpy(order).to(self.device)]

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Scores (rows,) from features (rows, hidden)."""
        scores: torch.Tensor = self.head((features - self.mean) / self.spread).squeeze(-1)
        return scores

    def score_rows(self, rows: Sequence[Sequence[int]], workers: int = 1) -> npt.NDArray[np.float64]:
        """Scores of tokenised prompts; evaluation mode, no gradient; `workers` threads take micro-batches in
        turn.
        """
        self.eval()
        scores = np.empty(len(rows))

        def one(group: npt.NDArray[np.int64]) -> None:
            with torch.inference_mode():
                scores[group] = self(self._pool([rows[row] for row in group])).double().cpu().numpy()

        groups = list(by_length(rows, MICRO_BATCH))
        if workers == 1 or len(groups) == 1:
            for group in groups:
                one(group)
        else:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(one, groups))
        return scores

    def score(self, prompts: Sequence[str], workers: int = 1) -> npt.NDArray[np.float64]:
        """Scores of prompts, in their order; an empty prompt is scored like any other."""
        return self.score_rows(self.tokenize(prompts), workers)

    def trained_state(self) -> dict[str, torch.Tensor]:
        """The tensors that training can change, by name: what a checkpoint holds."""
        names = {name for name, value in self.named_parameters() if value.requires_grad} | {"mean", "spread"}
        return {
            name: value.detach().cpu().clone() for name, value in self.state_dict().items() if name in names
        }

    def _pool(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        ids, mask = (tensor.to(self.device) for tensor in pad(rows, self.tokenizer.pad_token_id or 0))
        with torch.autocast(self.device.type, dtype=self.precision, enabled=self.precision != torch.float32):
            out = self.encoder(input_ids=ids, attention_mask=mask)
            if self.recipe.pooling == "pooled":
                pooled = out.pooler_output
            elif self.recipe.pooling == "cls":
                pooled = out.last_hidden_state[:, 0]
            else:
                weights = mask.unsqueeze(-1).to(out.last_hidden_state.dtype)
                pooled = (out.last_hidden_state * weights).sum(1) / weights.sum(1)
        features: torch.Tensor = pooled.float()
        return features


def resolve_precision(precision: Precision, device: torch.device) -> torch.dtype:
    """The type to compute in: `auto` is bf16 where the device has instructions for it, otherwise 32 bits."""
    if precision == "auto":
        native = torch.cuda.is_bf16_supported() if device.type == "cuda" else _cpu_has_bf16()
        return torch.bfloat16 if native else torch.float32
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]


def _cpu_has_bf16() -> bool:
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, probe)() for probe in probes if hasattr(torch.cpu, probe))


def _tunable(encoder: Encoder, recipe: Recipe) -> Any:
    """The encoder's model with gradients where the recipe's tuning wants them."""
    model = encoder.model
    if recipe.tuning == "full":
        if recipe.pooling != "pooled" and getattr(model, "pooler", None) is not None:
            model.pooler.requires_grad_(False)
        return model
    model.requires_grad_(False)
    if recipe.tuning == "frozen":
        return model
    import peft

    layers = _linear_layers(model, recipe)
    if not layers:
        raise UserError(
            f"recipe: tuning=lora: encoder '{encoder.name}' ({type(model).__name__}) has no linear layers to adapt;"
            " take tuning=full or tuning=frozen"
        )
    config = peft.LoraConfig(
        r=recipe.lora_rank,
        lora_alpha=2 * recipe.lora_rank,
        target_modules=layers,
    )
    return peft.get_peft_model(model, config)


def _linear_layers(model: Any, recipe: Recipe) -> list[str]:
    """Names of the linear layers that LoRA adapts: all, or those of the last `lora_layers` blocks."""
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if recipe.pooling != "pooled":
        names = [name for name in names if "pooler" not in name]
    if recipe.lora_layers is None:
        return names
    first = model.config.num_hidden_layers - recipe.lora_layers
    blocks = [re.search(r"\.(\d+)\.", name) for name in names]
    return [
        name for name, block in zip(names, blocks, strict=True) if block is None or int(block[1]) >= first
    ]
