"""Presets from a model's config.json: weights, KV cache, vLLM's defaults, and what a step costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parsim.engine import PresetSource, load_engine
from parsim.engine.presets import memory
from parsim.engine.presets.cards import CARDS, GIB
from parsim.engine.presets.costs import costs_of
from parsim.engine.presets.defaults import batch_limits, block_size
from parsim.engine.presets.model import read_config
from parsim.engine.presets.models import bundled, find_model, model_of
from parsim.engine.presets.precision import precision_of
from parsim.errors import UserError

BILLIONS = {
    "deepseek-r1": 671.03,
    "deepseek-r1-distill-llama-70b": 70.55,
    "deepseek-r1-distill-llama-8b": 8.03,
    "deepseek-r1-distill-qwen-1.5b": 1.78,
    "deepseek-r1-distill-qwen-14b": 14.77,
    "deepseek-r1-distill-qwen-32b": 32.76,
    "deepseek-r1-distill-qwen-7b": 7.62,
    "deepseek-v3": 671.03,
    "gemma-3-12b": 11.77,
    "gemma-3-1b": 1.00,
    "gemma-3-27b": 27.01,
    "gemma-3-4b": 3.88,
    "gpt-oss-120b": 116.83,
    "gpt-oss-20b": 20.91,
    "llama-3.1-405b": 405.85,
    "llama-3.1-70b": 70.55,
    "llama-3.1-8b": 8.03,
    "llama-3.2-1b": 1.24,
    "llama-3.2-3b": 3.21,
    "llama-3.3-70b": 70.55,
    "mistral-7b": 7.25,
    "mistral-large-123b": 122.61,
    "mistral-nemo-12b": 12.25,
    "mistral-small-24b": 23.57,
    "mixtral-8x7b": 46.70,
    "qwen2.5-14b": 14.77,
    "qwen2.5-32b": 32.76,
    "qwen2.5-7b": 7.62,
    "qwen3-0.6b": 0.596,
    "qwen3-1.7b": 1.72,
    "qwen3-14b": 14.77,
    "qwen3-235b-a22b": 235.09,
    "qwen3-30b-a3b": 30.53,
    "qwen3-32b": 32.76,
    "qwen3-4b": 4.02,
    "qwen3-8b": 8.19,
}
"""Parameters that the models' hub pages (safetensors) and papers state; of Gemma 3 the language model alone."""


def test_bundled_configs_have_the_published_number_of_parameters() -> None:
    assert {name: round(model_of(name).weights.total / 1e9, 3) for name in bundled()} == {
        name: pytest.approx(billions, rel=0.004) for name, billions in BILLIONS.items()
    }


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("deepseek-v3", 37),
        ("qwen3-235b-a22b", 22),
        ("qwen3-30b-a3b", 3.3),
        ("mixtral-8x7b", 12.9),
        ("gpt-oss-120b", 5.1),
    ],
)
def test_active_parameters_are_those_that_the_makers_state(name: str, billions: float) -> None:
    """gpt-oss's card leaves the embedding table out (201,088 x 2,880)."""
    model = model_of(name)
    counted = model.active - (model.weights.embedding if name.startswith("gpt-oss") else 0)
    assert counted / 1e9 == pytest.approx(billions, rel=0.03)


@pytest.mark.parametrize(
    ("name", "tp", "kib"),
    [
        ("llama-3.1-8b", 1, 128),  # 2 * 32 layers * 8 heads * 128 * 2 bytes
        ("llama-3.3-70b", 4, 80),  # 2 * 80 layers * 2 of 8 heads * 128 * 2 bytes
        ("qwen3-235b-a22b", 8, 47),  # 2 * 94 layers * one head, of 4, held twice * 128 * 2 bytes
        ("deepseek-v3", 8, 68.625),  # 61 layers * (512 + 64) * 2 bytes, whole on every card
    ],
)
def test_bytes_that_a_token_keeps_on_a_card(name: str, tp: int, kib: float) -> None:
    model = model_of(name)
    assert model.layers * memory.cached_bytes(model, precision_of(model), tp) / 1024 == kib


def test_weights_on_one_card_are_those_that_vllm_reports() -> None:
    """gpt-oss-120b on an H100: "Model loading took 65.9651 GiB" (vllm#23278). Llama-3.1-8B: 16.06 GB."""
    oss, llama = model_of("gpt-oss-120b"), model_of("llama-3.1-8b")
    assert memory.weight_bytes(oss, precision_of(oss), 1) / GIB == pytest.approx(65.97, rel=0.005)
    assert memory.weight_bytes(llama, precision_of(llama), 1) == pytest.approx(16.06e9, rel=0.001)
    half = memory.weight_bytes(llama, precision_of(llama, "fp8"), 2)
    assert half == pytest.approx((6.98e9 + 2 * 1.05e9) / 2, rel=0.005)


