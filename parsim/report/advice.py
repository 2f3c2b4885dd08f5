"""What to run, in words: the sentence about the very command that is printed, what else would help, and overload."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from parsim.report.page import number
from parsim.report.phrases import display, guard_words, seconds_words, times, unchanged, where
from parsim.report.verdict import NOTICEABLE, QUEUE_SHARE, Judgement, mean_of, queue_share
from parsim.stats import Interval
from parsim.sweep import cures, duration
from parsim.sweep.configuration import ENGINE_COLUMNS, POLICY_COLUMNS, configuration_columns
from parsim.sweep.results import Results
from parsim.sweep.trial import advantage, of

MANY = 0.5
"""From this share of promoted requests on the guard has turned the order into first come first served."""


def settings_of(results: Results, row: dict[str, Any]) -> str:
    """A candidate as people name it: policy, guard, and the settings that differ from the sweep's first engine."""
    own = results.select("main").row(0, named=True)
    parts = [display(results, row["policy"])]
    if results.facts["policies"][row["policy"]]["ranked"]:
        parts.append(guard_words(row["starvation_threshold_s"]))
    if row["victim"] != "last":
        parts.append(f"victim {row['victim']}")
    parts += [f"{name} {row[name]}" for name in ENGINE_COLUMNS if name in row and row[name] != own[name]]
    return f"{parts[0]} with {', '.join(parts[1:])}" if len(parts) > 1 else parts[0]


def is_default(results: Results) -> bool:
    """Whether vLLM's defaults are recommended."""
    trial = results.facts.get("trial")
    return trial is not None and trial["chosen"] == 0


def is_trying(results: Results) -> bool:
    """Whether there was no trial yet: then nothing is recommended."""
    return results.facts.get("trial") is None


def changes_engine(results: Results) -> bool:
    """Whether what is recommended runs on other settings than the sweep's first engine."""
    row, first = results.facts["decision"]["row"], results.select("main").row(0, named=True)
    return any(row[name] != first[name] for name in ENGINE_COLUMNS if name in row)


def is_judged(results: Results, policy: str) -> bool:
    """Whether the order judged is recommended as it was judged: its guard, its victim, the sweep's first engine."""
    row, own = results.facts["decision"]["row"], results.facts["policies"][policy]
    same_policy = row["policy"] == policy and all(
        row[name] == own[name] for name in ("starvation_threshold_s", "victim")
    )
    return same_policy and not changes_engine(results)


def recommended(results: Results) -> Markup:
    """What the command runs, what it gains on fresh seeds around the load, and why it was chosen."""
    if is_trying(results):
        return Markup("Nothing is recommended yet: candidates are being tried on fresh seeds.")
    trial = results.facts["trial"]
    load, objective = results.facts["focus_load"], results.facts["objective"]
    tried = trial["tried"][trial["chosen"]]
    if trial["chosen"] == 0:
        text = Markup("Recommended: vLLM's defaults, FCFS, as in the command below; ")
        better = [t for t in trial["tried"][1:] if t["broken"] and _at(t["gains"], load).value > NOTICEABLE]
        if not better:
            return text + Markup(
                "nothing that was tried on fresh seeds is shown to beat them by more than 2%."
            )
        best = max(better, key=lambda t: _at(t["gains"], load).value)
        return text + Markup(
            "nothing is shown to beat them{}. Most promising, not shown {}: {}, a gain of {} in {}; it {}."
        ).format(
            f" and to keep p99 time to first token within {bound:g}x theirs (tail_bound in the sweep file)"
            if (bound := results.facts["tail_bound"]) is not None
            else "",
            where(results, load),
            settings_of(results, best["row"]),
            _told(best, load),
            objective,
            "; ".join(best["broken"][:2]),
        )
    others = [gain for gain in tried["gains"] if gain[0] != load]
    around = Markup(" and ").join(
        Markup("{} at load {}").format(_number(gain[1], "trial gain", at=gain[0]), f"{gain[0]:g}")
        for gain in others
    )
    text = Markup("Recommended: {} {}: a gain of {} over vLLM's defaults in {}").format(
        settings_of(results, tried["row"]), where(results, load), _told(tried, load), objective
    )
    if others:
        text += Markup(" ({})").format(around)
    tail = _at(tried["tails"], load)
    if unchanged(tail):
        text += Markup("; p99 time to first token is that of the defaults")
    else:
        sides = zip(("", "low", "high"), tail, strict=True)
        text += Markup("; p99 time to first token is {} that of the defaults (95% {} to {})").format(
            *(_number(value, f"trial tail {side}") for side, value in sides)
        )
    if not tried["predictor"]:
        text += Markup("; it needs no predictor")
    count = tried["changes"]
    return text + Markup(". It changes {} of vLLM's settings. Why this one: {}.").format(
        count, trial["reason"]
    )


