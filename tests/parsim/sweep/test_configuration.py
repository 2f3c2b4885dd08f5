"""Any engine field that a sweep varies is decided, recommended, printed, validated and shown."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from parsim.report.build import write_report
from parsim.sweep.choice import SETTINGS
from parsim.sweep.run import run_sweep
from parsim.sweep.spec import parse_spec
from parsim.validate.live.engine_settings import SETTABLE
from parsim.validate.tiers.auto import read_choice, scaled

OBJECTIVE = "mean_ttft_ms"
ENGINE = {
    "max_num_seqs": 16,
    "max_num_batched_tokens": 512,
    "num_gpu_blocks": 400,
    "max_model_len": 512,
    "step_time": {"base_s": 0.01, "prefill_token_s": 0.0001, "decode_seq_s": 0.001, "kv_token_s": 0.00001},
}


def drawn(name: str, rng: random.Random) -> list[Any]:
    """Two values of a field."""
    own: dict[str, Any] = {
        "watermark": [0.0, round(rng.uniform(0.2, 0.6), 2)],
        "max_model_len": [512, rng.randint(400, 500)],
        "block_size": rng.sample([8, 16, 32], 2),
        "long_prefill_token_threshold": [rng.randint(4, 16), 0],
        "max_num_batched_tokens": [rng.randint(600, 900), rng.randint(16, 64)],
        "max_num_seqs": rng.sample([2, 3, 5, 9], 2),
        "num_gpu_blocks": [rng.randint(40, 60), rng.randint(200, 300)],
    }
    values = own.get(name, [True, False])
    rng.shuffle(values)
    return values


@pytest.mark.deep
@pytest.mark.parametrize("name", SETTINGS)
def test_a_swept_field_is_decided_and_told_everywhere(name: str, tmp_path: Path) -> None:
    rng = random.Random(f"{name} 1")
    values = drawn(name, rng)
    (tmp_path / "engine.json").write_text(json.dumps(ENGINE))
    fields = {
        "name": "swept",
        "trace": {
            "synthesize": {
                "arrivals": "poisson(rate=20)",
                "lengths": {"prompt_mean": 100, "output_mean": 20},
                "n": 60,
            }
        },
        "engine": str(tmp_path / "engine.json"),
        "set": {
            name: values,
            **({"max_num_batched_tokens": 512} if name == "enable_chunked_prefill" else {}),
        },
        "policies": ["fcfs"],
        "loads": [1],
        "seeds": [0, 1],
        "studies": [],
        "objective": OBJECTIVE,
    }
    results = run_sweep(parse_spec(fields, "s.yaml"), tmp_path / "out", Console(quiet=True), jobs=1)
    means = {value: results.select("main", **{name: value})[OBJECTIVE].mean() for value in values}
    assert results.select("main")[name].n_unique() == 2
    best = min(means, key=lambda value: means[value])
    close = [value for value in values if means[value] <= 1.02 * means[best]]
    chosen = results.facts["decision"]["row"][name]
    assert chosen == (values[0] if values[0] in close else best)
    assert json.loads((tmp_path / "out" / "choice.json").read_text())["engine"][name] == chosen
    flag = "num-gpu-blocks-override" if name == "num_gpu_blocks" else name.replace("_", "-")
    assert f"--{flag}" in results.facts["command"] or f"--no-{flag}" in results.facts["command"]
    page = write_report(tmp_path / "out", results).read_text()
    front = page[page.index("<dl>") : page.index("</dl>")]
    assert f"<dt>{name}</dt>" in front
    settings = page[page.index('id="settings"') :]
    assert f"<button>{name}" in settings
    if name in SETTABLE:
        assert scaled(read_choice(tmp_path / "out").engine, "gpu")[0][name] == chosen
