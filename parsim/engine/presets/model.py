"""A model as numbers: the shape that its `config.json` states, its weights by kind, and its KV cache.

Read: dense decoders (Llama, Mistral, Qwen2, Qwen3, Gemma 3), mixtures of experts (Mixtral, Qwen3 MoE, gpt-oss,
DeepSeek V2/V3/R1), multi-head latent attention, sliding windows. Others that use the same keys are read the same way;
what has other layers (state space, linear attention) is refused rather than guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parsim.errors import UserError

_OTHER_LAYERS = ("mamba", "linear_attention", "ssm_", "rwkv", "conv_kernel", "linear_num_key_heads")
"""Keys of layers that keep something else than keys and values; what they cost is not known here."""


@dataclass(frozen=True)
class Weights:
    """Numbers of weights, by how they are stored, split over cards and read.

    Attributes:
        attention: projections that tensor parallelism splits.
        latent: down projections of latent attention, which every card holds whole.
        dense: feed-forward weights that every token uses (shared experts included).
        experts: of all routed experts.
        router: of the gates, in bfloat16 on every card.
        norms: in bfloat16 on every card, biases included.
        embedding: the table that tokens are looked up in.
        head: the output matrix; 0 if it is the embedding.
    """

    attention: float
    latent: float
    dense: float
    experts: float
    router: float
    norms: float
    embedding: float
    head: float

    @property
    def total(self) -> float:
        """All weights."""
        body = self.attention + self.latent + self.dense + self.experts + self.router + self.norms
        return body + self.embedding + self.head


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer.

    Attributes:
        name: what to call it.
        hub: its name on the Hugging Face hub, or the folder; what `vllm serve` takes.
        hidden, layers, vocabulary: sizes.
        heads, kv_heads: of attention; `kv_heads` is 1 with latent attention, which every card holds whole.
        key_dim, value_dim: of one head, as attention computes with them.
        cached_per_layer: numbers that one token keeps in one layer, over all `kv_heads`.
        latent: multi-head latent attention.
        sliding_window: tokens that a sliding layer sees; 0 without such layers.
        sliding_layers: how many layers slide.
        experts, experts_per_token: routed experts of a layer and those that a token uses; 0 in a dense model.
        moe_layers: layers with routed experts.
        feed_forward: width of the widest dense feed-forward layer, shared experts included.
        expert_width: width of one routed expert.
        max_model_len: the context that the config states.
        quantization: `quantization_config` of the config, empty if there is none.
        weights: by kind.
    """

    name: str
    hub: str
    hidden: int
    layers: int
    vocabulary: int
    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    cached_per_layer: int
    latent: bool
    sliding_window: int
    sliding_layers: int
    experts: int
    experts_per_token: int
    moe_layers: int
    feed_forward: int
    expert_width: int
    max_model_len: int
    quantization: Mapping[str, Any]
    weights: Weights

    @property
    def active(self) -> float:
        """Weights that one token uses, the embedding table included: what a model's name calls active."""
        if not self.experts:
            return self.weights.total
        return self.weights.total - self.weights.experts * (1 - self.experts_per_token / self.experts)

    @property
    def head_weights(self) -> float:
        """Weights of the output matrix, which may be the embedding."""
        return self.weights.head or self.weights.embedding

    @property
    def full_layers(self) -> int:
        """Layers whose attention sees the whole context."""
        return self.layers - self.sliding_layers