def test_memory_beside_weights_and_cache_is_that_of_a_recorded_rtx_4090() -> None:
    """2,588 blocks of 16 at 90% (vLLM 0.19, which did not count CUDA graphs): 1.24 GB are neither."""
    model = model_of("llama-3.1-8b")
    other = memory.reserved_bytes(model, 1, 256, 2048) - memory.GRAPH_BYTES
    blocks = (0.9 * CARDS["rtx-4090"].memory - 2 * model.weights.total - other) / (16 * 131072)
    assert blocks == pytest.approx(2588, rel=0.02)


def test_vllm_defaults_by_card() -> None:
    """`EngineArgs.get_batch_defaults` of vLLM 0.32: by memory, the A100 apart."""
    found = {name: batch_limits(card) for name, card in CARDS.items()}
    assert {found[n] for n in ("b200", "gb200", "mi300x", "mi325x")} == {(1024, 16384)}
    assert {found[n] for n in ("h100", "h100-pcie", "h100-nvl", "h200", "h20", "rtx-pro-6000")} == {
        (1024, 8192)
    }
    assert {found[n] for n in ("a100-80g", "a100-40g", "l4", "l40s", "a6000", "rtx-5090")} == {(256, 2048)}
    assert block_size(model_of("deepseek-v3"), CARDS["h200"]) == 16
    assert block_size(model_of("deepseek-v3"), CARDS["b200"]) == 32


@pytest.mark.parametrize(
    ("model", "put"),
    [
        ("llama-3.3-70b", {"gpu": "h100", "tp": 4}),
        ("qwen3-235b-a22b", {"gpu": "h200", "tp": 8, "dtype": "fp8"}),
        ("gpt-oss-120b", {"gpu": "h100"}),
        ("deepseek-v3", {"gpu": "h200", "tp": 8}),
    ],
)
def test_blocks_are_what_fits_beside_the_weights(model: str, put: dict[str, object]) -> None:
    """92% of the memory less weights less the estimate for a step, over the bytes of a block."""
    engine = load_engine(model, **put)  # type: ignore[arg-type]
    shape, tp = model_of(model), int(put.get("tp", 1))  # type: ignore[call-overload]
    precision = precision_of(shape, str(put.get("dtype", "auto")))
    card = CARDS[str(put["gpu"])]
    left = 0.92 * card.memory - memory.weight_bytes(shape, precision, tp)
    left -= memory.reserved_bytes(shape, tp, engine.max_num_seqs, engine.max_num_batched_tokens)
    layers = 18 if model == "gpt-oss-120b" else shape.layers
    token = layers * memory.cached_bytes(shape, precision, tp)
    held = left / (token * engine.block_size)
    assert engine.num_gpu_blocks == pytest.approx(
        held * (128 / 137 if model == "gpt-oss-120b" else 1), rel=0.001
    )
    assert engine.serve.startswith(shape.hub)
    assert ("--tensor-parallel-size" in engine.serve) == (tp > 1)
    assert "not measured" in engine.provenance


def test_sliding_windows_take_blocks_of_their_own() -> None:
    """Gemma 3 27B: 10 layers see everything, 52 a window of 1,024: six groups of ten, each with 65 blocks a request."""
    model = model_of("gemma-3-27b")
    laid = memory.layout(model, precision_of(model), 1, 16)
    assert (laid.full_groups, laid.sliding_groups) == (1, 6)
    assert laid.block_bytes == 16 * 10 * 2 * 16 * 128 * 2
    assert memory.whole_blocks(model, laid, 10_000, 16) == 10_000 * 128 // (128 + 6 * 65)


def test_experts_touched_by_a_batch() -> None:
    model = model_of("mixtral-8x7b")
    costs = costs_of(model, precision_of(model), CARDS["h100"], 1)
    assert costs.touched(1) == pytest.approx(2 / 8)
    assert costs.touched(2) == pytest.approx(1 - (6 / 8) ** 2)
    assert costs.experts_s * CARDS["h100"].bandwidth == pytest.approx(2 * 45.1e9, rel=0.001)


