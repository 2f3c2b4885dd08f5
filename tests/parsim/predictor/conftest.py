"""A tiny encoder with random weights, made on the spot, and a corpus that it can learn."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parsim.predictor.corpora.corpus import Labelled

os.environ["HF_HUB_OFFLINE"] = "1"

WORDS = (
    "list",
    "essay",
    "name",
    "story",
    "long",
    "short",
    "the",
    "a",
    "of",
    "about",
    "cats",
    "rain",
    "ships",
    "war",
)


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a BERT with two layers of 32 and a vocabulary of words and letters."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.set_num_threads(1)
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    letters = [chr(code) for code in range(33, 127)]
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = [*marks, *WORDS, *letters, *("##" + letter for letter in letters)]
    tokenizer = Tokenizer(
        models.WordPiece({word: row for row, word in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    folder = tmp_path_factory.mktemp("encoder")
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def changing_encoder(tiny_encoder: str, tmp_path: Path) -> tuple[str, Callable[[], None]]:
    """Folder of a copy of `tiny_encoder`, and what gives it other weights."""
    folder = tmp_path / "encoder"
    shutil.copytree(tiny_encoder, folder)

    def change() -> None:
        from safetensors.torch import load_file, save_file

        tensors = load_file(folder / "model.safetensors")
        tensors[min(tensors)] = tensors[min(tensors)] + 0.5
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return str(folder), change


@pytest.fixture(scope="session")
def learnable() -> Labelled:
    """240 distinct prompts whose length is told by their first word, with noise."""
    rng = np.random.default_rng(7)
    base = {"name": 5.0, "list": 40.0, "essay": 300.0, "story": 900.0}
    prompts, lengths = [], []
    for number in range(240):
        kind = rng.choice(list(base))
        tail = " ".join(rng.choice(WORDS[4:], size=4))
        prompts.append(f"{kind} {tail} {number}")
        lengths.append(base[kind] * rng.uniform(0.8, 1.25))
    return Labelled(prompts, np.array(lengths), np.zeros(240, dtype=bool), ["made up"] * 240)


@pytest.fixture
def corpus_file(tmp_path: Path, learnable: Labelled) -> Path:
    """`learnable` as a JSONL file in the project's own layout."""
    import polars as pl

    file = tmp_path / "corpus.jsonl"
    frame = pl.DataFrame(
        {"prompt": learnable.prompts, "output_tokens": learnable.lengths.round().astype(int)}
    )
    frame.write_ndjson(file)
    return file