def read_config(config: Mapping[str, Any], name: str, hub: str) -> Model:
    """The model of a `config.json`.

    A multimodal config's `text_config` is taken; what its other parts cost is not counted.

    Raises:
        UserError: a size is missing or no whole number of at least 1, or the layers are of another kind.
    """
    text = config.get("text_config")
    if isinstance(text, Mapping):
        config = {**{k: v for k, v in config.items() if k == "quantization_config"}, **text}
    for key in config:
        if any(key.startswith(other) for other in _OTHER_LAYERS) and config[key]:
            raise UserError(f"{name}: {key} in config.json: only attention layers are known, not this kind")
    reader = _Reader(config, name)
    hidden, layers = reader.size("hidden_size"), reader.size("num_hidden_layers")
    heads = reader.size("num_attention_heads")
    vocabulary = reader.size("vocab_size")
    window, sliding = _sliding(reader, layers)
    latent = bool(config.get("kv_lora_rank"))
    experts = reader.size("n_routed_experts", "num_local_experts", "num_experts", default=0)
    top = reader.size("num_experts_per_tok", "experts_per_token") if experts else 0
    inner = reader.size("intermediate_size")
    width = reader.size("moe_intermediate_size", default=inner) if experts else 0
    moe_layers = _moe_layers(reader, layers) if experts else 0
    shared = reader.size("n_shared_experts", default=0) * width if experts else 0
    shared = reader.size("shared_expert_intermediate_size", default=shared) if experts else 0
    if latent:
        rank, rope = reader.size("kv_lora_rank"), reader.size("qk_rope_head_dim")
        key_dim = reader.size("qk_nope_head_dim") + rope
        value_dim = reader.size("v_head_dim")
        kv_heads, cached = 1, rank + rope
    else:
        kv_heads = reader.size("num_key_value_heads", default=heads)
        key_dim = value_dim = reader.size("head_dim", default=hidden // heads)
        cached = kv_heads * (key_dim + value_dim)
    attention, down = _attention(reader, hidden, heads, kv_heads, key_dim, value_dim)
    embedding = float(vocabulary * hidden)
    biases = float(config.get("model_type") == "gpt_oss") * moe_layers * experts * (2 * width + hidden)
    four = str(config.get("model_type", "")).startswith("gemma")
    weights = Weights(
        attention=layers * attention,
        latent=layers * down,
        dense=3.0 * hidden * (inner * (layers - moe_layers) + shared * moe_layers),
        experts=3.0 * hidden * width * experts * moe_layers,
        router=float(moe_layers * hidden * experts),
        norms=layers * hidden * (4.0 if four else 2.0) + hidden + biases,
        embedding=embedding,
        head=0.0 if _tied(config) else embedding,
    )
    return Model(
        name=name,
        hub=hub,
        hidden=hidden,
        layers=layers,
        vocabulary=vocabulary,
        heads=heads,
        kv_heads=kv_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        cached_per_layer=cached,
        latent=latent,
        sliding_window=window,
        sliding_layers=sliding,
        experts=experts,
        experts_per_token=top,
        moe_layers=moe_layers,
        feed_forward=max(inner if moe_layers < layers else 0, shared),
        expert_width=width,
        max_model_len=reader.size("max_position_embeddings", "max_sequence_length", default=32768),
        quantization=config.get("quantization_config") or {},
        weights=weights,
    )


class _Reader:
    """Sizes of a config."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        self.config = config
        self.name = name

    def size(self, *keys: str, default: int | None = None) -> int:
        """The first of `keys` that is there."""
        found = next((key for key in keys if self.config.get(key) is not None), None)
        if found is None:
            if default is None:
                raise UserError(
                    f"{self.name}: config.json says no {keys[0]}; it is not a model's, or of another kind"
                )
            return default
        value = self.config[found]
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not 0 <= value < 1e9
            or (not value and default is None)
        ):
            raise UserError(f"{self.name}: {found} in config.json must be a whole number (got {value!r})")
        return value


def _tied(config: Mapping[str, Any]) -> bool:
    """Whether the output matrix is the embedding: Gemma's configs leave it out, since it always is."""
    default = str(config.get("model_type", "")).startswith("gemma")
    return bool(config.get("tie_word_embeddings", default))


def _sliding(reader: _Reader, layers: int) -> tuple[int, int]:
    """The window and how many layers have it."""
    config = reader.config
    window = reader.size("sliding_window", default=0)
    if not window or config.get("use_sliding_window") is False:
        return 0, 0
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        sliding = sum(kind == "sliding_attention" for kind in kinds)
    elif config.get("sliding_window_pattern"):
        sliding = layers - layers // reader.size("sliding_window_pattern")
    elif str(config.get("model_type", "")).startswith("gemma3"):
        sliding = layers - layers // 6
    else:
        sliding = layers
    return (window, sliding) if sliding else (0, 0)


def _moe_layers(reader: _Reader, layers: int) -> int:
    dense = set(reader.config.get("mlp_only_layers") or ())
    first = reader.size("first_k_dense_replace", default=0)
    step = reader.size("decoder_sparse_step", "moe_layer_freq", default=1)
    return sum(layer >= first and layer not in dense and (layer + 1) % step == 0 for layer in range(layers))


def _attention(
    reader: _Reader, hidden: int, heads: int, kv_heads: int, key_dim: int, value_dim: int
) -> tuple[float, float]:
    """Weights of one layer's attention: split over cards, and held whole by every card."""
    config = reader.config
    if not config.get("kv_lora_rank"):
        queries, keys = heads * key_dim, kv_heads * key_dim
        own = hidden * (queries + 2 * keys) + queries * hidden
        if config.get("attention_bias") or config.get("model_type") == "qwen2":
            own += queries + 2 * keys
        return float(own), 0.0
    rank, rope = reader.size("kv_lora_rank"), reader.size("qk_rope_head_dim")
    query_rank = reader.size("q_lora_rank", default=0)
    up = rank * heads * (key_dim - rope + value_dim) + heads * value_dim * hidden
    up += (query_rank or hidden) * heads * key_dim
    return float(up), float(hidden * (rank + rope + query_rank))
