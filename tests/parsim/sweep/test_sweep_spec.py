"""Sweep files: what they mean, and how errors in them are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import UserError
from parsim.sweep.options import apply_options
from parsim.sweep.plan import automatic_loads, main_points, resolve
from parsim.sweep.spec import dump_spec, parse_spec, read_spec
from parsim.traces import Trace, bundled_trace


def bare_trace() -> Trace:
    """The bundled trace without any score."""
    trace = bundled_trace()
    return Trace(trace.frame.drop([f"score.{name}" for name in trace.score_names]), trace.metadata)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("polices: [fcfs]", "did you mean 'policies'"),
        ("trace: {pth: x.csv}", "did you mean 'path'"),
        ("trace: {path: x.csv, bundled: true}", "exactly one of"),
        ("loads: [1, -2]", "positive"),
        ("seeds: []", "at least one"),
        ("seeds: [1, 1]", "twice"),
        ("studies: [maps]", "studies"),
        ("name: ../up", "name"),
        ("- 1", "expected fields"),
        ("a: [", "line 2: not valid YAML"),
        ("slo: {ttfb: 3}", "slo"),
        ("slo: {ttft: -3}", "greater than 0"),
        ("slo: {ttft: .nan}", "slo.ttft"),
        ("seeds: [-1]", "greater than or equal to 0"),
        ("starvation_threshold_s: [-1]", "greater than or equal to 0"),
        ("starvation_threshold_s: .nan", "starvation_threshold_s"),
        ("starvation_threshold_s: []", "at least 1"),
        ("victim: []", "at least 1"),
        ("focus_load: 1.0e+300", "less than 1000000000"),
        ("set: {max_num_seqs: []}", "max_num_seqs is an empty list: give at least one value"),
        ("objective: request_goodput", "request_goodput needs a target: add slo"),
        ("subject_to: request_goodput>=1", "request_goodput needs a target: add slo"),
    ],
)
def test_a_wrong_field_is_one_clear_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(text + "\n")
    with pytest.raises(UserError) as error:
        read_spec(file)
    assert said in str(error.value)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_or_a_missing_file_is_told(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(UserError, match="cannot be read as a sweep file"):
            read_spec(path)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"policies": ["parss"]}, "did you mean 'pars'"),
        ({"policies": ["oracle"]}, "fcfs is missing, which every gain is measured against; add it"),
        ({"policies": ["fcfs", "emulated(tau=0.5)", "emulated(tau=.50)"]}, "is there already; delete one"),
        ({"set": {"max_num_seq": 3}}, "did you mean 'max_num_seqs'"),
        ({"engine": "llama-3.1-8b-a100"}, "did you mean"),
        ({"emulate": {"par": 0.5}}, "did you mean 'pars'"),
        ({"emulate": {"pars": 1.5}}, "between -1 and 1"),
        (
            {"policies": ["fcfs", "hrrn"], "emulate": {"hrrn": 0.5}},
            "emulate.hrrn: .* has no predictor to emulate",
        ),
        ({"set": {"max_num_seqs": [8, -1]}}, "max_num_seqs"),
    ],
)
def test_what_the_sweep_asks_for_must_exist(fields: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        resolve(parse_spec(fields, "s.yaml"), bare_trace())


@pytest.mark.parametrize(
    ("file", "name"),
    [("my sweep.yaml", "my-sweep"), ("é ✓.yaml", "sweep"), ("-x.yaml", "x"), ("a[1]*.yaml", "a-1-")],
)
def test_a_sweep_without_a_name_is_named_after_its_file(tmp_path: Path, file: str, name: str) -> None:
    path = tmp_path / file
    path.write_text("loads: [1]\n")
    assert read_spec(path).name == name
    assert apply_options(None, trace=str(path.with_suffix(".csv"))).name == name


def test_a_set_option_that_is_no_value_is_told() -> None:
    spec = apply_options(None, set=["max_num_seqs=[1"])
    with pytest.raises(
        UserError, match=r"max_num_seqs: .*unable to parse string as an integer \(got '\[1'\)"
    ):
        resolve(spec, bare_trace())


def test_the_resolved_file_reads_back_as_itself(tmp_path: Path) -> None:
    spec = parse_spec({"name": "a", "seeds": 3, "set": {"max_num_seqs": [8, 16]}, "slo": {"ttft": 100}}, "x")
    file = tmp_path / "resolved.yaml"
    file.write_text(dump_spec(spec))
    assert read_spec(file) == spec


def test_options_replace_fields_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("loads: [1, 2]\nset: {max_num_seqs: 8}\n")
    spec = apply_options(
        file, loads="0.5", set=["block_size=16,32"], slo=["ttft:100 tpot:20"], trace="a/b c.csv"
    )
    assert spec.name == "mine"
    assert spec.loads == (0.5,)
    assert spec.set == {"max_num_seqs": 8, "block_size": [16, 32]}
    assert spec.limits == {"ttft": 100.0, "tpot": 20.0}
    assert apply_options(None, trace="a/b c.csv").name == "b-c"
    with pytest.raises(UserError, match="KEY=VALUE"):
        apply_options(None, set=["max_num_seqs"])


def test_lists_make_a_grid_and_the_first_values_are_the_base() -> None:
    fields = {
        "set": {"max_num_seqs": [8, 16], "num_gpu_blocks": 500, "block_size": [16, 32]},
        "policies": ["fcfs", "oracle"],
        "starvation_threshold_s": [30, None],
        "victim": ["last", "worst"],
    }
    grid = resolve(parse_spec(fields, "x"), bare_trace())
    assert [changed for changed, _ in grid.engines] == [
        {"max_num_seqs": s, "block_size": b} for s in (8, 16) for b in (16, 32)
    ]
    assert all(engine.num_gpu_blocks == 500 for _, engine in grid.engines)
    assert [(p.name, p.starvation_threshold_s, p.victim) for p in grid.policies] == [
        ("fcfs", None, "last"),
        ("fcfs", None, "worst"),
        ("oracle", 30, "last"),
        ("oracle", 30, "worst"),
        ("oracle", None, "last"),
        ("oracle", None, "worst"),
    ]
    assert grid.base["oracle"].starvation_threshold_s == 30
    points = main_points(grid, [1.0, 2.0], [0, 1, 2])
    assert len(points) == 4 * 6 * 2 * 3
    assert len({point.key("trace", {}, None) for point in points}) == len(points)


def test_a_missing_score_is_emulated_and_says_so() -> None:
    grid = resolve(parse_spec({"policies": ["fcfs", "pars"], "emulate": {"pars": 0.4}}, "x"), bare_trace())
    assert grid.emulated == {"pars": 0.4}
    assert grid.base["pars"].label == "pars (emulated, tau 0.40)"
    assert not grid.tau_range and not grid.left_out


def test_without_scores_and_a_stated_tau_a_range_of_tau_is_shown() -> None:
    grid = resolve(parse_spec({}, "x"), bare_trace())
    assert grid.emulated["pars"] == 0.4
    assert [grid.base[name].emulated_tau for name in grid.tau_range] == [0.2, 0.6]
    assert not any(grid.base[name].runs_in_vllm for name in grid.tau_range)
    assert set(grid.left_out) == {"pointwise", "listwise"}  # without scores the same emulation as pars
    assert grid.candidate is not None and grid.candidate.name == "pars"


def test_automatic_loads_span_idle_to_overload_and_hold_the_traces_own() -> None:
    loads = automatic_loads(capacity_rps=20.0, rate_rps=10.0)
    assert loads == tuple(sorted(loads))
    assert loads[0] == 1.0 or loads[0] < 1.0
    assert 1.0 in loads
    assert min(loads) * 10 <= 0.5 * 20 and max(loads) * 10 >= 1.5 * 20
