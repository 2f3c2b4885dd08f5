"""How weights and cached values are stored: bits a number, and whether the arithmetic is done in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parsim.engine.presets.model import Model
from parsim.errors import UserError, nearest

DTYPES = ("auto", "bfloat16", "float16", "fp8", "int8", "int4", "nvfp4", "mxfp4")
KV_DTYPES = ("auto", "bfloat16", "float16", "fp8")

_MXFP4_BITS = 4.25
"""Four bits and a shared scale of eight for 32 numbers (OCP microscaling formats, 2023)."""

_NVFP4_BITS = 4.5
"""Four bits and a shared scale of eight for 16 numbers."""


@dataclass(frozen=True)
class Precision:
    """Bits of the numbers that a preset computes with.

    Attributes:
        name: the weights' format, as `--dtype` has it.
        linear, experts: bits of a weight of dense projections and of routed experts, scales included. Embedding,
            output matrix, router and norms stay in 16 bits.
        kv: bits of a cached number.
        fp8: projections are multiplied in 8 bits (weights and activations), at the card's fp8 rate.
        flag: what `vllm serve` has to be told, empty if the checkpoint says it.
    """

    name: str
    linear: float
    experts: float
    kv: float
    fp8: bool
    flag: tuple[str, ...] = ()


def precision_of(model: Model, dtype: str = "auto", kv_cache_dtype: str = "auto") -> Precision:
    """The precision asked for; `auto` is what the model's config says, bfloat16 if it says nothing.

    Raises:
        UserError: no such dtype, or a `quantization_config` of an unknown method.
    """
    for given, known, what in ((dtype, DTYPES, "dtype"), (kv_cache_dtype, KV_DTYPES, "kv_cache_dtype")):
        if given not in known:
            raise UserError(
                f"{what} {given!r}: not known{nearest(given, known)} (choose from {', '.join(known)})"
            )
    stored = _stored(model.quantization, model.name) if model.quantization else ("bfloat16", 16.0, 16.0)
    name, linear, experts = stored if dtype == "auto" else _asked(dtype, model)
    flag: tuple[str, ...] = ()
    if name == "fp8" and stored[0] != "fp8":
        flag = ("--quantization", "fp8")
    kv = 8.0 if kv_cache_dtype == "fp8" else 16.0
    if kv_cache_dtype == "fp8":
        flag += ("--kv-cache-dtype", "fp8")
    return Precision(name, linear, experts, kv, name == "fp8", flag)


def _asked(dtype: str, model: Model) -> tuple[str, float, float]:
    if dtype == "mxfp4":
        if not model.experts:
            raise UserError(
                f"dtype 'mxfp4': {model.name} has no experts, which alone are stored so; try fp8 or int4"
            )
        return dtype, 16.0, _MXFP4_BITS
    bits = {
        "bfloat16": 16.0,
        "float16": 16.0,
        "fp8": 8.0,
        "int8": 8.0,
        "int4": _grouped(4, 128),
        "nvfp4": _NVFP4_BITS,
    }
    return dtype, bits[dtype], bits[dtype]


def _grouped(bits: float, group: int) -> float:
    """Bits of a weight whose group shares a scale of 16 bits and a zero point."""
    return bits + (16 + bits) / group


def _stored(config: Mapping[str, Any], name: str) -> tuple[str, float, float]:
    """Format and bits that a `quantization_config` states."""
    method = str(config.get("quant_method", "")).lower()
    if method in ("fp8", "fbgemm_fp8", "modelopt") and "FP4" not in str(config.get("quant_algo", "")).upper():
        return "fp8", 8.0, 8.0
    if method in ("modelopt", "modelopt_fp4"):
        return "nvfp4", _NVFP4_BITS, _NVFP4_BITS
    if method == "mxfp4":
        return "mxfp4", 16.0, _MXFP4_BITS
    if method in ("gptq", "awq", "gptq_marlin", "awq_marlin"):
        bits, group = _number(config, "bits", 4), _number(config, "group_size", 128)
        return (
            f"int{bits}",
            _grouped(bits, group if group > 0 else 4096),
            _grouped(bits, group if group > 0 else 4096),
        )
    if method == "bitsandbytes":
        stored = 4.5 if config.get("load_in_4bit") else 8.0
        return f"int{int(stored)}", stored, stored
    if method == "compressed-tensors":
        groups = config.get("config_groups") or {}
        scheme = next((g.get("weights") or {} for g in groups.values() if isinstance(g, Mapping)), {})
        bits = _number(scheme, "num_bits", 8)
        if bits == 8:
            return ("fp8" if scheme.get("type") == "float" else "int8"), 8.0, 8.0
        size = _grouped(bits, _number(scheme, "group_size", 128))
        return ("nvfp4" if scheme.get("type") == "float" else f"int{bits}"), size, size
    raise UserError(
        f"{name}: quantization_config of method {method!r} is not known; say how many bits by dtype "
        f"({', '.join(DTYPES[1:])})"
    )


def _number(config: Mapping[str, Any], key: str, default: int) -> int:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
