from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parsim.errors import UserError
from parsim.predictor.ranker.recipe import Recipe
from parsim.predictor.store.card import CARD, Card, check_name, read_card


def card() -> dict[str, Any]:
    whole = Card(
        name="mine",
        recipe=Recipe(),
        data={"source": "made up", "models": ["a"], "dropped": {"empty": 3}},
        split={},
        encoder={"sha256": ""},
        results={"test_tau_b": {"value": 0.5, "low": None, "high": None}, "best_epoch": 1},
    )
    fields: dict[str, Any] = json.loads(whole.model_dump_json())
    return fields


def written(folder: Path, fields: dict[str, Any]) -> Path:
    (folder / CARD).write_text(json.dumps(fields))
    return folder


def test_fields_that_nobody_reads_are_kept(tmp_path: Path) -> None:
    read = read_card(written(tmp_path, card()))
    assert json.loads(read.model_dump_json()) == card()
    assert read.data["dropped"] == {"empty": 3}  # type: ignore[typeddict-item]


def test_a_card_of_before_the_checksum_is_read(tmp_path: Path) -> None:
    fields = card()
    del fields["weights_sha256"], fields["results"], fields["target"]
    assert read_card(written(tmp_path, fields)).weights_sha256 == ""


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        ("format", 99, "format"),
        ("results", {"test_tau_b": None}, r"results\.test_tau_b"),
        ("results", {"test_tau_b": 3}, r"results\.test_tau_b"),
        ("results", {"test_tau_b": {"value": "high"}}, r"results\.test_tau_b\.value"),
        ("results", {"test_tau_b": {"value": 7.0}}, r"results\.test_tau_b\.value"),
        ("results", {"baseline_tau_b": {"words": 0.1}}, r"results\.baseline_tau_b\.words"),
        ("results", None, "results"),
        ("data", {"models": 5}, r"data\.models"),
        ("data", {"models": [5]}, r"data\.models"),
        ("data", {"source": 5}, r"data\.source"),
        ("encoder", {"sha256": 5}, r"encoder\.sha256"),
        ("target", [0.0, float("nan")], r"target\.1"),
        ("weights_sha256", "abc", "weights_sha256"),
        ("recipe", {"precision": "fp8"}, r"recipe\.precision"),
        ("extra", 1, "extra"),
    ],
)
def test_each_field_that_is_read_is_checked(tmp_path: Path, field: str, value: object, where: str) -> None:
    with pytest.raises(UserError, match=rf"card\.json: broken card \({where}") as caught:
        read_card(written(tmp_path, card() | {field: value}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a\n", "score,x"])
def test_a_name_that_is_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"cannot be a predictor's name .*letters, digits"):
        check_name(name, "--name")
    with pytest.raises(UserError, match=r"card\.json: name: .*cannot be a predictor's name"):
        read_card(written(tmp_path, card() | {"name": name}))


@pytest.mark.parametrize("name", ["pars-plus", "v1.2", "_x", "größe", "7"])
def test_a_name_that_is_one(name: str) -> None:
    check_name(name, "--name")