def test_arithmetic_and_reads_of_a_step_by_hand() -> None:
    """Llama-3.1-8B on an A100: 6.98e9 weights in the layers and 0.525e9 in the head; the embedding is not read."""
    model, card = model_of("llama-3.1-8b"), CARDS["a100-80g"]
    costs = costs_of(model, precision_of(model), card, 1)
    assert costs.weights_s == pytest.approx(2 * 7.505e9 / 2039e9, rel=0.001)
    assert costs.token_s == pytest.approx(2 * 6.979e9 / 312e12, rel=0.001)
    assert costs.sampled_s == pytest.approx(2 * 0.5253e9 / 312e12, rel=0.001)
    assert costs.kv_token_s == pytest.approx(131072 / 2039e9)
    assert costs.pair_s == pytest.approx(4 * 32 * 32 * 128 / 312e12)
    assert costs.exchanges == 0
    two = costs_of(model, precision_of(model), card, 2)
    assert two.weights_s == pytest.approx(costs.weights_s / 2, rel=0.001)
    assert two.exchange_token_s == pytest.approx(64 * 4096 * 2 / 300e9)


def test_a_folder_and_the_local_cache_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = bundled()["qwen3-8b"]["config"]
    (tmp_path / "Mine").mkdir()
    (tmp_path / "Mine" / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 18}))
    mine = load_engine(str(tmp_path / "Mine"), gpu="l40s")
    assert mine.name == "Mine-l40s"
    assert mine.num_gpu_blocks > 2 * load_engine("qwen3-8b", gpu="l40s").num_gpu_blocks
    snapshot = tmp_path / "hub" / "models--who--What-9B" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    cached = load_engine("who/What-9B", gpu="l40s", dtype="fp8", kv_cache_dtype="fp8")
    assert cached.serve == "who/What-9B --quantization fp8 --kv-cache-dtype fp8"
    assert find_model("who/Nothing") is None
    assert model_of("Qwen/Qwen3-8B") == model_of("qwen3-8b")


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [
        ({"quant_method": "fp8"}, 8),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4.15625),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, 4.3125),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 8, "type": "int"}}},
            },
            8,
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
    ],
)
def test_bits_of_quantised_checkpoints(quantization: dict[str, object], bits: float) -> None:
    config = {**bundled()["llama-3.1-8b"]["config"], "quantization_config": quantization}
    model = read_config(config, "mine", "mine")
    stored = memory.weight_bytes(model, precision_of(model), 1)
    assert stored == pytest.approx(6.979e9 * bits / 8 + 2 * 1.0507e9, rel=0.002)


@pytest.mark.parametrize(
    ("engine", "put", "said"),
    [
        ("llama-3.3-70b", {"gpu": "h100"}, "do not fit on h100.*more of them"),
        ("llama-3.3-70b", {"gpu": "h10"}, "no such card.*did you mean 'h100'"),
        ("llama-3.3-70b", {"gpu": "h100", "tp": 3}, "64 attention heads"),
        ("llama-3.3-70b", {"gpu": "h100", "tp": 0}, "tp"),
        ("llama-3.3-70b", {"gpu": "h100", "tp": 4, "dtype": "fp9"}, "did you mean 'fp8'"),
        ("llama-3.3-70b", {"gpu": "h100", "dtype": "mxfp4"}, "no experts"),
        ("llama-3.3-7b", {"gpu": "h100"}, "did you mean 'llama-3.3-70b'"),
        ("llama-3.3-70b", {}, "name the card"),
        ("llama-3.1-8b-h100", {"tp": 2}, "without a gpu"),
    ],
)
def test_what_cannot_be_is_said(engine: str, put: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        load_engine(engine, **put)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "no hidden_size"),
        ({"hidden_size": "4096"}, "hidden_size.*whole number"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"linear_num_key_heads": 16}, "only attention layers"),
        ({"quantization_config": {"quant_method": "magic"}}, "'magic' is not known"),
    ],
)
def test_a_config_that_is_none_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**bundled()["llama-3.1-8b"]["config"], **change}))
    with pytest.raises(UserError, match=said):
        load_engine(str(tmp_path), gpu="h100")


def test_a_sweep_takes_a_model_on_cards(tmp_path: Path) -> None:
    from parsim.sweep.options import apply_options
    from parsim.sweep.spec import read_spec

    file = tmp_path / "sweep.yaml"
    file.write_text("engine: {model: llama-3.3-70b, gpu: h100, tp: 4}\n")
    assert read_spec(file).engine == PresetSource(model="llama-3.3-70b", gpu="h100", tp=4)
    changed = apply_options(file, put={"tp": 8, "gpu": None})
    assert changed.engine == PresetSource(model="llama-3.3-70b", gpu="h100", tp=8)
    named = apply_options(None, engine="qwen3-8b", put={"gpu": "l40s", "dtype": "fp8"})
    assert named.engine == PresetSource(model="qwen3-8b", gpu="l40s", dtype="fp8")
