"""What an encoder must do, found out when it is opened and not in the middle of a training."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parsim.errors import UserError
from parsim.predictor.ranker.recipe import Recipe

pytestmark = pytest.mark.predictor
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from parsim.predictor.ranker.encoder import MissingEncoder, load_encoder  # noqa: E402
from parsim.predictor.ranker.model import Ranker  # noqa: E402

WORDS = 206
SMALL = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}


def bert() -> Any:
    return transformers.BertModel(transformers.BertConfig(**SMALL, max_position_embeddings=64))


def roberta() -> Any:
    """Of its positions the first two are those of padding."""
    config = transformers.RobertaConfig(**SMALL, max_position_embeddings=66, pad_token_id=1)
    return transformers.RobertaModel(config)


def deberta() -> Any:
    """Positions are relative: no limit, whatever `max_position_embeddings` says."""
    config = transformers.DebertaV2Config(
        **SMALL,
        max_position_embeddings=64,
        relative_attention=True,
        position_biased_input=False,
        pos_att_type="p2c|c2p",
        position_buckets=16,
    )
    return transformers.DebertaV2Model(config)


def distilbert() -> Any:
    config = transformers.DistilBertConfig(vocab_size=WORDS, dim=32, n_layers=1, n_heads=2, hidden_dim=64)
    return transformers.DistilBertModel(config)


def gpt2() -> Any:
    return transformers.GPT2Model(
        transformers.GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=1, n_head=2, n_positions=64)
    )


def t5() -> Any:
    return transformers.T5Model(
        transformers.T5Config(vocab_size=WORDS, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2)
    )


def image_model() -> Any:
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    return transformers.ViTModel(config)


def bert_without_pooler() -> Any:
    return transformers.BertModel(transformers.BertConfig(**SMALL), add_pooling_layer=False)


def bert_of_few_words() -> Any:
    return transformers.BertModel(transformers.BertConfig(**{**SMALL, "vocab_size": 20}))


@pytest.fixture
def opened(tiny_encoder: str, tmp_path: Path) -> Callable[..., Ranker]:
    """Save a model beside the tiny tokenizer and open it by a recipe."""

    def open_(model: Any, **changes: Any) -> Ranker:
        folder = tmp_path / "encoder"
        shutil.copytree(tiny_encoder, folder, ignore=shutil.ignore_patterns("config.json", "*.safetensors"))
        model.save_pretrained(folder)
        recipe = Recipe.model_validate(
            {"encoder": str(folder), "max_length": 16, "precision": "fp32"} | changes
        )
        return Ranker(load_encoder(str(folder)), recipe)

    return open_


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (bert, {"max_length": 64}),
        (bert, {"pooling": "pooled"}),
        (roberta, {"max_length": 64}),
        (deberta, {"max_length": 200}),
        (distilbert, {"tuning": "lora"}),
        (gpt2, {"tuning": "frozen", "pooling": "mean"}),
        (bert_without_pooler, {}),
        (bert_without_pooler, {"pooling": "pooled"}),
    ],
)
def test_what_can_be_used(opened: Callable[..., Ranker], make: Any, changes: dict[str, Any]) -> None:
    ranker = opened(make(), **changes)
    assert len(ranker.score(["name cats " * 100, "x"])) == 2


@pytest.mark.parametrize(
    ("make", "changes", "words"),
    [
        (t5, {}, r"encoder '.*' \(T5Model\): cannot encode a prompt \(.*\); name a text encoder"),
        (image_model, {}, r"\(ViTModel\): cannot encode a prompt"),
        (distilbert, {"pooling": "pooled"}, r"pooling=pooled: .* has no pooled output; set pooling=cls"),
        (
            bert_without_pooler,
            {"pooling": "pooled", "tuning": "lora"},
            r"lack its pooler \(pooler\.dense\.bias\), and tuning=lora does not train one",
        ),
        (gpt2, {"tuning": "lora"}, r"tuning=lora: .*\(GPT2Model\) has no linear layers .*tuning=full"),
        (bert, {"max_length": 65}, r"max_length=65: .*\(BertModel\) takes at most 64 tokens; lower it"),
        (bert, {"max_length": 10**12}, "takes at most 64 tokens"),
        (bert, {"max_length": 65, "truncation": "head-tail"}, "takes at most 64 tokens"),
        (roberta, {"max_length": 65}, r"max_length=65: .*\(RobertaModel\) takes at most 64 tokens"),
        (gpt2, {"max_length": 65}, "takes at most 64 tokens"),
        (bert_of_few_words, {}, r"its tokenizer has \d+ tokens, the encoder embeds 20"),
    ],
)
def test_what_cannot_is_refused_when_it_is_opened(
    opened: Callable[..., Ranker], make: Any, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words) as caught:
        opened(make(), **changes)
    assert "\n" not in str(caught.value)


def test_the_trial_draws_no_random_numbers(tiny_encoder: str) -> None:
    from parsim.predictor.ranker.trial import try_out

    encoder, recipe = load_encoder(tiny_encoder), Recipe(encoder=tiny_encoder)
    before = torch.get_rng_state()
    try_out(encoder, recipe)
    assert torch.equal(before, torch.get_rng_state())


def without(folder: Path, part: str) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    left = {name: value for name, value in tensors.items() if part not in name}
    save_file(left, folder / "model.safetensors", metadata={"format": "pt"})


def not_a_number(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = {name: value * float("nan") for name, value in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def unknown(folder: Path) -> None:
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(fields | {"model_type": "zzz"}))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, r"encoder folder .*: cannot be read \(.*not fully covered\); get it anew"),
        (unknown, r"cannot be read \(.*`zzz`"),
        (lambda folder: (folder / "config.json").write_text("{"), r"cannot be read \(.*not a valid JSON"),
        (lambda folder: without(folder, "layer.1."), r"its weights lack 16 .* such as encoder\.layer\.1\."),
        (not_a_number, "hidden states that are no finite numbers; get its weights anew"),
        (
            lambda folder: [file.unlink() for file in folder.glob("tokenizer*")],
            r"has no tokenizer \(its vocabulary holds no word\); save the one .*save_pretrained",
        ),
    ],
    ids=["cut", "unknown type", "cut config", "a layer less", "not a number", "no tokenizer"],
)
def test_a_damaged_folder_is_one_clear_line(
    tiny_encoder: str, tmp_path: Path, damage: Callable[[Path], object], words: str
) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(tiny_encoder, folder)
    damage(folder)
    with pytest.raises(UserError, match=words) as caught:
        Ranker(load_encoder(str(folder)), Recipe(encoder=str(folder), max_length=16))
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)


def test_what_the_hub_has_but_cannot_be_read_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("zzz")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", broken)
    with pytest.raises(MissingEncoder, match=r"encoder 'some/model': cannot be read \('zzz'\)"):
        load_encoder("some/model")
