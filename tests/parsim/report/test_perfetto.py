"""The exported trace: valid events, times as in the run, one request at a time on a track."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from parsim.engine import load_engine
from parsim.report.perfetto import write_perfetto
from parsim.scheduler.policy import parse_policy
from parsim.simulation import simulate
from parsim.traces import Trace, bundled_trace


def test_a_run_is_exported_whole(tmp_path: Path) -> None:
    whole = bundled_trace()
    trace = Trace(whole.frame.head(60), whole.metadata)
    run = simulate(
        trace, load_engine("llama-3.1-8b-a100-80g", {"max_num_seqs": 4}), parse_policy("oracle"), steps="log"
    )
    path = tmp_path / "run.json"
    write_perfetto(run, path)
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    slices = [e for e in events if e["ph"] == "X" and e["pid"] == 2]
    row = run.requests.filter(run.requests["request_id"] == slices[0]["args"]["request_id"]).row(
        0, named=True
    )
    mine = {e["cat"]: e for e in slices if e["args"]["request_id"] == row["request_id"]}
    assert mine["decode"]["ts"] == row["first_token_s"] * 1e6
    assert abs(mine["decode"]["ts"] + mine["decode"]["dur"] - row["finish_s"] * 1e6) < 1e-3
    assert len({e["args"]["request_id"] for e in slices}) == 60

    tracks = defaultdict(list)
    for e in slices:
        tracks[e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for spans in tracks.values():
        spans.sort()
        assert all(before[1] <= after[0] + 1e-3 for before, after in pairwise(spans))

    assert run.steps is not None
    steps = [e for e in events if e["ph"] == "X" and e["pid"] == 1]
    assert len(steps) == run.steps.height
    counters = [e for e in events if e["name"] == "requests" and e["ph"] == "C"]
    assert max(c["args"]["running"] for c in counters) == 4
