"""The ground: what an error's line may say."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from parsim.errors import closest, first_problem, nearest


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("max_num_seq", ["max_num_seqs", "max_model_len"], "max_num_seqs"),
        ("llama-8b-a100", ["llama-8b-a10", "llama-8b-a100-40g"], "llama-8b-a100-40g"),
        ("TIMESTMP", ["timestamp", "tokens"], "timestamp"),
        ("ouput_tokens", ["Output_Tokens"], "Output_Tokens"),
        ("", ["fcfs"], None),
        ("zebra", ["fcfs", "pars"], None),
        ("fcfs", [], None),
    ],
)
def test_the_closest_name(name: str, known: list[str], meant: str | None) -> None:
    assert closest(name, known) == meant
    assert nearest(name, known) == ("" if meant is None else f"; did you mean {meant!r}?")


class _Inner(BaseModel):
    size: int


class _Outer(BaseModel):
    inner: _Inner


def test_the_first_problem_names_the_field_and_the_value() -> None:
    with pytest.raises(ValidationError) as caught:
        _Outer.model_validate({"inner": {"size": "many"}})
    assert first_problem(caught.value).startswith("inner.size: ")
    assert first_problem(caught.value).endswith("(got 'many')")
    with pytest.raises(ValidationError) as caught:
        _Outer.model_validate({"inner": {}})
    assert first_problem(caught.value) == "inner.size: Field required"