def adds(results: Results) -> Markup:
    """What ranking would add, on the same fresh seeds, where the recommended settings are without it."""
    columns = configuration_columns(results.results)
    trial, load, objective = results.facts["trial"], results.facts["focus_load"], results.facts["objective"]
    own = trial["tried"][trial["chosen"]]["row"]
    if trial["chosen"] == 0 or results.facts["policies"][own["policy"]]["ranked"]:
        return Markup("")
    engine = [name for name in columns if name not in POLICY_COLUMNS]
    ranked = [
        t["row"]
        for t in trial["tried"]
        if results.facts["policies"][t["row"]["policy"]]["ranked"]
        and all(t["row"][name] == own[name] for name in engine)
    ]
    found = {
        i: advantage(
            results, of(results, row, load), of(results, own, load), objective, results.facts["level"]
        )
        for i, row in enumerate(ranked)
    }
    found = {i: interval for i, interval in found.items() if interval.known}
    if not found:
        return Markup("")
    best = max(found, key=lambda i: found[i].value)
    guard, name = (
        guard_words(ranked[best]["starvation_threshold_s"]),
        display(results, ranked[best]["policy"]),
    )
    if unchanged(found[best]):
        return Markup(" On these settings {} with {} adds nothing.").format(name, guard)
    ends = zip(("", " low", " high"), found[best], strict=True)
    return Markup(" On these settings {} with {} adds {} (95% {} to {}, the same fresh seeds).").format(
        name, guard, *(_number(value, f"added gain{side}") for side, value in ends)
    )


def _at(pairs: list[list[float]], load: float) -> Interval:
    return next(Interval(*entry[1:]) for entry in pairs if entry[0] == load)


def _told(tried: dict[str, Any], load: float) -> Markup:
    found = _at(tried["gains"], load)
    return Markup("{} (95% {} to {}, fresh seeds)").format(
        _number(found.value, "trial gain", at=load),
        _number(found.low, "trial gain low", at=load),
        _number(found.high, "trial gain high", at=load),
    )


def _number(value: float, what: str, **facts: object) -> Markup:
    return number(value, times(value), what, **facts)


def waits_for(j: Judgement, results: Results) -> list[Markup]:
    """What FCFS is short of, and what else would help: each was simulated."""
    found = cures.gains(results)
    if not found or queue_share(results, j.load) < QUEUE_SHARE:
        return []
    engine = results.facts["engine"]
    names = {
        "max_num_seqs": f"{4 * engine['max_num_seqs']:,} slots",
        "num_gpu_blocks": f"twice the KV blocks ({2 * engine['num_gpu_blocks']:,})",
        "max_num_batched_tokens": f"a token budget of {4 * engine['max_num_batched_tokens']:,}",
        "replica": "another replica (half the load each)",
    }
    full = {
        "max_num_seqs": "for slots",
        "num_gpu_blocks": "for KV blocks",
        "max_num_batched_tokens": "for compute: neither slots nor KV blocks run out, steps are full",
    }
    lead = f"Under FCFS requests wait {full[results.facts['limit']]}"
    preempted = mean_of(results, "fcfs", j.load, "preemptions")
    text = Markup("{} ({} preemptions a run).").format(
        lead, number(preempted, f"{preempted:,.0f}", "mean", policy="fcfs", load=j.load, metric="preemptions")
    )
    parts = [
        Markup("{} {} ({} to {})").format(
            names[name],
            *(
                _number(value, f"cure {side}", cure=name)
                for side, value in zip(("gain", "low", "high"), found[name], strict=True)
            ),
        )
        for name in sorted(found, key=lambda name: -found[name].value)
        if not unchanged(found[name])
    ]
    same = [Markup(names[name]) for name in found if unchanged(found[name])]
    told = Markup("Simulated under FCFS, gain in mean latency per token with 95% interval: {}.").format(
        Markup("; ").join(parts)
    )
    none = Markup("Simulated under FCFS, without any effect: {}.").format(Markup("; ").join(same))
    return [text, *([told] if parts else []), *([none] if same else [])]


def lasting(j: Judgement, results: Results) -> Markup:
    """How the gain goes with the duration of the overload, with the guard and without."""
    curve = duration.curve(results)
    if curve.is_empty() or unchanged(j.gain):
        return Markup("")
    parts = []
    for (guard,), rows in curve.partition_by("guard_s", as_dict=True, maintain_order=True).items():
        told = [
            Markup("{} after {}").format(
                _number(row["gain"], "duration gain", requests=row["requests"], guard=guard),
                seconds_words(row["lasts_s"]),
            )
            for row in rows.iter_rows(named=True)
        ]
        name = guard_words(guard if isinstance(guard, float) else None)
        parts.append(Markup("with {} {}").format(name, Markup(", ").join(told)))
    text = Markup("This load is an overload; {}'s gain by how long it lasts, each over {} runs: {}.").format(
        display(results, j.policy),
        results.select("duration")["seed"].n_unique(),
        Markup("; ").join(parts),
    )
    turned = curve.filter(curve["guard_s"].is_not_null() & (curve["promoted"] >= MANY))
    if not turned.is_empty():
        row = turned.row(0, named=True)
        text += Markup(
            " By {} the guard has promoted {} of the requests: it has turned the order into first come first served, "
            "not by the ranking any more."
        ).format(
            seconds_words(row["lasts_s"]),
            number(row["promoted"], f"{row['promoted']:.0%}", "duration promoted", requests=row["requests"]),
        )
    return text
